import { afterAll, beforeAll, expect, it } from 'vitest';
import { readKubeconfig } from '../../src/kube/kubeconfig.ts';
import { type Cluster, openCluster } from '../cluster/cluster.ts';
import { type Agreement, agreement, percentileOf } from '../cluster-suite/support/agreement.ts';
import type { TrueRemoval } from '../cluster-suite/support/endpoint-history.ts';
import { Measurement } from '../cluster-suite/support/measurement.ts';
import { Fleet } from './fleet.ts';
import { byForm } from './form.ts';
import { lagsInWords, type Reading, runStorm, type StormOutcome } from './storm-run.ts';
import { duration, table } from './table.ts';

/*
 * S0, throttled: kube-controller-manager's client is kept to a few requests a second, and pods that were removed stay
 * in the endpoints for a minute. More workers do not help; more requests do.
 */
const THROTTLED = ['--kube-api-qps=5', '--kube-api-burst=5'];
const CURED = ['--kube-api-qps=300', '--kube-api-burst=325'];

const SERVICES = byForm(150, 300);
/** Two a second, for two thirds of the time that so many writes take at 5 a second. */
const TERMINATIONS = byForm(40, 80);
const EVERY_MS = 500;

/** How far the gauge may be behind, or ahead of, what the API server logs. */
const GAUGE_MS = 2_000;

let cluster: Cluster;
let fleet: Fleet;
let measurement: Measurement;

beforeAll(async () => {
  cluster = await openCluster();
  if (!cluster.own) return;
  await cluster.restart('kube-controller-manager', CURED);
  fleet = await Fleet.start(cluster, { prefix: 's0', services: SERVICES, victims: 2 * TERMINATIONS });
  measurement = await Measurement.start(await readKubeconfig(cluster.kubeconfig));
});

afterAll(async () => {
  await measurement?.stop();
  if (cluster?.own === true) await cluster.restart('kube-controller-manager');
  await fleet?.remove();
  await cluster?.close();
});

async function stormWith(flags: readonly string[], ready: boolean, auditLog: string): Promise<StormOutcome> {
  await cluster.restart('kube-controller-manager', flags);
  return runStorm({
    fleet,
    measurement,
    auditLog,
    storm: () => fleet.setReady(ready),
    terminations: TERMINATIONS,
    everyMs: EVERY_MS,
  });
}

/** Removals that were under way at an instant, by what the API server logs. */
function waitingAt(removals: readonly TrueRemoval[], at: number): number {
  return removals.filter(({ start, end = Number.POSITIVE_INFINITY }) => start <= at && at < end).length;
}

/** Readings that no instant within the tolerance explains. */
function unexplained(readings: readonly Reading[], removals: readonly TrueRemoval[]): readonly Reading[] {
  return readings.filter(({ at, unresolved }) => {
    const steps = Array.from({ length: 41 }, (_, index) => at + GAUGE_MS * (index / 20 - 1));
    const truth = steps.map((instant) => waitingAt(removals, instant));
    return unresolved < Math.min(...truth) || unresolved > Math.max(...truth);
  });
}

function rowsOf(name: string, { samples, rewriting, readings }: StormOutcome): readonly string[][] {
  const most = Math.max(...readings.map(({ unresolved }) => unresolved));
  return (['EndpointSlice', 'Endpoints'] as const).map((stage) => [
    name,
    stage,
    ...lagsInWords(samples, stage),
    `${rewriting[stage].objects} in ${duration(rewriting[stage].lastedMs)}`,
    String(most),
  ]);
}

function expectTruth({ pairs, missing, invented }: Agreement): void {
  expect(missing).toEqual([]);
  expect(invented).toEqual([]);
  expect(
    percentileOf(
      pairs.map(({ difference }) => Math.abs(difference)),
      50,
    ),
  ).toBeLessThan(100);
}

it('follows the backlog of a throttled controller-manager, and its cure', { timeout: 300_000 }, async ({
  skip,
}) => {
  const { auditLog } = cluster;
  if (auditLog === undefined) return skip('components of a foreign cluster cannot be restarted');
  const throttled = await stormWith(THROTTLED, false, auditLog);
  const cured = await stormWith(CURED, true, auditLog);
  console.log(
    table(
      ['qps/burst', 'stage', 'p50', 'p90', 'p99', 'longest', 'rewritten', 'most unresolved'],
      [...rowsOf('5/5', throttled), ...rowsOf('300/325', cured)],
    ),
  );
  for (const outcome of [throttled, cured]) {
    expectTruth(agreement(outcome.samples, outcome.truth, GAUGE_MS));
    expect(unexplained(outcome.readings, outcome.truth)).toEqual([]);
  }
  const lags = ({ samples }: StormOutcome) => samples.map(({ lag }) => lag);
  expect(Math.max(...lags(throttled))).toBeGreaterThan(20);
  expect(percentileOf(lags(cured), 50)).toBeLessThan(0.2);
});
