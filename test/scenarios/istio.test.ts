import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { emptyDirectory } from '../cli/linger.ts';
import { standIn } from '../cluster-suite/support/gateways.ts';
import { followWeb } from '../measurement/istiods.ts';
import { istioCrds } from '../testbed/binaries.ts';
import { type Cluster, openCluster, waitUntil } from '../testbed/cluster.ts';
import { type GatewayProcess, startEnvoyOfIstiod, startIstiod } from '../testbed/gateways.ts';
import { clusterSettings } from '../testbed/settings.ts';
import { LONG } from './form.ts';
import { lagsOf, PODS, ROLLOUTS, releasedBehind, rollOverBehind } from './hold/rollouts.ts';
import { consumer, HoldSetting, type Waiting } from './hold/setting.ts';
import { spread } from './hold/terminations.ts';
import { Stand } from './polling/stand.ts';
import { table } from './table.ts';

/*
 * Istio: a real istiod with its usual settings, and an Envoy that it tells of endpoints, as it tells a sidecar. The application
 * ends at SIGTERM at once, and a connection is opened for each request.
 */
/** What Linger allows proxies for applying a push (docs/reference/consumers.md). */
const APPLIED_MS = 250;

interface Addressed {
  readonly status?: { readonly podIP?: string };
}

