import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { shipped } from '../cli/linger.ts';
import { type PodObject, service } from '../cluster-suite/support/manifests.ts';
import { isReady } from '../cluster-suite/support/termination.ts';
import { type Cluster, type NewObject, openCluster, waitUntil } from '../testbed/cluster.ts';
import { type ClusterDns, startClusterDns } from '../testbed/cluster-dns.ts';
import { type Gateway, haproxyInPod } from '../testbed/gateways.ts';
import { busyboxNamed } from '../testbed/images.ts';
import { clusterSettings } from '../testbed/settings.ts';
import { LONG } from './form.ts';
import {
  addressOf,
  createIngress,
  type RunningContour,
  startContour,
  startInPod,
  webPod,
} from './hold/gateway-pods.ts';
import { HoldSetting } from './hold/setting.ts';
import { listed } from './hold/through.ts';

/*
 * What `linger consumers discover` says in a cluster where gateways run, and whether what it prints works: Contour, which
 * watches EndpointSlices, and HAProxy as the controller of HAProxy Technologies configures it (port and path of its page),
 * with the line that discover asks for. That controller itself is not here: HAProxy asks DNS. Images are known by their names
 * alone.
 */
const ENVOY_IMAGE = 'docker.io/envoyproxy/envoy:distroless-v1.40.0';
const HAPROXY_IMAGE = 'docker.io/haproxytech/kubernetes-ingress:3.1.8';
const HAPROXY_CLASS = {
  ...{ apiVersion: 'networking.k8s.io/v1', kind: 'IngressClass', metadata: { name: 'discovered-haproxy' } },
  spec: { controller: 'haproxy.org/ingress-controller/haproxy' },
};
const FOUND = ['contour', 'haproxy-kubernetes-ingress'];
const POD_PORT = 8080;
const PODS = ['one', 'two', 'three', 'four'];

let cluster: Cluster;
let setting: HoldSetting | undefined;
let dns: ClusterDns | undefined;
let contour: RunningContour | undefined;
let namespace = '';
const places: string[] = [];

describe.runIf(LONG)('gateways that are discovered', () => {
  beforeAll(async () => {
    cluster = await openCluster();
    if (!cluster.own) return;
    dns = await startClusterDns(clusterSettings(), { ttl: 5 });
    for (const image of [ENVOY_IMAGE, HAPROXY_IMAGE]) await cluster.importImages(busyboxNamed(image));
    setting = await HoldSetting.open(cluster, { max: 60 });
    namespace = await cluster.namespace('shop', { 'linger.dev/inject': 'false' });
    await cluster.create(service(namespace, 'web'));
    const headless = { clusterIP: 'None', selector: { app: 'web' }, ports: [{ port: POD_PORT }] };
    await cluster.create({
      ...{ apiVersion: 'v1', kind: 'Service', metadata: { namespace, name: 'web-dns' }, spec: headless },
    } as NewObject);
    for (const name of PODS) await cluster.create(web(name));
    for (const name of PODS) await cluster.waitFor<PodObject>(web(name), isReady);
    const where = async (prefix: string) => {
      places.push(await cluster.namespace(prefix, { 'linger.dev/inject': 'false' }));
      return places.at(-1) ?? '';
    };
    const envoy = { name: 'envoy', image: ENVOY_IMAGE };
    contour = await startContour(cluster, await where('projectcontour'), namespace, envoy);
    await cluster.create(HAPROXY_CLASS as NewObject);
    await createIngress(cluster, namespace, 'web-haproxy', HAPROXY_CLASS.metadata.name);
    const haproxy = await startInPod(
      ...([cluster, await where('haproxy-controller'), { name: 'haproxy', image: HAPROXY_IMAGE }] as const),
      await haproxyInPod(
        clusterSettings(),
        ...([
          { namespace, service: 'web-dns', port: POD_PORT, dns: `${dns.server}:53`, resolveSeconds: 1 },
          { port: 1024, uri: '/' },
        ] as const),
      ),
    );
    const page = { ...haproxy.page, url: `http://${haproxy.address}:1024/;csv` };
    const addresses = await Promise.all(
      PODS.map(async (name) => `${await addressOf(cluster, web(name))}:${POD_PORT}`),
    );
    for (const gateway of [contour.gateway, { ...haproxy, page } satisfies Gateway])
      await listed(gateway, addresses);
  }, 900_000);

  afterAll(async () => {
    await contour?.stop();
    if (cluster?.own) await cluster.delete(HAPROXY_CLASS);
    for (const name of setting === undefined ? [] : FOUND)
      await cluster.api.request('DELETE', `/apis/linger.dev/v1alpha1/discoveryconsumers/${name}`);
    await setting?.close();
    await dns?.stop();
    await cluster?.close();
  }, 240_000);

  const web = (name: string) => webPod(namespace, name);

  const consumers = (...words: readonly string[]) =>
    shipped(['consumers', ...words, '--kubeconfig', cluster.kubeconfig]);

  it('are all found, and nothing else, and what is printed measures them', { timeout: 900_000 }, async ({
    skip,
  }) => {
    if (!cluster.own) return skip('the gateways must reach the API server, DNS and pods');
    const { code, stdout, stderr } = await consumers('discover');
    console.log(stdout);
    expect([code, stderr]).toEqual([0, '']);
    const printed = parseAllDocuments(stdout).flatMap((document) => document.toJS() ?? []) as {
      metadata: { name: string };
    }[];
    expect(printed.map(({ metadata }) => metadata.name)).toEqual(FOUND);
    // One as printed, and the other by --apply.
    const [first] = stdout.split('---\n');
    await cluster.mustKubectl(['apply', '--filename', '-'], { stdin: first ?? '' });
    expect((await consumers('discover', '--apply')).stdout).toBe(
      `discoveryconsumer.linger.dev/${FOUND[1]} created (Observe)\n`,
    );
    expect(
      (await consumers('discover')).stdout.match(/declared already, by DiscoveryConsumer/g),
    ).toHaveLength(2);

    type Table = {
      readonly consumers: readonly {
        readonly name: string;
        readonly instances: number | null;
        readonly removals: { readonly samples: number; readonly p50: number; readonly p99: number } | null;
        readonly condition: { readonly reason: string; readonly message: string };
      }[];
    };
    const measured = async () => {
      const { consumers: all } = JSON.parse((await consumers('--output', 'json')).stdout) as Table;
      return all.filter(({ name }) => FOUND.includes(name));
    };
    await waitUntil(
      'both to have an instance',
      async () => (await measured()).filter(({ instances }) => instances === 1).length === FOUND.length,
      { timeoutMs: 150_000, intervalMs: 1_000 },
    );
    const ended = PODS.slice(1);
    for (const name of ended) await cluster.delete(web(name), { wait: true });
    const samples = await waitUntil(
      'samples of both',
      async () => {
        const all = await measured();
        return all.every(({ removals }) => removals?.samples === ended.length) ? all : undefined;
      },
      { timeoutMs: 200_000, intervalMs: 1_000 },
    );
    for (const { name, removals, condition } of samples) {
      console.log(`${name}: ${JSON.stringify(removals)} ${condition.reason} ${condition.message}`);
      expect(condition.reason).toBe('Measured');
    }
  });
});
