import { describe, expect, test } from 'vitest';
import { decide, type PodRequest } from '../../../src/core/decision/decide.ts';
import { patchFor } from '../../../src/core/decision/patch.ts';
import type { Pod } from '../../../src/core/decision/pod.ts';
import type { SkipReason } from '../../../src/core/decision/reasons.ts';
import { samplePlan } from './sample-plan.ts';
import {
  container,
  creationOf,
  exec,
  type JsonObject,
  ownedBy,
  pod,
  preStop,
  server,
  sleep,
} from './sample-pod.ts';
import {
  type Circumstances,
  clusterPolicy,
  namespace,
  OLD_FLEET,
  policy,
  service,
  snapshotOf,
} from './sample-snapshot.ts';

interface Situation {
  readonly request?: Partial<PodRequest>;
  readonly pod?: unknown;
  readonly documents?: readonly JsonObject[];
  readonly circumstances?: Circumstances;
}

function decisionIn({ request, pod: object = pod(), documents = [], circumstances }: Situation) {
  return decide(creationOf(object, request), snapshotOf(documents, circumstances));
}

const injected = pod(
  { containers: [server('app', preStop(sleep(30)))], terminationGracePeriodSeconds: 60 },
  { annotations: { 'linger.dev/plan': samplePlan() } },
);

const silent = pod({ containers: [container('app')] });
const repeated = (count: number, each: (index: number) => JsonObject[string]) =>
  Array.from({ length: count }, (_, index) => each(index));
const labels = (count: number) =>
  Object.fromEntries(repeated(count, (index) => [`label-${index}`, ''] as const) as [string, string][]);
const fixed = (text: string) => clusterPolicy({ wait: { from: 'Fixed', fixed: text } });

