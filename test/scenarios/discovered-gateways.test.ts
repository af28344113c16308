import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { shipped } from '../cli/linger.ts';
import { type PodObject, service } from '../cluster-suite/support/manifests.ts';
import { isReady } from '../cluster-suite/support/termination.ts';
import { istioCrds, traefikCrds } from '../testbed/binaries.ts';
import { type Cluster, type NewObject, openCluster, waitUntil } from '../testbed/cluster.ts';
import { type ClusterDns, startClusterDns } from '../testbed/cluster-dns.ts';
import {
  type Gateway,
  type GatewayProcess,
  haproxyInPod,
  startEnvoyOfIstiod,
  startIstiod,
  traefikInPod,
} from '../testbed/gateways.ts';
import { busyboxNamed } from '../testbed/images.ts';
import { network } from '../testbed/network.ts';
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
import { consumer, HoldSetting } from './hold/setting.ts';
import { listed, PageWatch } from './hold/through.ts';
import { table } from './table.ts';

/*
 * What `linger consumers discover` says in a cluster where gateways run, and whether what it prints works: Contour and Traefik,
 * which watch EndpointSlices, an Envoy that follows istiod as a sidecar does, and HAProxy as the controller of HAProxy
 * Technologies configures it (port and path of its page), with the line that discover asks for. That controller itself is not
 * here: HAProxy asks DNS. Images are known by their names alone. Linger's folder of files is mounted as the guide says.
 */
const ENVOY_IMAGE = 'docker.io/envoyproxy/envoy:distroless-v1.40.0';
const HAPROXY_IMAGE = 'docker.io/haproxytech/kubernetes-ingress:3.1.8';
const HAPROXY_CLASS = {
  apiVersion: 'networking.k8s.io/v1',
  kind: 'IngressClass',
  metadata: { name: 'discovered-haproxy' },
  spec: { controller: 'haproxy.org/ingress-controller/haproxy' },
};
const TRAEFIK_IMAGE = 'docker.io/traefik:v3.6.12';
const TRAEFIK_CLASS = {
  apiVersion: 'networking.k8s.io/v1',
  kind: 'IngressClass',
  metadata: { name: 'discovered-traefik' },
  spec: { controller: 'traefik.io/ingress-controller' },
};
const FOUND = ['contour', 'istio-sidecars', 'traefik', 'haproxy-kubernetes-ingress'];
const ISTIO_NAMESPACE = 'istio-system';
const MESH_FILES = [
  { serviceAccountToken: { audience: 'istio-ca', path: 'istio-token' } },
  { configMap: { name: 'istio-ca-root-cert' } },
];
const POD_PORT = 8080;
/** Some end while the consumers are only observed, and one for each that Hold waits for. */
const ENDED = ['one', 'two', 'three'];
const HELD = FOUND.map((name) => `held-by-${name}`);
/** In the order in which they become ready: without a later one on its page, a gateway that is quick proves nothing. */
const PODS = [ENDED, HELD, ['last']];
/** From a gateway's own list without the pod until Hold releases it: a page is read every second unless `every` says otherwise. */
const LET_GO_MS = { inspect: 1_500, xds: 500 };

let cluster: Cluster;
let setting: HoldSetting | undefined;
let dns: ClusterDns | undefined;
let contour: RunningContour | undefined;
let istiod: Awaited<ReturnType<typeof startIstiod>> | undefined;
let envoy: GatewayProcess | undefined;
/** The gateways, in the order of {@link FOUND}. */
let gateways: readonly Gateway[] = [];
let namespace = '';
const places: string[] = [];

