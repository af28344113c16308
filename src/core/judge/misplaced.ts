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
  /** OpenKruise's workloads have fields of their own. */
  readonly isKruise: boolean;
  readonly whole: string;
  readonly pod: string;
}

/** A field that affects how a pod waits or how a rollout proceeds. */
interface Field {
  readonly name: string;
  /** A common misspelling, in lower case. */
  readonly misspelt?: string;
  /** Whether the schema allows it there. */
  readonly fits: (parent: Parent) => boolean;
  readonly belongs: (kind: string) => string;
  /** Look for it only in pods, because elsewhere a schema may use the name for something else. */
  readonly within?: 'the pod';
}

const PACED = /^(Deployment|ReplicaSet|ReplicationController|StatefulSet|DaemonSet|Rollout|CloneSet)$/;
const UPDATED = /^(StatefulSet|DaemonSet|CloneSet)$/;

/** The object that has maxUnavailable and maxSurge. */
function rolledBy(kind: string): string {
  return kind === 'Rollout' ? 'canary' : kind === 'CloneSet' ? 'updateStrategy' : 'rollingUpdate';
}

function strategyOf(kind: string): string {
  return UPDATED.test(kind) ? 'updateStrategy' : 'strategy';
}

const ofWorkload = () => 'the spec of the workload';

/** Source: k8s.io/api core/v1 and apps/v1, argo-rollouts pkg/apis/rollouts/v1alpha1, kruise apis/apps. */
const FIELDS: readonly Field[] = [
  {
    name: 'terminationGracePeriodSeconds',
    misspelt: 'terminationgraceperiod',
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
    fits: ({ kind, isKruise, whole }) =>
      (PACED.test(kind) && whole === 'spec') || (isKruise && whole === 'spec.updateStrategy.rollingUpdate'),
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
    fits: ({ kind, whole }: Parent) => whole.endsWith(`.${rolledBy(kind)}`),
    belongs: (kind: string) => `${rolledBy(kind)}${kind === 'CloneSet' ? '' : ` of ${strategyOf(kind)}`}`,
  })),
  {
    name: 'rollingUpdate',
    fits: ({ kind, whole }) =>
      rolledBy(kind) === 'rollingUpdate' && /\.(strategy|updateStrategy)$/.test(whole),
    belongs: (kind) => (kind === 'Rollout' ? 'strategy, where a Rollout calls it canary' : strategyOf(kind)),
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
  ...['labels', 'annotations', 'managedFields', 'status', 'env', 'args', 'command', 'nodeSelector'],
  ...[
    'volumes',
    'volumeClaimTemplates',
    'selector',
    'affinity',
    'tolerations',
    'steps',
    'analysis',
    'antiAffinity',
    'trafficRouting',
  ],
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
  const template = atPointer(object, pointer);
  // The fields that such an object has beside its containers may be the operator's own.
  const isBareSpec = !isRecord(memberAt(template, ['spec']));
  const isKruise = textOf(memberAt(object, ['apiVersion'])).startsWith('apps.kruise.io/');
  const walk = (value: unknown, path: string, depth: number): void => {
    if (depth > DEEPEST || typeof value !== 'object' || value === null) return;
    if (Array.isArray(value)) {
      for (const [index, item] of value.entries()) walk(item, `${path}[${index}]`, depth + 1);
      return;
    }
    const within =
      pod === ''
        ? path
        : path.startsWith(`${pod}.`)
          ? `${isBareSpec ? 'spec.' : ''}${path.slice(pod.length + 1)}`
          : '?';
    for (const [key, member] of Object.entries(value)) {
      const place = path === '' ? key : `${path}.${key}`;
      const plain = key.replaceAll('_', '').toLowerCase();
      const field = FIELDS.find(({ name, misspelt }) => name.toLowerCase() === plain || misspelt === plain);
      const isOthers = field?.within !== undefined && !/^spec(\.|$)/.test(within);
      if (field === undefined || isOthers || (field.name === 'lifecycle' && isKruise && path === 'spec')) {
        if (!NOT_ENTERED.has(key)) walk(member, place, depth + 1);
        continue;
      }
      const { name, fits, belongs } = field;
      if (key === name && fits({ kind, isKruise, whole: path, pod: within })) walk(member, place, depth + 1);
      else {
        const why = key === name ? `it belongs in ${belongs(kind)}` : `it is spelt ${name}`;
        found.set(why, [...(found.get(why) ?? []), place]);
      }
    }
  };
  if (workloadOf(object) !== undefined) walk(object, '', 0);
  else if (pointer !== '' && !isBareSpec) walk(template, pod, 0);
  else if (pointer !== '')
    for (const list of ['containers', 'initContainers'])
      walk(memberAt(template, [list]), `${pod}.${list}`, 0);
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
