import { parseDuration } from '../schema/duration.ts';

/** The flags of kube-controller-manager that decide how soon an endpoint is withdrawn. */
export interface ControllerFlags {
  /** Requests a second, for each controller's client; infinite: no limit. */
  readonly qps: number;
  readonly burst: number;
  /** How many Services each controller works on at a time. */
  readonly workers: Readonly<Record<QueueName, number>>;
  /** How long each waits on purpose, in seconds, for more changes to come. */
  readonly batchSeconds: Readonly<Record<QueueName, number>>;
  /** Whether they were read; if not, they are the defaults. */
  readonly known: boolean;
}

/** The work queues on the way, by the `name` label that they carry in the metrics (read in 1.36.3). */
export const QUEUES = ['endpoint_slice', 'endpoint', 'endpoint_slice_mirroring'] as const;
export type QueueName = (typeof QUEUES)[number];

/** What the controller behind a queue writes. */
export const WRITTEN_BY: Readonly<Record<QueueName, string>> = {
  endpoint_slice: 'EndpointSlices',
  endpoint: 'Endpoints',
  endpoint_slice_mirroring: 'mirrored EndpointSlices',
};

export const WORKER_FLAGS: Readonly<Record<QueueName, string>> = {
  endpoint_slice: '--concurrent-service-endpoint-syncs',
  endpoint: '--concurrent-endpoint-syncs',
  endpoint_slice_mirroring: '--mirroring-concurrent-service-endpoint-syncs',
};

export const BATCH_FLAGS: Readonly<Record<QueueName, string>> = {
  endpoint_slice: '--endpointslice-updates-batch-period',
  endpoint: '--endpoint-updates-batch-period',
  endpoint_slice_mirroring: '--mirroring-endpointslice-updates-batch-period',
};

/** Of the slices' controllers (options/endpointslicecontroller.go); the other has no limit, and needs no more either. */
export const MOST_WORKERS = 50;

/**
 * Source: Kubernetes 1.36, RecommendedDefaultGenericControllerManagerConfiguration and those of the three controllers;
 * they have not changed since slices exist.
 */
export const DEFAULT_FLAGS: ControllerFlags = {
  qps: 20,
  burst: 30,
  workers: { endpoint_slice: 5, endpoint: 5, endpoint_slice_mirroring: 5 },
  batchSeconds: { endpoint_slice: 0, endpoint: 0, endpoint_slice_mirroring: 0 },
  known: false,
};

/**
 * Reads the words of a kube-controller-manager's command line; the last of two equal flags counts, as for it.
 * @param words the program itself may be among them; `--flag=value` and `--flag value` both do
 */
export function controllerFlags(words: readonly string[]): ControllerFlags {
  // A shell's -c has them all in one word.
  const given = givenFlags(words.flatMap((word) => word.trim().split(/\s+/)));
  const number = (flag: string, otherwise: number) => numberOr(given.get(flag), otherwise);
  const ofQueues = (read: (queue: QueueName) => number) => ({
    endpoint_slice: read('endpoint_slice'),
    endpoint: read('endpoint'),
    endpoint_slice_mirroring: read('endpoint_slice_mirroring'),
  });
  return {
    // client-go takes a negative rate for no limit (kubernetes/clientset.go); 0 is the default.
    qps:
      Number(given.get('--kube-api-qps')) < 0
        ? Number.POSITIVE_INFINITY
        : number('--kube-api-qps', DEFAULT_FLAGS.qps),
    burst: number('--kube-api-burst', DEFAULT_FLAGS.burst),
    workers: ofQueues((queue) => number(WORKER_FLAGS[queue], DEFAULT_FLAGS.workers[queue])),
    batchSeconds: ofQueues((queue) => parseDuration(given.get(BATCH_FLAGS[queue]) ?? '') ?? 0),
    known: true,
  };
}

function givenFlags(words: readonly string[]): ReadonlyMap<string, string> {
  const given = new Map<string, string>();
  for (const [index, word] of words.entries()) {
    if (!word.startsWith('-')) continue;
    const equals = word.indexOf('=');
    const name = equals < 0 ? word : word.slice(0, equals);
    const value = equals < 0 ? (words[index + 1] ?? '') : word.slice(equals + 1);
    given.set(name.replace(/^--?/, '--'), value);
  }
  return given;
}

/** What cannot be a value of these flags would have kept the controller-manager from starting. */
function numberOr(text: string | undefined, otherwise: number): number {
  const number = Number(text);
  return text === undefined || text.trim() === '' || !(number > 0) ? otherwise : number;
}
