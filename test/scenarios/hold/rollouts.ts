import { setTimeout as sleep } from 'node:timers/promises';
import type { Cluster } from '../../testbed/cluster.ts';
import type { Gateway } from '../../testbed/gateways.ts';
import { PodLives } from '../../testbed/load/lives.ts';
import { formatReport, startLoad } from '../../testbed/load/load.ts';
import type { Stand } from '../polling/stand.ts';
import type { HoldSetting } from './setting.ts';
import { type Ending, endingsOf } from './terminations.ts';
import { gatewayTarget, listed, PageWatch } from './through.ts';

/** Pods of the application behind a proxy that follows istiod, and how often they are replaced. */
export const PODS = 10;
export const ROLLOUTS = 5;
export const POD_PORT = 8080;
const PER_SECOND = 50;

interface EndingBehind extends Ending {
  /** When the proxy's own list ceased to have it. Milliseconds since the epoch; NaN: not seen. */
  readonly gone: number;
}

/** Rolls the pods over while requests go through the proxy, each on a connection of its own. */
export async function rollOverBehind(cluster: Cluster, stand: Stand, proxy: Gateway) {
  const { namespace, selector: podSelector } = stand;
  await listed(proxy, await stand.endpoints(POD_PORT));
  const lives = new PodLives({ cluster, namespace, podSelector, container: 'app' });
  await lives.start();
  const page = new PageWatch(proxy, POD_PORT);
  const load = await startLoad({
    cluster,
    namespace,
    podSelector,
    perSecond: PER_SECOND,
    target: gatewayTarget(proxy),
    clientAddresses: cluster.clientAddresses.slice(0, 4),
    answerTimeoutMs: 10_000,
  });
  await sleep(1_000);
  await stand.rollOver(ROLLOUTS);
  await sleep(3_000);
  await page.stop();
  const report = await load.stop();
  await lives.stop();
  console.log(formatReport(report));
  const endings: readonly EndingBehind[] = endingsOf(cluster, namespace, lives.all).map((each) => ({
    ...each,
    gone: page.gone.get(`${each.address}:${POD_PORT}`) ?? Number.NaN,
  }));
  return { namespace, endings, report };
}

/** How long after each withdrawal the proxy's list still had the pod. Milliseconds. */
export function lagsOf(endings: readonly EndingBehind[]): readonly number[] {
  return endings.map(({ gone, withdrawnAt }) => gone - withdrawnAt).filter((each) => !Number.isNaN(each));
}

/** Why each pod was released, and how long after the proxy had dropped it. Milliseconds. */
export async function releasedBehind(
  setting: HoldSetting,
  namespace: string,
  endings: readonly EndingBehind[],
) {
  const releases = new Map((await setting.releases(namespace)).map((each) => [each.pod, each]));
  const told = endings.map(({ pod, gone, withdrawnAt }) => {
    const { time = '', reason, last } = releases.get(pod) ?? {};
    return { pod, reason, last, after: Date.parse(time) - gone, pushed: gone - withdrawnAt };
  });
  console.log(told.map((each) => JSON.stringify(each)).join('\n'));
  // On a busy machine the kubelet starts some hooks only after the push: they end at once.
  const after = told.flatMap((each) => (each.last?.[0]?.startsWith('istio: ') ? each.after : []));
  return { told, after };
}
