import { describe, expect, it, test } from 'vitest';
import type { ClusterSnapshot } from '../../../src/core/decision/cluster-snapshot.ts';
import { decide } from '../../../src/core/decision/decide.ts';
import { fleetOf, type NodeFacts, nodeKind } from '../../../src/core/decision/fleet.ts';
import { holdObstacle, holdUnreached } from '../../../src/core/decision/hold-delivery.ts';
import { undoFor } from '../../../src/core/decision/patch.ts';
import {
  HOLD_DIGEST,
  HOLD_MOUNTS,
  HOLD_VOLUMES,
  held,
  heldSnapshot,
  holdHook,
  holdSupply,
  holdToken,
  NOW,
  sha256,
  tokenIn,
} from './sample-hold.ts';
import { altered, cutTo, pass, reviewOf } from './sample-pass.ts';
import {
  annotated,
  annotationsOf,
  codesOf,
  container,
  creationOf,
  exec,
  type JsonObject,
  NAMESPACE,
  type PodObject,
  patched,
  planIn,
  pod,
  podOf,
  preStop,
  server,
  sleep,
} from './sample-pod.ts';
import { clusterPolicy, fleet, OLD_FLEET, sampleNode, snapshotOf } from './sample-snapshot.ts';

const HOLD = clusterPolicy({ hook: 'Hold' });
const SNAPSHOT = heldSnapshot([HOLD]);

/** Why a pod is not held; undefined where it is. */
function refusal(object: PodObject, snapshot: ClusterSnapshot = SNAPSHOT): string | undefined {
  const { decision } = pass(object, snapshot);
  if (decision.outcome !== 'inject') throw new Error(`skipped: ${decision.reason}`);
  if (decision.plan.hook === 'Hold') return undefined;
  expect(decision.plan).not.toHaveProperty('hold');
  expect(decision.setup).toBeUndefined();
  const found = decision.notes.find(({ code }) => code === 'HoldUnavailable');
  expect(found?.text).toContain(`${decision.plan.hook} instead of Hold (ClusterTerminationPolicy/base): `);
  return found?.text.split(': ').slice(1).join(': ');
}

describe('the address that hooks call', () => {
  const { decision } = pass(podOf(server('app')), SNAPSHOT);
  if (decision.outcome !== 'inject') throw new Error('skipped');
  const { plan } = decision;
  const elsewhere = { ...holdSupply(fleet('v1.36.3')), address: '[fd00::7]:8445' };
  it.each([
    ['the same', SNAPSHOT.hold, undefined],
    ['not known', undefined, undefined],
    ['another', elsewhere, 'they call 10.201.0.7:8445, and the Hold Service is at [fd00::7]:8445 now'],
    ['none', { why: 'there is no Service linger/linger-hold with an address' }, /^there is no Service/],
  ])('is %s', (_, hold, expected) => {
    const why = holdUnreached(plan, hold);
    if (expected instanceof RegExp) expect(why).toMatch(expected);
    else expect(why).toBe(expected);
  });

  it('says nothing of pods that have none recorded', () => {
    const { address: _, ...terms } = plan.hold!;
    expect(holdUnreached({ hold: terms }, elsewhere)).toBeUndefined();
    expect(holdUnreached({}, { why: 'Hold is off' })).toBeUndefined();
  });
});

