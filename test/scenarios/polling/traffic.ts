import { setTimeout as sleep } from 'node:timers/promises';
import type { Cluster } from '../../testbed/cluster.ts';
import { type LoadReport, startLoad } from '../../testbed/load/load.ts';
import type { Gateways } from './gateways.ts';
import type { Stand } from './stand.ts';

export interface TrafficOptions {
  readonly cluster: Cluster;
  readonly gateways: Gateways;
  readonly stand: Stand;
  /** Addresses of this machine that no other client uses. */
  readonly clientAddresses: readonly string[];
  readonly rollouts: number;
}

/** What became of the requests of the two kinds of clients. */
export interface Outcome {
  /** A new connection for every request. */
  readonly newConnections: LoadReport;
  /** Connections that stay for as long as the application lets them. */
  readonly keepAlive: LoadReport;
}

/** Each request is under way for a while, so that SIGTERM finds some. */
const PATH = '/?delay=100ms';
const PER_SECOND = 25;
const KEPT_CONNECTIONS = 9;

/** Load before anything happens. */
const CALM_MS = 1_000;
/** How much longer than a gateway's connect timeout clients wait for an answer. */
const ANSWER_MS = 5_000;

/** Rolls an application over, again and again, while both kinds of clients send requests through the gateways. */
export async function rollUnderLoad(options: TrafficOptions): Promise<Outcome> {
  const { cluster, gateways, stand, clientAddresses, rollouts } = options;
  const { intervalMs, connectTimeoutMs } = gateways;
  const common = {
    cluster,
    namespace: stand.namespace,
    podSelector: stand.selector,
    path: PATH,
    answerTimeoutMs: connectTimeoutMs + ANSWER_MS,
  };
  const newConnections = await startLoad({
    ...common,
    target: gateways.target(stand.service),
    clientAddresses,
    perSecond: PER_SECOND,
  });
  const keepAlive = await startLoad({
    ...common,
    target: gateways.target(stand.service),
    keepAlive: KEPT_CONNECTIONS,
  });
  const stop = () => Promise.all([newConnections.stop(), keepAlive.stop()]);
  try {
    await sleep(CALM_MS);
    await stand.rollOver(rollouts);
    // Until every gateway knows that the last old pod is gone.
    await sleep(2 * intervalMs);
  } catch (error) {
    await stop().catch(() => undefined);
    throw error;
  }
  const [ofNew, ofKept] = await stop();
  return { newConnections: ofNew, keepAlive: ofKept };
}
