import { describe, expect, it, test } from 'vitest';
import { decide } from '../../../src/core/decision/decide.ts';
import {
  FLEET_SETTLE_SECONDS,
  type Fleet,
  fleetOf,
  parseVersion,
  type SettlingFleet,
  settle,
  supportsNativeSleep,
  UNSETTLED,
} from '../../../src/core/decision/fleet.ts';
import { creationOf, type JsonObject, pod } from './sample-pod.ts';
import { clusterPolicy, fleet, OLD_FLEET, sampleNode, snapshotOf } from './sample-snapshot.ts';

const NEW_FLEET = fleet('v1.36.3', 'v1.36.3');

function hookFor(hook: string, onFleet: Fleet | undefined, spec: JsonObject = {}) {
  const circumstances = onFleet === undefined ? {} : { fleet: onFleet };
  const decision = decide(creationOf(pod(spec)), snapshotOf([clusterPolicy({ hook })], circumstances));
  return decision.outcome === 'inject' ? decision.plan.hook : decision.reason;
}

describe('a version', () => {
  test.each([
    ['v1.36.3', 1, 36],
    ['1.30', 1, 30],
    ['v1.29.4-gke.1043002', 1, 29],
    ['v1.30.0+k3s1', 1, 30],
    ['v1.31-eks-036c24b', 1, 31],
    ['v2.0.0', 2, 0],
  ])('%s', (text, major, minor) => {
    expect(parseVersion(text)).toEqual({ major, minor });
  });

  test.each(['', 'v1', '1', 'latest', 'v1.x', 'vk-azure-aci-1.4', 'v1.30rc', 'x1.30.0', '-1.30'])(
    '%j does not parse',
    (text) => {
      expect(parseVersion(text)).toBeUndefined();
    },
  );
});

describe('Auto is Sleep where API server and every kubelet are at least 1.30', () => {
  test.each<[string, string[], boolean]>([
    ['v1.30.0', ['v1.30.0'], true],
    ['v1.36.3', ['v1.36.3', 'v1.30.9'], true],
    ['v1.36.3', ['v1.36.3', 'v1.29.9'], false],
    ['v1.29.9', ['v1.29.9'], false],
    ['v1.29.9', ['v1.30.0'], false],
    ['v1.30.0', [], true],
    ['v1.36.3', ['vk-fargate', 'v1.36.0'], true],
    ['v1.36.3', ['vk-fargate'], true],
    ['v2.0.0', ['v2.0.0'], true],
    ['v1.100.0', ['v1.100.0'], true],
  ])('API server %s, kubelets %j: %s', (apiServer, kubelets, native) => {
    expect(supportsNativeSleep(fleet(apiServer, ...kubelets))).toBe(native);
    expect(hookFor('Auto', fleet(apiServer, ...kubelets))).toBe(native ? 'Sleep' : 'Exec');
  });

  it('virtual nodes are ignored, whatever version they claim', () => {
    const nodes = [
      sampleNode({ kubeletVersion: 'v1.12.0', virtual: true }),
      sampleNode({ kubeletVersion: 'v1.33.0' }),
    ];
    expect(fleetOf('v1.33.0', nodes)?.oldestKubelet).toEqual({ major: 1, minor: 33 });
  });

  it('without a cluster it is Sleep', () => {
    expect(hookFor('Auto', undefined)).toBe('Sleep');
  });

  it('an API server whose version does not parse is ignored, and old kubelets still count', () => {
    const nodes = [sampleNode({ kubeletVersion: 'v1.28.0' })];
    expect(supportsNativeSleep(fleetOf('unknown', nodes))).toBe(false);
  });
});

describe('the hook that is asked for', () => {
  test.each<[string, string, Fleet | undefined, JsonObject, string]>([
    ['Sleep', 'new nodes', NEW_FLEET, {}, 'Sleep'],
    ['Sleep', 'old nodes', OLD_FLEET, {}, 'NoHook'],
    ['Exec', 'new nodes', NEW_FLEET, {}, 'Exec'],
    ['Exec', 'old nodes', OLD_FLEET, {}, 'Exec'],
    ['Exec', 'no cluster', undefined, {}, 'Exec'],
    ['Auto', 'Windows, new nodes', NEW_FLEET, { os: { name: 'windows' } }, 'Sleep'],
    ['Auto', 'Windows, old nodes', OLD_FLEET, { os: { name: 'windows' } }, 'NoHook'],
    [
      'Auto',
      'Windows by nodeSelector, old nodes',
      OLD_FLEET,
      { nodeSelector: { 'kubernetes.io/os': 'windows' } },
      'NoHook',
    ],
    ['Auto', 'Linux, old nodes', OLD_FLEET, { os: { name: 'linux' } }, 'Exec'],
    ['Exec', 'Windows', NEW_FLEET, { os: { name: 'windows' } }, 'NoHook'],
    ['Sleep', 'Windows', NEW_FLEET, { os: { name: 'windows' } }, 'Sleep'],
  ])('%s, %s', (hook, _, onFleet, spec, expected) => {
    expect(hookFor(hook, onFleet, spec)).toBe(expected);
  });
});

describe('the answer changes only when the new one has held for ten minutes', () => {
  /** Feeds observations at these seconds, and tells which hook is in force after each. */
  function answers(observations: readonly [seconds: number, observed: Fleet][]): string[] {
    let state: SettlingFleet = UNSETTLED;
    return observations.map(([now, observed]) => {
      state = settle(state, observed, now);
      return supportsNativeSleep(state.inForce) ? 'Sleep' : 'Exec';
    });
  }

  it('is ten minutes', () => {
    expect(FLEET_SETTLE_SECONDS).toBe(600);
  });

  test.each<[string, [number, Fleet][], string[]]>([
    ['the first observation counts at once', [[5, OLD_FLEET]], ['Exec']],
    [
      'old nodes for less than ten minutes',
      [
        [0, NEW_FLEET],
        [100, OLD_FLEET],
        [699, OLD_FLEET],
      ],
      ['Sleep', 'Sleep', 'Sleep'],
    ],
    [
      'old nodes for ten minutes',
      [
        [0, NEW_FLEET],
        [100, OLD_FLEET],
        [700, OLD_FLEET],
      ],
      ['Sleep', 'Sleep', 'Exec'],
    ],
    [
      'a node pool that comes and goes starts over each time',
      [
        [0, NEW_FLEET],
        [100, OLD_FLEET],
        [600, NEW_FLEET],
        [650, OLD_FLEET],
        [1200, OLD_FLEET],
        [1250, OLD_FLEET],
      ],
      ['Sleep', 'Sleep', 'Sleep', 'Sleep', 'Sleep', 'Exec'],
    ],
    [
      'the way back takes ten minutes as well',
      [
        [0, OLD_FLEET],
        [50, NEW_FLEET],
        [649, NEW_FLEET],
        [650, NEW_FLEET],
      ],
      ['Exec', 'Exec', 'Exec', 'Sleep'],
    ],
    [
      'versions that move without changing the answer do not start it over',
      [
        [0, NEW_FLEET],
        [100, fleet('v1.36.3', 'v1.29.0')],
        [400, fleet('v1.36.3', 'v1.28.0')],
        [700, fleet('v1.36.3', 'v1.27.0')],
      ],
      ['Sleep', 'Sleep', 'Sleep', 'Exec'],
    ],
  ])('%s', (_, observations, expected) => {
    expect(answers(observations)).toEqual(expected);
  });
});
