import { unseenNamespace } from '../core/api/index.ts';
import type { ClusterSnapshot } from '../core/decision/index.ts';
import {
  type Consumer,
  type ConsumerFacts,
  type ConsumerView,
  consumerView,
  sendsThrough,
  unreadableView,
} from '../core/lag/index.ts';
import type { ConsumerMeasurement } from './measurement.ts';

type Known = Pick<ConsumerFacts, 'removals' | 'additions' | 'latestRemoval'>;

/**
 * How many consumers' percentiles are renewed at each look, in turn, because a week's percentiles take up to some
 * milliseconds.
 */
const MEASURED_A_LOOK = 2;

/** The views of the consumers that the leader measures, recomputed periodically. */
export class ConsumerViews {
  readonly #measurement: ConsumerMeasurement;
  readonly #known = new Map<string, Known>();
  #views = new Map<string, ConsumerView>();
  #turn = 0;

  constructor(measurement: ConsumerMeasurement) {
    this.#measurement = measurement;
  }

  /** The views as of the last update, in order of the consumers; empty if this replica does not measure. */
  get all(): readonly ConsumerView[] {
    return [...this.#views.values()];
  }

  /**
   * Updates the views.
   * @param problems why a consumer's spec cannot be read, by consumer
   * @param services to how many Services a consumer applies, by consumer
   * @param now seconds since the epoch
   */
  look(
    consumers: readonly Consumer[],
    problems: ReadonlyMap<string, string>,
    services: ReadonlyMap<string, number>,
    now: number,
  ): void {
    this.#measure(consumers);
    const before = this.#views;
    this.#views = new Map();
    for (const consumer of consumers) {
      const { name } = consumer;
      const known = this.#known.get(name) ?? NOTHING;
      const state = this.#measurement.state(name);
      const unseen = this.#measurement.unseen(name);
      const notDeregistered = consumer.deregister && this.#measurement.notDeregistered(name);
      const facts = {
        consumer,
        ...known,
        state,
        unseen,
        services: services.get(name),
        problem: problems.get(name),
        notDeregistered,
      };
      this.#views.set(name, consumerView(facts, now, before.get(name)));
    }
    for (const [name, problem] of problems) {
      if (this.#views.has(name)) continue;
      this.#views.set(name, unreadableView(name, problem, now, before.get(name)));
    }
    for (const name of this.#known.keys()) if (!this.#views.has(name)) this.#known.delete(name);
  }

  /**
   * Takes over from an earlier leader's views since when unchanged conditions have been as they are, and which consumers
   * have not been seen.
   */
  since(earlier: readonly ConsumerView[]): void {
    for (const { name, condition, unseen } of earlier) {
      const view = this.#views.get(name);
      if (unseen !== undefined) this.#measurement.restoreUnseen(name, unseen);
      if (view === undefined || view.condition.status !== condition.status) continue;
      const since = Math.min(view.condition.since, condition.since);
      this.#views.set(name, { ...view, condition: { ...view.condition, since } });
    }
  }

  /** Forgets all views, because this replica no longer measures. */
  forget(): void {
    this.#views.clear();
    this.#known.clear();
  }

  #measure(consumers: readonly Consumer[]): void {
    const measured = consumers.filter(({ declared }) => declared === undefined);
    for (const { name } of measured.filter((each) => !this.#known.has(each.name))) this.#renew(name);
    for (const _ of measured.slice(0, MEASURED_A_LOOK)) {
      this.#turn = (this.#turn + 1) % measured.length;
      this.#renew(measured[this.#turn]?.name ?? '');
    }
  }

  #renew(name: string): void {
    this.#known.set(name, {
      removals: this.#measurement.measured(name, 'removal'),
      additions: this.#measurement.measured(name, 'addition'),
      latestRemoval: this.#measurement.estimator.latestRemoval(name),
    });
  }
}

const NOTHING: Known = { removals: undefined, additions: undefined };

type Selected = Pick<ClusterSnapshot, 'measured' | 'services' | 'namespaces'>;

/** To how many Services each consumer applies; counted again only when either changes. Empty until both are known. */
export function serviceCounts(): (snapshot: Selected) => ReadonlyMap<string, number> {
  let seen: Selected | undefined;
  let counts: ReadonlyMap<string, number> = new Map();
  return ({ measured, services, namespaces }) => {
    const isSame =
      seen?.measured === measured && seen.services === services && seen.namespaces === namespaces;
    if (isSame) return counts;
    seen = { measured, services, namespaces };
    const all = [...services.byNamespace].flatMap(([namespace, of]) => {
      const within = namespaces.get(namespace) ?? unseenNamespace(namespace);
      return of.map((service) => [within, service] as const);
    });
    const countOf = (consumer: Consumer) => all.filter((each) => sendsThrough(consumer, ...each)).length;
    counts = new Map(services.complete ? measured.map((each) => [each.name, countOf(each)]) : []);
    return counts;
  };
}