/** Situations in which a reason applies; `skip-order.test.ts` has one of each. */
const SITUATIONS: readonly [SkipReason, string, Situation][] = [
  ['NotPodCreate', 'an update', { request: { operation: 'UPDATE' } }],
  ['NotPodCreate', 'a deletion, whose object is null', { request: { operation: 'DELETE' }, pod: null }],
  ['NotPodCreate', 'an eviction', { request: { subResource: 'eviction' } }],
  ['NotPodCreate', 'a Service', { request: { resource: { group: '', resource: 'services' } } }],
  [
    'NotPodCreate',
    'pods of another group',
    { request: { resource: { group: 'metrics.k8s.io', resource: 'pods' } } },
  ],
  ['InvalidPod', 'null', { pod: null }],
  ['InvalidPod', 'a text', { pod: 'pod' }],
  ['InvalidPod', 'a list', { pod: [] }],
  ['InvalidPod', 'an empty object', { pod: {} }],
  ['InvalidPod', 'another kind', { pod: { ...pod(), kind: 'Node' } }],
  ['InvalidPod', 'another version', { pod: { ...pod(), apiVersion: 'v2' } }],
  ['InvalidPod', 'a null spec', { pod: { ...pod(), spec: null } }],
  ['InvalidPod', 'containers that are no list', { pod: pod({ containers: { app: server() } }) }],
  ['InvalidPod', 'no containers', { pod: { ...pod(), spec: {} } }],
  ['InvalidPod', 'a container that is none', { pod: pod({ containers: [server(), null] }) }],
  ['InvalidPod', 'a container without a name', { pod: pod({ containers: [{ image: 'app:1' }] }) }],
  [
    'InvalidPod',
    'a lifecycle that is none',
    { pod: pod({ containers: [server('app', { lifecycle: 'x' })] }) },
  ],
  ['InvalidPod', 'a preStop that is none', { pod: pod({ containers: [server('app', preStop('x'))] }) }],
  ['InvalidPod', 'ports that are no list', { pod: pod({ containers: [container('app', { ports: 80 })] }) }],
  [
    'TooLarge',
    '1,001 containers',
    { pod: pod({ containers: repeated(1001, (index) => server(`app-${index}`)) }) },
  ],
  [
    'TooLarge',
    '1,001 init containers and others',
    { pod: pod({ initContainers: repeated(1000, (index) => container(`init-${index}`)) }) },
  ],
  ['TooLarge', '1,001 labels', { pod: pod({}, { labels: labels(1001) }) }],
  [
    'TooLarge',
    'over 256 KiB of annotations',
    { pod: pod({}, { annotations: { note: 'x'.repeat(256 * 1024 - 3) } }) },
  ],
  ['InvalidPod', 'a grace in words', { pod: pod({ terminationGracePeriodSeconds: '30' }) }],
  ['InvalidPod', 'a fraction of a grace', { pod: pod({ terminationGracePeriodSeconds: 1.5 }) }],
  ['InvalidPod', 'annotations that are numbers', { pod: pod({}, { annotations: { a: 1 } }) }],
  ['InvalidPod', 'labels that are a list', { pod: pod({}, { labels: ['a'] }) }],
  ['InvalidPod', 'metadata that is none', { pod: { ...pod(), metadata: 7 } }],
  [
    'MirrorPod',
    'of a static pod',
    { pod: pod({}, { annotations: { 'kubernetes.io/config.mirror': 'abc' } }) },
  ],
  ['OptedOut', 'by annotation', { pod: pod({}, { annotations: { 'linger.dev/inject': 'false' } }) }],
  ['OptedOut', 'by label', { pod: pod({}, { labels: { 'linger.dev/inject': 'false' } }) }],
  ['OptedOut', 'by its namespace', { documents: [namespace({ 'linger.dev/inject': 'false' })] }],
  ['ModeOff', 'by policy', { documents: [clusterPolicy({ mode: 'Off' })] }],
  ['ModeOff', 'by annotation', { pod: pod({}, { annotations: { 'linger.dev/mode': 'Off' } }) }],
  ['ModeOff', 'by the operator’s limit', { circumstances: { modeLimit: 'Off' } }],
  ['AlreadyInjected', 'its own output', { pod: injected }],
  ['Job', 'of a Job', { pod: pod({}, ownedBy('Job', 'batch/v1')) }],
  ['Job', 'of a Job that restarts on failure', { pod: pod({ restartPolicy: 'OnFailure' }, ownedBy('Job')) }],
  ['Job', 'of a Job in a manifest', { request: { ownerKind: 'Job' } }],
  ['RestartPolicy', 'Never', { pod: pod({ restartPolicy: 'Never' }) }],
  ['RestartPolicy', 'OnFailure', { pod: pod({ restartPolicy: 'OnFailure' }) }],
  [
    'RestartPolicy',
    'of a Job that is not excluded',
    { pod: pod({ restartPolicy: 'Never' }, ownedBy('Job')), documents: [clusterPolicy({ exclude: [] })] },
  ],
  ['DaemonSet', 'of a DaemonSet', { pod: pod({}, ownedBy('DaemonSet')) }],
  ['DaemonSet', 'of a DaemonSet in a manifest', { request: { ownerKind: 'DaemonSet' } }],
  [
    'ExcludedKind',
    'of a StatefulSet',
    { pod: pod({}, ownedBy('StatefulSet')), documents: [policy({ exclude: ['StatefulSet'] })] },
  ],
  [
    'ExcludedKind',
    'of a ReplicaSet',
    {
      pod: pod({}, { ...ownedBy('ReplicaSet'), annotations: { 'linger.dev/inject': 'true' } }),
      documents: [policy({ exclude: ['ReplicaSet'] })],
    },
  ],
  ['ZeroGrace', 'no time at all', { pod: pod({ terminationGracePeriodSeconds: 0 }) }],
  ['NotServing', 'no Service in the cluster', { pod: silent, circumstances: { servicesComplete: true } }],
  [
    'NotServing',
    'another pod’s Service',
    { pod: silent, documents: [service({ selector: { app: 'api' } })] },
  ],
  [
    'DrainsItself',
    'a Knative revision',
    { pod: pod({}, { labels: { 'serving.knative.dev/revision': 'a' } }) },
  ],
  ['NoContainer', 'no such name', { documents: [clusterPolicy({ containers: ['absent'] })] }],
  [
    'NoContainer',
    'an init container’s name',
    {
      pod: pod({ initContainers: [container('proxy', { restartPolicy: 'Always' })] }),
      documents: [clusterPolicy({ containers: ['proxy'] })],
    },
  ],
  [
    'ExistingHook',
    'a hook of its own',
    { pod: pod({ containers: [server('app', preStop(exec('/drain')))] }) },
  ],
  ['ExistingHook', 'sleep: 0', { pod: pod({ containers: [server('app', preStop(sleep(0)))] }) }],
  [
    'ExistingHook',
    'in each container that the policy names',
    {
      pod: pod({ containers: [server('app', preStop(exec('/drain'))), container('log')] }),
      documents: [clusterPolicy({ containers: ['app'] })],
    },
  ],
  [
    'ExistingHook',
    'Extend, and already long enough',
    {
      pod: pod({ containers: [server('app', preStop(sleep(30)))] }),
      documents: [clusterPolicy({ existingHook: 'Extend' })],
    },
  ],
  [
    'NoHook',
    'Sleep on old nodes',
    { documents: [clusterPolicy({ hook: 'Sleep' })], circumstances: { fleet: OLD_FLEET } },
  ],
  [
    'NoHook',
    'Windows on old nodes',
    { pod: pod({ os: { name: 'windows' } }), circumstances: { fleet: OLD_FLEET } },
  ],
  [
    'NoHook',
    'Exec on Windows',
    { pod: pod({ os: { name: 'windows' } }), documents: [clusterPolicy({ hook: 'Exec' })] },
  ],
  ['NoWait', 'fixed at 0s', { documents: [fixed('0s')] }],
  ['NoWait', 'by annotation', { pod: pod({}, { annotations: { 'linger.dev/wait': '0' } }) }],
  ['NoWait', 'a ceiling under a second', { documents: [clusterPolicy({ ceiling: { wait: '900ms' } })] }],
  [
    'NoRoom',
    'nine tenths of a short grace',
    { pod: pod({ terminationGracePeriodSeconds: 9 }), documents: [clusterPolicy({ grace: { max: '9s' } })] },
  ],
];

