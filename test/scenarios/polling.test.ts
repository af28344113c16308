import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { QUARTER_SECONDS } from '../../src/core/lag/lag-history.ts';
import { lagOf } from '../cluster-suite/support/agreement.ts';
import { trueRemovals } from '../cluster-suite/support/endpoint-history.ts';
import { type PodObject, pod } from '../cluster-suite/support/manifests.ts';
import { type Cluster, openCluster, readAudit, waitUntil } from '../testbed/cluster.ts';
import { causesBesidesStopped, formatReport } from '../testbed/load/load.ts';
import { byForm, LONG } from './form.ts';
import { agrees, type Comparison, combinedMs, compare, publishedLag } from './polling/estimates.ts';
import { LOSSES_HEAD, lossRows, type Run } from './polling/losses.ts';
import { consumerOf, type Hook, Setting } from './polling/setting.ts';
import { rollUnderLoad } from './polling/traffic.ts';
import { duration, table } from './table.ts';

/*
 * S3, polling: gateways that ask a discovery service every 10 s go on sending connections to pods that are gone, and
 * each of these hangs until it times out.
 */
const INTERVAL_MS = byForm(2_000, 10_000);
const CONNECT_TIMEOUT_MS = byForm(6_000, 30_000);
/** A guess that is shorter than the interval. */
const GUESSED_SECONDS = byForm(1, 5);
const UPDATES = 5;
const SAFETY_FACTOR = 1.5;
const STEP_SECONDS = 5;
/** Relative tolerance: buckets make the sum of two lags up to 2 % inexact (src/core/lag/buckets.ts). */
const RESOLUTION = 0.03;
/** Few enough for a test to have them measured. */
const MIN_SAMPLES = 6;
const WAIT = {
  minSamples: MIN_SAMPLES,
  minHistory: '1s',
  initial: '1s',
  min: '1s',
  safetyFactor: SAFETY_FACTOR,
};

/** How long reports and the probe measure, at least, before they are compared with the truth. */
const MEASURED_MS = byForm(60_000, 3_600_000);

/**
 * Linger keeps lags in slices of 15 minutes, and in a young history all slices count alike: of two that share a minute's
 * measurements, the one with few lags would weigh too much. So the short form does not begin when a slice is about to end.
 */
const SLICE_MS = QUARTER_SECONDS * 1_000;
const WITHIN_SLICE_MS = byForm(150_000, 0);

const HOOK_WORDS: Readonly<Record<Hook, string>> = {
  none: 'none',
  guessed: `sleep of ${GUESSED_SECONDS} s`,
  declared: 'Linger, declared',
  reports: 'Linger, reports',
  probe: 'Linger, probe',
};

type Application = Run['application'];
type Chosen = readonly [Hook, Application];

const EVERYWHERE_ELSE = 'the gateways must reach pods, and Linger is installed: only in our own cluster';

let cluster: Cluster;
let setting: Setting;
let openedAt = 0;
const runs: Run[] = [];

beforeAll(async () => {
  cluster = await openCluster();
  if (!cluster.own) return;
  const left = SLICE_MS - (Date.now() % SLICE_MS);
  if (left < WITHIN_SLICE_MS) await sleep(left);
  setting = await Setting.open(cluster, {
    intervalMs: INTERVAL_MS,
    connectTimeoutMs: CONNECT_TIMEOUT_MS,
    guessedSeconds: GUESSED_SECONDS,
    replicas: 3,
    wait: WAIT,
  });
  openedAt = performance.now();
}, 420_000);

afterAll(async () => {
  if (runs.length > 0) console.log(table(LOSSES_HEAD, runs.flatMap(lossRows)));
  await setting?.close();
  await cluster?.close();
});

/** Starts applications, and waits until each gateway knows them. */
async function start(chosen: readonly Chosen[]): Promise<void> {
  const stands = chosen.map((each) => setting.stand(...each));
  await Promise.all(stands.map((stand) => stand.start()));
  await Promise.all(stands.map((stand) => setting.gateways.know(stand)));
}

