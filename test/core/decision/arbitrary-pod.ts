import fc, { type Arbitrary } from 'fast-check';
import { type ContainerMembers, ordinaryContainer, startingContainer } from './arbitrary-container.ts';
import { label, members, name, oftenAbsent } from './arbitrary-json.ts';
import { HOLD_MOUNTS, HOLD_VOLUMES } from './sample-hold.ts';
import type { ContainerObject, JsonObject, PodObject } from './sample-pod.ts';

/**
 * Pods that a real API server accepts, before and after Linger's patch: everything the decision looks at in every
 * shape, and a good deal that it must pass over. No mirror pods (they need a node), no host ports.
 */

const GRACES = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom(1, 5, 9, 10, 29, 30, 31, 45, 60, 120, 540, 590, 600, 3600) },
  { weight: 2, arbitrary: fc.integer({ min: 1, max: 7200 }) },
  { weight: 1, arbitrary: fc.constant(0) },
);

const OWNERS = fc
  .constantFrom(
    ['apps/v1', 'ReplicaSet'],
    ['apps/v1', 'StatefulSet'],
    ['apps/v1', 'DaemonSet'],
    ['batch/v1', 'Job'],
    ['example.dev/v1', 'Gateway'],
  )
  .chain(([apiVersion, kind]) =>
    fc
      .record({ name, uid: fc.uuid(), controller: fc.boolean() })
      .map((owner) => [{ apiVersion, kind, ...owner }]),
  );

/** Every annotation of ours, in valid, invalid and unknown forms, among those of others. */
const ANNOTATIONS: Arbitrary<JsonObject> = fc.record(
  {
    'linger.dev/inject': fc.constantFrom('true', 'false', '1', 'F', 'maybe'),
    'linger.dev/mode': fc.constantFrom('Enforce', 'Audit', 'Off', 'off'),
    'linger.dev/wait': fc.constantFrom('45s', '1m30s', '0', '250ms', '1h', '45', 'soon'),
    'linger.dev/hook': fc.constantFrom('Auto', 'Sleep', 'Exec', 'Hold', 'none'),
    'linger.dev/containers': fc.constantFrom('app', 'app,proxy', 'absent', ' , '),
    'linger.dev/existing-hook': fc.constantFrom('Keep', 'Extend', 'Drop'),
    'linger.dev/plan': fc.constantFrom('', '{"v":1}', '{"v":1,"wait":30,"grace":60}', '[]'),
    'linger.dev/unknown': fc.constant('x'),
    'example.dev/text': fc.string({ maxLength: 40 }),
    'example.dev/tilde-slash': fc.constantFrom('~1', '~0/', 'ü “text”'),
  },
  { requiredKeys: [] },
);

const LABELS: Arbitrary<JsonObject> = fc.record(
  {
    app: fc.constantFrom('web', 'api', 'db'),
    tier: label,
    'app.kubernetes.io/name': label,
    'pod-template-hash': fc.constantFrom('85b9f996c9', '6c5bdc9f7'),
    'linger.dev/inject': fc.constantFrom('true', 'false', 'maybe'),
  },
  { requiredKeys: [] },
);

/** Mostly absent, as in life: each annotation and label of ours turns most of the rest of the decision off. */
const METADATA: Arbitrary<JsonObject> = fc
  .record({
    labels: oftenAbsent(fc.oneof(LABELS, fc.constant(null))),
    annotations: oftenAbsent(fc.oneof(ANNOTATIONS, fc.constant(null), fc.constant({}))),
    ownerReferences: oftenAbsent(OWNERS),
  })
  .map(members);

const VOLUMES = fc.constantFrom<JsonObject[]>(
  [{ name: 'scratch', emptyDir: {} }],
  [
    { name: 'scratch', emptyDir: { medium: 'Memory', sizeLimit: '16Mi' } },
    { name: 'settings', configMap: { name: 'settings', optional: true, defaultMode: 420 } },
    {
      name: 'podinfo',
      downwardAPI: { items: [{ path: 'labels', fieldRef: { fieldPath: 'metadata.labels' } }] },
    },
  ],
);

