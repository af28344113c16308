import type { Consumer } from '../core/consumers/consumer.ts';
import type { KubeConnection } from '../kube/connection.ts';
import type { ConsumerMeasurement, MeasuringState } from '../measure/consumers.ts';
import type { Lead } from '../publish/leadership.ts';
import { type Flipped, runCanary } from '../sources/canary/canary.ts';
import { CanaryEndpoints } from '../sources/canary/endpoints.ts';
import { CANARY_SERVICE } from '../sources/canary/service.ts';
import { isTimed, limitsOf } from '../sources/canary/timed-consumers.ts';
import type { FlipReading } from '../telemetry/canary-metrics.ts';
import type { Logger } from '../telemetry/logs.ts';

/** What replicas agree on about the canary, and who this one is. */
export interface CanarySettings {
  /** Where this replica listens, and all others. */
  readonly port: number;
  readonly identity: string;
  /** How often to flip for the ClusterIP. Seconds. */
  readonly every: number;
}

export interface CanaryRunContext extends CanarySettings {
  readonly connection: KubeConnection;
  /** Linger's own. */
  readonly namespace: string;
  /** All that there are now. */
  readonly present: () => readonly Consumer[];
  readonly consumers: ConsumerMeasurement;
  readonly logger: Logger;
  readonly count: (flip: FlipReading) => void;
  readonly clock: () => number;
}

/** The canary of a replica: it hears of endpoints always, and flips while it leads. */
export interface RunningCanary {
  readonly observe: CanaryEndpoints['observe'];
  /** Resolves once the lead is over and nothing is left outside the Service, or 15 s later. */
  readonly lead: (lead: Lead) => Promise<void>;
}

export function startCanary(context: CanaryRunContext): RunningCanary {
  const { namespace, every, present, logger } = context;
  const endpoints = new CanaryEndpoints({ namespace, name: CANARY_SERVICE });
  const observe = endpoints.observe.bind(endpoints);
  const lead = async (lead: Lead) => {
    const running = { ...context, endpoints, everyMs: every * 1000, consumers: present, random: Math.random };
    const onFlip = telling(context, lead);
    try {
      await runCanary({ ...running, onFlip }, { signal: lead.signal, holds: () => lead.holds() });
    } catch (err) {
      logger.error({ err }, 'the canary has ended: a mistake in Linger');
    }
  };
  return { observe, lead };
}

type Telling = Pick<CanaryRunContext, 'consumers' | 'present' | 'logger' | 'count'>;

/**
 * Samples to the measurement, troubles to people: each once, and when it is over.
 * @returns what to call with each flip of this lead
 */
export function telling(
  { consumers, present, logger, count }: Telling,
  { signal }: Pick<Lead, 'signal'>,
): (flipped: Flipped) => void {
  const told = new Map<string, string>();
  const tellTrouble = (consumer: string, trouble: MeasuringState['trouble']) => {
    const { reason, message } = trouble ?? {};
    if (told.get(consumer) === reason) return;
    if (trouble === undefined) {
      told.delete(consumer);
      logger.info({ consumer }, 'the canary sees this consumer again');
      return;
    }
    told.set(consumer, trouble.reason);
    logger.warn({ consumer, reason, problem: message }, 'the canary cannot measure this consumer');
  };
  /** Until its first flip there is nothing to say of a consumer but that it is measured. */
  const introduce = () => {
    for (const each of present().filter(isTimed)) {
      if (consumers.state(each.name) !== undefined) continue;
      consumers.report(each.name, { trouble: undefined, limits: limitsOf(each, false) });
    }
  };
  introduce();
  return (flipped: Flipped) => {
    const { result, pod, attempts, problem } = flipped;
    count(flipped);
    const lags = Object.fromEntries(flipped.consumers);
    logger.debug({ result, pod, attempts, problem, consumers: lags }, 'canary flip');
    if (signal.aborted) return;
    introduce();
    const names = new Set(present().map(({ name }) => name));
    for (const [consumer, limits] of flipped.asked) {
      // It may have been deleted while it was measured.
      if (!names.has(consumer)) continue;
      const { removal, addition, trouble } = flipped.consumers.get(consumer) ?? {};
      if (removal !== undefined) consumers.record({ consumer, direction: 'removal', lag: removal });
      if (addition !== undefined) consumers.record({ consumer, direction: 'addition', lag: addition });
      const now = removal === undefined ? (trouble ?? stateAfter(flipped, consumers, consumer)) : undefined;
      consumers.report(consumer, { trouble: now, limits });
      tellTrouble(consumer, now);
    }
  };
}

/** A flip that the API did not allow is a trouble of all; one that came to nothing by chance changes no state. */
function stateAfter(
  { result, problem }: Flipped,
  consumers: ConsumerMeasurement,
  consumer: string,
): MeasuringState['trouble'] {
  if (result !== 'Refused') return consumers.state(consumer)?.trouble;
  const message = `The API server does not let Linger take its canary out of the Service: ${problem ?? 'no answer'}.`;
  return { reason: 'NotMeasuring', message };
}