describe('a pod is skipped, unchanged', () => {
  test.each(SITUATIONS)('%s: %s', (reason, _, situation) => {
    const decision = decisionIn(situation);
    expect(decision).toMatchObject({ outcome: 'skip', reason });
    expect(patchFor((situation.pod ?? pod()) as Pod, decision)).toEqual([]);
  });
});

describe('what does not exclude', () => {
  test.each<[string, Situation]>([
    [
      'an owner that is not the controller',
      { pod: pod({}, { ownerReferences: [{ apiVersion: 'batch/v1', kind: 'Job', name: 'j', uid: 'u' }] }) },
    ],
    ['a ReplicaSet', { pod: pod({}, ownedBy('ReplicaSet')) }],
    ['a StatefulSet', { pod: pod({}, ownedBy('StatefulSet')) }],
    [
      'a DaemonSet, where none is excluded',
      { pod: pod({}, ownedBy('DaemonSet')), documents: [clusterPolicy({ exclude: [] })] },
    ],
    ['restartPolicy Always', { pod: pod({ restartPolicy: 'Always' }) }],
    [
      'null members',
      {
        pod: pod({ terminationGracePeriodSeconds: null, restartPolicy: null, os: null, nodeSelector: null }),
      },
    ],
    ['no metadata', { pod: { ...pod(), metadata: undefined } }],
    ['null metadata', { pod: { ...pod(), metadata: null } }],
    ['no kind, as in a pod template', { pod: { spec: pod().spec } }],
  ])('%s', (_, situation) => {
    expect(decisionIn(situation).outcome).toBe('inject');
  });
});
