import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { emptyDirectory, shipped as linger } from '../cli/linger.ts';
import { appContainer, type PodObject, pod, service } from '../cluster-suite/support/manifests.ts';
import { hookOf, planOf } from '../cluster-suite/support/outcome.ts';
import { startPod } from '../cluster-suite/support/termination.ts';
import { type Cluster, type KubernetesObject, type NewObject, openCluster } from '../testbed/cluster.ts';
import { sendRequest } from '../testbed/load/request.ts';
import { LONG } from './form.ts';
import { addressOf } from './hold/gateway-pods.ts';
import { INJECTED, Mesh, startMeshedClient } from './hold/mesh.ts';
import { lagsOf, POD_PORT, PODS, ROLLOUTS, releasedBehind, rollOverBehind } from './hold/rollouts.ts';
import { consumer, HoldSetting, type Waiting } from './hold/setting.ts';
import { spread } from './hold/terminations.ts';
import { Stand } from './polling/stand.ts';
import { table } from './table.ts';

/*
 * Istio with the sidecars that it injects: its chart, istiod in a pod, its webhooks, pilot-agent, the redirection by istio-init,
 * and mutual TLS. Envoy is that of Envoy's own releases. Native sidecars are what istiod injects here unless a pod asks for
 * ordinary ones.
 */
/** Between the client's sidecar ceasing to list a pod and Linger letting it go, either way. */
const WITHIN_MS = 500;
const WAIT = 6;
const MESHED = { mesh: 'istio', ...INJECTED };

/** Which kind of sidecar a pod asks for. */
const KINDS = {
  native: {},
  ordinary: { 'sidecar.istio.io/nativeSidecar': 'false' },
} as const satisfies Readonly<Record<string, Readonly<Record<string, string>>>>;
type Kind = keyof typeof KINDS;

const ISTIOS = ['istio-init', 'istio-proxy'];
/** The preStop hook of a native sidecar. */
const OWN_HOOK = '["pilot-agent","request","--debug-port=15020","POST","drain"]';
const POLICIES = { namespace: 'linger', name: 'linger-policies' };

