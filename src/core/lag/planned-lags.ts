import { coverageOf, type Density, maxOf, quantileOf } from './combine.ts';
import type { ConsumerPart, LagDistribution, LaggingConsumer, LagPart, LagSource } from './distribution.ts';
import { distributionOf, withConsumers } from './estimate.ts';
import { NOTHING_PLANNED, type PlannedRow, type PlannedTable } from './planned.ts';
import { plannedLag } from './published.ts';

/** A built-in consumer counts from here on: with fewer, its p99 would be its worst or its second-worst sample. */
const BUILT_IN_SAMPLES = 100;

/** So many combinations are kept: one for each namespace with lags of its own and each set of consumers that apply. */
const COMBINATIONS_KEPT = 512;

/** One row as it is published, or one consumer's part. */
type KnownLag = Pick<PlannedRow, 'samples' | 'historySeconds' | 'scope'> & { readonly density: Density };

interface KnownConsumer extends Pick<ConsumerPart, 'name' | 'source'> {
  readonly lag: KnownLag;
}

/**
 * What the decision asks: the namespace's row where it has one, else the cluster's, followed by the slowest of the
 * consumers that apply. A combination takes some milliseconds once, and is kept for as long as the table is in force.
 */
export function plannedLags(table: PlannedTable): LagSource {
  return new PlannedLags(table);
}

class PlannedLags implements LagSource {
  readonly #cluster: KnownLag | undefined;
  readonly #namespaces = new Map<string, KnownLag>();
  readonly #consumers = new Map<string, KnownLag>();
  readonly #combinations = new Map<string, LagDistribution | undefined>();

  constructor({ cluster, namespaces, consumers }: PlannedTable) {
    this.#cluster = cluster && knownLag(cluster);
    for (const [name, row] of namespaces) this.#namespaces.set(name, knownLag(row));
    for (const [name, row] of consumers) this.#consumers.set(name, knownLag(row));
  }

  planned(namespace: string, consumers: readonly LaggingConsumer[]): LagDistribution | undefined {
    const own = this.#namespaces.get(namespace);
    // No namespace's name, and no consumer's, has a blank in it.
    const key = [own === undefined ? '' : namespace, ...consumers.map(({ lagKey }) => lagKey)].join(' ');
    if (this.#combinations.has(key)) return this.#combinations.get(key);
    const combined = this.#combine(own ?? this.#cluster, consumers);
    if (this.#combinations.size >= COMBINATIONS_KEPT) this.#combinations.clear();
    this.#combinations.set(key, combined);
    return combined;
  }

  #combine(
    controlPlane: KnownLag | undefined,
    applying: readonly LaggingConsumer[],
  ): LagDistribution | undefined {
    const consumers = applying.filter((consumer) => !consumer.builtIn || this.#counts(consumer.name));
    if (consumers.length === 0) {
      return controlPlane && distributionOf({ ...controlPlane, stages: [] });
    }
    const declared = consumers.flatMap((consumer) => consumer.declared ?? []);
    const known = consumers.flatMap((consumer) => this.#known(consumer));
    const unmeasured = consumers
      .filter(({ name, declared: said }) => said === undefined && !this.#consumers.has(name))
      .map(({ name }) => name);

    const densities = known.map(({ lag }) => lag.density);
    if (controlPlane === undefined && densities.length === 0) return undefined;
    const density =
      controlPlane === undefined ? maxOf(densities) : withConsumers(controlPlane, densities).density;
    const measured = known.filter(({ source }) => source === 'measured').map(({ lag }) => lag);
    const least = (of: 'samples' | 'historySeconds') =>
      Math.min(controlPlane?.[of] ?? 0, ...measured.map((lag) => lag[of]));
    return {
      scope: controlPlane?.scope === 'namespace' ? 'namespace' : 'cluster',
      samples: least('samples'),
      historySeconds: least('historySeconds'),
      combined: {
        controlPlane: controlPlane && partOf(controlPlane),
        consumers: known.map(({ name, source, lag }): ConsumerPart => ({ name, source, ...partOf(lag) })),
        unmeasured,
        declared: declared.length === 0 ? undefined : questionsOf(maxOf(declared)),
      },
      ...questionsOf(density),
    };
  }

  #counts(name: string): boolean {
    return (this.#consumers.get(name)?.samples ?? 0) >= BUILT_IN_SAMPLES;
  }

  #known({ name, declared }: LaggingConsumer): readonly KnownConsumer[] {
    if (declared !== undefined) {
      const lag = { scope: 'cluster' as const, samples: 0, historySeconds: 0, density: declared };
      return [{ name, source: 'declared', lag }];
    }
    const lag = this.#consumers.get(name);
    return lag === undefined ? [] : [{ name, source: 'measured', lag }];
  }
}

function knownLag(row: PlannedRow): KnownLag {
  const { samples, historySeconds, scope } = row;
  return { samples, historySeconds, scope, density: plannedLag(row).density };
}

function partOf({ samples, historySeconds, density }: KnownLag): LagPart {
  return { samples, historySeconds, quantile: (percentile) => quantileOf(density, percentile) };
}

function questionsOf(density: Density): Pick<LagDistribution, 'quantile' | 'coverage'> {
  return {
    quantile: (percentile) => quantileOf(density, percentile),
    coverage: (seconds) => coverageOf(density, seconds),
  };
}

/** Nothing measured yet: every wait is `initial`, or what consumers are declared to need. */
export const NONE_YET: LagSource = plannedLags(NOTHING_PLANNED);
