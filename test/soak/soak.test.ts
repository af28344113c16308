import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type TrueRemoval, trueRemovals } from '../cluster-suite/support/endpoint-history.ts';
import { byForm } from '../scenarios/form.ts';
import { Hooks } from '../scenarios/hold/held-pods.ts';
import { untilPlanned } from '../scenarios/hold/setting.ts';
import { table } from '../scenarios/table.ts';
import { auditPosition, type Cluster, FakeNode, openCluster, readAudit } from '../testbed/cluster.ts';
import { network } from '../testbed/network.ts';
import { SoakChurn } from './churn.ts';
import { Faults } from './faults.ts';
import { PollingGateway } from './gateway.ts';
import { earlyHolds, inventedLags, type Lags, lagsIn, sampleCount, slopeOf } from './judge.ts';
import type { Replica, Usage } from './replica.ts';
import { SoakSetting, TERMS } from './setting.ts';

/*
 * Everything at once, for as long as one likes: pods come and go, all that can break around Linger breaks in turn, and at the end
 * nothing has grown, no lag was invented, no pod released early, and no pod was created without its hook. See CONTRIBUTING.md.
 */
const MINUTES = Number(process.env.SOAK_MINUTES ?? byForm(2, 10));
const PER_SECOND = Number(process.env.SOAK_RATE ?? byForm(1, 2));

const SERVICES = 8;
const BETWEEN_MS = 8_000;
const USAGE_EVERY_MS = 20_000;
/** Caches and histograms fill, and the program is compiled as it runs. */
const WARM_UP_SHARE = 0.25;
let cluster: Cluster;
let gateway: PollingGateway | undefined;
let setting: SoakSetting | undefined;
let hooks: Hooks | undefined;
let node: FakeNode | undefined;

beforeAll(async () => {
  cluster = await openCluster();
  if (!cluster.own) return;
  await cluster.restart('kube-controller-manager', ['--kube-api-qps=100', '--kube-api-burst=120']);
  gateway = await PollingGateway.start(cluster.api, cluster.nodeAddress, 1_000);
  setting = await SoakSetting.open(cluster, gateway.url);
  hooks = await Hooks.open();
  node = await FakeNode.start(cluster.api, network.nodeName);
}, 300_000);

afterAll(async () => {
  hooks?.close();
  await setting?.close();
  await node?.remove();
  await gateway?.close();
  if (cluster?.own === true) await cluster.restart('kube-controller-manager');
  await cluster?.close();
}, 300_000);

/** What one cycle has shown. */
interface Outcome {
  readonly churn: SoakChurn;
  readonly truth: readonly TrueRemoval[];
  readonly samples: number;
  readonly invented: readonly string[];
  readonly early: readonly string[];
  readonly notServed: readonly string[];
}

async function cycle(
  number: number,
  soak: { setting: SoakSetting; faults: Faults; hooks: Hooks; node: FakeNode; gateway: PollingGateway },
): Promise<Outcome> {
  const { setting, faults } = soak;
  const namespace = await cluster.namespace('soak', { soak: 'true' });
  const services = Array.from({ length: SERVICES }, (_, index) => `svc-${index}`);
  for (const name of services) {
    const spec = { clusterIP: 'None', selector: { app: name }, ports: [{ port: 80 }] };
    const body = { metadata: { name }, spec };
    await cluster.api.call('POST', `/api/v1/namespaces/${namespace}/services`, { body });
  }
  soak.gateway.follow(namespace);
  await untilPlanned(cluster, namespace, ({ hook }) => hook === 'Hold', {
    labels: { app: 'svc-0', waits: 'hold' },
  });
  const position = auditPosition(cluster.auditLog ?? '');
  const counts = new Counts([setting.steady, setting.tried]);
  await counts.begin();
  const churn = new SoakChurn({
    ...soak,
    cluster,
    namespace,
    services,
    perSecond: PER_SECOND,
    isDown: () => faults.apiServerIsDown,
  });
  for (const { name, strike } of faults.all) {
    await sleep(BETWEEN_MS);
    console.log(`${new Date().toISOString()} ${name}`);
    if (name.startsWith('it restarts')) await counts.end(setting.tried);
    await strike(number);
    if (name.startsWith('it restarts')) await counts.begin(setting.tried);
  }
  await sleep(BETWEEN_MS);
  await churn.stop();
  await sleep(3_000);
  await counts.end();
  const truth = trueRemovals(readAudit(cluster.auditLog ?? '', namespace, position));
  await soak.node.finishAll(namespace);
  await cluster.api.call('DELETE', `/api/v1/namespaces/${namespace}`);
  const unexplained = churn.unchanged.filter(
    ({ at }) => !faults.gaps.some(({ from, until }) => from <= at && at <= until),
  );
  return {
    churn,
    truth,
    samples: counts.samples(setting.steady),
    invented: counts.invented(truth),
    early: earlyHolds(churn.held, truth, soak.gateway.gone, TERMS),
    notServed: unexplained.map(({ pod, at }) => `${pod} at ${new Date(at).toISOString()}`),
  };
}