/** Rolls applications over concurrently. */
async function rollOver(chosen: readonly Chosen[], updates: number): Promise<readonly Run[]> {
  const { gateways } = setting;
  const stands = chosen.map((each) => setting.stand(...each));
  const share = Math.floor(cluster.clientAddresses.length / stands.length);
  const made = await Promise.all(
    stands.map(async (stand, index): Promise<Run> => {
      const clientAddresses = cluster.clientAddresses.slice(index * share, (index + 1) * share);
      const outcome = await rollUnderLoad({ cluster, gateways, stand, clientAddresses, rollouts: updates });
      const [hook, application] = chosen[index] as Chosen;
      return { hook: HOOK_WORDS[hook], application, rollouts: updates, outcome };
    }),
  );
  for (const { hook, application, outcome } of made) {
    for (const [client, report] of Object.entries(outcome)) {
      const firstLosses = report.firstLosses.slice(0, 3);
      console.log(`${hook}, ${application}, ${client}: ${formatReport({ ...report, firstLosses })}`);
    }
  }
  runs.push(...made);
  return made;
}

/** The control plane's longest withdrawal of one of the scenario's pods, by the API server's audit log. */
function worstControlPlaneMs(): number {
  const removals = setting.namespaces.flatMap((namespace) =>
    trueRemovals(readAudit(cluster.auditLog ?? '', namespace)),
  );
  return Math.max(...removals.filter(({ end }) => end !== undefined).map(lagOf));
}

const COMPARED = ['measured by', 'samples', 'true removals', '', 'estimate', 'truth', 'told'];

/** Percentiles that Linger has published, and the true ones, once there are enough of both. */
async function comparisonOf(measured: 'reports' | 'probe', least: number): Promise<readonly Comparison[]> {
  const percentiles = LONG ? [50, 90, 99] : [50, 90];
  const published = await waitUntil(
    `${least} samples by ${measured}`,
    async () => {
      const lag = await publishedLag(cluster, consumerOf(measured));
      return lag !== undefined && lag.samples >= least ? lag : undefined;
    },
    { timeoutMs: 240_000, intervalMs: 500 },
  );
  const all = setting.truth(measured);
  // The probe has followed each removal that the gateways report; the last may not be complete yet.
  const truth =
    measured === 'probe' && all.length <= published.samples + 1 ? all.slice(0, published.samples) : all;
  const compared = compare(published, truth, percentiles);
  const rows = compared.map(({ percentile, ...each }) => {
    const counts = [measured, published.samples, truth.length].map(String);
    const times = [each.estimateMs, each.truthMs, each.toldMs].map(duration);
    return [...counts, `p${percentile}`, ...times];
  });
  console.log(table(COMPARED, rows));
  return compared;
}

// First, and with nothing else running: with seven flips, a busy machine would determine the percentile.
it('measures the gateways as they are, by reports and by a probe', { timeout: 4_500_000 }, async ({
  skip,
}) => {
  if (!cluster.own) return skip(EVERYWHERE_ELSE);
  await waitUntil('enough time to measure', () => performance.now() - openedAt >= MEASURED_MS, {
    timeoutMs: MEASURED_MS + 1_000,
    intervalMs: 1_000,
  });
  const byReports = await comparisonOf('reports', byForm(50, 3_000));
  const byProbe = await comparisonOf('probe', byForm(MIN_SAMPLES, 100));
  expect(byReports.filter((each) => !agrees(each))).toEqual([]);
  expect(byProbe.filter((each) => !agrees(each))).toEqual([]);
});

const MOST_ROUNDS = 4;

it('loses requests without a hook, and with a guess that is too short', { timeout: 900_000 }, async ({
  skip,
}) => {
  if (!cluster.own) return skip(EVERYWHERE_ELSE);
  let lossless: readonly Chosen[] = [
    ['none', 'exit'],
    ['none', 'drain'],
    ['guessed', 'exit'],
    ['guessed', 'drain'],
  ];
  await start(lossless);
  // Few requests are lost in a short rollout, and fewer where the kubelet is late with SIGTERM: those that lose none are
  // rolled over again.
  for (let round = 1; round <= MOST_ROUNDS && lossless.length > 0; round += 1) {
    const made = await rollOver(lossless, byForm(2, UPDATES));
    // Each loss is explained by a client that still sent to a terminating pod, and by nothing else.
    expect(made.flatMap(({ outcome }) => causesBesidesStopped(outcome.newConnections))).toEqual([]);
    lossless = lossless.filter((_, index) => made[index]?.outcome.newConnections.lost === 0);
  }
  expect(lossless).toEqual([]);
});

