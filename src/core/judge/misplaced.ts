import { ANNOTATION_PREFIX, fewOf, isRecord, memberAt } from '../api/index.ts';
import type { Workload } from '../decision/index.ts';

/** Something in a workload that has no effect where it stands. */
export interface Misplaced {
  readonly code: 'AnnotationMisplaced' | 'FieldMisplaced';
  readonly text: string;
}

/** The fields by which a pod waits; `fits` is asked with the path of what they stand in, from the pod on. */
const FIELDS: readonly {
  readonly name: string;
  readonly fits: (parent: string) => boolean;
  readonly belongs: string;
}[] = [
  {
    name: 'terminationGracePeriodSeconds',
    fits: (parent) => parent === 'spec' || /\.(livenessProbe|startupProbe)$/.test(parent),
    belongs: 'the spec of the pod',
  },
  {
    name: 'lifecycle',
    fits: (parent) => /^spec\.(containers|initContainers|ephemeralContainers)\[\d+\]$/.test(parent),
    belongs: 'each container',
  },
  { name: 'preStop', fits: (parent) => parent.endsWith('.lifecycle'), belongs: 'lifecycle of a container' },
];

/** Free-form data, or fields without effect on termination. */
const NOT_ENTERED: ReadonlySet<string> = new Set([
  ...['metadata', 'status', 'env', 'args', 'command', 'nodeSelector', 'volumes', 'volumeClaimTemplates'],
  ...['selector', 'affinity', 'tolerations'],
]);
const DEEPEST = 12;

/** Fields and annotations in the wrong place, where the API server drops them or no component reads them. */
export function misplacedIn({ kind, pointer }: Workload, object: unknown): readonly Misplaced[] {
  return [...annotations(kind, pointer, object), ...fields(pointer, object)];
}

/** Pods do not inherit their workload's annotations. */
function annotations(kind: string, pointer: string, object: unknown): readonly Misplaced[] {
  const own = memberAt(object, ['metadata', 'annotations']);
  if (pointer === '' || !isRecord(own)) return [];
  const keys = Object.keys(own).filter((key) => key.startsWith(ANNOTATION_PREFIX));
  if (keys.length === 0) return [];
  const place = `${dotted(pointer)}.metadata.annotations`;
  const text = `${fewOf(keys)} on the ${kind} itself has no effect: it belongs in ${place}`;
  return [{ code: 'AnnotationMisplaced', text }];
}

function fields(pointer: string, object: unknown): readonly Misplaced[] {
  const pod = dotted(pointer);
  const found = new Map<string, string[]>();
  // OpenKruise's workloads have a lifecycle of their own.
  const isKruise = String(memberAt(object, ['apiVersion'])).startsWith('apps.kruise.io/');
  const walk = (value: unknown, path: string, depth: number): void => {
    if (depth > DEEPEST || typeof value !== 'object' || value === null) return;
    if (Array.isArray(value)) {
      for (const [index, item] of value.entries()) walk(item, `${path}[${index}]`, depth + 1);
      return;
    }
    for (const [key, member] of Object.entries(value)) {
      const place = path === '' ? key : `${path}.${key}`;
      const field = FIELDS.find(({ name }) => name.toLowerCase() === key.toLowerCase());
      if (field === undefined) {
        if (!NOT_ENTERED.has(key)) walk(member, place, depth + 1);
        continue;
      }
      const { name, fits, belongs } = field;
      const within = pod === '' ? path : path.startsWith(`${pod}.`) ? path.slice(pod.length + 1) : '?';
      if (name === 'lifecycle' && isKruise && path === 'spec') continue;
      if (key === name && fits(within)) walk(member, place, depth + 1);
      else {
        const why = key === name ? `it belongs in ${belongs}` : `it is spelt ${name}`;
        found.set(why, [...(found.get(why) ?? []), place]);
      }
    }
  };
  walk(object, '', 0);
  // One text: an audit has one line for each finding of a workload.
  const texts = [...found].map(([why, places]) => `${fewOf(places)} has no effect: ${why}`);
  return texts.length === 0 ? [] : [{ code: 'FieldMisplaced', text: texts.join('; ') }];
}

function dotted(pointer: string): string {
  return pointer.slice(1).replaceAll('/', '.');
}
