import { describe, expect, it } from 'vitest';
import type { RawObject } from '../../src/cluster/index.ts';
import { projectEndpoints, projectSlice } from '../../src/informers/endpoints.ts';
import { projectNamespace } from '../../src/informers/namespaces.ts';
import { projectNode } from '../../src/informers/nodes.ts';
import { projectPod } from '../../src/informers/pods.ts';
import { projectService } from '../../src/informers/services.ts';

const metadata = { name: 'web', namespace: 'shop', uid: 'u-1', resourceVersion: '7' };
const raw = (more: object, meta: object = {}) =>
  ({ metadata: { ...metadata, ...meta }, ...more }) as RawObject;
const pod = (uid: string) => ({ kind: 'Pod', namespace: 'shop', name: `web-${uid}`, uid });

describe('a pod', () => {
  it.each([
    { name: 'that runs', meta: { labels: { app: 'web' } }, expected: { labels: { app: 'web' } } },
    {
      name: 'that terminates',
      meta: { deletionTimestamp: '2026-01-01T00:00:30Z', deletionGracePeriodSeconds: 30 },
      expected: { labels: {}, deletionTimestamp: '2026-01-01T00:00:30Z', deletionGracePeriodSeconds: 30 },
    },
    {
      name: 'of a Deployment, with a plan',
      meta: {
        labels: { 'pod-template-hash': '7d9f' },
        annotations: { 'linger.dev/plan': '{}' },
        ownerReferences: [{ kind: 'ReplicaSet', name: 'web-7d9f', controller: true }],
      },
      expected: {
        labels: { 'pod-template-hash': '7d9f' },
        plan: '{}',
        controller: 'ReplicaSet/web-7d9f',
        owner: 'Deployment/web',
      },
    },
  ])('$name', ({ meta, expected }) => {
    const projected = projectPod(raw({ status: { phase: 'Running' } }, meta));
    expect(JSON.parse(JSON.stringify(projected))).toEqual({
      uid: 'u-1',
      namespace: 'shop',
      name: 'web',
      ...expected,
    });
  });
});

/** Objects that only an attacker would write. */
describe('a hostile pod', () => {
  const plan = 'x'.repeat(8_192);
  const many = Object.fromEntries(Array.from({ length: 129 }, (_, index) => [`key-${index}`, '']));
  const owner = (more: object) => [{ kind: 'ReplicaSet', name: 'web', controller: true, ...more }];

  it.each([
    ['a plan that is too long', { annotations: { 'linger.dev/plan': `${plan}x` } }],
    ['too many labels', { labels: many, annotations: { 'linger.dev/plan': '{}' } }],
    ['labels that are too long', { labels: { a: 'x'.repeat(8_192) } }],
    ['what was skipped as bytes', { leftOut: true }],
  ])('%s: neither is known', (_what, meta) => {
    expect(projectPod(raw({}, meta))).toMatchObject({ plan: undefined, unread: true });
  });

  it('the largest that are kept', () => {
    const { 'key-0': _, ...labels } = many;
    const pod = projectPod(raw({}, { labels, annotations: { 'linger.dev/plan': plan } }));
    expect(pod).toMatchObject({ labels, plan });
    expect(pod.unread).toBeUndefined();
  });

  it.each(['a'.repeat(63), 'g'.repeat(64), 'a'.repeat(65), `${'a'.repeat(64)}\n`])(
    'no token: %s',
    (token) => {
      expect(projectPod(raw({}, { annotations: { 'linger.dev/hold-token': token } })).hold).toBeUndefined();
    },
  );

  it.each([
    { name: 'web?watch=true' },
    { name: '..%2f..%2fsecrets' },
    { name: 'web\r\nHost: other' },
    { name: 'x'.repeat(254) },
    { name: 7 },
    { kind: 'Replica Set' },
    { kind: 'K'.repeat(64) },
  ])('no owner: %j', (more) => {
    const { controller, owner: found } = projectPod(raw({}, { ownerReferences: owner(more) }));
    expect([controller, found]).toEqual([undefined, undefined]);
  });
});

