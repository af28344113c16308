import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Cluster, images, openCluster, waitUntil } from '../testbed/cluster.ts';
import { builtEureka, type Eureka, startEureka } from '../testbed/eureka.ts';
import { NODE_FILES } from '../testbed/gateways.ts';
import { causesBesidesStopped, formatReport, type LoadReport, startLoad } from '../testbed/load/load.ts';
import { clusterSettings } from '../testbed/settings.ts';
import { LONG } from './form.ts';
import { consumer, HoldSetting } from './hold/setting.ts';
import { spread } from './hold/terminations.ts';
import { gatewayTarget } from './hold/through.ts';
import { Stand } from './polling/stand.ts';
import { table } from './table.ts';

/*
 * A real Eureka: Spring Cloud's server, and a caller that fetches the registry and chooses by Spring Cloud LoadBalancer. A
 * JVM takes long to start on two cores, so three of the applications are the usual one, registered by a shell with the
 * requests that Spring sends, and one is Spring's. All renew every second, and cancel themselves at SIGTERM. No Service
 * selects their pods.
 */
const REPLICAS = 3;
/** The server's cache, the caller's fetches and its load balancer's cache: 1 s, 3 s and 2 s. */
const FOLLOWS_SECONDS = 6;
/** A busy machine is late with each of them. */
const DECLARED_SECONDS = FOLLOWS_SECONDS + 2;
const MAX_SECONDS = 60;
const PER_SECOND = 20;
const TERMINATIONS = 50;

const KINDS = {
  alone: { waiting: 'alone', registry: 'alone', what: 'none' },
  stays: { waiting: 'hold', registry: 'stays', what: 'Hold' },
  leaves: { waiting: 'hold', registry: 'leaves', what: 'Hold, taken out of Eureka' },
  spring: { waiting: 'hold', registry: 'leaves', what: 'the same, Spring’s own registration' },
} as const;
type Kind = keyof typeof KINDS;

/** Registers its pod while the application answers, renews that, and cancels it at SIGTERM: by Eureka's REST operations. */
function heartbeat(address: string, application: string) {
  const downward = (name: string, fieldPath: string) => ({ name, valueFrom: { fieldRef: { fieldPath } } });
  const instance = {
    instanceId: '$ID',
    app: application,
    vipAddress: application,
    hostName: '$ADDRESS',
    ipAddr: '$ADDRESS',
    status: 'UP',
    port: { $: 8080, '@enabled': 'true' },
    dataCenterInfo: { '@class': 'com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo', name: 'MyOwn' },
    leaseInfo: { renewalIntervalInSecs: 1, durationInSecs: 90 },
  };
  // In double quotes, of what begins with a dollar only variables are meant.
  const body = JSON.stringify({ instance }).replaceAll(/"|\$(?![A-Z]+")/g, '\\$&');
  const script = [
    `body="${body}"`,
    'head="HTTP/1.1\r\nHost: eureka\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length:"',
    `ask() { printf "$1 /eureka/apps/$2 $head \${#3}\r\n\r\n%s" "$3" | nc -w 3 $EUREKA; }`,
    `own="${application}/$ID"`,
    'trap \'ask DELETE "$own" ""; exit 0\' TERM',
    'while :; do',
    '  if wget -q -O /dev/null http://127.0.0.1:8080/; then',
    `    ask PUT "$own?status=UP" "" | busybox grep -q " 200" || ask POST ${application} "$body"`,
    '  fi',
    '  sleep 1 & wait $!',
    'done',
  ];
  return {
    name: 'heartbeat',
    image: images.busybox,
    imagePullPolicy: 'Never',
    command: ['sh', '-c', script.join('\n')],
    env: [
      downward('POD', 'metadata.name'),
      downward('ADDRESS', 'status.podIP'),
      { name: 'ID', value: `$(POD):${application}:8080` },
      { name: 'EUREKA', value: address },
    ],
  };
}

let cluster: Cluster;
let eureka: Eureka | undefined;
let setting: HoldSetting | undefined;
const stands = new Map<Kind, Stand>();
let why = 'only in our own cluster';

interface Instance {
  readonly instanceId: string;
  readonly status: string;
  readonly leaseInfo: { readonly lastRenewalTimestamp: number };
}

