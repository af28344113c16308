import { describe, expect, it, test } from 'vitest';
import { decide } from '../../../src/core/decision/decide.ts';
import { codesOf, container, creationOf, type JsonObject, type PodObject, pod, podOf } from './sample-pod.ts';
import { clusterPolicy, consumer, namespace, service, snapshotOf } from './sample-snapshot.ts';

const SILENT = podOf(container('app'));
const PORT = podOf(container('app', { ports: [{ containerPort: 80 }] }));
const PROBE = podOf(container('app', { readinessProbe: { tcpSocket: { port: 80 } } }));
/** As injectors leave them. */
const meshed = (name: string, ...others: Parameters<typeof podOf>) =>
  podOf(...others, container(name, { ports: [{ containerPort: 4191 }], readinessProbe: { httpGet: {} } }));
const WEB = service({ selector: { app: 'web' } });
const OTHER = service({ selector: { app: 'api' } }, 'api');

function gets(object: PodObject, documents: JsonObject[], servicesComplete: boolean, pods?: string) {
  const policies = pods === undefined ? [] : [clusterPolicy({ pods })];
  const decision = decide(creationOf(object), snapshotOf([...policies, ...documents], { servicesComplete }));
  return decision.outcome === 'inject' ? 'inject' : decision.reason;
}

/** Where the Services are all known: the first column under Serving, then Selected, then All. */
const KNOWN: readonly [string, PodObject, JsonObject[], string, string, string][] = [
  ['nothing', SILENT, [], 'NotServing', 'NotServing', 'inject'],
  ['a Service selects it', SILENT, [WEB], 'inject', 'inject', 'inject'],
  ['a Service selects others', SILENT, [OTHER], 'NotServing', 'NotServing', 'inject'],
  ['one of two Services selects it', SILENT, [OTHER, WEB], 'inject', 'inject', 'inject'],
  ['a port', PORT, [], 'inject', 'NotServing', 'inject'],
  [
    'an empty list of ports',
    podOf(container('app', { ports: [] })),
    [],
    'NotServing',
    'NotServing',
    'inject',
  ],
  ['a readiness probe', PROBE, [], 'inject', 'NotServing', 'inject'],
  [
    'a liveness and a startup probe',
    podOf(container('app', { livenessProbe: { tcpSocket: { port: 80 } }, startupProbe: {} })),
    [],
    'NotServing',
    'NotServing',
    'inject',
  ],
  [
    'a port of the second container',
    podOf(container('app'), container('b', { ports: [{ containerPort: 1 }] })),
    [],
    'inject',
    'NotServing',
    'inject',
  ],
  [
    'the proxy of Istio, which has both',
    meshed('istio-proxy', container('app')),
    [],
    'NotServing',
    'NotServing',
    'inject',
  ],
  [
    'the proxy of Linkerd, which has both',
    meshed('linkerd-proxy', container('app')),
    [],
    'NotServing',
    'NotServing',
    'inject',
  ],
  [
    'a proxy beside a port of the application',
    meshed('istio-proxy', container('app', { ports: [{ containerPort: 80 }] })),
    [],
    'inject',
    'NotServing',
    'inject',
  ],
  ['a gateway of a mesh: a proxy alone', meshed('istio-proxy'), [], 'inject', 'NotServing', 'inject'],
  [
    'a Service in another namespace',
    SILENT,
    [service({ selector: { app: 'web' } }, 'web', 'other')],
    'NotServing',
    'NotServing',
    'inject',
  ],
  [
    'an ExternalName Service',
    SILENT,
    [service({ type: 'ExternalName', selector: { app: 'web' } })],
    'NotServing',
    'NotServing',
    'inject',
  ],
  [
    'a headless Service',
    SILENT,
    [service({ clusterIP: 'None', selector: { app: 'web' } })],
    'inject',
    'inject',
    'inject',
  ],
  ['a Service without a selector', SILENT, [service({})], 'NotServing', 'NotServing', 'inject'],
  [
    'a Service with an empty selector',
    SILENT,
    [service({ selector: {} })],
    'NotServing',
    'NotServing',
    'inject',
  ],
  [
    'a Service that asks for more labels',
    SILENT,
    [service({ selector: { app: 'web', tier: 'x' } })],
    'NotServing',
    'NotServing',
    'inject',
  ],
  [
    'a Service that a rollout pins to another ReplicaSet',
    SILENT,
    [service({ selector: { app: 'web', 'pod-template-hash': 'abc' } })],
    'inject',
    'inject',
    'inject',
  ],
  [
    'one that Argo Rollouts pins',
    SILENT,
    [service({ selector: { 'rollouts-pod-template-hash': 'abc', app: 'web' } })],
    'inject',
    'inject',
    'inject',
  ],
  [
    'a consumer’s podSelector',
    SILENT,
    [consumer({ podSelector: { matchLabels: { app: 'web' } } })],
    'inject',
    'inject',
    'inject',
  ],
  ['a consumer of every pod', SILENT, [consumer({ podSelector: {} })], 'inject', 'inject', 'inject'],
  [
    'a consumer of other pods',
    SILENT,
    [consumer({ podSelector: { matchLabels: { app: 'api' } } })],
    'NotServing',
    'NotServing',
    'inject',
  ],
  [
    'a consumer that goes by Services',
    SILENT,
    [consumer({ serviceSelector: {} })],
    'NotServing',
    'NotServing',
    'inject',
  ],
  [
    'a consumer in other namespaces',
    SILENT,
    [
      consumer({ podSelector: {}, namespaceSelector: { matchLabels: { team: 'a' } } }),
      namespace({}, { team: 'b' }),
    ],
    'NotServing',
    'NotServing',
    'inject',
  ],
  [
    'a consumer in this namespace',
    SILENT,
    [
      consumer({ podSelector: {}, namespaceSelector: { matchLabels: { team: 'a' } } }),
      namespace({}, { team: 'a' }),
    ],
    'inject',
    'inject',
    'inject',
  ],
];

