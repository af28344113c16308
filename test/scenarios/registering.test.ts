import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Cluster, openCluster } from '../testbed/cluster.ts';
import { images } from '../testbed/images.ts';
import { causesBesidesStopped, formatReport } from '../testbed/load/load.ts';
import { LONG } from './form.ts';
import { consumer, HoldSetting } from './hold/setting.ts';
import { Gateways } from './polling/gateways.ts';
import { swallowSyns } from './polling/network.ts';
import { Stand } from './polling/stand.ts';
import { rollUnderLoad } from './polling/traffic.ts';

/*
 * S3, with a discovery service that pods enter themselves: each renews its entry while it lives and takes it out at
 * SIGTERM, and no Service selects them. A wait before SIGTERM changes nothing, until Linger takes the pod out when its termination begins.
 */
const INTERVAL_MS = 10_000;
const CONNECT_TIMEOUT_MS = 30_000;
const HOLD_SECONDS = 60;

const WAITS = ['sleep', 'hold'] as const;
const KINDS = ['stays', 'deregistered'] as const;
const EVERY = WAITS.flatMap((wait) => KINDS.map((kind) => [wait, kind] as const));

let cluster: Cluster;
let setting: HoldSetting | undefined;
let gateways: Gateways | undefined;
let stopSwallowing: (() => Promise<unknown>) | undefined;
const stands = new Map<string, Stand>();

/** Enters its pod every second while the application answers, and takes it out at SIGTERM. */
function heartbeat(registry: string, service: string) {
  const downward = (name: string, fieldPath: string) => ({ name, valueFrom: { fieldRef: { fieldPath } } });
  const get = (url: string) => `wget -q -O /dev/null "${url}"`;
  const script = [
    `trap '${get('$REGISTRY/leave?$INSTANCE')}; exit 0' TERM`,
    `while :; do ${get('http://127.0.0.1:8080/')} && ${get('$REGISTRY/enter?$INSTANCE')}; sleep 1 & wait $!; done`,
  ];
  return {
    name: 'heartbeat',
    image: images.busybox,
    imagePullPolicy: 'Never',
    command: ['sh', '-c', script.join('\n')],
    env: [
      downward('POD', 'metadata.name'),
      downward('ADDRESS', 'status.podIP'),
      { name: 'REGISTRY', value: registry },
      { name: 'INSTANCE', value: `service=${service}&pod=$(POD)&at=$(ADDRESS):8080` },
    ],
  };
}

describe.runIf(LONG)('a discovery service that pods enter themselves', () => {
  beforeAll(async () => {
    cluster = await openCluster();
    if (!cluster.own) return;
    stopSwallowing = await swallowSyns();
    const namespaces = new Map<string, string>();
    for (const [wait, kind] of EVERY)
      namespaces.set(
        `${wait} ${kind}`,
        await cluster.namespace(`s3-${wait}-${kind}`, { waiting: wait, registry: kind }),
      );
    const services = [...namespaces.values()].map((namespace) => `${namespace}/web`);
    gateways = await Gateways.start({
      cluster,
      instances: 3,
      intervalMs: INTERVAL_MS,
      connectTimeoutMs: CONNECT_TIMEOUT_MS,
      services,
      discovery: 'registry.ts',
    });
    const measure = { declared: { syncInterval: `${INTERVAL_MS / 1_000}s` } };
    const url = `${gateways.discovery}/out/{pod}?at={address}`;
    const consumers = KINDS.map((kind) => {
      const declared = consumer(`registry-${kind}`, { registry: kind }, measure);
      const deregister = { http: { method: 'PUT', url } };
      const appliesTo = {
        namespaceSelector: { matchLabels: { registry: kind } },
        podSelector: { matchLabels: { app: 'web' } },
      };
      const spec = {
        ...(declared.spec as object),
        appliesTo,
        ...(kind === 'deregistered' && { deregister }),
      };
      return { ...declared, spec };
    });
    setting = await HoldSetting.open(cluster, { consumers, max: HOLD_SECONDS });
    for (const [wait, kind] of EVERY) {
      const namespace = namespaces.get(`${wait} ${kind}`) ?? '';
      if (wait === 'hold') await setting.holds(namespace);
      const containers = [heartbeat(gateways.discovery, `${namespace}/web`)];
      const stand = new Stand({
        cluster,
        namespace,
        name: 'web',
        replicas: 3,
        onSigterm: 'drain',
        containers,
        serviceless: true,
      });
      stands.set(`${wait} ${kind}`, stand);
    }
    await Promise.all([...stands.values()].map((stand) => stand.start()));
    for (const stand of stands.values()) await gateways.know(stand);
  }, 900_000);

  afterAll(async () => {
    await setting?.close();
    await gateways?.stop();
    await stopSwallowing?.();
    await cluster?.close();
  }, 300_000);

  it('loses requests whatever the wait, and none once Linger takes pods out', { timeout: 900_000 }, async ({
    skip,
  }) => {
    if (!cluster.own || gateways === undefined)
      return skip('the gateways must reach pods: only in our own cluster');
    const share = Math.floor(cluster.clientAddresses.length / stands.size);
    const made = await Promise.all(
      [...stands].map(async ([name, stand], index) => {
        const clientAddresses = cluster.clientAddresses.slice(index * share, (index + 1) * share);
        const { newConnections } = await rollUnderLoad({
          cluster,
          gateways: gateways as Gateways,
          stand,
          clientAddresses,
          rollouts: 2,
        });
        console.log(
          `${name}: ${formatReport({ ...newConnections, firstLosses: newConnections.firstLosses.slice(0, 3) })}`,
        );
        return [name, newConnections] as const;
      }),
    );
    for (const stand of stands.values())
      for (const { pod, reason, seconds } of (await setting?.releases(stand.namespace)) ?? [])
        console.log(`${stand.namespace}/${pod}: ${reason} after ${seconds} s`);
    for (const [name, report] of made) {
      expect(causesBesidesStopped(report), name).toEqual([]);
      if (name.endsWith('deregistered')) expect(report.lost, name).toBe(0);
      else expect(report.lost, name).toBeGreaterThan(0);
    }
    const held = stands.get('hold deregistered') as Stand;
    const releases = (await setting?.releases(held.namespace)) ?? [];
    expect(releases.length).toBeGreaterThanOrEqual(6);
    // A Service may still come, so `cluster-ip` counts: with `initial`, as it is too young to be measured.
    for (const { reason } of releases) expect(reason).toBe('Gone');
  });
});
