import { type Note, note } from '../catalog/notes.ts';
import { ANNOTATION, ANNOTATION_PREFIX } from '../catalog/vocabulary.ts';
import { type Labels, labelOf } from '../cluster/selector.ts';
import { AVAILABLE_HOOKS, EXISTING_HOOK_RULES, HOLD_UNAVAILABLE, MODES } from '../schema/choices.ts';
import { DURATION_HINT, parseDuration } from '../schema/duration.ts';
import type { Field, Layer, PolicyValues } from './values.ts';

/** What the annotations of one object say, and what is wrong with them. */
export interface AnnotationLayer {
  readonly layer: Layer;
  readonly notes: readonly Note[];
}

type Values = { -readonly [F in Field]?: PolicyValues[F] };

/** Reads one annotation into `values`; returns what was expected when it does not parse. */
type Reader = (text: string, values: Values) => string | undefined;

const READERS: Readonly<Record<string, Reader>> = {
  [ANNOTATION.inject]: readInject,
  [ANNOTATION.mode]: (text, values) => readOneOf(MODES, text, (mode) => (values.mode = mode)),
  [ANNOTATION.wait]: readWait,
  [ANNOTATION.hook]: readHook,
  [ANNOTATION.containers]: readContainers,
  [ANNOTATION.existingHook]: (text, values) =>
    readOneOf(EXISTING_HOOK_RULES, text, (rule) => (values.existingHook = rule)),
};

/** Which annotation set a field; several fields can come from one annotation. */
const SOURCE_OF: { readonly [F in Field]?: string } = {
  inject: ANNOTATION.inject,
  mode: ANNOTATION.mode,
  'wait.from': ANNOTATION.wait,
  'wait.fixed': ANNOTATION.wait,
  hook: ANNOTATION.hook,
  containers: ANNOTATION.containers,
  existingHook: ANNOTATION.existingHook,
};

/**
 * The layer that an object's linger.dev annotations make. A value that does not parse is left out and noted: it
 * must never block a pod. `linger.dev/inject` also counts as a label, where the API server can select on it; of
 * two contradicting ones on the same object, false wins, since taking part must be the safe choice to refuse.
 * @param owner the object, as origins name it: `Pod` or `Namespace/shop`
 * @returns undefined when the object says nothing
 */
export function annotationLayer(
  owner: string,
  annotations: Labels,
  labels: Labels,
): AnnotationLayer | undefined {
  const values: Values = {};
  const notes: Note[] = [];
  for (const key in annotations) {
    if (!key.startsWith(ANNOTATION_PREFIX) || key === ANNOTATION.plan) continue;
    read(owner, key, String(annotations[key]), values, notes);
  }
  const label = labelOf(labels, ANNOTATION.inject);
  if (label !== undefined) {
    const fromAnnotation = values.inject;
    read(owner, ANNOTATION.inject, label, values, notes);
    if (fromAnnotation === false) values.inject = false;
  }
  if (notes.length === 0 && Object.keys(values).length === 0) return undefined;
  return {
    layer: { values, originOf: (field) => `${owner} ${SOURCE_OF[field] ?? field}` },
    notes,
  };
}

function read(owner: string, key: string, text: string, values: Values, notes: Note[]): void {
  const reader = Object.hasOwn(READERS, key) ? READERS[key] : undefined;
  if (reader === undefined) {
    const known = Object.keys(READERS).join(', ');
    notes.push(
      note('UnknownAnnotation', `${owner}: ${shorten(key)} is not known and ignored; known are ${known}`),
    );
    return;
  }
  const expected = reader(text.trim(), values);
  if (expected !== undefined) {
    notes.push(
      note(
        'InvalidAnnotation',
        `${owner}: ${key}: expected ${expected}, got "${shorten(text)}"; ignored`,
        key,
      ),
    );
  }
}

function shorten(text: string): string {
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}

/** The forms of Go's strconv.ParseBool, which other annotations of the ecosystem take too. */
const BOOLEANS: Readonly<Record<string, boolean>> = {
  '1': true,
  t: true,
  T: true,
  true: true,
  TRUE: true,
  True: true,
  '0': false,
  f: false,
  F: false,
  false: false,
  FALSE: false,
  False: false,
};

function readInject(text: string, values: Values): string | undefined {
  const value = Object.hasOwn(BOOLEANS, text) ? BOOLEANS[text] : undefined;
  if (value === undefined) return '"true" or "false"';
  values.inject = value;
  return undefined;
}

function readWait(text: string, values: Values): string | undefined {
  const seconds = parseDuration(text);
  if (seconds === undefined) return DURATION_HINT;
  values['wait.from'] = 'Fixed';
  values['wait.fixed'] = seconds;
  return undefined;
}

function readHook(text: string, values: Values): string | undefined {
  if (text === 'Hold') return `Auto, Sleep or Exec (${HOLD_UNAVAILABLE})`;
  return readOneOf(AVAILABLE_HOOKS, text, (hook) => (values.hook = hook));
}

function readContainers(text: string, values: Values): string | undefined {
  const names = text
    .split(',')
    .map((name) => name.trim())
    .filter((name) => name !== '');
  if (names.length === 0) return 'container names, separated by commas';
  values.containers = names;
  return undefined;
}

function readOneOf<T extends string>(
  known: readonly T[],
  text: string,
  take: (value: T) => void,
): string | undefined {
  const value = known.find((each) => each === text);
  if (value === undefined) return known.join(', ').replace(/, ([^,]*)$/, ' or $1');
  take(value);
  return undefined;
}