describe.runIf(LONG)('Istio', () => {
  let cluster: Cluster;
  let istiod: Awaited<ReturnType<typeof startIstiod>>;
  let setting: HoldSetting;
  let gateways = '';
  let gateway: GatewayProcess | undefined;

  beforeAll(async () => {
    cluster = await openCluster();
    if (!cluster.own) return;
    for (const verb of [
      ['apply', '--server-side'],
      ['wait', '--for=condition=Established', '--timeout=60s'],
    ])
      await cluster.mustKubectl([...verb, '--filename', await istioCrds()]);
    await cluster.create({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'istio-system' } });
    istiod = await startIstiod(clusterSettings(), { kubeconfig: cluster.kubeconfig });
    const meshed = { mesh: 'istio' };
    setting = await HoldSetting.open(cluster, {
      consumers: [
        consumer('istio', meshed, { xds: { address: istiod.address } }),
        // No client uses the ClusterIP or DNS.
        consumer('cluster-ip', meshed, { declared: { lag: '10ms' } }),
        consumer('cluster-dns', { mesh: 'none' }, { declared: { lag: '10ms' } }),
      ],
      max: 60,
    });
    gateways = await cluster.namespace('gateways', { 'linger.dev/inject': 'false' });
    await standIn(cluster, gateways, 'istio');
  }, 900_000);

  afterAll(async () => {
    await gateway?.stop();
    await setting?.close();
    await istiod?.stop();
    if (cluster?.own) await cluster.mustKubectl(['delete', 'namespace', 'istio-system']);
    await cluster?.close();
  }, 300_000);

  async function rollOver(waiting: Waiting) {
    const namespace = await setting.namespace(waiting, waiting, { mesh: 'istio' });
    const stand = new Stand({ cluster, namespace, name: 'web', replicas: PODS, onSigterm: 'exit' });
    await stand.start();
    const service = `outbound|80||web.${namespace}.svc.cluster.local`;
    gateway = await startEnvoyOfIstiod(clusterSettings(), { service, istiod: istiod.address });
    const rolled = await rollOverBehind(cluster, stand, gateway);
    await gateway.stop();
    return rolled;
  }

  it('without Linger, requests are lost in five rollouts', { timeout: 900_000 }, async ({ skip }) => {
    if (!cluster.own) return skip('istiod is a process of our own node');
    const { endings, report } = await rollOver('alone');
    console.log(
      table(
        ['', 'sent', 'lost', 'terminations', 'Envoy dropped it after the withdrawal'],
        [['without Linger', report.total, report.lost, endings.length, spread(lagsOf(endings))]],
      ),
    );
    expect(endings.length).toBe(PODS * ROLLOUTS);
    expect(report.lost).toBeGreaterThan(0);
  });

  it('with Hold none is lost, and each pod is released once istiod has pushed', { timeout: 900_000 }, async ({
    skip,
  }) => {
    if (!cluster.own) return skip('istiod is a process of our own node');
    const { namespace, endings, report } = await rollOver('hold');
    const { told, after } = await releasedBehind(setting, namespace, endings);
    console.log(
      table(
        ['', 'sent', 'lost', 'terminations', 'waited for istiod', 'released after Envoy had dropped it'],
        [['Hold, measure.xds', report.total, report.lost, endings.length, after.length, spread(after)]],
      ),
    );
    expect(endings.length).toBe(PODS * ROLLOUTS);
    expect(report.lost).toBe(0);
    expect(after.length).toBeGreaterThan(0.8 * endings.length);
    expect(new Set(told.map(({ reason }) => reason))).toEqual(new Set(['Gone']));
    expect(Math.min(...after)).toBeGreaterThanOrEqual(0);
    expect(Math.max(...after)).toBeLessThanOrEqual(APPLIED_MS + 250);
  });

  it('takes TLS and a token of its audience, and refuses any other', { timeout: 300_000 }, async ({
    skip,
  }) => {
    if (!cluster.own) return skip('istiod is a process of our own node');
    const namespace = await cluster.namespace('meshed');
    const stand = new Stand({ cluster, namespace, name: 'web', replicas: 1, onSigterm: 'exit' });
    await stand.start();
    const [pod] = await cluster.list<Addressed>({ apiVersion: 'v1', kind: 'Pod', namespace }, stand.selector);
    const folder = await emptyDirectory();
    const root = await waitUntil('the authority of the mesh', async () => {
      const { code, stdout } = await cluster.kubectl([
        ...['get', 'configmap', 'istio-ca-root-cert', '--namespace', namespace],
        ...['--output', 'jsonpath={.data.root-cert\\.pem}'],
      ]);
      return code === 0 && stdout !== '' ? stdout : undefined;
    });
    writeFileSync(join(folder, 'root-cert.pem'), root);
    const token = async (audience: string, file: string) => {
      const request = ['create', 'token', 'default', '--namespace', namespace, '--audience', audience];
      writeFileSync(join(folder, file), await cluster.mustKubectl(request));
    };
    await token('istio-ca', 'token');
    await token('elsewhere', 'other');
    const ending = new AbortController();
    onTestFinished(() => ending.abort());
    const follow = (tokenFile: string, of = namespace, serverName = 'istiod.istio-system.svc') =>
      followWeb(
        { address: istiod.tlsAddress, tls: { caFile: 'root-cert.pem', serverName }, tokenFile },
        { files: folder, namespace: of, of: namespace, signal: ending.signal },
      );
    const [ours, foreign, elsewhere, headless] = [
      await follow('token'),
      await follow('other'),
      // Istiod takes no client for a proxy of another namespace.
      await follow('token', 'shop'),
      // As by the name of a headless Service, unless serverName says otherwise.
      await follow('token', namespace, 'istiod-headless.istio-system.svc'),
    ];
    const addresses = [pod?.status?.podIP ?? ''];
    const finding = (of: typeof ours) => of.find(addresses);
    await waitUntil('istiod to push', () => finding(ours)[0] === 'using' || undefined);
    await waitUntil('a refusal', () => finding(foreign) === 'cannot be read (UNAUTHENTICATED)' || undefined);
    await waitUntil(
      'another',
      () => finding(elsewhere) === 'cannot be read (PERMISSION_DENIED)' || undefined,
    );
    await waitUntil(
      'mistrust',
      () => finding(headless) === 'cannot be read (UNAVAILABLE, its certificate is not trusted)' || undefined,
    );
    await istiod.stop();
    istiod = await startIstiod(clusterSettings(), { kubeconfig: cluster.kubeconfig, clusterId: 'east' });
    const east = await follow('token');
    await waitUntil(
      'the istiod of another cluster name to push',
      () => finding(east)[0] === 'using' || undefined,
    );
  });
});