describe('a Service', () => {
  const plain = {
    namespace: 'shop',
    name: 'web',
    labels: {},
    selector: { app: 'web' },
    externalName: false,
    headless: false,
    clusterIp: '10.96.0.10',
    publishNotReadyAddresses: false,
  };
  const spec = { selector: { app: 'web' }, clusterIP: '10.96.0.10', type: 'ClusterIP' };
  it.each<{ name: string; spec?: object; meta?: object; expected: object }>([
    { name: 'with a ClusterIP', expected: {} },
    { name: 'with labels', meta: { labels: { team: 'a' } }, expected: { labels: { team: 'a' } } },
    { name: 'headless', spec: { clusterIP: 'None' }, expected: { clusterIp: undefined, headless: true } },
    { name: 'without a selector', spec: { selector: undefined }, expected: { selector: undefined } },
    {
      name: 'of type ExternalName',
      spec: { type: 'ExternalName', clusterIP: undefined },
      expected: { externalName: true, clusterIp: undefined },
    },
    {
      name: 'that publishes what is not ready',
      spec: { publishNotReadyAddresses: true },
      expected: { publishNotReadyAddresses: true },
    },
    {
      name: 'with labels that are too large',
      meta: { labels: { a: 'x'.repeat(8_192) } },
      expected: { selector: undefined, unread: true },
    },
    {
      name: 'with a selector that is too large',
      spec: { selector: { a: 'x'.repeat(8_192) } },
      expected: { selector: undefined, unread: true },
    },
    {
      name: 'that says so in the old way',
      meta: { annotations: { 'service.alpha.kubernetes.io/tolerate-unready-endpoints': 'true' } },
      expected: { publishNotReadyAddresses: true },
    },
  ])('$name', ({ spec: more = {}, meta = {}, expected }) => {
    expect(projectService(raw({ spec: { ...spec, ...more } }, meta))).toEqual({ ...plain, ...expected });
  });
});

describe('a Namespace', () => {
  it('has its name as a label, as the API server gives it', () => {
    const object = raw(
      {},
      { namespace: undefined, labels: { team: 'a' }, annotations: { 'linger.dev/mode': 'Off' } },
    );
    expect(projectNamespace(object)).toEqual({
      name: 'web',
      labels: { team: 'a', 'kubernetes.io/metadata.name': 'web' },
      annotations: { 'linger.dev/mode': 'Off' },
    });
  });
});

describe('a Node', () => {
  const nodeInfo = {
    kubeletVersion: 'v1.36.3',
    operatingSystem: 'linux',
    architecture: 'arm64',
    osImage: 'Flatcar',
    containerRuntimeVersion: 'containerd://2.1.4',
  };
  it.each<{ name: string; meta?: object; more?: object; virtual: boolean }>([
    { name: 'of a real kubelet', virtual: false },
    { name: 'of another type', meta: { labels: { type: 'spot' } }, virtual: false },
    { name: 'of virtual-kubelet', meta: { labels: { type: 'virtual-kubelet' } }, virtual: true },
    { name: 'of KWOK', meta: { labels: { type: 'kwok' } }, virtual: true },
    { name: 'of Liqo', meta: { labels: { 'liqo.io/type': 'virtual-node' } }, virtual: true },
    {
      name: "with virtual-kubelet's taint",
      more: {
        spec: { taints: [{ key: 'virtual-kubelet.io/provider', value: 'azure', effect: 'NoSchedule' }] },
      },
      virtual: true,
    },
  ])('$name', ({ meta = {}, more = {}, virtual }) => {
    expect(projectNode(raw({ status: { nodeInfo }, ...more }, meta))).toEqual({
      name: 'web',
      labels: {},
      addresses: [],
      virtual,
      ...nodeInfo,
      ...meta,
    });
  });

  it('has the addresses that its own processes connect from: its own, and the bridges of its pods', () => {
    const addresses = [
      { type: 'Hostname', address: 'worker-3' },
      { type: 'InternalIP', address: '192.0.2.7' },
    ];
    const spec = { podCIDR: '10.202.3.0/24', podCIDRs: ['10.202.3.0/24', 'fd00:202:3::/64', 7] };
    expect(projectNode(raw({ spec, status: { addresses } })).addresses).toEqual([
      '192.0.2.7',
      '10.202.3.1',
      'fd00:202:3::1',
    ]);
  });

  it('that has not reported yet says nothing', () => {
    expect(projectNode(raw({}))).toMatchObject({ kubeletVersion: '', architecture: '', osImage: '' });
  });
});

