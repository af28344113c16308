import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Diagnosis } from '../../src/cli/diagnose.ts';
import { readKubeconfig } from '../../src/cluster/index.ts';
import { shipped as runLinger } from '../cli/linger.ts';
import { agreement, percentileOf } from '../cluster-suite/support/agreement.ts';
import { Linger } from '../cluster-suite/support/linger.ts';
import { MeasuredCluster } from '../cluster-suite/support/measured-cluster.ts';
import { type Cluster, openCluster } from '../testbed/cluster.ts';
import { Fleet } from './fleet.ts';
import { byForm, LONG } from './form.ts';
import { followGauges, optimistic, type Reading, unexplained } from './gauges.ts';
import { lagsInWords, runStorm, type StormOutcome } from './storm-run.ts';
import { duration, table } from './table.ts';

/*
 * S0, throttled: kube-controller-manager's client is limited to a few requests a second, and removed pods stay
 * in the endpoints for a minute. More workers do not help; more requests a second do.
 */
const THROTTLED = ['--kube-api-qps=5', '--kube-api-burst=5'];
const WORKERS = ['--concurrent-endpoint-syncs=30', '--concurrent-service-endpoint-syncs=30'];
const CURED = ['--kube-api-qps=300', '--kube-api-burst=325'];

const SERVICES = byForm(150, 300);
/** Two a second, for more than half of the time that so many writes take at 5 a second. */
const TERMINATIONS = byForm(30, 80);
const EVERY_MS = 500;

/** By how much gauges may lag behind, or be ahead of, the API server's log. */
const GAUGE_MS = 2_000;

let cluster: Cluster;
let fleet: Fleet;
/** The program itself, and the same measurement in this process, where each sample can be inspected. */
let linger: Linger;
let measured: MeasuredCluster;

beforeAll(async () => {
  cluster = await openCluster();
  if (!cluster.own) return;
  await cluster.restart('kube-controller-manager', CURED);
  const { kubeconfig, nodeAddress: host } = cluster;
  fleet = await Fleet.start(cluster, { prefix: 's0', services: SERVICES, victims: 3 * TERMINATIONS });
  linger = await Linger.start({ host, kubeconfig, directory: mkdtempSync(join(tmpdir(), 'linger-s0-')) });
  measured = await MeasuredCluster.start(await readKubeconfig(kubeconfig));
});

afterAll(async () => {
  await measured?.stop();
  await linger?.stop();
  // While the controllers are still fast.
  await fleet?.remove();
  if (cluster?.own === true) await cluster.restart('kube-controller-manager');
  await cluster?.close();
});

interface Outcome extends StormOutcome {
  readonly readings: readonly Reading[];
  readonly diagnosis: Diagnosis;
}

/** Both the controller-manager and this process run in the cluster's network. */
const CONTROLLER_METRICS = 'https://127.0.0.1:10257/metrics';

/** The output of `linger diagnose` while pods terminate. */
async function diagnose(flags: readonly string[]): Promise<Diagnosis> {
  // By then the burst is used up, and some removals have ended.
  await sleep(5_000);
  const from = ['--kubeconfig', cluster.kubeconfig, '--linger', linger.metricsUrl];
  const controllers = ['--controller-metrics', CONTROLLER_METRICS, '--controller-flags', flags.join(' ')];
  const { stdout } = await runLinger([
    'diagnose',
    ...from,
    ...controllers,
    '--interval',
    '5s',
    '--output',
    'json',
  ]);
  return JSON.parse(stdout) as Diagnosis;
}

async function stormWith(flags: readonly string[], ready: boolean, auditLog: string): Promise<Outcome> {
  await cluster.restart('kube-controller-manager', flags);
  const gauges = followGauges(linger);
  const storm = () => fleet.setReady(ready);
  const options = { fleet, measured, auditLog, storm, terminations: TERMINATIONS, everyMs: EVERY_MS };
  const both = Promise.all([runStorm(options), diagnose(flags)]);
  const [outcome, diagnosis] = await both.finally(() => gauges.stop());
  return { ...outcome, diagnosis, readings: await gauges.stop() };
}

function rowsOf(name: string, { samples, rewriting, readings }: Outcome): readonly string[][] {
  const most = Math.max(...readings.map(({ unresolved }) => unresolved));
  const now = Math.max(...readings.map((reading) => reading.now));
  return (['EndpointSlice', 'Endpoints'] as const).map((stage) => {
    const { objects, lastedMs } = rewriting[stage];
    const lags = lagsInWords(samples, stage);
    return [name, stage, ...lags, `${objects} in ${duration(lastedMs)}`, String(most), duration(now * 1000)];
  });
}

function expectTruth({ samples, truth, readings, discarded }: Outcome): void {
  const { pairs, missing, invented } = agreement(samples, truth, GAUGE_MS);
  expect(invented).toEqual([]);
  expect(missing.length).toBeLessThanOrEqual(discarded);
  const off = pairs.map(({ difference }) => Math.abs(difference));
  expect(percentileOf(off, 50)).toBeLessThan(100);
  expect(unexplained(readings, truth, GAUGE_MS)).toEqual([]);
  expect(optimistic(readings, truth, GAUGE_MS)).toEqual([]);
}

it('follows the backlog of a throttled controller-manager, and its cure', { timeout: 600_000 }, async ({
  skip,
}) => {
  const { auditLog } = cluster;
  if (auditLog === undefined) return skip('components of a foreign cluster cannot be restarted');
  const throttled = await stormWith(THROTTLED, false, auditLog);
  const workers = LONG ? await stormWith([...THROTTLED, ...WORKERS], true, auditLog) : undefined;
  const cured = await stormWith(CURED, !LONG, auditLog);
  const rows = [
    ...rowsOf('5/5', throttled),
    ...(workers === undefined ? [] : rowsOf('5/5, 30 workers', workers)),
    ...rowsOf('300/325', cured),
  ];
  const head = [
    'qps/burst',
    'stage',
    'p50',
    'p90',
    'p99',
    'longest',
    'rewritten',
    'most unresolved',
    'most now',
  ];
  console.log(table(head, rows));
  const [finding] = throttled.diagnosis.findings;
  console.log(
    `diagnose: ${finding?.code}: ${finding?.text}\n${finding?.evidence.join('\n')}\n→ ${finding?.cure.join(' ')}`,
  );
  for (const outcome of [throttled, cured]) expectTruth(outcome);
  const lags = ({ samples }: StormOutcome) => samples.map(({ lag }) => lag);
  // How long the backlog gets depends on how fast the machine deletes the pods; that it is one, does not.
  expect(Math.max(...lags(throttled))).toBeGreaterThan(10);
  expect(percentileOf(lags(cured), 50)).toBeLessThan(0.2);
  expect(finding).toMatchObject({ code: 'ClientThrottled', severity: 'critical' });
  expect(finding?.cure).toEqual(expect.arrayContaining(CURED));
  expect(cured.diagnosis.findings.map(({ code }) => code)).not.toContain('ClientThrottled');
});
