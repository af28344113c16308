import type { DiscoveryChange, Entry, GatewayReport, GatewaySync } from './messages.ts';

/** What has happened to one address, and how long until the last gateway had followed. */
export interface TrueLag extends Entry {
  /** When the discovery service saw it. {@link monotonicMs}. */
  readonly at: number;
  readonly lagMs: number;
  /**
   * How long until Linger also had the report of each gateway that follows: longer where processes wait for a
   * processor. NaN where one has not reported since.
   */
  readonly toldMs: number;
}

type Report = Pick<GatewayReport, 'at' | 'cursorAskedAt'>;

type Direction = 'removed' | 'added';

/**
 * What really was, by the gateways' own words: when each address left and entered each one's table. All instants are of
 * one clock.
 */
export class Truth {
  readonly #gateways: readonly string[];
  /** By direction and address: when the discovery service saw it, and when each gateway did it. */
  readonly #seen = new Map<string, { readonly entry: Entry; readonly at: number[] }>();
  readonly #done = new Map<string, number[]>();
  readonly #reports = new Map<string, Report[]>();

  constructor(gateways: readonly string[]) {
    this.#gateways = gateways;
    for (const gateway of gateways) {
      this.#reports.set(gateway, []);
    }
  }

  /** Linger has taken a report of a gateway's. */
  reported(gateway: string, report: Report): void {
    this.#reports.get(gateway)?.push(report);
  }

  /**
   * When the last gateway had acknowledged what Linger knew at an instant: only a cursor that was asked for after it does.
   * @returns NaN where one has not
   */
  acknowledged(known: number): number {
    const of = [...this.#reports.values()].map((reports) =>
      reports.find((each) => each.cursorAskedAt >= known),
    );
    return Math.max(...of.map((report) => report?.at ?? Number.NaN));
  }

  /** When the last of the gateways began to report. */
  get reportedSince(): number {
    return Math.max(...[...this.#reports.values()].map(([first]) => first?.at ?? Number.POSITIVE_INFINITY));
  }

  changed({ at, removed, added }: DiscoveryChange): void {
    const see = (direction: Direction) => (entry: Entry) => {
      const key = keyOf(direction, entry);
      const seen = this.#seen.get(key) ?? { entry, at: [] };
      seen.at.push(at);
      this.#seen.set(key, seen);
    };
    removed.forEach(see('removed'));
    added.forEach(see('added'));
  }

  synced(gateway: string, sync: GatewaySync): void {
    const note = (direction: Direction) => (entry: Entry) => {
      const key = `${gateway} ${keyOf(direction, entry)}`;
      const done = this.#done.get(key) ?? [];
      done.push(sync.ended);
      this.#done.set(key, done);
    };
    sync.removed.forEach(note('removed'));
    sync.added.forEach(note('added'));
  }

  /**
   * What every gateway has followed, in the order in which it happened. What was undone before one of them had asked is
   * left out: that one never knew.
   */
  lags(direction: Direction, service?: string): readonly TrueLag[] {
    const entries = [...this.#seen].filter(([key]) => key.startsWith(`${direction} `));
    return entries
      .map(([, seen]) => seen)
      .filter(({ entry }) => service === undefined || entry.service === service)
      .flatMap(({ entry, at }) =>
        at.flatMap((instant, index) => {
          const ends = this.#endsOf(direction, entry, instant, at[index + 1]);
          if (ends === undefined) return [];
          const told = this.#gateways.map((gateway, each) => this.#toldOf(gateway, ends[each] ?? 0));
          return [
            {
              ...entry,
              at: instant,
              lagMs: Math.max(...ends) - instant,
              toldMs: Math.max(...told) - instant,
            },
          ];
        }),
      )
      .toSorted((a, b) => a.at - b.at);
  }

  /** When each gateway followed. */
  #endsOf(
    direction: Direction,
    entry: Entry,
    at: number,
    next = Number.POSITIVE_INFINITY,
  ): readonly number[] | undefined {
    const ends = this.#gateways.flatMap((gateway) => {
      const done = this.#done.get(`${gateway} ${keyOf(direction, entry)}`) ?? [];
      return done.find((instant) => instant >= at && instant < next) ?? [];
    });
    return ends.length === this.#gateways.length ? ends : undefined;
  }

  #toldOf(gateway: string, ended: number): number {
    return this.#reports.get(gateway)?.find(({ at }) => at >= ended)?.at ?? Number.NaN;
  }

  /**
   * The longest that Linger can have taken a change for that might have happened at any instant: until each gateway that
   * had reported by then has reported a sync whose cursor it asked for after it. The lag falls from one such instant to
   * the next, so it is longest right after one.
   */
  get longestKnown(): number {
    const longest = [...this.#reports.values()].flatMap((reports) =>
      reports.flatMap(({ cursorAskedAt }) => {
        const from = Math.max(cursorAskedAt, reports[0]?.at ?? cursorAskedAt);
        const next = reports.find((each) => each.cursorAskedAt > from);
        return next === undefined ? [] : next.at - from;
      }),
    );
    return Math.max(0, ...longest);
  }
}

function keyOf(direction: Direction, { service, address }: Entry): string {
  return `${direction} ${service} ${address}`;
}