describe('a pod that is held', () => {
  const token = holdToken();
  const { decision, operations, result } = pass(podOf(server('app'), container('log')), SNAPSHOT, token);

  it('gets the helper, its volume, and the hash of its token, in additions only', () => {
    expect(operations.map(({ op }) => op)).toEqual(operations.map(() => 'add'));
    expect(result.spec).toEqual({
      containers: [held(server('app'), token, 30, 60), held(container('log'), token, 30, 60)],
      volumes: HOLD_VOLUMES,
      terminationGracePeriodSeconds: 90,
    });
    expect(annotationsOf(result)).toEqual({
      'linger.dev/plan':
        '{"v":2,"wait":30,"grace":90,"baseGrace":30,"hook":"Hold","containers":["app","log"],"policy":"built-in",' +
        '"why":"initial","hold":{"min":5,"max":60,"percentile":99,"initial":30,"probes":0,' +
        '"address":"10.201.0.7:8445"},"digest":"b4156037"}',
      'linger.dev/hold-token': sha256(token.text),
    });
  });

  it('says nothing of its token but its hash', () => {
    expect(JSON.stringify({ ...decision, setup: undefined })).not.toContain(token.text);
  });

  it('keeps volumes and mounts of its own, none of which is written again', () => {
    const mount = { name: 'data', mountPath: '/data' };
    const volume = { name: 'data', emptyDir: {} };
    const spec = { volumes: [volume], containers: [server('app', { volumeMounts: [mount] })] };
    const { result: after, operations: added } = pass(pod(spec), SNAPSHOT, token);
    expect(added.map(({ path }) => path)).toEqual([
      '/spec/containers/0/lifecycle',
      '/spec/containers/0/volumeMounts/-',
      '/spec/volumes/-',
      '/spec/terminationGracePeriodSeconds',
      '/metadata/annotations',
    ]);
    expect(after.spec).toMatchObject({
      volumes: [volume, ...HOLD_VOLUMES],
      containers: [{ volumeMounts: [mount, ...HOLD_MOUNTS] }],
    });
  });

  test.each<[string, JsonObject, JsonObject]>([
    ['the policy’s', { min: '0s', max: '2m', observe: true }, { min: 0, max: 120, observe: true }],
    ['fractions: min rounds up, max down', { min: '1500ms', max: '10500ms' }, { min: 2, max: 30 }],
    ['max wins over min', { min: '50s', max: '50s' }, { min: 50, max: 50 }],
    ['a max below the wait is the wait', { max: '10s' }, { min: 5, max: 30 }],
  ])('times: %s', (_, hold, expected) => {
    const { result: after } = pass(pod(), heldSnapshot([clusterPolicy({ hook: 'Hold', hold })]));
    expect(planIn(after)?.hold).toMatchObject(expected);
  });

  it('max of one layer wins over min of another', () => {
    const documents = [HOLD, clusterPolicy({ hold: { min: '90s' } }, 'more')];
    expect(planIn(pass(pod(), heldSnapshot(documents)).result)?.hold).toMatchObject({ min: 60, max: 60 });
  });

  it('is bounded by the ceiling', () => {
    const documents = [clusterPolicy({ hook: 'Hold', ceiling: { wait: '20s' } })];
    expect(planIn(pass(pod(), heldSnapshot(documents)).result)).toMatchObject({
      wait: 20,
      hold: { max: 20 },
    });
  });

  test.each([
    // grace, grace.max → grace, wait, max
    [30, '10m', 90, 30, 60],
    [30, '70s', 70, 30, 40],
    [30, '45s', 45, 15, 15],
    [580, '10m', 600, 30, 60],
    [3600, '10m', 3600, 30, 60],
  ])(
    'grace %ds, at most %s: the grace %ds covers both the hold and the application',
    (base, max, ...expected) => {
      const snapshot = heldSnapshot([clusterPolicy({ hook: 'Hold', grace: { max } })]);
      const plan = planIn(pass(pod({ terminationGracePeriodSeconds: base }), snapshot).result);
      expect([plan?.grace, plan?.wait, plan?.hold?.max]).toEqual(expected);
    },
  );

  it('tells the rate of the kubelet’s probes that connect to it while it terminates', () => {
    const http = { httpGet: { path: '/', port: 80 } };
    const object = pod({
      containers: [
        server('app', {
          readinessProbe: { ...http, periodSeconds: 5 },
          livenessProbe: http,
          startupProbe: http,
        }),
        server('b', {
          readinessProbe: { ...exec('ready') },
          livenessProbe: { tcpSocket: { port: 1 }, periodSeconds: 1 },
        }),
      ],
      initContainers: [
        container('proxy', {
          restartPolicy: 'Always',
          readinessProbe: { grpc: { port: 9 }, periodSeconds: 3 },
        }),
        container('once'),
      ],
    });
    // 1/5 + 1/3: those of liveness end with the deletion.
    expect(planIn(pass(object, SNAPSHOT).result)?.hold?.probes).toBe(0.533);
  });

  it('on its node’s network is held without its witness, and says so', () => {
    const { decision: decided } = pass(pod({ hostNetwork: true }), SNAPSHOT);
    expect(codesOf(decided)).toContain('HoldUnwitnessed');
    expect(decided).toMatchObject({ plan: { hold: { hostNetwork: true } } });
  });

  it('whose own sleep is lengthened in one container sleeps there', () => {
    const snapshot = heldSnapshot([clusterPolicy({ hook: 'Hold', existingHook: 'Extend' })]);
    const object = podOf(server('app'), container('log', preStop(sleep(4))));
    const { result: after } = pass(object, snapshot, token);
    expect(after.spec.containers).toEqual([
      held(server('app'), token, 30, 60),
      container('log', preStop(sleep(34))),
    ]);
    expect(planIn(after)).toMatchObject({ containers: ['app', 'log'], extended: { log: 4 } });
    expect(pass(after, snapshot).operations).toEqual([]);
    expect(patched(after, undoFor(after))).toEqual({ ...object, spec: { ...object.spec } });
  });
});

