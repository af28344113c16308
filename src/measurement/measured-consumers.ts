import type { SnapshotHolder } from '../core/decision/index.ts';
import type { Consumer } from '../core/lag/index.ts';
import type { CustomObjects } from '../informers/index.ts';
import type { Leadership, Runnable } from '../manager/index.ts';
import { type Logger, LogOnce } from '../telemetry/index.ts';
import { tick } from '../timing/index.ts';
import { type ConsumerViews, serviceCounts } from './consumer-views.ts';
import type { ConsumerMetrics } from './lag-metrics.ts';
import type { Measurement } from './measurement.ts';
import { witness } from './witness/measure.ts';

export interface MeasuredConsumersContext {
  readonly snapshot: SnapshotHolder;
  readonly measurement: Pick<Measurement, 'consumers'>;
  /** The consumers that the cluster declares. */
  readonly declared: Pick<CustomObjects<unknown>, 'known' | 'objects'>;
  /** Their views, updated while this replica leads. */
  readonly views: ConsumerViews;
  readonly metrics: ConsumerMetrics;
  readonly logger: Logger;
  readonly epochSeconds: () => number;
}

/** How soon an added or removed consumer is noticed. */
const LOOK_EVERY_MS = 1_000;

/** Keeps the set of measured consumers current and, while this replica leads, their views. */
export function measureConsumers(context: MeasuredConsumersContext): Runnable {
  const { snapshot, measurement, declared, views, epochSeconds } = context;
  const keep = keeping(context);
  const countServices = serviceCounts();
  let current: Leadership | undefined;
  const run = async (signal: AbortSignal) => {
    do {
      keep();
      if (current === undefined) continue;
      const unreadable = declared.objects().filter(({ problem }) => problem !== undefined);
      const problems = new Map(unreadable.map(({ name, problem = '' }) => [name, problem]));
      const { witnesses } = measurement.consumers.estimator;
      for (const { name } of witnesses) measurement.consumers.report(name, witness.state);
      const now = snapshot.current();
      views.look([...now.measured, ...witnesses], problems, countServices(now), epochSeconds());
    } while (await tick(LOOK_EVERY_MS, signal));
  };
  const lead = (leadership: Leadership): void => {
    current = leadership;
    const over = () => {
      if (current === leadership) current = undefined;
      measurement.consumers.idle();
      views.forget();
    };
    leadership.signal.addEventListener('abort', over, { once: true });
  };
  return { name: 'consumers', run, lead };
}

/**
 * Forgets samples of other consumers only once the list of consumers is certainly complete: a new leader may still be
 * reading it.
 */
function keeping({ snapshot, measurement, declared, metrics, logger }: MeasuredConsumersContext): () => void {
  const once = new LogOnce(logger);
  let kept: readonly Consumer[] | undefined;
  let all = false;
  return () => {
    const present = snapshot.current().measured;
    const known = declared.known();
    if (present === kept && known === all) return;
    measurement.consumers.keep(present, known);
    if (known) metrics.present([...present, ...measurement.consumers.estimator.witnesses]);
    kept = present;
    all = known;
    const hidden = snapshot.shadowed().join(', ');
    if (hidden !== '')
      once.warn(hidden, { consumers: hidden }, 'consumers from files overridden by objects of the same name');
  };
}
