import { setTimeout as sleep } from 'node:timers/promises';
import type { StageSample } from '../../src/core/lag/index.ts';
import { percentileOf } from '../cluster-suite/support/agreement.ts';
import { type TrueRemoval, trueRemovals } from '../cluster-suite/support/endpoint-history.ts';
import type { MeasuredCluster } from '../cluster-suite/support/measured-cluster.ts';
import { type AuditEvent, auditPosition, instantOf, readAudit, waitUntil } from '../testbed/cluster.ts';
import type { Fleet } from './fleet.ts';
import { duration } from './table.ts';

export interface StormOptions {
  readonly fleet: Fleet;
  readonly measured: MeasuredCluster;
  readonly auditLog: string;
  /** Makes controllers rewrite every slice and Endpoints of the fleet. */
  readonly storm: () => Promise<void>;
  readonly terminations: number;
  /** Milliseconds between two. */
  readonly everyMs: number;
}

export interface StormOutcome {
  readonly samples: readonly StageSample[];
  /**
   * Removals that gave no sample: this process stood still for more than a second, or one watch brought the end more than
   * a quarter of a second before another brought the beginning.
   */
  readonly discarded: number;
  readonly truth: readonly TrueRemoval[];
  readonly rewriting: Readonly<Record<StageSample['stage'], Rewriting>>;
}

export interface Rewriting {
  readonly objects: number;
  /** Milliseconds from the storm's cause until each of them had been written. */
  readonly lastedMs: number;
}

/** Starts a storm, terminates pods meanwhile, and waits until the last of them is withdrawn. */
export async function runStorm(options: StormOptions): Promise<StormOutcome> {
  const { fleet, measured, auditLog, storm, terminations, everyMs } = options;
  const position = auditPosition(auditLog);
  const samplesBefore = measured.samples.length;
  const discards = () => measured.discarded.Reconnect + measured.discarded.Inversion;
  const discardedBefore = discards();
  const begun = Date.now();
  await Promise.all([storm(), terminateSteadily(fleet, terminations, everyMs)]);
  const samples = () =>
    measured.samples.slice(samplesBefore).filter(({ namespace }) => namespace === fleet.namespace);
  await waitUntil('every removal to have ended', () => ended(measured, fleet, samples(), terminations), {
    timeoutMs: 1_800_000,
  });
  const writes = await untilCalm(auditLog, position, fleet.namespace);
  const all = trueRemovals(readAudit(auditLog, fleet.namespace));
  return {
    samples: samples(),
    discarded: discards() - discardedBefore,
    truth: all.filter(({ start }) => start >= begun),
    rewriting: {
      EndpointSlice: rewritingOf(writes, 'endpointslices', begun),
      Endpoints: rewritingOf(writes, 'endpoints', begun),
    },
  };
}

export function lagsInWords(samples: readonly StageSample[], stage: StageSample['stage']): readonly string[] {
  const lags = samples.filter((sample) => sample.stage === stage).map(({ lag }) => lag * 1000);
  return [50, 90, 99, 100].map((percentile) => duration(percentileOf(lags, percentile)));
}

/** Whether all are sampled, or, if some are not, nothing is left to wait for. */
async function ended(
  measured: MeasuredCluster,
  fleet: Fleet,
  samples: readonly StageSample[],
  terminations: number,
): Promise<boolean> {
  if (samples.length >= 2 * terminations) return true;
  if (measured.unresolved(fleet.namespace) > 0) return false;
  await sleep(5_000);
  return measured.unresolved(fleet.namespace) === 0;
}

async function terminateSteadily(fleet: Fleet, count: number, everyMs: number): Promise<void> {
  const begun = performance.now();
  const terminating: Promise<void>[] = [];
  for (const [index, pod] of fleet.takeVictims(count).entries()) {
    await sleep(Math.max(0, begun + index * everyMs - performance.now()));
    terminating.push(fleet.terminate(pod));
  }
  await Promise.all(terminating);
}

/** Waits until nothing has been written for a while. @returns the writes */
async function untilCalm(file: string, position: number, namespace: string): Promise<readonly AuditEvent[]> {
  const calmMs = 3_000;
  return waitUntil(
    'the storm to have passed',
    () => {
      const writes = readAudit(file, namespace, position).filter(({ objectRef }) =>
        objectRef.resource.startsWith('endpoint'),
      );
      const last = instantOf(writes.at(-1)?.stageTimestamp ?? '');
      return Date.now() - last > calmMs ? writes : undefined;
    },
    { timeoutMs: 1_800_000, intervalMs: 1_000 },
  );
}

/** A terminating pod causes one more write of its Service's objects, which is not part of the storm. */
function rewritingOf(writes: readonly AuditEvent[], resource: string, begun: number): Rewriting {
  const first = new Map<string, number>();
  for (const { objectRef, stageTimestamp } of writes) {
    const { name = '' } = objectRef;
    if (objectRef.resource === resource && !first.has(name)) first.set(name, instantOf(stageTimestamp));
  }
  return { objects: first.size, lastedMs: Math.max(begun, ...first.values()) - begun };
}