describe('another pass of the same admission', () => {
  it.each([0, 59, -59])('keeps the token of the first, %ds later', (seconds) => {
    const { result } = pass(pod(), SNAPSHOT);
    expect(pass(result, SNAPSHOT, holdToken(NOW + seconds))).toMatchObject({
      decision: { reason: 'AlreadyInjected' },
      operations: [],
    });
  });

  test.each<[string, (object: PodObject) => void]>([
    ['the volume', ({ spec }) => delete spec.volumes],
    ['a mount', ({ spec }) => delete spec.containers[1]?.volumeMounts],
    ['a hook', ({ spec }) => delete spec.containers[1]?.lifecycle],
    [
      'the number of a hook',
      ({ spec }) => Object.assign(spec.containers[1] ?? {}, preStop(holdHook(holdToken(), 9, 9))),
    ],
    [
      'the token of a hook',
      ({ spec }) => Object.assign(spec.containers[1] ?? {}, preStop(holdHook(holdToken(), 30, 60))),
    ],
  ])('puts back %s that another webhook has changed', (_, change) => {
    const { result } = pass(podOf(server('app'), container('log')), SNAPSHOT);
    const changed = structuredClone(result);
    change(changed);
    const again = pass(changed, SNAPSHOT);
    expect(again.result).toEqual(result);
    expect(pass(again.result, SNAPSHOT).operations).toEqual([]);
  });

  it('gives a container that was added the same token', () => {
    const token = holdToken();
    const object = altered(pod(), ({ spec }) => spec.containers.push(container('late')), SNAPSHOT);
    const first = tokenIn(object);
    const { result } = pass(object, SNAPSHOT, token);
    expect(JSON.stringify(result)).not.toContain(token.text);
    expect(JSON.stringify(result).split(String(first)).length - 1).toBe(2);
    expect(result.spec.containers[1]).toHaveProperty('volumeMounts', HOLD_MOUNTS);
  });

  it('shortens wait and max where the grace was cut', () => {
    const { result, decision } = pass(altered(pod(), cutTo(50), SNAPSHOT), SNAPSHOT);
    expect(planIn(result)).toMatchObject({ wait: 20, grace: 50, hold: { min: 5, max: 20 } });
    expect(codesOf(decision)).toContain('WaitShrunk');
    expect(pass(result, SNAPSHOT).operations).toEqual([]);
  });

  it('takes everything back where nothing is left', () => {
    const object = altered(
      podOf(server('app', { volumeMounts: [{ name: 'a', mountPath: '/a' }] })),
      cutTo(5),
      SNAPSHOT,
    );
    const { result, decision } = pass(object, SNAPSHOT);
    expect(codesOf(decision)).toContain('HookWithdrawn');
    expect(result.spec).toEqual({
      containers: [server('app', { volumeMounts: [{ name: 'a', mountPath: '/a' }] })],
      terminationGracePeriodSeconds: 5,
    });
    expect(Object.keys(annotationsOf(result))).toEqual(['linger.dev/plan']);
    expect(pass(result, SNAPSHOT).operations).toEqual([]);
  });

  it('keeps a volume that another webhook’s container mounts', () => {
    const object = altered(pod(), cutTo(5), SNAPSHOT);
    object.spec.initContainers = [
      container('other', { volumeMounts: [{ name: 'linger-hold', mountPath: '/x' }] }),
    ];
    expect(pass(object, SNAPSHOT).result.spec).toHaveProperty('volumes', HOLD_VOLUMES);
  });

  it('that cannot be held any more sleeps', () => {
    const object = altered(
      pod(),
      ({ spec }) => Object.assign(spec, { runtimeClassName: 'gvisor' }),
      SNAPSHOT,
    );
    const { result } = pass(object, SNAPSHOT);
    expect(result.spec).toMatchObject({ containers: [server('app', preStop(sleep(30)))] });
    expect(JSON.stringify(result)).not.toMatch(/linger-hold|hold-token/);
    expect(pass(result, SNAPSHOT).operations).toEqual([]);
  });

  it('takes back the hook of a container that its policy no longer names', () => {
    const snapshot = heldSnapshot([clusterPolicy({ hook: 'Hold', containers: ['app', 'proxy'] })]);
    const object = altered(
      podOf(server('proxy'), server('app')),
      ({ spec }) => {
        Object.assign(spec, { runtimeClassName: 'gvisor' });
        Object.assign(spec.containers[0] ?? {}, { name: 'renamed' });
      },
      snapshot,
    );
    const { result } = pass(object, snapshot);
    expect(result.spec.containers).toEqual([
      { ...server('proxy'), name: 'renamed' },
      server('app', preStop(sleep(30))),
    ]);
    expect(pass(result, snapshot).operations).toEqual([]);
  });
});

