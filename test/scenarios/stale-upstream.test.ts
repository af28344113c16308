import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { shipped } from '../cli/linger.ts';
import { type PodObject, service } from '../cluster-suite/support/manifests.ts';
import { isReady, type RunningPod, startPod } from '../cluster-suite/support/termination.ts';
import { type Cluster, openCluster, waitUntil } from '../testbed/cluster.ts';
import { LONG } from './form.ts';
import { addressOf, type RunningContour, startContour, webPod } from './hold/gateway-pods.ts';
import { consumer, HoldSetting } from './hold/setting.ts';
import { listed } from './hold/through.ts';

/*
 * Contour watches EndpointSlices and tells its Envoy: while it is frozen, Envoy goes on sending to pods that are gone. In
 * the long form alone, as instances at rest are asked every two minutes.
 */
const CONSUMER = 'contour';
const POD_PORT = 8080;
const MAX_SECONDS = 45;
/** kube-proxy, declared here: its measurement would take minutes. */
const KUBE_PROXY_SECONDS = 2;
const NAMED_WITHIN_SECONDS = 180;
/** What is published is at most a minute older. */
const PUBLISHED_WITHIN_SECONDS = NAMED_WITHIN_SECONDS + 60;
/** The hook ends, and the kubelet sends SIGTERM. */
const STOPS_WITHIN_SECONDS = 2;
const REQUESTS = 60;
const PODS = ['first', 'second', 'third', 'fourth', 'fifth', 'sixth'] as const;
const STAYS = 'stays';

const now = () => performance.now() / 1_000;

let cluster: Cluster;
let setting: HoldSetting | undefined;
let contour: RunningContour | undefined;
let namespace = '';
let instance = '';
const pods = new Map<string, RunningPod>();