const TOLERATIONS = [
  { key: 'node.kubernetes.io/not-ready', operator: 'Exists', effect: 'NoExecute', tolerationSeconds: 60 },
];
const SPREAD = [
  {
    maxSkew: 1,
    topologyKey: 'kubernetes.io/hostname',
    whenUnsatisfiable: 'ScheduleAnyway',
    labelSelector: { matchLabels: { app: 'web' } },
  },
];

const SCHEDULING: Arbitrary<JsonObject> = fc
  .record({
    restartPolicy: oftenAbsent(fc.constantFrom('Always', 'Always', 'Always', 'OnFailure', 'Never')),
    os: oftenAbsent(fc.constantFrom({ name: 'linux' }, { name: 'linux' }, { name: 'windows' }, null)),
    nodeSelector: oftenAbsent(
      fc.constantFrom(
        { 'kubernetes.io/os': 'linux' },
        { 'kubernetes.io/os': 'windows' },
        { zone: 'a' },
        null,
      ),
    ),
    tolerations: oftenAbsent(fc.constant(TOLERATIONS)),
    topologySpreadConstraints: oftenAbsent(fc.constant(SPREAD)),
    dnsPolicy: oftenAbsent(fc.constantFrom('ClusterFirst', 'Default')),
    enableServiceLinks: oftenAbsent(fc.boolean()),
    automountServiceAccountToken: oftenAbsent(fc.constant(false)),
    activeDeadlineSeconds: oftenAbsent(fc.integer({ min: 1, max: 100_000 })),
    hostname: oftenAbsent(name),
    readinessGates: oftenAbsent(fc.constant([{ conditionType: 'example.dev/attached' }])),
  })
  .map(members);

const CONTAINER_NAMES = fc.uniqueArray(fc.oneof(fc.constantFrom('app', 'proxy', 'log'), name), {
  minLength: 2,
  maxLength: 6,
});

/** A valid v1 Pod. `more` joins its metadata. */
export function podWith(more: Arbitrary<JsonObject>): Arbitrary<PodObject> {
  return fc
    .record({ grace: GRACES, volumes: VOLUMES, names: CONTAINER_NAMES })
    .chain(({ grace, volumes, names }) =>
      fc
        .tuple(METADATA, more, SCHEDULING, graceMember(grace), containersOf(names, grace, volumes))
        .map(([own, joining, scheduling, graceMembers, containers]) => ({
          apiVersion: 'v1',
          kind: 'Pod',
          metadata: { ...own, ...joining },
          spec: { ...scheduling, ...graceMembers, volumes, ...containers },
        })),
    );
}

/** The first half of the names as ordinary containers, the rest, where there are any, as init containers. */
function containersOf(
  names: readonly string[],
  grace: number,
  volumes: readonly JsonObject[],
): Arbitrary<JsonObject & { containers: ContainerObject[] }> {
  const bound: ContainerMembers = { grace, volumes: volumes.map((each) => String(each.name)) };
  const ordinaryCount = Math.ceil(names.length / 2);
  const ordinary = names.slice(0, ordinaryCount).map((each) => ordinaryContainer(each, bound));
  const starting = names.slice(ordinaryCount).map((each) => startingContainer(each, bound));
  return fc
    .tuple(fc.tuple(...ordinary), oftenAbsent(fc.tuple(...starting)))
    .map(([containers, initContainers]) => ({ ...members({ initContainers }), containers }));
}

/** 30 is what the API server sets by default, so there the member may be absent or null. */
function graceMember(grace: number): Arbitrary<JsonObject> {
  const said = fc.constant({ terminationGracePeriodSeconds: grace });
  return grace === 30
    ? fc.oneof(said, fc.constant({}), fc.constant({ terminationGracePeriodSeconds: null }))
    : said;
}

/** A valid Pod with a name. */
export const arbitraryPod: Arbitrary<PodObject> = podWith(fc.record({ name }));