describe('what keeps pods of a namespace that can run on any node from Hold', () => {
  const nodes = fleet('v1.36.3', 'v1.36.3');
  const without = heldSnapshot([HOLD], { supply: { namespaces: new Set() } });

  it.each<[string, ClusterSnapshot, string | undefined]>([
    ['nothing, where they get it', SNAPSHOT, undefined],
    ['is not known before the leader has published', snapshotOf([HOLD]), undefined],
    ['the leader’s reason', snapshotOf([HOLD], { fleet: nodes, hold: { why: 'no address' } }), 'no address'],
    ['no helper there', without, `namespace ${NAMESPACE} has no ConfigMap linger-hold-${HOLD_DIGEST}`],
  ])('%s', (_, snapshot, why) => {
    expect(holdObstacle(NAMESPACE, 'ConfigMap', snapshot)).toBe(why);
  });

  it('is the version of the nodes where the helper comes in an image', () => {
    const supply = { image: 'linger:1' };
    const old = heldSnapshot([HOLD], { supply, fleet: OLD_FLEET });
    expect(holdObstacle(NAMESPACE, 'Image', old)).toContain('image volumes need Kubernetes 1.35');
    expect(holdObstacle(NAMESPACE, 'Image', heldSnapshot([HOLD], { supply }))).toBeUndefined();
  });
});

it('a Node that no kubelet has described takes Hold from no pod: none starts there', () => {
  const silent = sampleNode({ name: 'silent', architecture: '', osImage: '', containerRuntimeVersion: '' });
  const real = sampleNode({ name: 'real' });
  const snapshot = heldSnapshot([HOLD], { fleet: fleetOf('v1.36.3', [real, silent]) });
  expect(refusal(pod(), snapshot)).toBeUndefined();
});

