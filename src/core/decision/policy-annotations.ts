import {
  ANNOTATION,
  ANNOTATION_PREFIX,
  DURATION_HINT,
  EXISTING_HOOK_RULES,
  fewOf,
  HOOK_CHOICES,
  type Labels,
  labelOf,
  MODES,
  parseDuration,
} from '../api/index.ts';
import { POD_LIMITS } from './pod.ts';
import type { Field, Layer, PolicyValues } from './policy-values.ts';
import { type Note, note } from './reasons.ts';

interface AnnotationReader {
  /** @returns a message with what was expected, where the text does not parse */
  read(text: string): Partial<PolicyValues> | string;
  /** This annotation can only make the policy stricter, so an unreadable value keeps the pod in Audit. */
  readonly restrains?: true;
}

const READERS: Readonly<Record<string, AnnotationReader>> = {
  [ANNOTATION.inject]: {
    restrains: true,
    // The forms of Go's strconv.ParseBool, as other annotations of the ecosystem accept them.
    read: (text) => {
      if (/^(1|t|T|true|TRUE|True)$/.test(text)) return { inject: true };
      return /^(0|f|F|false|FALSE|False)$/.test(text) ? { inject: false } : '"true" or "false"';
    },
  },
  [ANNOTATION.mode]: { read: choiceReader('mode', MODES), restrains: true },
  [ANNOTATION.wait]: {
    read: (text) => {
      const seconds = parseDuration(text);
      return seconds === undefined ? DURATION_HINT : { 'wait.from': 'Fixed', 'wait.fixed': seconds };
    },
  },
  [ANNOTATION.hook]: { read: choiceReader('hook', HOOK_CHOICES) },
  [ANNOTATION.containers]: { read: readContainers },
  [ANNOTATION.existingHook]: { read: choiceReader('existingHook', EXISTING_HOOK_RULES) },
};

function choiceReader<F extends Field>(
  field: F,
  known: readonly (PolicyValues[F] & string)[],
): AnnotationReader['read'] {
  return (text) => {
    const value = known.find((each) => each.toLowerCase() === text.toLowerCase());
    if (value === undefined) return known.join(', ').replace(/, ([^,]*)$/, ' or $1');
    return { [field]: value } as Partial<PolicyValues>;
  };
}

/** Room for the names of as many containers as a pod may have, of 63 characters each, and their commas. */
const NAMES_MAX_LENGTH = POD_LIMITS.containers * 64;

function readContainers(text: string): Partial<PolicyValues> | string {
  const tooMany = `at most ${POD_LIMITS.containers} container names`;
  if (text.length > NAMES_MAX_LENGTH) return tooMany;
  const names = text
    .split(',')
    .map((name) => name.trim())
    .filter(Boolean);
  if (names.length > POD_LIMITS.containers) return tooMany;
  return names.length === 0 ? 'container names, separated by commas' : { containers: names };
}

/** Annotations that Linger writes itself; they set no policy. */
const WRITTEN: ReadonlySet<string> = new Set([ANNOTATION.plan, ANNOTATION.holdToken]);

/** The policy layers from one object's annotations, and the problems found in them. */
interface AnnotationLayers {
  readonly layers: readonly Layer[];
  readonly restrainedBy: string | undefined;
  readonly notes: readonly Note[];
}

const NOTHING_SAID: AnnotationLayers = { layers: [], restrainedBy: undefined, notes: [] };

/**
 * The layers from one object's linger.dev annotations. A value that does not parse is ignored and noted, because it must
 * never block a pod. `linger.dev/inject` is also read as a label, on which the API server can select; if label and
 * annotation of one object contradict each other, false wins, because opting out must always work.
 * @param owner the object, as origins name it: `Pod` or `Namespace/shop`
 */
export function annotationLayers(owner: string, annotations: Labels, labels: Labels): AnnotationLayers {
  const keys: string[] = [];
  for (const key in annotations) if (key.startsWith(ANNOTATION_PREFIX) && !WRITTEN.has(key)) keys.push(key);
  const label = labelOf(labels, ANNOTATION.inject);
  if (keys.length === 0 && label === undefined) return NOTHING_SAID;
  const layers = new Map<string, Layer>();
  const notes: Note[] = [];
  const unknown: string[] = [];
  let restrainedBy: string | undefined;
  const read = (key: string, text: string) => {
    const reader = Object.hasOwn(READERS, key) ? READERS[key] : undefined;
    const values = reader?.read(text.trim());
    if (reader === undefined || values === undefined) unknown.push(key);
    else if (typeof values !== 'string') layers.set(key, { values, origin: `${owner} ${key}` });
    else {
      const effect = reader.restrains ? 'the pod is kept in Audit' : 'ignored';
      if (reader.restrains) restrainedBy ??= key;
      const said = `${owner}: ${key}: expected ${values}, got "${shorten(text)}"; ${effect}`;
      notes.push(note('InvalidAnnotation', said, key));
    }
  };
  for (const key of keys) read(key, String(annotations[key]));
  if (label !== undefined) {
    const annotation = layers.get(ANNOTATION.inject);
    read(ANNOTATION.inject, label);
    if (annotation?.values.inject === false) layers.set(ANNOTATION.inject, annotation);
  }
  // A single note for all of them: a pod has room for 20,000, and notes stay in memory until metrics have counted them.
  if (unknown.length > 0) {
    const isOne = unknown.length === 1;
    const known = Object.keys(READERS).join(', ');
    const text = `${owner}: ${fewOf(unknown.map(shorten))} ${isOne ? 'is' : 'are'} not known and ignored; known are ${known}`;
    notes.push(note('UnknownAnnotation', text));
  }
  return { layers: [...layers.values()], restrainedBy, notes };
}

function shorten(text: string): string {
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}