const LOCALHOST = { seccompProfile: { type: 'Localhost', localhostProfile: 'a.json' } };

const SECURITY = fc.constantFrom<unknown>(
  LOCALHOST,
  { seccompProfile: 5 },
  { appArmorProfile: { type: 'Localhost' } },
  { windowsOptions: { hostProcess: true } },
  'none',
);

const ODDITIES_OF_CONTAINER = fc
  .record({
    volumeMounts: oftenAbsent(
      fc.constantFrom<unknown>(
        5,
        Array(1001).fill({}),
        HOLD_MOUNTS,
        [{ ...HOLD_MOUNTS[0], subPath: 'x' }],
        [{ ...HOLD_MOUNTS[0], subPathExpr: 'x' }],
        [
          { name: 'a', mountPath: '/linger.dev/' },
          { name: 'b', mountPath: '/b' },
        ],
      ),
    ),
    volumeDevices: oftenAbsent(fc.constantFrom<unknown>('x', [{ name: 'a', devicePath: '/linger.dev' }])),
    securityContext: oftenAbsent(SECURITY),
    restartPolicy: oftenAbsent(fc.constantFrom('Always', 'Always', 'Never', 5)),
    livenessProbe: oftenAbsent(
      fc.constantFrom({ grpc: {}, periodSeconds: '5' }, { httpGet: {}, periodSeconds: 3 }),
    ),
  })
  .map(members);

/** What only Hold looks at, in forms that an API server would take and that it would not. */
const ODDITIES = fc
  .record({
    nodeName: oftenAbsent(fc.constantFrom('node-0', 'elsewhere')),
    runtimeClassName: oftenAbsent(fc.constantFrom('', 'kata', 5)),
    hostNetwork: oftenAbsent(fc.constantFrom(true, 'yes')),
    securityContext: oftenAbsent(SECURITY),
    affinity: oftenAbsent(
      fc.constantFrom(1, 300).map((count) => ({
        nodeAffinity: {
          requiredDuringSchedulingIgnoredDuringExecution: {
            nodeSelectorTerms: Array(count).fill({
              matchFields: [{ key: 'metadata.name', operator: 'In', values: ['node-0'] }],
            }),
          },
        },
      })),
    ),
    volumes: oftenAbsent(
      fc.constantFrom<unknown>(
        'many',
        Array(1001).fill({ name: 'a' }),
        [{ name: 'linger-hold', emptyDir: {} }],
        [{ name: 'a' }, { name: 'linger-hold', image: { reference: 'r/x:1' } }],
        [null, ...HOLD_VOLUMES],
      ),
    ),
    ofContainer: ODDITIES_OF_CONTAINER,
    ofStarting: ODDITIES_OF_CONTAINER,
  })
  .map((all) => members(all) as typeof all);

function withFirst([first, ...others]: ContainerObject[], oddities: JsonObject): ContainerObject[] {
  return first === undefined ? [] : [{ ...first, ...oddities }, ...others];
}

/** A pod that an API server would refuse here and there. */
export const arbitraryOddPod: Arbitrary<PodObject> = fc
  .tuple(arbitraryPod, ODDITIES)
  .map(([{ spec, ...object }, { ofContainer, ofStarting, ...ofPod }]) => {
    const { initContainers, ...others } = spec;
    const starting = initContainers as ContainerObject[] | undefined;
    const containers = withFirst(spec.containers, ofContainer);
    const more = starting && { initContainers: withFirst(starting, ofStarting) };
    return { ...object, spec: { ...others, ...ofPod, ...more, containers } };
  });

/**
 * The same valid pods for the same seed, each with a name of its own: to be sent to a real API server.
 * @param count how many
 */
export function generatedPods(seed: number, count: number): readonly PodObject[] {
  const pods = fc.sample(podWith(fc.constant({})), { seed, numRuns: count });
  return pods.map((each, index) => ({ ...each, metadata: { name: `generated-${index}`, ...each.metadata } }));
}
