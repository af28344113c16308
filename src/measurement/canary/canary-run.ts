import { EventEmitter } from 'node:events';
import { Counter, type Registry } from '@prometheus-io/client';
import type { FactsOf } from '../../core/api/index.ts';
import type { Consumer, MeasurementState } from '../../core/lag/index.ts';
import type { Leadership, Runnable } from '../../manager/index.ts';
import { type Logger, LogOnce, numberAtScrape } from '../../telemetry/index.ts';
import { clusterDns } from '../cluster-dns/dns.ts';
import type { ConsumerMeasurement, Measurement } from '../measurement.ts';
import { FLIP_RESULTS, type FlipResult } from '../requests/probe.ts';
import {
  type CanaryContext,
  type CanarySettings,
  everyMsOf,
  type Flipped,
  isTimed,
  limitsOf,
  runCanary,
} from './canary.ts';
import { CanaryEndpoints } from './flip.ts';

type FlipReading = Pick<Flipped, 'result' | 'attempts'>;

/** Registers the metrics of the canary. @param present the current consumers @returns the counter of flips */
export function registerCanaryMetrics(registry: Registry, present: () => readonly Consumer[]) {
  const flips = new Counter({
    name: 'linger_canary_flips_total',
    help: 'Flips of the canary that this replica has led, by how they ended.',
    reference:
      'Flips of [the canary](../measuring.md#the-canary) that this replica has led, by [how they ended](consumers.md#how-a-flip-ends). Absent if the canary is off, like the next two.',
    labelNames: ['result'] as const,
    registers: [registry],
  });
  const connections = new Counter({
    name: 'linger_canary_connections_total',
    help: 'Connections of these flips, through ClusterIPs and probe URLs.',
    registers: [registry],
  });
  const read = () => present().filter(isTimed).length;
  numberAtScrape(registry, {
    name: 'linger_canary_consumers',
    help: 'Consumers that the canary is to time, on every replica; 0: there are no flips.',
    read,
  });
  for (const result of Object.keys(FLIP_RESULTS) as FlipResult[]) flips.inc({ result }, 0);
  const totals: Record<string, number> = {};
  return {
    totals: (): Readonly<Record<string, number>> => totals,
    count: ({ result, attempts }: FlipReading): void => {
      flips.inc({ result });
      totals[result] = (totals[result] ?? 0) + 1;
      connections.inc(attempts);
    },
  };
}

interface CanaryRunContext
  extends CanarySettings,
    Pick<CanaryContext, 'connection' | 'namespace' | 'clock' | 'onProbe'> {
  readonly present: () => readonly Consumer[];
  readonly measurement: Pick<Measurement, 'isReady' | 'listing' | 'onChange' | 'onRemoval' | 'consumers'>;
  readonly logger: Logger;
  readonly flips: ReturnType<typeof registerCanaryMetrics>;
}

/** The canary of a replica. It always follows endpoints, and flips while the replica leads. */
export function startCanary(context: CanaryRunContext): Runnable {
  const { namespace, every, present, measurement, flips } = context;
  const endpoints = new CanaryEndpoints(measurement, namespace);
  const removals = new EventEmitter<{ removal: [] }>();
  measurement.onRemoval(() => removals.emit('removal'));
  /** Resolves once the term is over and no replica is left outside the Service, or 15 s later. */
  const lead = async (lead: Leadership): Promise<void> => {
    const timed = (consumer: string) => measurement.consumers.measured(consumer, 'removal')?.samples ?? 0;
    const everyMs = every * 1000;
    const intervalOf = (consumer: Consumer) => everyMsOf(consumer, everyMs, timed(consumer.name)) / 1000;
    const onFlip = flipReporter(
      { ...context, count: flips.count, consumers: measurement.consumers, intervalOf },
      lead,
    );
    const dns = await clusterDns();
    const flipping = { endpoints, dns, everyMs, timed, consumers: present, removals, onFlip };
    await runCanary({ ...context, ...flipping, random: Math.random }, lead);
  };
  const status = (): FactsOf<'canary'> => ({ flips: flips.totals() });
  return { name: 'canary', status, onEvent: endpoints.observe.bind(endpoints), lead };
}

interface FlipReporterContext extends Pick<CanaryRunContext, 'present' | 'logger'> {
  readonly count: (flip: FlipReading) => void;
  readonly consumers: ConsumerMeasurement;
  /** Seconds between two flips for a consumer, on average. */
  readonly intervalOf: (consumer: Consumer) => number;
}

/**
 * Passes samples to the measurement, and logs when a trouble begins and ends.
 * @returns a function to call with each flip of this term
 */
export function flipReporter(
  { consumers, present, intervalOf, logger, count }: FlipReporterContext,
  { signal }: Pick<Leadership, 'signal'>,
): (flipped: Flipped) => void {
  const once = new LogOnce(logger);
  /** By consumer, how many flips in a row have given no result for it. */
  const vain = new Map<string, number>();
  /** Before its first flip, all that is known of a consumer is that it is measured. */
  const introduce = () => {
    for (const each of present().filter(isTimed)) {
      if (consumers.state(each.name) !== undefined) continue;
      const limits = limitsOf(each, false);
      consumers.report(each.name, { trouble: undefined, every: intervalOf(each), limits });
    }
  };
  introduce();
  return (flipped) => {
    const { result, pod, attempts, problem } = flipped;
    count(flipped);
    const outcomes = Object.fromEntries(flipped.consumers);
    logger.debug({ result, pod, attempts, problem, consumers: outcomes }, 'canary flip');
    if (signal.aborted) return;
    introduce();
    for (const each of present().filter(isTimed)) {
      const { name: consumer } = each;
      // Consumers may have been added or deleted during the flip, so use those that it had.
      const limits = flipped.asked.get(consumer);
      if (limits === undefined) continue;
      const { removal, addition, trouble } = flipped.consumers.get(consumer) ?? {};
      if (removal !== undefined) consumers.record({ consumer, direction: 'removal', lag: removal });
      if (addition !== undefined) consumers.record({ consumer, direction: 'addition', lag: addition });
      const times = (vain.get(consumer) ?? 0) + 1;
      vain.set(consumer, removal === undefined && trouble === undefined ? times : 0);
      const before = consumers.state(consumer)?.trouble;
      const now = removal === undefined ? (trouble ?? stateAfter(flipped, before, times)) : undefined;
      consumers.report(consumer, { trouble: now, every: intervalOf(each), limits });
      if (now === undefined) once.over(consumer, { consumer }, 'canary measures this consumer again');
      else {
        const members = { consumer, reason: now.reason, problem: now.message };
        once.warn(consumer, members, 'canary cannot measure this consumer; its last lag stays in force');
      }
    }
  };
}

type Trouble = MeasurementState['trouble'];

/** A flip may fail by chance, which changes no state. This many in a row do not. */
const BY_CHANCE = 10;

/** If the API refused the flip, that is a trouble of all its consumers. */
function stateAfter({ result, problem }: Flipped, before: Trouble, times: number): Trouble {
  const why = `No flip of the canary succeeds. The last: ${FLIP_RESULTS[result].means}`;
  if (result !== 'Refused') return times < BY_CHANCE ? before : { reason: 'NotMeasuring', message: why };
  const message = `The API server does not let Linger take its canary out of the Service: ${problem ?? 'no answer'}.`;
  return { reason: 'NotMeasuring', message };
}