describe('an EndpointSlice', () => {
  const labels = {
    'kubernetes.io/service-name': 'web',
    'endpointslice.kubernetes.io/managed-by': 'endpointslice-controller.k8s.io',
  };
  const project = (endpoints: unknown) => projectSlice(raw({ addressType: 'IPv4', endpoints }, { labels }));

  it('says whose it is', () => {
    expect(project([])).toEqual({
      namespace: 'shop',
      name: 'web',
      version: '7',
      serviceName: 'web',
      managedBy: 'endpointslice-controller.k8s.io',
      addressType: 'IPv4',
      endpoints: [],
      ports: [],
    });
    expect(projectSlice(raw({ endpoints: [], ports: [{ port: 8080 }, { name: 'any' }] })).ports).toEqual([
      8080,
    ]);
    expect(project(null).endpoints).toEqual([]);
  });

  it.each<{ name: string; endpoint: object; expected: object }>([
    {
      name: 'ready',
      endpoint: { conditions: { ready: true, serving: true, terminating: false } },
      expected: {},
    },
    {
      name: 'terminating',
      endpoint: { conditions: { ready: false, serving: true, terminating: true } },
      expected: { ready: false, terminating: true },
    },
    {
      name: 'not ready, in a slice that sets only that',
      endpoint: { conditions: { ready: false } },
      expected: { ready: false, serving: false },
    },
    { name: 'of unknown conditions, which count as ready', endpoint: {}, expected: {} },
    {
      name: 'that is no pod',
      endpoint: { targetRef: { kind: 'Node', uid: 'n-1', name: 'n' } },
      expected: { targetUid: undefined, targetName: undefined },
    },
    {
      name: 'without a target',
      endpoint: { targetRef: undefined },
      expected: { targetUid: undefined, targetName: undefined },
    },
  ])('with an endpoint $name', ({ endpoint, expected }) => {
    expect(project([{ addresses: ['10.1.0.1'], targetRef: pod('1'), ...endpoint }]).endpoints).toEqual([
      {
        targetUid: '1',
        targetName: 'web-1',
        addresses: ['10.1.0.1'],
        ready: true,
        serving: true,
        terminating: false,
        ...expected,
      },
    ]);
  });
});

describe('a target in another namespace', () => {
  const targetRef = { ...pod('1'), namespace: 'other' };
  const unknown = { targetUid: undefined, targetName: undefined };

  it('is ignored in a slice', () => {
    const endpoints = [{ addresses: ['10.1.0.1'], targetRef }];
    const slice = projectSlice(raw({ endpoints }));
    expect(slice).toMatchObject({ foreign: true, endpoints: [unknown] });
  });

  it('is ignored in Endpoints', () => {
    const subsets = [{ addresses: [{ ip: '10.1.0.1' }], notReadyAddresses: [{ ip: '10.1.0.2', targetRef }] }];
    expect(projectEndpoints(raw({ subsets }))).toMatchObject({ foreign: true, notReady: [unknown] });
  });

  it('is not meant where the reference names no namespace', () => {
    const endpoints = [{ addresses: ['10.1.0.1'], targetRef: { kind: 'Pod', name: 'web-1', uid: '1' } }];
    const slice = projectSlice(raw({ endpoints }));
    expect(slice.endpoints).toMatchObject([{ targetUid: '1' }]);
    expect(slice.foreign).toBeUndefined();
  });
});

describe('an Endpoints object', () => {
  it('takes its subsets together', () => {
    const subsets = [
      {
        addresses: [{ ip: '10.1.0.1', targetRef: pod('1') }],
        notReadyAddresses: [{ ip: '10.1.0.2', targetRef: pod('2') }],
      },
      { addresses: [{ ip: '10.1.0.3' }] },
    ];
    expect(projectEndpoints(raw({ subsets }))).toEqual({
      namespace: 'shop',
      name: 'web',
      version: '7',
      overCapacity: false,
      ready: [
        { targetUid: '1', targetName: 'web-1', ip: '10.1.0.1' },
        { targetUid: undefined, targetName: undefined, ip: '10.1.0.3' },
      ],
      notReady: [{ targetUid: '2', targetName: 'web-2', ip: '10.1.0.2' }],
    });
  });

  it.each([
    ['truncated', true],
    ['warning', false],
  ])('over capacity: %s', (value, overCapacity) => {
    const annotations = { 'endpoints.kubernetes.io/over-capacity': value };
    expect(projectEndpoints(raw({}, { annotations })).overCapacity).toBe(overCapacity);
  });
});
