import { setNewest } from '../api/index.ts';
import { type Consumer, witnessName } from './consumer.ts';
import { type Density, type LagScope, type Lags, lagsOf, wholeOf } from './distribution.ts';
import { type Enough, isEnough } from './lag-history.ts';
import {
  ENOUGH_OF_BUILT_IN,
  ENOUGH_OF_WITNESS,
  NOTHING_PLANNED,
  type PlannedEpisode,
  type PlannedRow,
  type PlannedTable,
} from './planned-lag.ts';

interface LagPart {
  /** `control plane`, or the consumer's name. */
  readonly name: string;
  readonly builtIn: boolean;
  readonly source: 'measured' | 'declared' | 'unknown';
  /** Whether the part counts: its lag is declared, or it has enough samples and history for the policy. */
  readonly enough: boolean;
  readonly samples: number;
  readonly historySeconds: number;
  /** undefined: nothing is known. */
  readonly lags: Pick<Lags, 'quantile'> | undefined;
}

/**
 * The lag of a part, if it counts. Planning a wait, releasing a hold and reporting how a pod ended all use this, so that
 * they always agree.
 * @returns undefined: it has too few samples
 */
export function knownLags({ enough, lags }: LagPart): LagPart['lags'] {
  return enough ? lags : undefined;
}

/** What is known of the lag of removals of a pod, by a policy's thresholds. */
export interface PlannedLag {
  readonly scope: LagScope;
  /** The number of samples of the measured part that has the fewest; 0 if none is measured. */
  readonly samples: number;
  readonly historySeconds: number;
  /** The control plane first, then each consumer that applies. */
  readonly parts: readonly LagPart[];
  /** The lag of all parts that count, on which waits are based. */
  readonly known: Lags | undefined;
  /** The lag of all parts that have any samples, for display. */
  readonly seen: Lags | undefined;
  /** The share of removals that a wait covers, as measured now; undefined where a part does not count yet. */
  readonly coverage: ((seconds: number) => number) | undefined;
  readonly episode: (Omit<PlannedEpisode, 'without'> & { readonly without: () => Lags }) | undefined;
}

/** The source of planned (slow-changing, published) lags. It must answer from memory, since it is asked for each pod. */
export interface LagSource {
  /**
   * @param consumers those that send traffic to the pod
   * @param services the names of the Services that select it, whose witnesses count as well
   */
  planned(
    namespace: string,
    consumers: readonly Pick<Consumer, 'name' | 'lagKey' | 'declared' | 'builtIn'>[],
    enough: Enough,
    services?: readonly string[],
  ): PlannedLag;
}

/** How many combinations are cached: of namespaces with their own lags, applicable consumers, and thresholds. */
const COMBINATIONS_KEPT = 512;

export const CONTROL_PLANE = 'control plane';

interface Part extends LagPart {
  readonly row: Pick<PlannedRow, 'slow' | 'current' | 'episode'> | undefined;
}

/**
 * Answers from a published table: the namespace’s row or else the cluster’s, followed by the slowest of the consumers that
 * apply. Computing a combination takes some milliseconds, so it is cached until the table is replaced.
 */
export function plannedLags(table: PlannedTable): LagSource {
  const combinations = new Map<string, PlannedLag>();
  return {
    planned: (namespace, consumers, enough, services = []) => {
      const own = table.namespaces.get(namespace);
      // Names of namespaces and consumers contain no blanks, so the key is unambiguous.
      let key = `${own === undefined ? '' : namespace} ${enough.minSamples}/${enough.minHistory}`;
      // The mark distinguishes a built-in consumer from a declared one of the same name, which has other thresholds.
      for (const { lagKey, builtIn } of consumers) key += builtIn ? ` ${lagKey}!` : ` ${lagKey}`;
      const witnesses: string[] = [];
      for (const service of services) {
        const name = witnessName(namespace, service);
        if (!table.consumers.has(name)) continue;
        witnesses.push(name);
        key += ` ${name}`;
      }
      const kept = combinations.get(key);
      if (kept !== undefined) {
        setNewest(combinations, key, kept, COMBINATIONS_KEPT);
        return kept;
      }
      const plane = partOf({ name: CONTROL_PLANE, builtIn: true }, own ?? table.cluster, enough);
      const rowOf = (name: string) => table.consumers.get(name);
      const parts = [
        ...consumers.map((each) =>
          partOf(each, rowOf(each.name), each.builtIn ? ENOUGH_OF_BUILT_IN : enough),
        ),
        ...witnesses.map((name) => partOf({ name, builtIn: true }, rowOf(name), ENOUGH_OF_WITNESS)),
      ];
      const combined = combine(own?.scope ?? 'cluster', plane, parts);
      setNewest(combinations, key, combined, COMBINATIONS_KEPT);
      return combined;
    },
  };
}

function partOf(
  { name, builtIn, declared }: Pick<Consumer, 'name' | 'builtIn'> & Partial<Pick<Consumer, 'declared'>>,
  measured: PlannedRow | undefined,
  enough: Enough,
): Part {
  const known = { name, builtIn, samples: 0, historySeconds: 0 };
  if (declared !== undefined) {
    const row = { slow: declared, current: declared };
    return { ...known, source: 'declared', enough: true, lags: lagsOf(declared), row };
  }
  if (measured === undefined)
    return { ...known, source: 'unknown', enough: false, lags: undefined, row: undefined };
  const { samples, historySeconds, reached, slow } = measured;
  const rest = { samples, historySeconds, enough: isEnough(reached, enough), lags: lagsOf(slow) };
  return { ...known, ...rest, source: 'measured', row: measured };
}

function combine(scope: LagScope, plane: Part, consumers: readonly Part[]): PlannedLag {
  const parts = [plane, ...consumers];
  const measured = parts.filter((part) => part === plane || part.source === 'measured');
  const whole = parts.every(({ enough }) => enough);
  /** The control plane’s lag followed by that of the slowest consumer, as far as they are known. */
  const combined = (densityOf: (part: Part) => Density | undefined): Lags | undefined => {
    const density = wholeOf(
      densityOf(plane),
      consumers.flatMap((part) => densityOf(part) ?? []),
    );
    return density && lagsOf(density);
  };
  const current = whole ? combined(({ row }) => row?.current) : undefined;
  const lifted = whole ? parts.find(({ row }) => row?.episode !== undefined) : undefined;
  const episode = lifted?.row?.episode;
  // Cached, because every pod of this combination asks for it.
  let shortened: Lags | undefined;
  const without = () =>
    (shortened ??= combined((part) => (part === lifted ? episode?.without : part.row?.slow)) as Lags);
  return {
    scope,
    samples: Math.min(...measured.map(({ samples }) => samples)),
    historySeconds: Math.min(...measured.map(({ historySeconds }) => historySeconds)),
    parts,
    known: combined(({ enough, row }) => (enough ? row?.slow : undefined)),
    seen: combined(({ row }) => row?.slow),
    coverage: current?.coverage,
    episode: episode && { ...episode, without },
  };
}

/** For a cluster where nothing has been measured: every wait is `initial`, or what consumers are declared to need. */
export const NONE_YET: LagSource = plannedLags(NOTHING_PLANNED);
