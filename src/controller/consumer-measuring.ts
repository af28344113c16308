import type { Consumer } from '../core/consumers/consumer.ts';
import type { ConsumerViews } from '../measure/consumer-views.ts';
import type { Measurement } from '../measure/measurement.ts';
import type { Lead } from '../publish/leadership.ts';
import type { ConsumersSource } from '../sources/consumers.ts';
import { pause } from '../sources/pause.ts';
import type { ConsumerMetrics } from '../telemetry/consumer-metrics.ts';
import type { Logger } from '../telemetry/logs.ts';
import type { WorldHolder } from '../world/world.ts';
import type { RunningCanary } from './canary.ts';

export interface ConsumerMeasuringContext {
  readonly world: WorldHolder;
  readonly measurement: Pick<Measurement, 'consumers'>;
  /** What the cluster declares. */
  readonly declared: Pick<ConsumersSource, 'known' | 'objects'>;
  /** What is shown of them, brought up to date while this replica leads. */
  readonly views: ConsumerViews;
  /** What measures by flips; undefined: nothing does. */
  readonly canary: RunningCanary | undefined;
  readonly metrics: ConsumerMetrics;
  readonly logger: Logger;
  readonly epochSeconds: () => number;
  readonly signal: AbortSignal;
}

/** What is measured of consumers, by the replica that leads. */
export interface ConsumerMeasuring {
  /** To be called whenever this replica leads. */
  readonly lead: (lead: Lead) => void;
  /** Resolves once nothing is left to be put back of what this replica has changed while it led: within 15 s. */
  readonly left: () => Promise<unknown>;
  /** Resolves once the signal has aborted and nothing goes on any more. */
  readonly ended: Promise<unknown>;
}

/** How soon a consumer that is added or taken away counts. */
const LOOK_EVERY_MS = 1_000;

/** Has the consumers measured that there are: from now on until the signal aborts, by whichever replica leads. */
export function measureConsumers(context: ConsumerMeasuringContext): ConsumerMeasuring {
  const { measurement, views, canary, signal } = context;
  const { consumers } = measurement;
  const keep = keeping(context);
  const follow = async () => {
    do keep();
    while (await pause(LOOK_EVERY_MS, signal));
  };
  let led: Promise<unknown> = Promise.resolve();
  let shown: Promise<unknown> = Promise.resolve();
  return {
    lead: (lead) => {
      lead.signal.addEventListener('abort', () => consumers.idle(), { once: true });
      led = Promise.all([led, canary?.lead(lead)]);
      shown = Promise.all([shown, keepShown(context, lead)]);
      lead.signal.addEventListener('abort', () => views.forget(), { once: true });
    },
    left: () => led,
    ended: follow().then(() => Promise.all([led, shown])),
  };
}

/**
 * Has those measured that there are. Until it is certain that these are all, nothing that was measured of others is
 * forgotten: a leader that has just started may not have read them yet.
 */
function keeping({ world, measurement, declared, metrics, logger }: ConsumerMeasuringContext): () => void {
  let kept: readonly Consumer[] | undefined;
  let all = false;
  let shadowed = '';
  return () => {
    const present = world.current().consumers;
    const known = declared.known();
    if (present === kept && known === all) return;
    measurement.consumers.keep(present, known);
    if (known) metrics.present(present);
    kept = present;
    all = known;
    const hidden = world.shadowed().join(', ');
    if (hidden !== shadowed && hidden !== '')
      logger.warn(
        { consumers: hidden },
        'the cluster declares consumers of the same names as files do; its count',
      );
    shadowed = hidden;
  };
}

/** Brings what is shown up to date for as long as the lead lasts. */
async function keepShown(
  { world, declared, views, epochSeconds }: ConsumerMeasuringContext,
  { signal }: Lead,
): Promise<void> {
  while (await pause(LOOK_EVERY_MS, signal)) {
    const problems = declared
      .objects()
      .flatMap(({ name, problem }) => (problem === undefined ? [] : [[name, problem] as const]));
    views.look(world.current().consumers, new Map(problems), epochSeconds());
  }
}
