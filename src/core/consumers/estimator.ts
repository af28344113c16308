import type { LagDistribution } from '../lag/distribution.ts';
import { distributionOf } from '../lag/estimate.ts';
import type { Candidate, Candidates } from '../lag/planned.ts';
import { LagHistory } from '../lag/slices.ts';
import { isRecord } from '../schema/shape.ts';

const VERSION = 1;

/** A consumer has an hour in a row: less than a storm's worth is lost by that, and a snapshot stays small. */
const SNAPSHOT_WIDTH = 4;

/** What a consumer does with an endpoint: it stops sending to a removed one, and begins with an added one. */
export const DIRECTIONS = ['removal', 'addition'] as const;
export type Direction = (typeof DIRECTIONS)[number];

type Histories = Record<Direction, LagHistory>;

/** What has been measured of one consumer in one direction: for people. */
export interface ConsumerLag extends LagDistribution {
  /** When the newest sample ended, in seconds since the epoch. */
  readonly latest: number;
}

/**
 * How long each consumer takes from when the control plane has said so until it has followed, over 7 days. It has no
 * clock: `epochSeconds` is the caller's wall clock.
 */
export class ConsumerEstimator {
  readonly #consumers = new Map<string, Histories>();
  #kept = false;

  /**
   * The consumers that there are and that are measured.
   * @param all whether there are no others: then whatever is known of those is forgotten
   */
  keep(names: ReadonlySet<string>, all = true): void {
    this.#kept ||= all;
    if (all) for (const name of this.#consumers.keys()) if (!names.has(name)) this.#consumers.delete(name);
    for (const name of names) {
      if (!this.#consumers.has(name)) this.#consumers.set(name, newHistories());
    }
  }

  /** A sample of a consumer that is not kept is left out. @throws RangeError for a negative lag or NaN */
  record(name: string, direction: Direction, lagSeconds: number, epochSeconds: number): void {
    this.#consumers.get(name)?.[direction].record(lagSeconds, epochSeconds);
  }

  /** What the published lags follow. @returns undefined until it has been said which consumers there are */
  candidates(epochSeconds: number): Candidates['consumers'] {
    if (!this.#kept) return undefined;
    const candidates = new Map<string, Candidate | undefined>();
    for (const [name, { removal }] of this.#consumers) {
      const weighed = removal.weighed(epochSeconds);
      candidates.set(
        name,
        weighed && { lag: { scope: 'cluster', stages: [], ...weighed }, latest: weighed.latest },
      );
    }
    return candidates;
  }

  /** @returns undefined where the last 7 days have no sample */
  measured(name: string, direction: Direction, epochSeconds: number): ConsumerLag | undefined {
    const weighed = this.#consumers.get(name)?.[direction].weighed(epochSeconds);
    if (weighed === undefined) return undefined;
    return {
      ...distributionOf({ scope: 'cluster', stages: [], ...weighed }),
      latest: weighed.latest,
    };
  }

  /** For {@link restore}, as JSON. */
  snapshot(epochSeconds: number): unknown {
    const rows = [...this.#consumers].map(([name, { removal, addition }]) => {
      const coarse = (history: LagHistory) => history.coarsened(SNAPSHOT_WIDTH, epochSeconds).toJSON();
      return [name, { removal: coarse(removal), addition: coarse(addition) }] as const;
    });
    return { v: VERSION, consumers: Object.fromEntries(rows) };
  }

  /**
   * Takes over what another replica has measured, instead of what is here: only one measures at a time.
   * @returns false, and nothing is changed, when it is no snapshot or of another version
   */
  restore(json: unknown): boolean {
    if (!isRecord(json) || json.v !== VERSION || !isRecord(json.consumers)) return false;
    const restored = new Map<string, Histories>();
    for (const [name, each] of Object.entries(json.consumers)) {
      const histories = parseHistories(each);
      if (histories === undefined) return false;
      restored.set(name, histories);
    }
    for (const [name, histories] of restored) this.#consumers.set(name, histories);
    return true;
  }
}

function newHistories(): Histories {
  return { removal: new LagHistory(), addition: new LagHistory() };
}

function parseHistories(json: unknown): Histories | undefined {
  if (!isRecord(json)) return undefined;
  const removal = LagHistory.parse(json.removal);
  const addition = LagHistory.parse(json.addition);
  return removal && addition && { removal, addition };
}