describe.runIf(LONG)('gateways that are discovered', () => {
  beforeAll(async () => {
    cluster = await openCluster();
    if (!cluster.own) return;
    dns = await startClusterDns(clusterSettings(), { ttl: 5 });
    for (const image of [ENVOY_IMAGE, HAPROXY_IMAGE, TRAEFIK_IMAGE])
      await cluster.importImages(busyboxNamed(image));
    await define(await istioCrds());
    await define(await traefikCrds());
    istiod = await startIstio();
    // No client uses the ClusterIP, and none but HAProxy asks DNS.
    const unused = ['cluster-ip', 'cluster-dns'].map((name) =>
      consumer(name, { mesh: 'none' }, { declared: { lag: '10ms' } }),
    );
    setting = await HoldSetting.open(cluster, {
      consumers: unused,
      max: 60,
      sources: MESH_FILES,
      dns: dns.server,
    });
    namespace = await setting.namespace('hold', 'shop', { 'istio-injection': 'enabled' });
    await cluster.create(service(namespace, 'web'));
    const headless = { clusterIP: 'None', selector: { app: 'web' }, ports: [{ port: POD_PORT }] };
    await cluster.create({
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { namespace, name: 'web-dns' },
      spec: headless,
    } as NewObject);
    for (const each of PODS) {
      for (const name of each) await cluster.create(web(name));
      for (const name of each) await cluster.waitFor<PodObject>(web(name), isReady);
    }
    const where = async (prefix: string) => {
      places.push(await cluster.namespace(prefix, { 'linger.dev/inject': 'false' }));
      return places.at(-1) ?? '';
    };
    const proxy = { name: 'envoy', image: ENVOY_IMAGE };
    contour = await startContour(cluster, await where('projectcontour'), namespace, proxy);
    await cluster.create(virtualService());
    const meshed = `outbound|80||web.${namespace}.svc.cluster.local`;
    envoy = await startEnvoyOfIstiod(clusterSettings(), { service: meshed, istiod: istiod.address });
    await cluster.create(TRAEFIK_CLASS as NewObject);
    await createIngress(cluster, namespace, 'web-traefik', TRAEFIK_CLASS.metadata.name);
    await cluster.create(ingressRoute());
    const traefik = await startInPod(
      ...([cluster, await where('traefik'), { name: 'traefik', image: TRAEFIK_IMAGE }] as const),
      await traefikInPod(clusterSettings(), { kubeconfig: cluster.kubeconfig }),
    );
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
      PODS.flat().map(async (name) => `${await addressOf(cluster, web(name))}:${POD_PORT}`),
    );
    gateways = [contour.gateway, envoy, traefik, { ...haproxy, page }];
    for (const gateway of gateways) await listed(gateway, addresses);
  }, 900_000);

  afterAll(async () => {
    await contour?.stop();
    await envoy?.stop();
    if (cluster?.own) for (const each of [HAPROXY_CLASS, TRAEFIK_CLASS]) await cluster.delete(each);
    for (const name of setting === undefined ? [] : FOUND)
      await cluster.api.request('DELETE', `/apis/linger.dev/v1alpha1/discoveryconsumers/${name}`);
    await setting?.close();
    await istiod?.stop();
    if (cluster?.own)
      await cluster.mustKubectl(['delete', 'namespace', ISTIO_NAMESPACE, '--ignore-not-found']);
    await dns?.stop();
    await cluster?.close();
  }, 240_000);

  const web = (name: string) => webPod(namespace, name);

  async function define(file: string) {
    for (const verb of [
      ['apply', '--server-side'],
      ['wait', '--for=condition=Established', '--timeout=60s'],
    ])
      await cluster.mustKubectl([...verb, '--filename', file]);
  }

  /** istiod with the Service that its chart makes, which leads to a process of the node. */
  async function startIstio() {
    await cluster.create({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: ISTIO_NAMESPACE } });
    const started = await startIstiod(clusterSettings(), { kubeconfig: cluster.kubeconfig });
    const metadata = { namespace: ISTIO_NAMESPACE, name: 'istiod' };
    const ports = [{ name: 'https-dns', port: 15_012 }];
    await cluster.create({ apiVersion: 'v1', kind: 'Service', metadata, spec: { ports } } as NewObject);
    await cluster.create({
      apiVersion: 'discovery.k8s.io/v1',
      kind: 'EndpointSlice',
      addressType: 'IPv4',
      ports,
      metadata: { ...metadata, labels: { 'kubernetes.io/service-name': 'istiod' } },
      endpoints: [{ addresses: [network.nodeAddress], conditions: { ready: true } }],
    } as NewObject);
    return started;
  }

  /** A route for the mesh alone: it names no gateway. */
  const virtualService = () =>
    ({
      apiVersion: 'networking.istio.io/v1',
      kind: 'VirtualService',
      metadata: { namespace, name: 'web' },
      spec: { hosts: ['web'], http: [{ route: [{ destination: { host: 'web' } }] }] },
    }) as NewObject;

  const ingressRoute = () =>
    ({
      apiVersion: 'traefik.io/v1alpha1',
      kind: 'IngressRoute',
      metadata: { namespace, name: 'web' },
      spec: {
        entryPoints: ['web'],
        routes: [{ kind: 'Rule', match: 'PathPrefix(`/own`)', services: [{ name: 'web', port: 80 }] }],
      },
    }) as NewObject;

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
    // As printed, and the last one by --apply.
    const blocks = stdout.split('---\n').slice(0, -1);
    await cluster.mustKubectl(['apply', '--filename', '-'], { stdin: blocks.join('---\n') });
    expect((await consumers('discover', '--apply')).stdout).toBe(
      `discoveryconsumer.linger.dev/${FOUND.at(-1)} created (Observe)\n`,
    );
    const again = await consumers('discover');
    expect(again).toMatchObject({ code: 0 });
    for (const name of FOUND)
      expect(again.stdout).toContain(`# declared already, by DiscoveryConsumer ${name}\n`);

    await waitUntil(
      'all to have an instance',
      async () => (await measured()).filter(({ instances }) => instances === 1).length === FOUND.length,
      { timeoutMs: 150_000, intervalMs: 1_000 },
    );
    for (const name of ENDED) await cluster.delete(web(name), { wait: true });
    const samples = await waitUntil(
      'samples of all',
      async () => {
        const all = await measured();
        // On a busy machine a page may be read too late to show whom it is about.
        if (all.every(({ removals }) => removals !== null && removals.samples > 0)) return all;
        throw new Error(JSON.stringify(all));
      },
      { timeoutMs: 200_000, intervalMs: 1_000 },
    );
    for (const { name, removals, condition } of samples) {
      console.log(`${name}: ${JSON.stringify(removals)} ${condition.reason} ${condition.message}`);
      expect(condition.reason).toBe('Measured');
    }
  });

  it('let pods go when they have, once they are enforced', { timeout: 900_000 }, async ({ skip }) => {
    if (!cluster.own || setting === undefined) return skip('the gateways must reach the API server and pods');
    const waited: { name: string; pod: string; gone: number }[] = [];
    for (const [index, name] of FOUND.entries()) {
      const pod = HELD[index] ?? '';
      const gateway = gateways[index] as Gateway;
      const address = `${await addressOf(cluster, web(pod))}:${POD_PORT}`;
      await enforce(name);
      const page = new PageWatch(gateway, POD_PORT);
      await page.has(address);
      await cluster.delete(web(pod), { wait: true });
      await page.stop();
      waited.push({ name, pod, gone: page.gone.get(address) ?? Number.NaN });
    }
    const releases = new Map((await setting.releases(namespace)).map((each) => [each.pod, each]));
    const told = waited.map(({ name, pod, gone }) => {
      const { time = '', reason = '', last = [], seconds = Number.NaN } = releases.get(pod) ?? {};
      return { name, reason, last, seconds, after: Date.parse(time) - gone };
    });
    console.log(
      table(
        ['', 'released', 'held', 'last waited for', 'released after its own list had dropped the pod'],
        told.map((each) => [
          each.name,
          each.reason,
          `${each.seconds} s`,
          each.last.join(),
          `${each.after} ms`,
        ]),
      ),
    );
    for (const { name, reason, last, after } of told) {
      expect(reason, name).toBe('Gone');
      // Without an instance where the first page after the withdrawal was without the pod.
      expect(last[0], name).toMatch(new RegExp(`^${name}(: |$)`));
      expect(after, name).toBeGreaterThanOrEqual(0);
      expect(after, name).toBeLessThanOrEqual(LET_GO_MS[name === 'istio-sidecars' ? 'xds' : 'inspect']);
    }
  });

  interface Table {
    readonly consumers: readonly {
      readonly name: string;
      readonly mode?: string;
      readonly instances: number | null;
      readonly removals: { readonly samples: number; readonly p50: number; readonly p99: number } | null;
      readonly condition: { readonly reason: string; readonly message: string };
    }[];
  }

  async function measured() {
    const { consumers: all } = JSON.parse((await consumers('--output', 'json')).stdout) as Table;
    return all.filter(({ name }) => FOUND.includes(name));
  }

  /** Sets one consumer of {@link FOUND} to Enforce, and the others to Observe. */
  async function enforce(name: string) {
    for (const each of FOUND) {
      const spec = { mode: each === name ? 'Enforce' : 'Observe' };
      const patch = ['patch', 'discoveryconsumer', each, '--type=merge', '--patch', JSON.stringify({ spec })];
      await cluster.mustKubectl(patch);
    }
    // What is published follows within a minute.
    await waitUntil(
      `${name} alone to be enforced`,
      async () =>
        (await measured()).every(
          (each) => (each.mode === undefined) === (each.name === name) && each.instances === 1,
        ),
      { timeoutMs: 150_000, intervalMs: 1_000 },
    );
  }
});
