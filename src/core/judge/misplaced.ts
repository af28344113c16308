import { ANNOTATION_PREFIX, atPointer, fewOf, isRecord, memberAt, textOf } from '../api/index.ts';
import { type Workload, workloadOf } from '../decision/index.ts';

/** A field or annotation that has no effect where it is. */
export interface Misplaced {
  readonly code: 'AnnotationMisplaced' | 'FieldMisplaced';
  readonly text: string;
}

/** A place within an object, as a dotted path from the object and from the pod; `?`: not within the pod. */
interface Parent {
  readonly kind: string;
  readonly whole: string;
  readonly pod: string;
}

/** A field that affects how a pod waits or how a rollout proceeds. */
interface Field {
  readonly name: string;
  /** Whether the schema allows it there. */
  readonly fits: (parent: Parent) => boolean;
  readonly belongs: (kind: string) => string;
  /** Look for it only in pods, because elsewhere a schema may use the name for something else. */
  readonly within?: 'the pod';
}

const PACED = /^(Deployment|ReplicaSet|ReplicationController|StatefulSet|DaemonSet|Rollout|CloneSet)$/;
const UPDATED = /^(StatefulSet|DaemonSet|CloneSet)$/;

const ofWorkload = () => 'the spec of the workload';

/** Source: k8s.io/api core/v1 and apps/v1, argo-rollouts pkg/apis/rollouts/v1alpha1, kruise apis/apps. */
const FIELDS: readonly Field[] = [
  {
    name: 'terminationGracePeriodSeconds',
    fits: ({ pod }) => pod === 'spec' || /\.(livenessProbe|startupProbe)$/.test(pod),
    belongs: () => 'the spec of the pod',
  },
  {
    name: 'lifecycle',
    fits: ({ pod }) => /^spec\.(containers|initContainers|ephemeralContainers)\[\d+\]$/.test(pod),
    belongs: () => 'each container',
  },
  {
    name: 'preStop',
    fits: ({ pod }) => pod.endsWith('.lifecycle'),
    belongs: () => 'lifecycle of a container',
  },
  {
    name: 'minReadySeconds',
    fits: ({ kind, whole }) => PACED.test(kind) && (whole === 'spec' || whole.endsWith('.rollingUpdate')),
    belongs: ofWorkload,
  },
  {
    name: 'strategy',
    fits: ({ kind, whole }) => /^(Deployment|Rollout)$/.test(kind) && whole === 'spec',
    belongs: (kind) =>
      UPDATED.test(kind) ? `the spec of the workload, where a ${kind} calls it updateStrategy` : ofWorkload(),
  },
  {
    name: 'updateStrategy',
    fits: ({ kind, whole }) => UPDATED.test(kind) && whole === 'spec',
    belongs: (kind) =>
      UPDATED.test(kind) ? ofWorkload() : `the spec of the workload, where a ${kind} calls it strategy`,
  },
  ...['maxUnavailable', 'maxSurge'].map((name) => ({
    name,
    fits: ({ whole }: Parent) => /\.(rollingUpdate|canary|updateStrategy)$/.test(whole),
    belongs: () => 'rollingUpdate of the strategy',
  })),
  {
    name: 'rollingUpdate',
    fits: ({ whole }) => /\.(strategy|updateStrategy)$/.test(whole),
    belongs: (kind) => (UPDATED.test(kind) ? 'updateStrategy' : 'strategy'),
  },
  ...['replicas', 'progressDeadlineSeconds', 'podManagementPolicy'].map((name) => ({
    name,
    within: 'the pod' as const,
    belongs: ofWorkload,
    fits: () => false,
  })),
];

/** Not searched: free-form data, or fields without effect on termination. */
const NOT_ENTERED: ReadonlySet<string> = new Set([
  ...['metadata', 'status', 'env', 'args', 'command', 'nodeSelector', 'volumes', 'volumeClaimTemplates'],
  ...['selector', 'affinity', 'tolerations', 'steps', 'analysis', 'antiAffinity', 'trafficRouting'],
]);
const DEEPEST = 12;

/** Fields and annotations in the wrong place, where the API server drops them or no component reads them. */
export function misplacedIn({ kind, pointer }: Workload, object: unknown): readonly Misplaced[] {
  return [...annotations(kind, pointer, object), ...fields(kind, pointer, object)];
}

/** Annotations of the workload that belong on its pod template, because pods do not inherit them. */
function annotations(kind: string, pointer: string, object: unknown): readonly Misplaced[] {
  const own = memberAt(object, ['metadata', 'annotations']);
  if (pointer === '' || !isRecord(own)) return [];
  const keys = Object.keys(own).filter((key) => key.startsWith(ANNOTATION_PREFIX));
  if (keys.length === 0) return [];
  const place = `${dotted(pointer)}.metadata.annotations`;
  const text = `${fewOf(keys)} on the ${kind} itself has no effect: it belongs in ${place}`;
  return [{ code: 'AnnotationMisplaced', text }];
}

/** Misplaced fields. Of a kind whose schema is not known, only the pod template is read. */
function fields(kind: string, pointer: string, object: unknown): readonly Misplaced[] {
  const found = new Map<string, string[]>();
  const pod = dotted(pointer);
  // OpenKruise's workloads have a lifecycle of their own.
  const isKruise = textOf(memberAt(object, ['apiVersion'])).startsWith('apps.kruise.io/');
  const walk = (value: unknown, path: string, depth: number): void => {
    if (depth > DEEPEST || typeof value !== 'object' || value === null) return;
    if (Array.isArray(value)) {
      for (const [index, item] of value.entries()) walk(item, `${path}[${index}]`, depth + 1);
      return;
    }
    const within = pod === '' ? path : path.startsWith(`${pod}.`) ? path.slice(pod.length + 1) : '?';
    for (const [key, member] of Object.entries(value)) {
      const place = path === '' ? key : `${path}.${key}`;
      const field = FIELDS.find(({ name }) => name.toLowerCase() === key.replaceAll('_', '').toLowerCase());
      const isOthers = field?.within !== undefined && !/^spec(\.|$)/.test(within);
      if (field === undefined || isOthers || (field.name === 'lifecycle' && isKruise && path === 'spec')) {
        if (!NOT_ENTERED.has(key)) walk(member, place, depth + 1);
        continue;
      }
      const { name, fits, belongs } = field;
      if (key === name && fits({ kind, whole: path, pod: within })) walk(member, place, depth + 1);
      else {
        const why = key === name ? `it belongs in ${belongs(kind)}` : `it is spelt ${name}`;
        found.set(why, [...(found.get(why) ?? []), place]);
      }
    }
  };
  if (workloadOf(object) !== undefined) walk(object, '', 0);
  else if (pointer !== '') walk(atPointer(object, pointer), pod, 0);
  // Joined into one text, because an audit has one line for each kind of finding.
  const texts = [...found].map(([why, places]) => `${fewOf(places)} has no effect: ${why}`);
  return texts.length === 0 ? [] : [{ code: 'FieldMisplaced', text: texts.join('; ') }];
}

/** `/spec/groups/0/template` as `spec.groups[0].template`. */
function dotted(pointer: string): string {
  return pointer
    .slice(1)
    .replaceAll(/\/(\d+)(?=\/|$)/g, '[$1]')
    .replaceAll('/', '.');
}
