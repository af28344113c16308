import { mkdtempSync } from 'node:fs';
import { constants, setPriority, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { Linger } from '../cluster-suite/support/linger.ts';
import { type Cluster, type KubernetesObject, openCluster, waitUntil } from '../testbed/cluster.ts';
import { GivingUp } from '../testbed/waiting.ts';
import { Fleet } from './fleet.ts';
import { byForm, LONG } from './form.ts';
import {
  differences,
  followReplicas,
  QUANTILES,
  type ReplicaReading,
  sameKnowledge,
} from './replica-readings.ts';
import { duration, table } from './table.ts';

/*
 * Two replicas measure the same cluster, each by its own watches, and agree on the current lag: while removals
 * wait behind a throttled controller-manager, and after that.
 */
const THROTTLED = ['--kube-api-qps=5', '--kube-api-burst=5'];
const CURED = ['--kube-api-qps=300', '--kube-api-burst=325'];

/** Each object is written once for its change and once for each termination: 5 slices and 5 Endpoints a second. */
const SERVICES = byForm(60, 300);
const TERMINATIONS = byForm(40, 200);
const EVERY_MS = 250;

/** Long enough for everything to be forgotten again: 4 to 5 minutes. */
const AFTERWARDS_MS = byForm(3_000, 330_000);

/**
 * On a machine so busy that one of them has to wait for a processor, it dates the events of that time later, and after more
 * than a second discards them: then the two have measured different things. From this many seconds within a reading on
 * that may be the reason: when one simulated replica stood still once for 0.1 s, a few percentiles below half a
 * second differed; with 0.3 s, many. A replica also discards a removal whose end one watch brings more than a quarter of a
 * second before another brings its beginning (`Inversion`), which a busy API server may do to one replica and not the other.
 */
const STOOD_STILL = 0.05;
const RETRIES = 2;
const RETRY = { retry: { count: RETRIES, condition: /stood still|Reconnect|Inversion/ } };

const TOLERANCE = { share: 0.05, seconds: 0.02 };

let cluster: Cluster;
let fleet: Fleet;
/** Whether the remaining pods are ready. */
let ready = true;

beforeAll(async () => {
  cluster = await openCluster();
  if (!cluster.own) return;
  await cluster.restart('kube-controller-manager', CURED);
  const victims = (1 + RETRIES) * TERMINATIONS;
  fleet = await Fleet.start(cluster, { prefix: 'replicas', services: SERVICES, victims });
});

afterAll(async () => {
  await fleet?.remove();
  if (cluster?.own === true) await cluster.restart('kube-controller-manager');
  await cluster?.close();
});

/** Otherwise one replica could see a removal that had begun before the other started: of another test, or of a failed attempt. */
async function untilNothingTerminates(): Promise<void> {
  await waitUntil('what else terminates to be gone', async () => (await terminating()) === 0);
}

async function terminating(): Promise<number> {
  const kinds = ['Pod', 'Namespace'].map((kind) => ({ apiVersion: 'v1', kind }));
  const objects = await Promise.all(kinds.map((kind) => cluster.list<KubernetesObject>(kind)));
  return objects.flat().filter(({ metadata }) => metadata.deletionTimestamp !== undefined).length;
}

async function startLinger(): Promise<Linger> {
  const { kubeconfig, nodeAddress: host } = cluster;
  const directory = mkdtempSync(join(tmpdir(), 'linger-replica-'));
  const linger = await Linger.start({ host, kubeconfig, directory });
  await waitUntil(
    'it to follow all it follows',
    async () => (await linger.metric('linger_watch_current')) === 6,
  );
  onTestFinished(async () => {
    await linger.stop();
  });
  // It dates what it sees: what else runs here must not make one replica date it later than the other.
  setPriority(linger.pid, constants.priority.PRIORITY_HIGHEST);
  return linger;
}

async function terminateSteadily(): Promise<void> {
  const begun = performance.now();
  const all: Promise<void>[] = [];
  for (const [index, pod] of fleet.takeVictims(TERMINATIONS).entries()) {
    await sleep(Math.max(0, begun + index * EVERY_MS - performance.now()));
    all.push(fleet.terminate(pod));
  }
  await Promise.all(all);
}

function rowsOf(name: string, readings: readonly ReplicaReading[]): readonly string[][] {
  const same = readings.filter(sameKnowledge);
  return QUANTILES.map((quantile) => {
    const found = same
      .flatMap((reading) => differences(reading, TOLERANCE))
      .filter((difference) => difference.quantile === quantile);
    const most = (of: readonly number[]) => Math.max(0, ...of);
    const longest = most(found.flatMap(({ values }) => values));
    const by = duration(1000 * most(found.map((difference) => difference.by)));
    const share = `${(100 * most(found.map((difference) => difference.share))).toFixed(1)} %`;
    return [name, quantile, `${same.length} of ${readings.length}`, duration(1000 * longest), by, share];
  });
}

/** Makes removals queue. @returns the readings meanwhile, and those after the last had ended */
async function runBacklog(lingers: readonly [Linger, Linger]) {
  await cluster.restart('kube-controller-manager', THROTTLED);
  const following = followReplicas(lingers);
  const { readings } = following;
  try {
    ready = !ready;
    await Promise.all([fleet.setReady(ready), terminateSteadily()]);
    const allEnded = () => {
      const { replicas = [] } = readings.at(-1) ?? {};
      const [reason] = replicas.flatMap(({ discarded }) => discarded);
      if (reason !== undefined) throw new GivingUp(`a replica left something out: ${reason}`);
      return replicas.every(({ ended }) => ended === 2 * TERMINATIONS);
    };
    await waitUntil('every removal to have ended', allEnded, { timeoutMs: 600_000 });
    const during = readings.length;
    await cluster.restart('kube-controller-manager', CURED);
    await sleep(AFTERWARDS_MS);
    return { during: readings.slice(0, during), after: readings.slice(during) };
  } catch (error) {
    await cluster.restart('kube-controller-manager', CURED);
    throw error;
  } finally {
    await following.stop();
  }
}

it('two replicas say the same of the lag now', { timeout: 900_000, ...RETRY }, async ({ skip }) => {
  if (!cluster.own) return skip('components of a foreign cluster cannot be restarted');
  await untilNothingTerminates();
  const { during, after } = await runBacklog([await startLinger(), await startLinger()]);
  const head = ['', 'quantile', 'readings compared', 'longest', 'most apart', 'of it'];
  console.log(table(head, [...rowsOf('backlog', during), ...rowsOf('afterwards', after)]));
  // They differ for the moment in which an event has reached only one of them.
  const same = during.filter(sameKnowledge);
  expect(same.length).toBeGreaterThan(during.length / 2);
  expect(after.filter((reading) => !sameKnowledge(reading))).toEqual([]);
  const compared = [...same, ...after].map((reading) => differences(reading, TOLERANCE));
  const apart = compared.map((each) => each.filter(({ beyond }) => !(beyond <= 0)));
  // A percentile steps from the lag of one removal to that of the next, 0.2 s later, and one replica may do so a reading earlier.
  const steps = apart.filter((each) => each.length > 0);
  const lasting = apart.flatMap((each, index) =>
    each.filter(({ quantile }) => apart[index - 1]?.some((before) => before.quantile === quantile)),
  );
  const stoodStill = Math.max(
    ...[...during, ...after].flatMap(({ replicas }) => replicas.map((each) => each.stoodStill)),
  );
  console.log(`a replica waited for a processor for up to ${duration(1000 * stoodStill)}`);
  const told = JSON.stringify(apart.flat());
  if (steps.length > 0 && stoodStill > STOOD_STILL)
    throw new Error(`a replica stood still for ${stoodStill} s: ${told}`);
  expect(lasting, told).toEqual([]);
  expect(steps.length, told).toBeLessThan(compared.length / 20);
  // The lags were long enough for the comparison to mean something.
  for (const quantile of QUANTILES) {
    const long = same.filter(({ replicas: [{ now, waiting }] }) => waiting > 0 && (now[quantile] ?? 0) > 2);
    expect(long.length).toBeGreaterThan(10);
  }
  // After long enough, both have dropped it.
  const left = after.at(-1)?.replicas.map(({ now }) => Object.keys(now).length);
  expect(left).toEqual(LONG ? [0, 0] : [3, 3]);
});