describe.runIf(LONG)('a gateway whose control plane is frozen', () => {
  beforeAll(async () => {
    cluster = await openCluster();
    if (!cluster.own) return;
    const here = { gateways: 'contour' };
    const instances = {
      namespaceSelector: { matchLabels: { gateways: 'here' } },
      podSelector: { matchLabels: { gateway: 'contour' } },
      port: 8_446,
    };
    const inspect = { format: 'Witness', every: '250ms', instances };
    const consumers = [
      consumer('cluster-dns', { gateways: 'none' }, { declared: { lag: '5s' } }),
      consumer('cluster-ip', here, { declared: { lag: `${KUBE_PROXY_SECONDS}s` } }),
      consumer(CONSUMER, here, { inspect }),
    ];
    setting = await HoldSetting.open(cluster, { max: MAX_SECONDS, consumers });
    namespace = await setting.namespace('hold', 'stale', here);
    await cluster.create(service(namespace, 'web'));
    for (const name of PODS) pods.set(name, await startPod(cluster, web(name)));
    await cluster.create(web(STAYS));
    await cluster.waitFor<PodObject>(web(STAYS), isReady);
    const gateways = await cluster.namespace('gateways', { gateways: 'here', 'linger.dev/inject': 'false' });
    contour = await startContour(cluster, gateways, namespace);
    await listed(
      contour.gateway,
      await Promise.all(
        [...PODS, STAYS].map(async (name) => `${await addressOf(cluster, web(name))}:${POD_PORT}`),
      ),
    );
    const [envoy] = await cluster.list({ apiVersion: 'v1', kind: 'Pod', namespace: gateways });
    instance = `${gateways}/${envoy?.metadata.name}`;
    await waitUntil('the page to be read', async () => (await metric('linger_inspect_instances')) === 1, {
      timeoutMs: 90_000,
    });
  }, 900_000);

  afterAll(async () => {
    await contour?.stop();
    await setting?.close();
    await cluster?.close();
  }, 240_000);

  const web = (name: string) => webPod(namespace, name);

  const metric = async (name: string) => (await setting?.linger.replicas.sum(name, CONSUMER)) ?? 0;
  const staleUpstreams = () => metric('linger_inspect_stale_upstreams');

  interface Consumers {
    readonly consumers: readonly {
      readonly name: string;
      readonly limits: readonly string[];
      readonly condition: { readonly reason: string; readonly message: string };
    }[];
  }

  /** What `linger consumers` says of the gateway. */
  async function said() {
    const { stdout } = await shipped(['consumers', '--kubeconfig', cluster.kubeconfig, '--output', 'json']);
    const { consumers } = JSON.parse(stdout) as Consumers;
    return consumers.find(({ name }) => name === CONSUMER);
  }

  async function eventsOfService(): Promise<readonly string[]> {
    const path = `/api/v1/namespaces/${namespace}/events?fieldSelector=involvedObject.kind%3DService`;
    const { items } = await cluster.api.call<{ items: { reason: string; message: string }[] }>('GET', path);
    return items.filter(({ reason }) => reason === 'StaleUpstream').map(({ message }) => message);
  }

  /** @returns when something holds, in seconds */
  async function instantOf(what: string, holds: () => Promise<boolean>): Promise<number> {
    const timeoutMs = 1_000 * (MAX_SECONDS + PUBLISHED_WITHIN_SECONDS + 30);
    await waitUntil(what, holds, { timeoutMs, intervalMs: 500 });
    return now();
  }

  /** Ends one of the pods. @returns how long its hook took, in seconds, and what Linger says of it */
  async function end(name: (typeof PODS)[number]) {
    const { deletedAt, containers } = (await pods.get(name)?.terminate()) ?? {};
    const seconds = ((containers?.app?.sigtermAt ?? Number.NaN) - (deletedAt ?? 0)) / 1_000;
    const line = await waitUntil(`the release of ${name}`, async () =>
      (await setting?.releases(namespace))?.find((each) => each.pod === name),
    );
    console.log(`${name}: SIGTERM after ${seconds.toFixed(1)} s; ${JSON.stringify(line)}`);
    return { ...line, waited: seconds };
  }

  /** How many of the requests through the gateway are answered with an error. */
  async function failures(): Promise<number> {
    const { address, port } = contour?.gateway ?? {};
    const answers = Array.from({ length: REQUESTS }, () => fetch(`http://${address}:${port}/`));
    return (await Promise.all(answers)).filter(({ ok }) => !ok).length;
  }

  it('is named within 3 minutes, holds nobody for longer than hold.max, and is waited for again once it follows', {
    timeout: 1_200_000,
  }, async ({ skip }) => {
    if (!cluster.own || contour === undefined) return skip('Contour must reach the API server and pods');
    expect(await failures()).toBe(0);
    contour.signal('SIGSTOP');
    const address = await addressOf(cluster, web('first'));
    const named = Promise.all([
      instantOf('the metric', async () => (await staleUpstreams()) > 0),
      instantOf('the Event', async () => (await eventsOfService()).some((text) => text.includes(address))),
      instantOf('linger consumers', async () => (await said())?.condition.reason === 'StaleUpstream'),
    ]);
    let goneAt = Number.NaN;
    for (const name of ['first', 'second', 'third'] as const) {
      const { waited, reason, waitingFor } = await end(name);
      expect(reason).toBe('Max');
      expect(waited).toBeGreaterThan(MAX_SECONDS - 1);
      expect(waited).toBeLessThan(MAX_SECONDS + STOPS_WITHIN_SECONDS);
      if (name === 'first') goneAt = now();
      expect(waitingFor).toEqual([`${CONSUMER}: ${instance}`]);
    }
    const seconds = (await named).map((at) => at - goneAt);
    console.log(
      `named ${seconds.map(Math.round).join(', ')} s after the pod was gone: metric, Event, linger consumers`,
    );
    const [byMetric = Number.NaN, byEvent = Number.NaN, published = Number.NaN] = seconds;
    expect(Math.max(byMetric, byEvent)).toBeLessThan(NAMED_WITHIN_SECONDS);
    expect(published).toBeLessThan(PUBLISHED_WITHIN_SECONDS);
    const { condition } = (await said()) ?? {};
    console.log(condition?.message);
    expect(condition?.message).toMatch(`${instance} still sends to ${address} (of Service ${namespace}/web)`);
    console.log(`${await failures()} of ${REQUESTS} requests through it fail meanwhile`);

    const skipped = await end('fourth');
    expect(skipped).toMatchObject({ reason: 'Gone', notWaitedFor: [`${CONSUMER}: ${instance}`] });
    expect(skipped.waited).toBeLessThan(KUBE_PROXY_SECONDS + STOPS_WITHIN_SECONDS);
    await waitUntil(
      'its limits to be published',
      async () =>
        (await said())?.limits.some((text) => text.startsWith(`Hold does not wait for ${instance}`)),
      { timeoutMs: 90_000, intervalMs: 1_000 },
    );

    contour.signal('SIGCONT');
    const continuedAt = now();
    const over = await instantOf('the metric to be 0', async () => (await staleUpstreams()) === 0);
    console.log(`over ${Math.round(over - continuedAt)} s after SIGCONT`);
    expect(await failures()).toBe(0);
    await end('fifth');
    await waitUntil(
      'the condition to be over',
      async () => {
        const { condition: latest, limits = [] } = (await said()) ?? {};
        return latest?.reason === 'Measured' && !limits.some((text) => text.startsWith('Hold does not wait'));
      },
      { timeoutMs: 150_000, intervalMs: 1_000 },
    );
    contour.signal('SIGSTOP');
    expect((await end('sixth')).reason).toBe('Max');
    contour.signal('SIGCONT');
  });
});
