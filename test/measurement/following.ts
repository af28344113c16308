import { Registry } from '@prometheus-io/client';
import { onTestFinished } from 'vitest';
import { ObjectEvents } from '../../src/cluster/index.ts';
import { type DiscoveryConsumerSpec, type ServiceRecord, serviceIndex } from '../../src/core/api/index.ts';
import type { ClusterSnapshot } from '../../src/core/decision/index.ts';
import { consumerOf } from '../../src/core/lag/index.ts';
import { Measurement, startInspecting } from '../../src/measurement/index.ts';
import { createLogger } from '../../src/telemetry/index.ts';
import { ModelCluster } from '../cluster/model-cluster.ts';
import { EMPTY_SNAPSHOT } from '../core/decision/sample-snapshot.ts';
import type { AtEnd } from '../webhook/connection.ts';

const clock = () => performance.now();

export const WEB: ServiceRecord = {
  namespace: 'shop',
  name: 'web',
  labels: {},
  selector: { app: 'web' },
  ports: [80],
  headless: false,
  externalName: false,
};

/** Leads with one consumer that follows something, in a cluster with shop/web, of which a and b are pods. */
export async function leading(
  name: string,
  measure: DiscoveryConsumerSpec['measure'],
  files: string | undefined,
  around: (cluster: ModelCluster) => Partial<ClusterSnapshot> = () => ({}),
) {
  const here = await ModelCluster.start(onTestFinished as AtEnd);
  const measured = [consumerOf(name, { measure })];
  const ending = new AbortController();
  onTestFinished(() => ending.abort());
  const { signal } = ending;
  const logger = createLogger('silent', { write: () => undefined });
  const connection = { server: here.url, credentials: async () => ({}) };
  const consumers = new Measurement({ clock, epochSeconds: () => Date.now() / 1000 }).consumers;
  consumers.keep(measured);
  const lags: number[] = [];
  consumers.onSample(({ lag }) => void lags.push(lag));
  const snapshot = { ...EMPTY_SNAPSHOT, measured, services: serviceIndex([WEB], true), ...around(here) };
  const { inspection, runnable } = startInspecting({
    connection,
    logger,
    clock,
    signal,
    measurement: consumers,
    allowLinkLocal: false,
    files,
    random: Math.random,
    namespace: 'linger',
    snapshot: { current: () => snapshot },
    metrics: { registry: new Registry() },
    events: new ObjectEvents({ connection, identity: 'linger-1', logger, clock, signal }),
  });
  void runnable.lead({ signal, holds: () => true } as Parameters<typeof runnable.lead>[0]);
  const lists = (...ready: readonly string[]) => {
    const slice = {
      namespace: 'shop',
      name: 'web-1',
      serviceName: 'web',
      addressType: 'IPv4',
      ports: [8080],
    };
    const states = ['a', 'b'].map((uid, index) => ({
      targetUid: uid,
      targetName: uid,
      addresses: [`10.0.0.${index + 1}`],
      ready: ready.includes(uid),
    }));
    inspection.observe({ type: 'Slice', at: clock(), slice: { ...slice, endpoints: states } });
  };
  const pod = { uid: 'a', namespace: 'shop', name: 'a' };
  /** The pod a is held, ends, and is withdrawn. @returns when */
  const end = () => {
    inspection.want(pod);
    inspection.observe({ type: 'PodTerminating', at: clock(), pod });
    lists('b');
    const at = clock();
    inspection.removed({ uid: 'a', at });
    return at;
  };
  return { inspection, consumers, lags, lists, end, run: () => runnable.run() };
}