/** The lags that each life of a replica has counted in a cycle. */
class Counts {
  readonly #lives: { readonly replica: Replica; readonly before: Lags; readonly after: Lags }[] = [];
  readonly #open = new Map<Replica, Lags>();
  readonly #replicas: readonly Replica[];

  constructor(replicas: readonly Replica[]) {
    this.#replicas = replicas;
  }

  async begin(only?: Replica): Promise<void> {
    for (const replica of only === undefined ? this.#replicas : [only])
      this.#open.set(replica, lagsIn(await replica.page()));
  }

  async end(only?: Replica): Promise<void> {
    for (const replica of only === undefined ? this.#replicas : [only]) {
      const before = this.#open.get(replica) ?? new Map();
      this.#lives.push({ replica, before, after: lagsIn(await replica.page()) });
    }
  }

  samples(of: Replica): number {
    return this.#lives
      .filter(({ replica }) => replica === of)
      .reduce((sum, { before, after }) => sum + sampleCount(before, after), 0);
  }

  invented(truth: readonly TrueRemoval[]): readonly string[] {
    return this.#lives.flatMap(({ replica, before, after }) =>
      inventedLags(before, after, truth).map((text) => `${replica.input.name}: ${text}`),
    );
  }
}

/** Reads what the steady replica uses, until it is stopped. */
function followUsage(replica: Replica) {
  const readings: Usage[] = [];
  const stopping = new AbortController();
  const { signal } = stopping;
  const reading = (async () => {
    while (!signal.aborted) {
      readings.push(await replica.usage());
      await sleep(USAGE_EVERY_MS, undefined, { signal }).catch(() => undefined);
    }
  })();
  return {
    readings,
    stop: async () => {
      stopping.abort();
      await reading;
    },
  };
}

/** Half a kilobyte a pod is 9 MiB an hour at 5 pods a second. */
const MIB = 2 ** 20;

/** One row of the table, and whether it has grown for sure by more than the bound, and by more than what settles early. */
function growth(
  name: string,
  readings: readonly Usage[],
  of: (usage: Usage) => number,
  { bound, settling, unit = 1 }: { bound: number; settling: number; unit?: number },
) {
  const counted = readings.slice(Math.floor(readings.length * WARM_UP_SHARE));
  const { perHour, error, first, last } = slopeOf(counted.map((each) => [each.at, of(each)]));
  const hours = ((counted.at(-1)?.at ?? 0) - (counted[0]?.at ?? 0)) / 3_600_000;
  const shown = (value: number) => (value / unit).toFixed(unit === 1 ? 0 : 1);
  const found = `${shown(first)} to ${shown(last)}, ${shown(perHour)} ± ${shown(2 * error)} an hour`;
  const grows = (perHour - 2 * error) * hours > bound * hours + settling;
  return {
    row: [name, found, `${shown(settling)}, and ${shown(bound)} an hour`],
    grows: grows ? [name] : [],
  };
}

/** `Inversion 3, Reconnect 20` */
function discardedIn(page: readonly string[]): string {
  return page
    .map((line) => /^linger_removals_discarded_total\{reason="(\w+)"\} (\d+)$/.exec(line) ?? [])
    .filter(([, , count = '0']) => count !== '0')
    .map(([, reason, count]) => `${reason} ${count}`)
    .join(', ');
}

const sum = (values: readonly number[]) => values.reduce((total, each) => total + each, 0);

