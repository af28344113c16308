import { asError } from '../../core/catalog/errors.ts';
import { ObjectFailure } from '../../kube/object-request.ts';
import { pause } from '../pause.ts';
import type { LabelledPod, PodLabels } from '../pod-labels.ts';
import { attempt, canaryUrl } from './attempt.ts';
import type { CanaryEndpoints } from './endpoints.ts';

/**
 * The label that the Service `linger-canary` selects: `in`. A pod without it takes no part. (Not `on`: YAML 1.1 reads
 * that as true.)
 */
export const CANARY_LABEL = 'linger.dev/canary';
export const IN_SERVICE = 'in';
/** Not removed but changed, so that whoever leads next finds the replica and puts it back. */
export const OUT_OF_SERVICE = 'out';

/** A replica that can be removed, and who it is. */
export interface KnownReplica {
  readonly pod: LabelledPod;
  readonly identity: string;
}

export interface ReplicasContext {
  readonly labels: PodLabels;
  readonly endpoints: CanaryEndpoints;
  /** Of every replica's canary server. */
  readonly port: number;
  /** Milliseconds. */
  readonly timeoutMs: number;
}

/**
 * Puts back the replicas that somebody else's flip has left outside: a leader that vanished.
 * @throws KubeFailure
 */
export async function putBackForgotten(labels: PodLabels, signal: AbortSignal): Promise<void> {
  const forgotten = await labels.list(`${CANARY_LABEL}=${OUT_OF_SERVICE}`, signal);
  for (const pod of forgotten) await putBack(labels, pod, signal);
}

/**
 * The replicas that are in the Service and say who they are. Those that are outside are put back, and counted next time.
 * @throws KubeFailure
 */
export async function knownReplicas(
  { labels, endpoints, port, timeoutMs }: ReplicasContext,
  signal: AbortSignal,
): Promise<readonly KnownReplica[]> {
  const pods = await labels.list(CANARY_LABEL, signal);
  const forgotten = pods.filter((pod) => pod.labels[CANARY_LABEL] === OUT_OF_SERVICE);
  for (const pod of forgotten) await putBack(labels, pod, signal);
  const present = pods.filter((pod) => pod.ready && endpoints.isReady(pod.uid));
  const known = await Promise.all(
    present.map(async (pod): Promise<KnownReplica | undefined> => {
      const { address } = pod;
      if (address === undefined) return undefined;
      const url = canaryUrl(address, port);
      const { identity } = await attempt({ url, address, timeoutMs });
      return identity === undefined ? undefined : { pod, identity };
    }),
  );
  return known.filter((each) => each !== undefined);
}

/**
 * Whom to remove: each of the others in turn, or ourselves where we are alone. Rather not ourselves: what a pod sends to
 * a Service that leads back to it takes another way through the node than all other traffic (hairpin).
 * @param turn how many flips there have been
 */
export function chooseCanary(
  replicas: readonly KnownReplica[],
  own: string,
  turn: number,
): KnownReplica | undefined {
  const others = replicas.filter(({ identity }) => identity !== own);
  const candidates = others.length === 0 ? replicas : others;
  const inOrder = candidates.toSorted((a, b) => (a.pod.name < b.pod.name ? -1 : 1));
  return inOrder[turn % inOrder.length];
}

/** As long as a drain takes; whoever leads next tries again. */
const RESTORE_WITHIN_MS = 12_000;
const RESTORE_PAUSE_MS = 500;

/**
 * Puts a replica back into the Service. Not ended by the lead's end: what has been taken out must go back.
 * @throws Error when that cannot be done in time
 */
export async function restore(labels: PodLabels, pod: LabelledPod): Promise<void> {
  const signal = AbortSignal.timeout(RESTORE_WITHIN_MS);
  let failure: Error | undefined;
  do {
    try {
      return await putBack(labels, pod, signal);
    } catch (error) {
      failure = signal.aborted ? (failure ?? asError(error)) : asError(error);
    }
  } while (await pause(RESTORE_PAUSE_MS, signal));
  throw failure;
}

async function putBack(labels: PodLabels, pod: LabelledPod, signal: AbortSignal): Promise<void> {
  try {
    await labels.change({ pod, label: CANARY_LABEL, from: OUT_OF_SERVICE, to: IN_SERVICE }, signal);
  } catch (error) {
    // Gone, or somebody has put it back already: then nothing is left to do.
    const reason = error instanceof ObjectFailure ? error.reason : undefined;
    if (reason !== 'NotFound' && reason !== 'Refused') throw error;
  }
}
