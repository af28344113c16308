import { type DiscoveryConsumerSpec, NO_LABELS, taken, unseenNamespace } from '../api/index.ts';
import {
  ConsumerEstimator,
  consumerOf,
  isDueAtOnce,
  LagEstimator,
  NOTHING_PLANNED,
  nextPlanned,
  type PlannedLag,
  plannedLags,
  sendsTo,
} from '../lag/index.ts';
import type { ClusterSnapshot } from './cluster-snapshot.ts';
import { effectivePolicy } from './policy-merge.ts';
import { chooseWait, enoughOf, type WaitReason } from './wait.ts';

/** One removed pod, or how long one consumer took to follow a withdrawal. Seconds. */
export interface SimulatedEvent {
  /** When it ended, since the epoch. */
  readonly at: number;
  readonly lag: number;
  /** The pod's namespace; absent: one other than the simulated namespace. */
  readonly namespace?: string | undefined;
  /** Absent: the lag of the control plane. */
  readonly consumer?: string | undefined;
}

/** The wait that pods get from an instant on. */
export interface SimulatedWait {
  readonly at: number;
  readonly waitSeconds: number;
  readonly why: WaitReason;
  /** The p99 of the lag that the wait is taken from; null where nothing is known. */
  readonly p99Seconds: number | null;
  /** The coverage that the plan states, as a share of removals; null where it states none. */
  readonly coverage: number | null;
}

/** How often the simulation recomputes the table. A running Linger publishes no more often. */
const TICK_SECONDS = 600;
const DAY_SECONDS = 86_400;

/** Longer than any history: after that long without an event, nothing changes any more. */
const SILENCE_SECONDS = 30 * DAY_SECONDS;

const MEASURED: DiscoveryConsumerSpec = { measure: { reports: {} } };

/**
 * The waits that pods of a namespace get while these events happen, by the arithmetic of a running Linger: one entry for
 * each change of the wait, and one for each midnight (UTC). Consumers are those that the events name, and those of the
 * snapshot that may send traffic to some pod of the namespace; the built-in ones count where the events name them.
 *
 * @param events in the order in which they happen; where one is earlier than the one before, the clock has been set back
 */
export function simulate(
  events: readonly SimulatedEvent[],
  snapshot: ClusterSnapshot,
  namespace: string,
): readonly SimulatedWait[] {
  const [first] = events;
  if (first === undefined) return [];
  const named = new Set(events.flatMap(({ consumer }) => consumer ?? []));
  const record = snapshot.namespaces.get(namespace) ?? unseenNamespace(namespace);
  const declared = snapshot.consumers.filter((consumer) =>
    consumer.builtIn
      ? named.has(consumer.name)
      : sendsTo(consumer, record, NO_LABELS, 'unknown') !== false || consumer.podSelector !== undefined,
  );
  for (const { name } of declared) named.delete(name);
  const applying = [...declared, ...[...named].map((name) => consumerOf(name, MEASURED))];
  const subject = { namespace: record, labels: NO_LABELS, annotations: NO_LABELS };
  const { policy } = effectivePolicy(snapshot.policies, subject, snapshot.modeLimit);
  const enough = enoughOf(policy);

  const estimator = new LagEstimator();
  const consumers = new ConsumerEstimator();
  consumers.keep(new Set(applying.filter((each) => each.declared === undefined).map(({ name }) => name)));

  const waits: SimulatedWait[] = [];
  let table = NOTHING_PLANNED;
  let lag: PlannedLag | undefined;
  const look = (now: number) => {
    const measured = {
      cluster: estimator.cluster,
      namespaces: new Map([...estimator.namespaces].filter(([name]) => name === namespace)),
      consumers: consumers.removals,
    };
    const next = taken(nextPlanned(table, measured, now, [enough]));
    if (next === table && lag !== undefined && now % DAY_SECONDS !== 0) return;
    if (next !== table || lag === undefined) lag = plannedLags(next).planned(namespace, applying, enough);
    table = next;
    const { seconds, why } = chooseWait(policy, lag);
    const last = waits.at(-1);
    const isShown = last?.at === now || now % DAY_SECONDS !== 0;
    if (seconds === last?.waitSeconds && isShown) return;
    const coverage = why === 'fixed' ? null : (lag.coverage?.(seconds) ?? null);
    waits.push({ at: now, waitSeconds: seconds, why, p99Seconds: lag.seen?.quantile(99) ?? null, coverage });
  };

  look(first.at);
  let now = first.at;
  for (const event of events) {
    const next = (Math.floor(now / TICK_SECONDS) + 1) * TICK_SECONDS;
    for (let tick = next; tick <= event.at; tick += TICK_SECONDS) {
      if (tick - now < SILENCE_SECONDS || tick % DAY_SECONDS === 0) look(tick);
    }
    now = event.at;
    if (event.consumer !== undefined) consumers.record(event.consumer, 'removal', event.lag, now);
    else estimator.record({ namespace: event.namespace ?? '', lag: event.lag }, now);
    // As in a running Linger, the first lags, and having enough of them for the first time, do not wait for the next tick.
    if (isDueAtOnce(table, { cluster: estimator.cluster, consumers: consumers.removals }, now, [enough]))
      look(now);
  }
  return waits;
}
