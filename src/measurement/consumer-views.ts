import { unseenNamespace } from '../api/index.ts';
import type { ClusterSnapshot } from '../decision/index.ts';
import {
  type Consumer,
  type ConsumerLag,
  type ConsumerView,
  consumerView,
  sendsThrough,
  unreadableView,
} from '../lag/index.ts';
import type { ConsumerMeasurement } from './measurement.ts';

type Known = Readonly<Record<'removals' | 'additions', ConsumerLag | undefined>>;

/** A week's percentiles take some milliseconds each: at most this many are computed per update. */
const MOST_MEASURED_A_LOOK = 8;

/** Without new samples a lag only changes as slices of 15 minutes leave the week. */
const REFRESH_SECONDS = 900;

/** The views of the consumers that the leader measures, recomputed periodically. */
export class ConsumerViews {
  readonly #measurement: ConsumerMeasurement;
  readonly #known = new Map<string, Known>();
  /** The consumers with samples that their view does not include yet. */
  readonly #outdated = new Set<string>();
  #views = new Map<string, ConsumerView>();
  #refreshAt = Number.NEGATIVE_INFINITY;

  constructor(measurement: ConsumerMeasurement) {
    this.#measurement = measurement;
    measurement.onSample(({ consumer }) => void this.#outdated.add(consumer));
    measurement.onRestored(() => {
      this.#refreshAt = Number.NEGATIVE_INFINITY;
    });
  }

  /** The views as of the last update, in the order of the consumers; empty where this replica does not measure. */
  get all(): readonly ConsumerView[] {
    return [...this.#views.values()];
  }

  /**
   * Updates the views.
   * @param problems by consumer, why its spec cannot be read
   * @param services by consumer, how many Services it applies to
   * @param now seconds since the epoch
   */
  look(
    consumers: readonly Consumer[],
    problems: ReadonlyMap<string, string>,
    services: ReadonlyMap<string, number>,
    now: number,
  ): void {
    if (now >= this.#refreshAt) {
      for (const { name } of consumers) this.#outdated.add(name);
      this.#refreshAt = now + REFRESH_SECONDS;
    }
    this.#measure(consumers);
    const before = this.#views;
    this.#views = new Map();
    for (const consumer of consumers) {
      const { name } = consumer;
      const known = this.#known.get(name) ?? NOTHING;
      const state = this.#measurement.state(name);
      const facts = { consumer, ...known, state, services: services.get(name), problem: problems.get(name) };
      this.#views.set(name, consumerView(facts, now, before.get(name)));
    }
    for (const [name, problem] of problems) {
      if (this.#views.has(name)) continue;
      this.#views.set(name, unreadableView(name, problem, now, before.get(name)));
    }
    for (const name of this.#known.keys()) if (!this.#views.has(name)) this.#known.delete(name);
  }

  /** Takes over from an earlier leader's views since when each unchanged condition has held. */
  since(earlier: readonly ConsumerView[]): void {
    for (const { name, condition } of earlier) {
      const view = this.#views.get(name);
      if (view === undefined || view.condition.status !== condition.status) continue;
      const since = Math.min(view.condition.since, condition.since);
      this.#views.set(name, { ...view, condition: { ...view.condition, since } });
    }
  }

  /** This replica no longer measures. */
  forget(): void {
    this.#views.clear();
    this.#known.clear();
    this.#outdated.clear();
    this.#refreshAt = Number.NEGATIVE_INFINITY;
  }

  #measure(consumers: readonly Consumer[]): void {
    const present = new Map(consumers.map((consumer) => [consumer.name, consumer]));
    let left = MOST_MEASURED_A_LOOK;
    for (const name of this.#outdated) {
      if (left === 0) return;
      this.#outdated.delete(name);
      const consumer = present.get(name);
      if (consumer === undefined || consumer.declared !== undefined) continue;
      this.#known.set(name, {
        removals: this.#measurement.measured(name, 'removal'),
        additions: this.#measurement.measured(name, 'addition'),
      });
      left -= 1;
    }
  }
}

const NOTHING: Known = { removals: undefined, additions: undefined };

type Selected = Pick<ClusterSnapshot, 'consumers' | 'services' | 'namespaces'>;

/** How many Services each consumer applies to, counted again only when either changes. Empty until all are known. */
export function serviceCounts(): (snapshot: Selected) => ReadonlyMap<string, number> {
  let seen: Selected | undefined;
  let counts: ReadonlyMap<string, number> = new Map();
  return ({ consumers, services, namespaces }) => {
    const isSame =
      seen?.consumers === consumers && seen.services === services && seen.namespaces === namespaces;
    if (isSame) return counts;
    seen = { consumers, services, namespaces };
    const all = [...services.byNamespace].flatMap(([namespace, of]) => {
      const within = namespaces.get(namespace) ?? unseenNamespace(namespace);
      return of.map((service) => [within, service] as const);
    });
    const countOf = (consumer: Consumer) => all.filter((each) => sendsThrough(consumer, ...each)).length;
    counts = new Map(services.complete ? consumers.map((each) => [each.name, countOf(each)]) : []);
    return counts;
  };
}