function report(
  outcomes: readonly Outcome[],
  readings: readonly Usage[],
  page: readonly string[],
  replicas: readonly Replica[],
) {
  const grown = [
    growth('heap after GC, MiB', readings, ({ heapBytes }) => heapBytes, {
      bound: 8 * MIB,
      settling: 8 * MIB,
      unit: MIB,
    }),
    growth('file descriptors', readings, ({ descriptors }) => descriptors, { bound: 6, settling: 20 }),
    growth('handles and requests', readings, ({ handles }) => handles, { bound: 6, settling: 20 }),
  ];
  const crashes = sum(replicas.map((each) => each.crashes));
  const churns = outcomes.map(({ churn }) => churn);
  const held = churns.flatMap((churn) => churn.held);
  const all = <T>(of: (outcome: Outcome) => readonly T[]) => outcomes.flatMap(of);
  const [invented, early, notServed] = [
    all((each) => each.invented),
    all((each) => each.early),
    all((each) => each.notServed),
  ];
  const failures = churns.flatMap((churn) => churn.failures);
  const mistakes = page.filter((line) =>
    /^linger_(runnable_failures|watch_handler_errors)_total.* [1-9]/.test(line),
  );
  const created = sum(churns.map((churn) => churn.created));
  const waits = held.map(({ startedAt, endedAt }) => endedAt - startedAt).toSorted((a, b) => a - b);
  const resident = readings.map(({ residentBytes }) => Math.round(residentBytes / MIB));
  const rows = [
    ['cycles, each with every fault', outcomes.length, ''],
    [
      'pods created',
      `${created}, ${Math.min(...churns.map(({ rate }) => rate)).toFixed(2)} a second (asked: ${PER_SECOND})`,
      '',
    ],
    ['requests repeated while the API server was away', sum(churns.map((churn) => churn.repeated)), ''],
    ['requests that failed otherwise', failures.length, 0],
    ['pods that Linger did not change', notServed.length, 0],
    [
      'the same, while a killed replica was still listed or the API server started',
      sum(churns.map((churn) => churn.unchanged.length)) - notServed.length,
      '',
    ],
    [
      'removals by the API server’s audit log, and samples of the steady replica',
      `${sum(outcomes.map(({ truth }) => truth.length))}, ${sum(outcomes.map(({ samples }) => samples))}`,
      '',
    ],
    ['its removals without a sample, by reason', discardedIn(page), ''],
    ['lags invented', invented.length, 0],
    [
      'holds, and how many went on to the static wait',
      `${held.length}, ${waits.filter((ms) => ms >= TERMS.staticMs).length}`,
      '',
    ],
    [
      'holds, ms: median, p99',
      [0.5, 0.99].map((share) => Math.round(waits[Math.floor(waits.length * share)] ?? 0)).join(', '),
      '',
    ],
    ['pods of Hold that were given a sleep', sum(churns.map((churn) => churn.asleep)), ''],
    ['holds released early', early.length, 0],
    ['requests answered with 429', sum(replicas.map(({ input }) => input.front.throttled)), ''],
    ['crashes', crashes, 0],
    ['mistakes of Linger’s own', mistakes.length, 0],
    ...grown.map(({ row }) => row),
    [
      'resident, MiB: first, largest, last',
      `${resident[0]}, ${Math.max(...resident)}, ${resident.at(-1)}`,
      '',
    ],
  ];
  console.log(table([`soak of ${MINUTES} min`, 'found', 'bound'], rows));
  return {
    invented,
    early,
    notServed,
    failures,
    mistakes,
    crashes,
    grows: grown.flatMap(({ grows }) => grows),
  };
}

it('soaks', { timeout: (MINUTES + 15) * 60_000 }, async ({ skip }) => {
  if (
    !cluster.own ||
    setting === undefined ||
    hooks === undefined ||
    node === undefined ||
    gateway === undefined
  )
    return skip('components of a foreign cluster cannot be killed');
  const { steady, tried } = setting;
  const faults = new Faults(cluster, setting);
  const usage = followUsage(steady);
  const outcomes: Outcome[] = [];
  const until = Date.now() + MINUTES * 60_000;
  let problem: unknown;
  try {
    do {
      outcomes.push(await cycle(outcomes.length, { setting, faults, hooks, node, gateway }));
      // A long one that is interrupted has said how far it came.
      report(outcomes, usage.readings, await steady.page(), [steady, tried]);
    } while (Date.now() < until);
  } catch (error) {
    problem = error;
    console.log(`steady:\n${steady.log().slice(-4_000)}\ntried:\n${tried.log().slice(-4_000)}`);
  }
  await usage.stop();
  if (problem !== undefined) throw problem;
  const judged = report(outcomes, usage.readings, await steady.page(), [steady, tried]);
  if (!setting.clockShifts) console.log('no C compiler: no clock was shifted');
  expect(judged).toEqual({
    invented: [],
    early: [],
    notServed: [],
    failures: [],
    mistakes: [],
    crashes: 0,
    grows: [],
  });
  expect(sum(outcomes.map(({ churn }) => churn.held.length))).toBeGreaterThan(0);
});