describe('where the Services are known', () => {
  test.each(KNOWN)('%s', (_, object, documents, underServing, underSelected, underAll) => {
    expect(gets(object, documents, true), 'built-in').toBe(underServing);
    expect(gets(object, documents, true, 'Serving')).toBe(underServing);
    expect(gets(object, documents, true, 'Selected')).toBe(underSelected);
    expect(gets(object, documents, true, 'All')).toBe(underAll);
  });

  it('a native sidecar is a container that can declare the pod’s port or readiness, too', () => {
    const sidecar = container('proxy', { restartPolicy: 'Always', ports: [{ containerPort: 8443 }] });
    const object = pod({ containers: [container('app')], initContainers: [sidecar] });
    expect(gets(object, [], true)).toBe('inject');
  });

  it('an ordinary init container does not serve', () => {
    const migrate = container('migrate', { ports: [{ containerPort: 8443 }] });
    const object = pod({ containers: [container('app')], initContainers: [migrate] });
    expect(gets(object, [], true)).toBe('NotServing');
  });
});

describe('where the Services of the namespace are not known, the pod counts as serving', () => {
  test.each([
    ['nothing declared', 'Serving', SILENT],
    ['nothing declared', 'Selected', SILENT],
    ['nothing declared', 'All', SILENT],
    ['a port', 'Serving', PORT],
    ['a port', 'Selected', PORT],
    ['a readiness probe', 'Serving', PROBE],
    ['a readiness probe', 'Selected', PROBE],
  ])('%s, pods: %s', (_, pods, object) => {
    expect(gets(object, [], false, pods)).toBe('inject');
  });

  it('and the decision says so', () => {
    const decision = decide(creationOf(SILENT), snapshotOf([]));
    expect(codesOf(decision)).toEqual(['ServicesUnknown']);
  });

  it('files that have Services of the namespace do decide', () => {
    expect(gets(SILENT, [OTHER], false)).toBe('NotServing');
    expect(gets(SILENT, [WEB], false)).toBe('inject');
  });

  it('Services of another namespace say nothing about this one', () => {
    expect(gets(SILENT, [service({ selector: { app: 'api' } }, 'api', 'other')], false)).toBe('inject');
  });
});