describe('a manifest that was copied from a live pod', () => {
  const copy = pass(pod(), SNAPSHOT, holdToken(NOW - 3600)).result;
  const stolen = String(tokenIn(copy));

  it('never shares its token: the new pod gets one of its own', () => {
    const token = holdToken();
    const { result, decision } = pass(copy, SNAPSHOT, token);
    expect(codesOf(decision)).toContain('StalePlan');
    expect(result.spec.containers).toEqual([held(server('app'), token, 30, 60)]);
    expect(JSON.stringify(result)).not.toContain(stolen);
    expect(annotationsOf(result)['linger.dev/hold-token']).toBe(sha256(token.text));
    expect(planIn(result)).toMatchObject({ grace: 90, baseGrace: 30 });
    expect(pass(result, SNAPSHOT).operations).toEqual([]);
  });

  it.each<[string, ClusterSnapshot]>([
    ['where there is no Hold Service', snapshotOf([HOLD])],
    ['where it is not asked for', heldSnapshot([clusterPolicy({ hook: 'Sleep' })])],
  ])('%s, its hooks make room for a sleep', (_, snapshot) => {
    const { result } = pass(copy, snapshot);
    expect(result.spec.containers).toEqual([server('app', preStop(sleep(30)))]);
    expect(JSON.stringify(result)).not.toMatch(/linger-hold|hold-token/);
    expect(result.spec.terminationGracePeriodSeconds).toBe(90);
    expect(pass(result, snapshot).operations).toEqual([]);
  });

  it('where the pod is to be skipped, its hooks go', () => {
    const { decision, result } = pass(
      copy,
      heldSnapshot([clusterPolicy({ hook: 'Hold', wait: { from: 'Fixed', fixed: '0s' } })]),
    );
    expect(decision).toMatchObject({ outcome: 'skip', reason: 'NoWait' });
    expect(JSON.stringify(result)).not.toMatch(/linger-hold|hold-token|linger.dev\/hold/);
  });

  it('without its annotations, it is recognised by its hooks', () => {
    const bare = structuredClone(copy);
    delete bare.metadata.annotations;
    const { result } = pass(bare, SNAPSHOT);
    expect(JSON.stringify(result)).not.toContain(stolen);
    expect(planIn(result)?.hook).toBe('Hold');
  });

  it('with a token that does not match its annotation, it is not taken for its own', () => {
    const forged = structuredClone(pass(pod(), SNAPSHOT).result);
    forged.metadata.annotations = { ...annotationsOf(forged), 'linger.dev/hold-token': sha256(stolen) };
    const token = holdToken();
    expect(tokenIn(pass(forged, SNAPSHOT, token).result)).toBe(token.text);
  });
});

describe('what inject puts into manifests', () => {
  const planned = (object: PodObject) => decide(creationOf(object, { isManifest: true }), snapshotOf([HOLD]));

  it('is a sleep, with a note', () => {
    const decision = planned(pod());
    expect(decision).toMatchObject({ outcome: 'inject', plan: { hook: 'Sleep', wait: 30, grace: 60 } });
    expect(codesOf(decision)).toEqual(['HoldNeedsPod']);
    expect(decision.notes[0]?.text).toContain('Hold takes 5s to 60s');
  });

  it('also where Hold could be used, were it a pod', () => {
    const decision = decide({ ...reviewOf(pod(), SNAPSHOT), isManifest: true }, SNAPSHOT);
    expect(decision).toMatchObject({ plan: { hook: 'Sleep' } });
  });

  it('says what would keep its pods from being held', () => {
    const decision = planned(pod({ runtimeClassName: 'gvisor' }));
    expect(decision.notes.map(({ text }) => text).join()).toContain('runtime class gvisor');
  });
});

it('uninject takes all of it out again', () => {
  for (const object of [
    pod(),
    annotated({ team: 'a' }),
    pod({
      volumes: [{ name: 'data', emptyDir: {} }],
      containers: [server('app', { volumeMounts: [{ name: 'data', mountPath: '/data' }] })],
    }),
    podOf(server('a', { lifecycle: { postStart: exec('warm') } }), container('b', preStop(exec('/drain')))),
  ]) {
    const { result } = pass(object, SNAPSHOT);
    expect(tokenIn(result)).toBeDefined();
    expect(patched(result, undoFor(result))).toEqual(object);
  }
});