/** What the registry has of an application, or of one of its instances. */
async function registered<T>(path: string): Promise<T | undefined> {
  const answer = await fetch(`${eureka?.url}/apps/${path}`, { headers: { accept: 'application/json' } });
  return answer.ok ? ((await answer.json()) as T) : undefined;
}

async function instancesOf(application: string): Promise<readonly Instance[]> {
  type Answer = { readonly application: { readonly instance: readonly Instance[] } };
  return (await registered<Answer>(application))?.application.instance ?? [];
}

/** Whether an instance was UP after it had been taken out, and how many of its heartbeats came meanwhile. */
class Statuses {
  readonly #application: string;
  readonly #renewals = new Map<string, Set<number>>();
  readonly #back = new Set<string>();
  #stopped = false;
  readonly #ended: Promise<void>;

  constructor(application: string) {
    this.#application = application;
    this.#ended = this.#watch();
  }

  async stop() {
    this.#stopped = true;
    await this.#ended;
    return { renewals: [...this.#renewals.values()].map(({ size }) => size), back: [...this.#back] };
  }

  async #watch(): Promise<void> {
    while (!this.#stopped) {
      const ids = (await instancesOf(this.#application)).map(({ instanceId }) => instanceId);
      // An instance is not answered from the server's cache.
      const each = ids.map((id) => registered<{ instance: Instance }>(`${this.#application}/${id}`));
      for (const found of await Promise.all(each)) if (found !== undefined) this.#take(found.instance);
      await sleep(250);
    }
  }

  #take({ instanceId, status, leaseInfo }: Instance): void {
    const renewals = this.#renewals.get(instanceId);
    if (status === 'UP' && renewals !== undefined) this.#back.add(instanceId);
    if (status !== 'OUT_OF_SERVICE') return;
    this.#renewals.set(instanceId, (renewals ?? new Set()).add(leaseInfo.lastRenewalTimestamp));
  }
}

describe.runIf(LONG)('a real Eureka', () => {
  beforeAll(async () => {
    cluster = await openCluster();
    if (!cluster.own) return;
    const folder = builtEureka(clusterSettings());
    if (folder === undefined) {
      why = 'Maven could not build the applications';
      return;
    }
    eureka = await startEureka(clusterSettings(), folder);
    const measure = { declared: { syncInterval: `${DECLARED_SECONDS}s` } };
    const deregister = {
      eureka: { url: eureka.url, app: '{label:app}', instance: '{pod}:{label:app}:{port}' },
    };
    const nowhere = { declared: { lag: '1s' } };
    const consumers = [
      // A Service may still come: until these are measured, pods would be held for `initial`.
      ...['cluster-ip', 'cluster-dns'].map((name) => consumer(name, { registry: 'none' }, nowhere)),
      ...(['stays', 'leaves'] as const).map((registry) => {
        const declared = consumer(`eureka-${registry}`, { registry }, measure);
        const appliesTo = {
          namespaceSelector: { matchLabels: { registry } },
          podSelector: { matchExpressions: [{ key: 'app', operator: 'Exists' }] },
        };
        return { ...declared, spec: { measure, appliesTo, ...(registry === 'leaves' && { deregister }) } };
      }),
    ];
    setting = await HoldSetting.open(cluster, { consumers, max: MAX_SECONDS });
    for (const kind of Object.keys(KINDS) as Kind[]) stands.set(kind, await standOf(kind));
    await Promise.all([...stands.values()].map((stand) => stand.start()));
    for (const kind of stands.keys()) await known(kind);
  }, 900_000);

  afterAll(async () => {
    await setting?.close();
    await eureka?.stop();
    await cluster?.close();
  }, 300_000);

  async function standOf(kind: Kind): Promise<Stand> {
    const { waiting, registry } = KINDS[kind];
    const namespace = (await setting?.namespace(waiting, kind, { registry })) ?? '';
    const usual = { containers: [heartbeat(eureka?.at ?? '', kind)] };
    const springs = {
      container: {
        ...eureka?.container(kind),
        image: images.busybox,
        ports: [{ containerPort: 8080 }],
        volumeMounts: [{ name: 'node', mountPath: NODE_FILES }],
      },
      podSpec: { volumes: [{ name: 'node', hostPath: { path: '/' } }] },
    };
    const strategy = { rollingUpdate: { maxSurge: REPLICAS, maxUnavailable: 0 } };
    return new Stand({
      cluster,
      namespace,
      name: kind,
      replicas: REPLICAS,
      onSigterm: 'exit',
      serviceless: true,
      ...(kind === 'spring' ? { application: springs } : usual),
      // Otherwise the old pods went before the caller knew any of the new ones.
      rollout: { strategy, minReadySeconds: DECLARED_SECONDS },
      timeoutMs: 400_000,
    });
  }

  /** Waits until the caller sends to every pod. */
  async function known(kind: Kind): Promise<void> {
    const { address, port } = eureka?.caller ?? {};
    const pods = new Set<string | null>();
    const all = async () => {
      pods.add((await fetch(`http://${address}:${port}/${kind}`)).headers.get('x-pod'));
      return pods.size > REPLICAS || (pods.size === REPLICAS && !pods.has(null));
    };
    await waitUntil(`the caller to send to ${REPLICAS} pods of ${kind}`, all, { timeoutMs: 90_000 });
  }

  /** Rolls an application over, again and again, while requests come through the caller. */
  async function roll(kind: Kind, rollouts: number, clientAddresses: readonly string[]): Promise<LoadReport> {
    const { caller } = eureka as Eureka;
    const stand = stands.get(kind) as Stand;
    const load = await startLoad({
      cluster,
      namespace: stand.namespace,
      podSelector: stand.selector,
      perSecond: PER_SECOND,
      target: gatewayTarget(caller),
      path: `/${kind}`,
      clientAddresses,
      answerTimeoutMs: 30_000,
    });
    try {
      await stand.rollOver(rollouts);
      await sleep(1_000 * FOLLOWS_SECONDS);
    } finally {
      await sleep(1_000);
    }
    const report = await load.stop();
    console.log(`${kind}: ${formatReport({ ...report, firstLosses: report.firstLosses.slice(0, 3) })}`);
    return report;
  }

  it('loses requests with and without a wait, and none in 50 terminations once Linger takes pods out', {
    timeout: 2_400_000,
  }, async ({ skip }) => {
    if (eureka === undefined || setting === undefined) return skip(why);
    const { clientAddresses } = cluster;
    const part = Math.floor(clientAddresses.length / Object.keys(KINDS).length);
    const watches = [new Statuses('leaves'), new Statuses('spring')];
    const share = (index: number) => clientAddresses.slice(index * part, (index + 1) * part);
    const [alone, stays, leaves] = await Promise.all([
      roll('alone', 2, share(0)),
      roll('stays', 2, share(1)),
      roll('leaves', Math.ceil(TERMINATIONS / REPLICAS), share(2)),
    ]);
    // By itself: JVMs that start take what processors there are.
    const spring = await roll('spring', 1, share(3));
    const reports = { alone, stays, leaves, spring };
    const [ofUsual, ofSpring] = await Promise.all(watches.map((each) => each.stop()));
    const released = async (kind: Kind) => (await setting?.releases(stands.get(kind)?.namespace ?? '')) ?? [];
    const releases = { leaves: await released('leaves'), spring: await released('spring') };
    const rows = Object.entries(reports).map(([kind, { total, lost }]) => [
      KINDS[kind as Kind].what,
      total,
      lost,
    ]);
    console.log(table(['hook', 'requests', 'lost'], rows));
    for (const [kind, all] of Object.entries(releases))
      console.log(
        `${kind}: ${all.length} pods held for ${spread(all.map(({ seconds }) => 1_000 * seconds))}`,
      );
    for (const each of [ofUsual, ofSpring])
      console.log(
        `renewals while OUT_OF_SERVICE: ${each?.renewals.join(' ')}; UP again: ${each?.back.length}`,
      );
    for (const report of Object.values(reports)) expect(causesBesidesStopped(report)).toEqual([]);
    expect([alone.lost > 0, stays.lost > 0, leaves.lost, spring.lost]).toEqual([true, true, 0, 0]);
    expect(releases.leaves.length).toBeGreaterThanOrEqual(TERMINATIONS);
    expect(releases.spring.length).toBeGreaterThanOrEqual(REPLICAS);
    for (const { reason } of [...releases.leaves, ...releases.spring]) expect(reason).toBe('Gone');
    expect([ofUsual?.back, ofSpring?.back]).toEqual([[], []]);
    // They are compared every quarter of a second.
    for (const each of [ofUsual, ofSpring]) expect(Math.max(...(each?.renewals ?? []))).toBeGreaterThan(3);
  });
});