/** The waits, in seconds, that may follow now from the declared consumers and the measured control plane. */
async function combinedWaits(): Promise<readonly number[]> {
  const controlPlane = await publishedLag(cluster);
  if (controlPlane === undefined) throw new Error('nothing is published of the control plane');
  const protectedMs = SAFETY_FACTOR * combinedMs(controlPlane, INTERVAL_MS, 99);
  const steps = [1 - RESOLUTION, 1 + RESOLUTION].map((error) =>
    Math.ceil((protectedMs * error) / (STEP_SECONDS * 1_000)),
  );
  return steps.map((step) => step * STEP_SECONDS);
}

/** Waits until a pod of that namespace would get a measured wait. */
async function untilMeasured(hook: Hook): Promise<void> {
  const namespace = setting.namespaceOf(hook);
  const newcomer = pod(namespace, 'newcomer', {}, { labels: { app: 'exit' } });
  await waitUntil(
    `a measured wait in ${namespace}`,
    async () => {
      const { metadata } = await cluster.create<PodObject>(newcomer, { dryRun: true });
      const plan = metadata.annotations?.['linger.dev/plan'] ?? '{}';
      if ((JSON.parse(plan) as { why?: string }).why === 'measured') return true;
      throw new Error(plan);
    },
    { intervalMs: 500 },
  );
}

it('loses none with a wait from any of the three measures', { timeout: 900_000 }, async ({ skip }) => {
  if (!cluster.own) return skip(EVERYWHERE_ELSE);
  const chosen: Chosen[] = [
    ['declared', 'exit'],
    ['declared', 'drain'],
    ['reports', 'exit'],
    ['probe', 'exit'],
  ];
  for (const hook of ['declared', 'reports', 'probe'] as const) await untilMeasured(hook);
  const before = await combinedWaits();
  await start(chosen);
  const made = await rollOver(chosen, byForm(1, UPDATES));
  const combined = [...before, ...(await combinedWaits())];
  const worstMs = { declared: INTERVAL_MS, reports: worst('reports'), probe: worst('probe') };
  for (const [index, { outcome }] of made.entries()) {
    const [hook, application] = chosen[index] as Chosen;
    expect(outcome.newConnections.firstLosses).toEqual([]);
    expect(outcome.newConnections.lost).toBe(0);
    const waits = await setting.stand(hook, application).waits();
    const [controlPlane, gateways] = [worstControlPlaneMs(), worstMs[hook as keyof typeof worstMs]];
    const protectedMs = SAFETY_FACTOR * (controlPlane + gateways) * (1 + RESOLUTION);
    const justified = protectedMs / 1_000 + STEP_SECONDS;
    console.log(
      `${hook}, ${application}: waits ${waits.join(', ')} s, ${justified.toFixed(2)} s are justified: ` +
        `at the worst ${duration(controlPlane)} of the control plane and ${duration(gateways)} of the gateways; ` +
        `published p99 ${await publishedP99()} and ${await publishedP99(consumerOf(hook))}`,
    );
    for (const wait of waits) {
      expect(wait).toBeGreaterThan(0);
      expect(wait).toBeLessThanOrEqual(justified);
      if (hook === 'declared') expect(combined).toContain(wait);
    }
  }
});

async function publishedP99(consumer?: string): Promise<string> {
  const lag = await publishedLag(cluster, consumer);
  return lag === undefined ? 'none' : duration(lag.quantileMs(99));
}

/**
 * The longest lag that Linger can know of. From reports it takes a sample each second, not only those of actual
 * removals: a sample is what a removal at that second would have met.
 */
function worst(measured: 'reports' | 'probe'): number {
  if (measured === 'reports') return setting.gateways.truth.longestKnown;
  return Math.max(...setting.truth(measured).map(({ lagMs }) => lagMs));
}