describe('Hold is not used where it could not work', () => {
  const app = (more: JsonObject) => podOf(server('app', more));
  test.each<[string, PodObject, RegExp]>([
    ['Windows', pod({ os: { name: 'windows' } }), /Windows/],
    ['a runtime class', pod({ runtimeClassName: 'kata' }), /runtime class kata/],
    [
      'a volume of that name',
      pod({ volumes: [{ name: 'linger-hold', emptyDir: {} }] }),
      /volume linger-hold of its own/,
    ],
    ['volumes that are none', pod({ volumes: 'many' }), /volumes cannot be read/],
    ['too many volumes', pod({ volumes: Array(1001).fill({ name: 'a' }) }), /volumes cannot be read/],
    [
      'a mount there',
      app({ volumeMounts: [{ name: 'a', mountPath: '/linger.dev' }] }),
      /"app" has something of its own at \/linger.dev/,
    ],
    [
      'a mount there, spelt otherwise',
      app({ volumeMounts: [{ name: 'a', mountPath: '//linger.dev//' }] }),
      /of its own at/,
    ],
    ['a mount below', app({ volumeMounts: [{ name: 'a', mountPath: '/linger.dev/x' }] }), /of its own at/],
    ['a device there', app({ volumeDevices: [{ name: 'a', devicePath: '/linger.dev' }] }), /of its own at/],
    ['mounts that are none', app({ volumeMounts: 5 }), /mounts that cannot be read/],
    [
      'a seccomp profile of the node',
      pod({ securityContext: { seccompProfile: { type: 'Localhost', localhostProfile: 'a.json' } } }),
      /seccompProfile of its node/,
    ],
    [
      'one in the container',
      app({ securityContext: { seccompProfile: { type: 'Localhost' } } }),
      /seccompProfile of its node/,
    ],
    [
      'an AppArmor profile of the node',
      app({ securityContext: { appArmorProfile: { type: 'Localhost' } } }),
      /appArmorProfile of its node/,
    ],
    [
      'one by annotation',
      annotated({ 'container.apparmor.security.beta.kubernetes.io/app': 'localhost/tight' }),
      /AppArmor profile of its node/,
    ],
    ['only own sleeps', app(preStop(sleep(3))), /a sleep of its own/],
  ])('%s', (name, object, why) => {
    const snapshot =
      name === 'only own sleeps'
        ? heldSnapshot([clusterPolicy({ hook: 'Hold', existingHook: 'Extend' })])
        : SNAPSHOT;
    expect(refusal(object, snapshot)).toMatch(why);
  });

  test.each<[string, PodObject]>([
    ['a mount beside it', app({ volumeMounts: [{ name: 'a', mountPath: '/linger.development' }] })],
    ['RuntimeDefault', pod({ securityContext: { seccompProfile: { type: 'RuntimeDefault' } } })],
    ['Linux', pod({ os: { name: 'linux' } })],
    [
      'members that are null',
      pod({
        volumes: null,
        affinity: null,
        securityContext: null,
        containers: [server('app', { volumeMounts: null })],
      }),
    ],
    [
      'a profile of the node in a container that keeps its hook',
      podOf(
        server('app'),
        container('b', {
          ...preStop(exec('/drain')),
          securityContext: { seccompProfile: { type: 'Localhost' } },
        }),
      ),
    ],
  ])('%s does not keep it from working', (_, object) => {
    expect(refusal(object)).toBeUndefined();
    expect(pass(pass(object, SNAPSHOT).result, SNAPSHOT).operations).toEqual([]);
  });

  test.each<[string, ClusterSnapshot, RegExp]>([
    ['no Hold Service', snapshotOf([HOLD]), /no Hold Service is known/],
    ['Hold that is off', { ...snapshotOf([HOLD]), hold: { why: 'Hold is off' } }, /^Hold is off$/],
    [
      'no ConfigMap in the namespace',
      heldSnapshot([HOLD], { supply: { namespaces: new Set(['other']) } }),
      /namespace shop has no ConfigMap linger-hold-0123456789abcdef/,
    ],
    ['no node', heldSnapshot([HOLD], { fleet: fleet('v1.36.3') }), /no node is known/],
    [
      'no helper for the architecture',
      heldSnapshot([HOLD], { supply: { architectures: new Set(['arm64']) } }),
      /no helper for amd64/,
    ],
    [
      'not tried there',
      heldSnapshot([HOLD], { supply: { tested: new Set() } }),
      /not passed its trial on nodes like node-0 \(amd64\|Ubuntu/,
    ],
    ['nodes that are not known', { ...heldSnapshot([HOLD]), fleet: undefined }, /nodes are not known/],
    [
      'no image',
      heldSnapshot([clusterPolicy({ hook: 'Hold', hold: { delivery: 'Image' } })]),
      /no image with the helper/,
    ],
    [
      'old kubelets for an image',
      heldSnapshot([clusterPolicy({ hook: 'Hold', hold: { delivery: 'Image' } })], {
        fleet: fleet('v1.36.3', 'v1.34.2'),
        supply: { image: 'r/hold:1' },
      }),
      /Kubernetes 1.35/,
    ],
  ])('%s', (_, snapshot, why) => {
    expect(refusal(pod(), snapshot)).toMatch(why);
  });

  it('and old nodes get what Auto gives them', () => {
    const snapshot = heldSnapshot([HOLD], { fleet: OLD_FLEET, supply: { namespaces: new Set() } });
    expect(pass(pod(), snapshot).decision).toMatchObject({ plan: { hook: 'Exec' } });
  });
});

describe('by image', () => {
  const image = 'registry.example/linger-hold:1';
  const volumes = [{ name: 'linger-hold', image: { reference: image } }];

  test.each<[string, JsonObject, JsonObject[]]>([
    ['Auto prefers the ConfigMap', {}, HOLD_VOLUMES],
    ['Image', { delivery: 'Image' }, volumes],
    ['ConfigMap', { delivery: 'ConfigMap' }, HOLD_VOLUMES],
  ])('%s', (_, hold, expected) => {
    const snapshot = heldSnapshot([clusterPolicy({ hook: 'Hold', hold })], { supply: { image } });
    const { result } = pass(pod(), snapshot);
    expect(result.spec.volumes).toEqual(expected);
    expect(pass(result, snapshot).operations).toEqual([]);
    expect(patched(result, undoFor(result))).toEqual(pod());
  });

  it('Auto takes it for several architectures', () => {
    const nodes = fleetOf('v1.36.3', [
      sampleNode({ name: 'a' }),
      sampleNode({ name: 'b', architecture: 'arm64' }),
    ]);
    expect(
      pass(pod(), heldSnapshot([HOLD], { fleet: nodes, supply: { image } })).result.spec.volumes,
    ).toEqual(volumes);
    expect(
      refusal(
        pod(),
        heldSnapshot([clusterPolicy({ hook: 'Hold', hold: { delivery: 'ConfigMap' } })], {
          fleet: nodes,
          supply: { image },
        }),
      ),
    ).toMatch(/several architectures \(node a is amd64, node b is arm64\): keep it to one by/);
  });
});

describe('the nodes that a pod can run on', () => {
  const node = (
    name: string,
    architecture: string,
    labels: Record<string, string>,
    more: Partial<NodeFacts> = {},
  ) => sampleNode({ name, architecture, labels: { 'kubernetes.io/arch': architecture, ...labels }, ...more });
  const nodes = fleetOf('v1.36.3', [
    node('a', 'amd64', { pool: 'web', cores: '8' }),
    node('b', 'arm64', { pool: 'batch', cores: '16' }),
    node('w', 'amd64', { pool: 'win' }, { operatingSystem: 'windows', osImage: 'Windows Server 2022' }),
  ]);
  const tested = new Set(nodes.nodes.filter(({ name }) => name !== 'w').map(nodeKind));
  const snapshot = heldSnapshot([HOLD], { fleet: nodes, supply: { ...holdSupply(nodes), tested } });
  const required = (...nodeSelectorTerms: JsonObject[]) => ({
    affinity: { nodeAffinity: { requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms } } },
  });
  const expression = (key: string, operator: string, ...values: string[]) => ({
    matchExpressions: [{ key, operator, ...(values.length > 0 && { values }) }],
  });
  const field = (operator: string, ...values: string[]) => ({
    matchFields: [{ key: 'metadata.name', operator, values }],
  });
  const SEVERAL = /several architectures/;

  test.each<[string, JsonObject, string | RegExp]>([
    ['nothing is said', {}, SEVERAL],
    ['nodeSelector', { nodeSelector: { pool: 'web' } }, 'amd64'],
    [
      'nodeSelector by architecture, where Windows is not ruled out',
      { nodeSelector: { 'kubernetes.io/arch': 'amd64' } },
      /not passed its trial on nodes like w/,
    ],
    ['Linux by os', { os: { name: 'linux' }, nodeSelector: { 'kubernetes.io/arch': 'amd64' } }, 'amd64'],
    ['nodeSelector that no node meets', { nodeSelector: { pool: 'none' } }, /no node is known/],
    ['nodeName', { nodeName: 'b' }, 'arm64'],
    ['nodeName that is not known', { nodeName: 'c' }, /no node is known/],
    ['In', required(expression('pool', 'In', 'batch', 'other')), 'arm64'],
    ['NotIn', required(expression('pool', 'NotIn', 'batch', 'win')), 'amd64'],
    ['NotIn of a label that is absent', required(expression('none', 'NotIn', 'x')), SEVERAL],
    ['Exists', required(expression('cores', 'Exists')), SEVERAL],
    ['DoesNotExist', required(expression('cores', 'DoesNotExist')), /not passed its trial on nodes like w/],
    ['Gt', required(expression('cores', 'Gt', '8')), 'arm64'],
    ['Lt', required(expression('cores', 'Lt', '9')), 'amd64'],
    ['Gt of no number', required(expression('pool', 'Gt', '1')), /no node is known/],
    ['an operator that is not known', required(expression('pool', 'Near', 'web')), SEVERAL],
    ['a field', required(field('In', 'a')), 'amd64'],
    ['a field, the other way', required(field('NotIn', 'a', 'w')), 'arm64'],
    ['one of several terms', required(expression('pool', 'In', 'web'), field('In', 'a')), 'amd64'],
    ['terms of several architectures', required(expression('pool', 'In', 'web'), field('In', 'b')), SEVERAL],
    ['a term without requirements', required({}, expression('pool', 'In', 'web')), 'amd64'],
    [
      'all requirements of a term',
      required({ ...expression('cores', 'Exists'), ...field('NotIn', 'b') }),
      'amd64',
    ],
    [
      'nodeSelector and affinity',
      { nodeSelector: { pool: 'web' }, ...required(field('In', 'b')) },
      /no node is known/,
    ],
    [
      'what is only preferred',
      {
        affinity: {
          nodeAffinity: {
            preferredDuringSchedulingIgnoredDuringExecution: [
              { weight: 1, preference: expression('pool', 'In', 'web') },
            ],
          },
        },
      },
      SEVERAL,
    ],
    [
      'more than is looked at',
      required({ matchExpressions: Array(200).fill({ key: 'pool', operator: 'In', values: ['web'] }) }),
      SEVERAL,
    ],
  ])('%s', (_, spec, expected) => {
    const object = pod(spec);
    if (typeof expected !== 'string') {
      expect(refusal(object, snapshot)).toMatch(expected);
      return;
    }
    expect(refusal(object, snapshot)).toBeUndefined();
    const [volume] = pass(object, snapshot).result.spec.volumes as {
      configMap: { items: { key: string }[] };
    }[];
    expect(volume?.configMap.items[0]?.key).toBe(`hold-${expected}`);
  });

  it('does not matter where the helper works on all of them', () => {
    const even = heldSnapshot([HOLD]);
    expect(refusal(pod({ nodeSelector: { pool: 'not there yet' } }), even)).toBeUndefined();
  });
});
