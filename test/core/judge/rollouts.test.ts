import { describe, expect, test } from 'vitest';
import { workloadOf } from '../../../src/core/decision/index.ts';
import { rolloutOf } from '../../../src/core/judge/rollouts.ts';

const GROUPS: Readonly<Record<string, string>> = {
  Rollout: 'argoproj.io/v1alpha1',
  CloneSet: 'apps.kruise.io/v1alpha1',
};

function rollout(kind: string, spec: object, pods: number, least = pods) {
  const template = { metadata: { labels: { app: 'web' } }, spec: { containers: [{ name: 'app' }] } };
  const object = {
    apiVersion: GROUPS[kind] ?? 'apps/v1',
    kind,
    metadata: { name: 'web' },
    spec: { template, ...spec },
  };
  return rolloutOf(workloadOf(object)!, object, least, pods);
}

const rolling = (of: object) => ({ strategy: { rollingUpdate: of } });
const updating = (of: object) => ({ updateStrategy: { rollingUpdate: of } });
const onNode = (spec: object) => ({ template: { metadata: { labels: { app: 'web' } }, spec } });
const PORT = onNode({ containers: [{ name: 'app', ports: [{ containerPort: 80, hostPort: 80 }] }] });
const takingPort = (more: object) =>
  onNode({
    containers: [{ name: 'app' }],
    initContainers: [{ name: 'proxy', ports: [{ containerPort: 80, hostPort: 80 }], ...more }],
  });
const SIDECAR_PORT = takingPort({ restartPolicy: 'Always' });
const INIT_PORT = takingPort({});
const term = { topologyKey: 'kubernetes.io/hostname', labelSelector: { matchLabels: { app: 'web' } } };
const APART = onNode({
  containers: [{ name: 'app' }],
  affinity: { podAntiAffinity: { requiredDuringSchedulingIgnoredDuringExecution: [term] } },
});

describe('what a rollout does', () => {
  test.each<[what: string, kind: string, spec: object, pods: number, gap: boolean, waits: number]>([
    ['one pod, as by default: 25% of 1 is rounded down', 'Deployment', {}, 1, false, 0],
    ['one pod, no surge', 'Deployment', rolling({ maxSurge: 0, maxUnavailable: 1 }), 1, true, 0],
    [
      'neither surge nor unavailable: one is',
      'Deployment',
      rolling({ maxSurge: 0, maxUnavailable: '25%' }),
      1,
      true,
      0,
    ],
    ['50% of three', 'Deployment', rolling({ maxUnavailable: '50%' }), 3, false, 0],
    ['more than there are', 'Deployment', rolling({ maxUnavailable: 10 }), 3, true, 0],
    ['Recreate', 'Deployment', { strategy: { type: 'Recreate' } }, 3, true, 1],
    ['a host port', 'Deployment', { ...PORT, ...rolling({ maxUnavailable: 2 }) }, 5, false, 3],
    ['a host port of a native sidecar', 'Deployment', SIDECAR_PORT, 4, false, 4],
    ['a host port of what runs before', 'Deployment', INIT_PORT, 4, false, 0],
    ['an anti-affinity to its own pods', 'Deployment', APART, 4, false, 4],
    ['blue and green', 'Rollout', { strategy: { blueGreen: {} } }, 1, false, 0],
    [
      'canary without surge',
      'Rollout',
      { strategy: { canary: { maxSurge: 0, maxUnavailable: 1 } } },
      1,
      true,
      0,
    ],
    ['a StatefulSet', 'StatefulSet', {}, 3, false, 3],
    ['of one', 'StatefulSet', {}, 1, true, 1],
    ['OnDelete', 'StatefulSet', { updateStrategy: { type: 'OnDelete' } }, 3, false, 0],
    ['from a partition on', 'StatefulSet', updating({ partition: 2 }), 3, false, 1],
    ['with a partition beyond all', 'StatefulSet', updating({ partition: 5 }), 3, false, 0],
    ['of one, which it keeps', 'StatefulSet', updating({ partition: 1 }), 1, false, 0],
    [
      'all but those below a partition',
      'StatefulSet',
      updating({ partition: 1, maxUnavailable: 3 }),
      3,
      false,
      1,
    ],
    ['several at once', 'StatefulSet', updating({ maxUnavailable: '50%' }), 5, false, 3],
    ['all at once', 'StatefulSet', updating({ maxUnavailable: 3 }), 3, true, 1],
    ['a DaemonSet', 'DaemonSet', updating({ maxUnavailable: '30%' }), 10, false, 4],
    ['with a surge', 'DaemonSet', updating({ maxSurge: 1, maxUnavailable: 0 }), 10, false, 0],
    ['a CloneSet of one: 20% is rounded up', 'CloneSet', {}, 1, true, 0],
    ['a CloneSet of five in place', 'CloneSet', { updateStrategy: { type: 'InPlaceOnly' } }, 5, false, 5],
    [
      'a CloneSet that keeps one',
      'CloneSet',
      { updateStrategy: { partition: 1, maxUnavailable: 3 } },
      3,
      false,
      0,
    ],
    ['a CloneSet that keeps all', 'CloneSet', { updateStrategy: { partition: '100%' } }, 1, false, 0],
    ['a ReplicaSet', 'ReplicaSet', {}, 1, false, 0],
  ])('%s', (_, kind, spec, pods, gap, waits) => {
    const found = rollout(kind, spec, pods);
    expect([found.gap !== undefined, found.waits]).toEqual([gap, waits]);
  });

  test('the gap is that of the fewest pods, the waits are those of all', () => {
    const { gap, waits } = rollout('Deployment', { ...PORT, ...rolling({ maxUnavailable: 2 }) }, 6, 2);
    expect([gap, waits]).toEqual([expect.stringContaining('all 2 pods'), 3]);
  });
});
