import {
  type ControllerActivity,
  DEFAULT_FLAGS,
  type QueueActivity,
} from '../../src/diagnose/controller-metrics.ts';
import type { Facts, StageFacts } from '../../src/diagnose/facts.ts';

/** A queue of a calm cluster over 10 s; `over` says what is different. */
export function queue(over: Partial<QueueActivity> = {}): QueueActivity {
  return {
    name: 'endpoint_slice',
    depth: 0,
    depthBefore: 0,
    longestSeconds: 0,
    adds: 5,
    done: 5,
    meanWaitSeconds: 0.0001,
    meanWorkSeconds: 0.006,
    busyWorkers: 0.003,
    life: { taken: 10_000, overSecond: 0 },
    ...over,
  };
}

/** A controller-manager that has been calm for a day. */
export function activity(over: Partial<ControllerActivity> = {}): ControllerActivity {
  return {
    seconds: 10,
    restarted: false,
    ageSeconds: 86_400,
    version: 'v1.36.3',
    leading: true,
    missing: [],
    queues: [queue(), queue({ name: 'endpoint' }), queue({ name: 'endpoint_slice_mirroring' })],
    limiter: { count: 30, sum: 0.001, overSecond: 0 },
    limiterLife: { count: 20_000, sum: 1, overSecond: 0 },
    server: { count: 30, sum: 0.15, overSecond: 0 },
    answers: { total: 60, tooMany: 0, serverErrors: 0, unanswered: 0 },
    failedSyncs: 0,
    changes: 5,
    ...over,
  };
}

export function stage(over: Partial<StageFacts> = {}): StageFacts {
  return {
    stage: 'EndpointSlice',
    samples: 40,
    p50: 0.02,
    p99: 0.08,
    waiting: 0,
    oldestSeconds: undefined,
    ...over,
  };
}

/** A calm cluster of which everything is known. */
export function facts(over: Partial<Facts> = {}): Facts {
  return {
    controller: activity(),
    flags: { ...DEFAULT_FLAGS, known: true },
    leader: { holder: 'control-plane-1_6f2d', ageSeconds: 86_400, transitions: 3 },
    priority: { level: 'workload-high', waiting: 0, rejected: 0, timedOut: 0 },
    lag: { from: 'watched for 10 s', stages: [stage(), stage({ stage: 'Endpoints' })], life: [] },
    cluster: {
      services: 1000,
      neverWithdrawn: { services: 0, examples: [] },
      endpointsReaders: undefined,
    },
    looks: [],
    ...over,
  };
}
