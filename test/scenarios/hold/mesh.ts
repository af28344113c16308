import { helmOf, objectsIn } from '../../cluster-suite/support/helm.ts';
import { manifestText } from '../../cluster-suite/support/manifests.ts';
import { istioCrds } from '../../testbed/binaries.ts';
import { type Cluster, type KubernetesObject, type NewObject, waitUntil } from '../../testbed/cluster.ts';
import { type Gateway, onNodeFiles } from '../../testbed/gateways.ts';
import { CHART_VALUES, istioChart, istioImages } from '../../testbed/istio.ts';
import { clusterSettings } from '../../testbed/settings.ts';
import { startInPod } from './gateway-pods.ts';

const SYSTEM = 'istio-system';
/** Fixed ClusterIP of istiod's Service: there is no cluster DNS to look it up in. */
const ISTIOD = '10.201.15.12';
/** Labels of a namespace whose pods get a sidecar. */
export const INJECTED = { 'istio-injection': 'enabled' };

type Webhooks = KubernetesObject & {
  readonly webhooks: readonly { readonly clientConfig: { readonly caBundle?: string } }[];
};

const INJECTOR = 'istio-sidecar-injector';
const injector = (name: string) => ({
  apiVersion: 'admissionregistration.k8s.io/v1',
  kind: 'MutatingWebhookConfiguration',
  metadata: { name },
});

/** Istio as its chart installs it: istiod in a pod, which injects the sidecars. */
export class Mesh {
  /** `address:port` of istiod, without TLS. */
  readonly address = `${ISTIOD}:15010`;
  readonly #cluster: Cluster;
  readonly #manifests: string;

  private constructor(cluster: Cluster, manifests: string) {
    this.#cluster = cluster;
    this.#manifests = manifests;
  }

  static async open(cluster: Cluster): Promise<Mesh> {
    await cluster.importImages(await istioImages(clusterSettings().cacheDir, console.log));
    for (const verb of [
      ['apply', '--server-side'],
      ['wait', '--for=condition=Established', '--timeout=60s'],
    ])
      await cluster.mustKubectl([...verb, '--filename', await istioCrds()]);
    const mesh = new Mesh(cluster, await manifests(cluster));
    await cluster.create({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: SYSTEM } });
    await cluster.mustKubectl(['apply', '--server-side', '--filename', '-'], { stdin: mesh.#manifests });
    const rollout = ['rollout', 'status', 'deployment/istiod', '--namespace', SYSTEM, '--timeout=180s'];
    await cluster.mustKubectl(rollout, { timeoutMs: 200_000 });
    await waitUntil('the authority of its webhooks', async () =>
      (await cluster.get<Webhooks>(injector(INJECTOR)))?.webhooks.every(
        ({ clientConfig }) => clientConfig.caBundle !== undefined,
      ),
    );
    return mesh;
  }

  /** Has its webhooks asked before Linger's, as by its own name, or after them: the API server goes by the names. */
  async askedAfterLinger(): Promise<void> {
    const { webhooks, metadata } = (await this.#cluster.get<Webhooks>(injector(INJECTOR)))!;
    await this.#cluster.delete(injector(INJECTOR));
    const { labels } = metadata as { readonly labels?: Readonly<Record<string, string>> };
    const later = injector(`zz-${INJECTOR}`);
    await this.#cluster.create({ ...later, metadata: { ...later.metadata, labels }, webhooks } as NewObject);
  }

  async close(): Promise<void> {
    await this.#cluster.delete(injector(`zz-${INJECTOR}`));
    const remove = ['delete', '--ignore-not-found', '--filename', '-'];
    await this.#cluster.mustKubectl(remove, { stdin: this.#manifests, timeoutMs: 120_000 });
    await this.#cluster.mustKubectl(['delete', 'namespace', SYSTEM]);
  }
}

/** The chart's, with an address for istiod by which proxies find it without DNS. */
async function manifests(cluster: Cluster): Promise<string> {
  const { meshConfig, global, ...values } = CHART_VALUES;
  const discoveryAddress = `${ISTIOD}:15012`;
  const proxyMetadata = { ISTIOD_SAN: `istiod.${SYSTEM}.svc` };
  const all = {
    ...values,
    global: { ...global, caAddress: discoveryAddress },
    meshConfig: { ...meshConfig, defaultConfig: { discoveryAddress, proxyMetadata } },
  };
  const text = await helmOf(cluster).must(
    ...['template', 'istiod', await istioChart(), '--namespace', SYSTEM, '--set-json', JSON.stringify(all)],
  );
  const objects = objectsIn<KubernetesObject & { readonly spec?: object }>(text);
  const fixed = objects.map((object) =>
    object.kind === 'Service' ? { ...object, spec: { ...object.spec, clusterIP: ISTIOD } } : object,
  );
  return manifestText(fixed);
}

const REQUESTS = 9_000;
const ADMIN = 9_001;

/** Takes connections from outside of the mesh, and opens one for each, as an application does; the sidecar's page, too. */
const FORWARDER = `for (const [port, host, to] of JSON.parse(process.argv[1])) net.createServer((from) => {
  const out = net.connect(to, host);
  from.pipe(out).pipe(from);
  for (const each of [from, out]) each.on("error", () => { from.destroy(); out.destroy(); });
}).listen(port)`;

/**
 * A client with a sidecar of its own, which every request passes: it sends to a ClusterIP.
 * @param page what of the sidecar's upstreams is shown
 */
export async function startMeshedClient(
  cluster: Cluster,
  namespace: string,
  { clusterIP, page }: { readonly clusterIP: string; readonly page: string },
): Promise<Gateway> {
  const to = JSON.stringify([
    [REQUESTS, clusterIP, 80],
    [ADMIN, '127.0.0.1', 15_000],
  ]);
  const text = `exec ${process.execPath} -e '${FORWARDER}' '${to}'`;
  const inPod = { containers: [onNodeFiles('client', text)], at: gatewayAt };
  const annotations = { 'traffic.sidecar.istio.io/excludeInboundPorts': `${REQUESTS},${ADMIN}` };
  return startInPod(cluster, namespace, { name: 'client', annotations }, inPod);

  function gatewayAt(address: string): Gateway {
    const path = `/clusters?filter=${page}`;
    return {
      name: 'a meshed client',
      address,
      port: REQUESTS,
      sent: () => [],
      page: { url: `http://${address}:${ADMIN}${path}`, port: ADMIN, path, format: 'Envoy' },
    };
  }
}