describe.runIf(LONG)('sidecars of Istio', () => {
  let cluster: Cluster;
  let mesh: Mesh | undefined;
  let setting: HoldSetting;

  beforeAll(async () => {
    cluster = await openCluster();
    if (!cluster.own) return;
    mesh = await Mesh.open(cluster);
    setting = await HoldSetting.open(cluster, {
      consumers: [
        consumer('istio', { follows: 'istiod' }, { xds: { address: mesh.address } }),
        consumer('slow', { follows: 'slowly' }, { declared: { lag: `${WAIT}s` } }),
        // No client bypasses the sidecars or resolves names by DNS.
        consumer('cluster-ip', MESHED, { declared: { lag: '10ms' } }),
        consumer('cluster-dns', { mesh: 'none' }, { declared: { lag: '10ms' } }),
      ],
      max: 60,
    });
  }, 900_000);

  afterAll(async () => {
    await setting?.close();
    await mesh?.close();
    await cluster?.close();
  }, 300_000);

  /** What `linger explain` says of a pod that is yet to be created. */
  async function explained(object: NewObject) {
    const configMap = { apiVersion: 'v1', kind: 'ConfigMap', metadata: POLICIES };
    const { data } = (await cluster.get<KubernetesObject & { data: { 'base.yaml': string } }>(configMap))!;
    const policies = join(await emptyDirectory(), 'policies.yaml');
    writeFileSync(policies, data['base.yaml']);
    const place = ['--kubeconfig', cluster.kubeconfig, '--policies', policies];
    const { stdout, stderr } = await linger(['explain', '--filename', '-', '--output', 'json', ...place], {
      stdin: JSON.stringify(object),
    });
    expect(stdout, stderr).not.toBe('');
    type Told = { outcome: string; waitSeconds: number; graceSeconds: number; admitted: string | null };
    return (JSON.parse(stdout) as { plans: [Told] }).plans[0];
  }

  /** Sends 20 requests a second to a pod's sidecar until the result is called, which returns when each lost one failed. */
  function requestsTo(address: string) {
    const lost: number[] = [];
    const begun: Promise<void>[] = [];
    const timer = setInterval(() => begun.push(send(address).then((at) => void lost.push(...at))), 50);
    return async () => {
      clearInterval(timer);
      await Promise.all(begun);
      return { sent: begun.length, lost };
    };
  }

  /** @returns when it failed, if it did */
  async function send(address: string, path = '/'): Promise<readonly number[]> {
    const limits = { connectTimeoutMs: 1_000, answerTimeoutMs: 20_000 };
    const { result } = await sendRequest({ target: { address, port: POD_PORT }, path, ...limits });
    return result === 'answered' ? [] : [Date.now()];
  }

  /** What the sidecar says, and when, in milliseconds since the epoch. */
  function wordsOf({ metadata: { namespace = '', name } }: PodObject) {
    const said: { readonly at: number; readonly text: string }[] = [];
    const take = (line: string) => {
      const [, time = '', text = ''] = /^(\S+Z)\t(.*)$/.exec(line) ?? [];
      said.push({ at: Date.parse(time), text });
    };
    // Cut off where the pod goes.
    cluster.followLogs(namespace, name, 'istio-proxy', take).catch(() => undefined);
    return (text: string) => said.find((each) => each.text.includes(text))?.at ?? Number.NaN;
  }

  const namespaceFor = (waiting: Waiting, follows: string) =>
    setting.namespace(waiting, waiting, { ...MESHED, follows });

  /** Creates a pod with a sidecar, and a Service for it, and deletes it while requests come. */
  async function terminated(
    namespace: string,
    annotations: Readonly<Record<string, string>>,
    { onSigterm, meanwhile }: { onSigterm: string; meanwhile: (address: string) => Promise<void> },
  ) {
    await cluster.create(service(namespace, 'app'));
    const env = [
      { name: 'PORT', value: String(POD_PORT) },
      { name: 'ON_SIGTERM', value: onSigterm },
    ];
    const containers = [appContainer('app', { env })];
    const object = pod(namespace, 'app', { containers }, { labels: { app: 'app' }, annotations });
    const before = await explained(object);
    const running = await startPod(cluster, object, ISTIOS);
    const said = wordsOf(running.pod);
    const address = await addressOf(cluster, object);
    const stop = requestsTo(address);
    await sleep(1_000);
    const [{ deletedAt, containers: ended }] = await Promise.all([running.terminate(), meanwhile(address)]);
    const { sent, lost } = await stop();
    const { sigtermAt = Number.NaN, exitAt = Number.NaN } = ended.app ?? {};
    const drainedAt = said('Agent draining Proxy for termination');
    const times = {
      sigterm: sigtermAt - deletedAt,
      exit: exitAt - deletedAt,
      proxySigterm: drainedAt - deletedAt,
      proxyEnd: said('Aborted proxy instance') - deletedAt,
    };
    const lostInWait = lost.filter((at) => at < sigtermAt).length;
    return { pod: running.pod, before, said, times, sent, lostInWait };
  }

  const hooksOf = ({ spec }: PodObject) =>
    [...(spec.initContainers ?? []), ...spec.containers].map((each) => `${each.name} ${hookOf(each)}`);

  describe.each(['before', 'after'])('that are injected %s Linger is asked', (order) => {
    beforeAll(async () => {
      if (order === 'after') await mesh?.askedAfterLinger();
    }, 60_000);

    it.each(
      (['native', 'ordinary'] as const).flatMap((kind) => [
        { kind, waiting: 'sleep' as const },
        { kind, waiting: 'hold' as const },
      ]),
    )(
      '$kind, $waiting: they outlive the wait of the application',
      { timeout: 240_000 },
      async ({ kind, waiting }) => {
        if (!cluster.own) return;
        const namespace = await namespaceFor(waiting, 'slowly');
        const annotations = { ...KINDS[kind], 'linger.dev/wait': `${WAIT}s` };
        const found = await terminated(namespace, annotations, {
          onSigterm: 'exit',
          meanwhile: async () => undefined,
        });
        const { before, times, sent, lostInWait } = found;
        const [release] = await setting.releases(namespace);
        console.log(JSON.stringify({ order, kind, waiting, times, sent, lostInWait, release }));

        const hooks = hooksOf(found.pod);
        const app = hooks.find((each) => each.startsWith('app '))?.slice('app '.length) ?? '';
        expect(app).toMatch(waiting === 'sleep' ? /^sleep 6$/ : /^\["\/linger\.dev\/hold",/);
        expect(hooks).toContain(`istio-proxy ${kind === 'native' ? OWN_HOOK : app}`);
        const plan = planOf(found.pod);
        expect(before?.outcome).toBe('inject');
        const { wait, grace } = plan ?? {};
        if (waiting === 'sleep') expect(before).toMatchObject({ waitSeconds: wait, graceSeconds: grace });
        else expect(before?.admitted).toBe(`Hold 0s..60s, fallback Sleep ${wait}s, grace ${grace}s`);

        expect(lostInWait).toBe(0);
        expect(times.sigterm).toBeGreaterThanOrEqual(WAIT * 1_000 - 50);
        if (waiting === 'hold') expect(release).toMatchObject({ reason: 'Gone' });
        if (kind === 'native') expect(times.proxySigterm).toBeGreaterThanOrEqual(times.exit);
        // Both hooks end at the same time; Envoy then drains for as long as Istio has it do.
        else expect(times.proxyEnd - times.sigterm).toBeGreaterThan(4_500);
      },
    );
  });

  it.each(['native', 'ordinary'] as const)(
    '%s, told to wait for connections: they do, after the wait',
    { timeout: 240_000 },
    async (kind) => {
      if (!cluster.own) return;
      const namespace = await namespaceFor('sleep', 'slowly');
      // A native one has drained for longer than that when the wait ends, and takes connections all the same.
      const own = { drainDuration: '2s', proxyMetadata: { EXIT_ON_ZERO_ACTIVE_CONNECTIONS: 'true' } };
      const annotations = {
        ...KINDS[kind],
        'linger.dev/wait': `${WAIT}s`,
        'proxy.istio.io/config': JSON.stringify(own),
      };
      let failed: readonly number[] = [];
      const { said, times, sent, lostInWait } = await terminated(namespace, annotations, {
        onSigterm: 'drain',
        meanwhile: async (address) => {
          await sleep((WAIT - 2) * 1_000);
          failed = await send(address, '/?delay=12s');
        },
      });
      console.log(JSON.stringify({ kind, times, sent, lostInWait, failed }));
      expect(lostInWait).toBe(0);
      expect(failed).toEqual([]);
      expect(times.exit - times.sigterm).toBeGreaterThan(5_000);
      if (kind === 'native') expect(times.proxySigterm).toBeGreaterThanOrEqual(times.exit);
      else {
        expect(said('There are still 1 active connections')).toBeGreaterThan(0);
        expect(times.proxyEnd - times.sigterm).toBeGreaterThan(7_000);
      }
    },
  );

  /** Rolls ten meshed pods over while a meshed client sends to their ClusterIP, each request on a connection of its own. */
  async function rollOver(waiting: Waiting, kind: Kind) {
    const namespace = await namespaceFor(waiting, 'istiod');
    await cluster.create({
      apiVersion: 'security.istio.io/v1',
      kind: 'PeerAuthentication',
      metadata: { namespace, name: 'mutual' },
      spec: { mtls: { mode: 'STRICT' } },
    } as NewObject);
    const stand = new Stand({
      cluster,
      namespace,
      name: 'web',
      replicas: PODS,
      onSigterm: 'exit',
      annotations: KINDS[kind],
      timeoutMs: 600_000,
    });
    await stand.start();
    const edge = await cluster.namespace('edge', { 'linger.dev/inject': 'false', ...INJECTED });
    const { spec } = (await cluster.get<KubernetesObject & { spec: { clusterIP: string } }>(
      service(namespace, 'web'),
    ))!;
    const client = await startMeshedClient(cluster, edge, {
      clusterIP: spec.clusterIP,
      page: `web.${namespace}.svc`,
    });
    const rolled = await rollOverBehind(cluster, stand, client);
    for (const name of [namespace, edge])
      await cluster.delete({ apiVersion: 'v1', kind: 'Namespace', metadata: { name } }, { wait: true });
    return rolled;
  }

  describe.each(['native', 'ordinary'] as const)('%s', (kind) => {
    it('without Linger, requests are lost in five rollouts', { timeout: 1_800_000 }, async ({ skip }) => {
      if (!cluster.own) return skip('the images are imported into our own node');
      const { endings, report } = await rollOver('alone', kind);
      console.log(
        table(
          [kind, 'sent', 'lost', 'terminations', 'client dropped it after the withdrawal'],
          [['without Linger', report.total, report.lost, endings.length, spread(lagsOf(endings))]],
        ),
      );
      expect(endings.length).toBe(PODS * ROLLOUTS);
      expect(report.lost).toBeGreaterThan(0);
    });

    it('with Hold none is lost, and each pod is released once the client knows', {
      timeout: 1_800_000,
    }, async ({ skip }) => {
      if (!cluster.own) return skip('the images are imported into our own node');
      const { namespace, endings, report } = await rollOver('hold', kind);
      const { told, after } = await releasedBehind(setting, namespace, endings);
      const known = 'client dropped it after the withdrawal';
      const head = [
        kind,
        'sent',
        'lost',
        'terminations',
        known,
        'waited for istiod',
        'released after the client knew',
      ];
      const pushed = spread(told.map((each) => each.pushed));
      const row = ['Hold, measure.xds', report.total, report.lost, endings.length, pushed];
      console.log(table(head, [[...row, after.length, spread(after)]]));
      expect(endings.length).toBe(PODS * ROLLOUTS);
      expect(report.lost).toBe(0);
      expect(after.length).toBeGreaterThan(0.8 * endings.length);
      expect(new Set(told.map(({ reason }) => reason))).toEqual(new Set(['Gone']));
      expect(Math.max(...after.map(Math.abs))).toBeLessThanOrEqual(WITHIN_MS);
    });
  });
});
