interface Activity {
  /** Lags counted, halved every day. At most this many. */
  atMost: number;
  /** How many of them may have been another name's, whose place this one took. */
  inherited: number;
}

/** Names are counted for this many times as many as are kept: who is rising has to be seen before it is let in. */
const CANDIDATES_PER_PLACE = 8;

/** A newcomer must be a quarter busier than whom it displaces, or two of the same size would take turns. */
const CLEARLY_BUSIER = 1.25;

const DAY_SECONDS = 86_400;

/**
 * Which names are the busiest, in bounded memory however many there are: the Space-Saving counters (Metwally,
 * Agrawal and El Abbadi, 2005), halved every day so that last month's rush does not hold a place for ever.
 */
export class Busiest {
  readonly #places: number;
  readonly #counted = new Map<string, Activity>();
  readonly #kept = new Set<string>();
  #halvedAt: number | undefined;

  constructor(places: number) {
    this.#places = places;
  }

  get kept(): ReadonlySet<string> {
    return this.#kept;
  }

  /** Counts one lag. @returns whether the name is kept, and whom it displaced */
  count(name: string, at: number, times = 1): { readonly kept: boolean; readonly displaced?: string } {
    this.#halve(at);
    const activity = this.#counted.get(name) ?? this.#admit(name);
    if (activity === undefined) return { kept: false };
    activity.atMost += times;
    if (this.#kept.has(name)) return { kept: true };
    if (this.#kept.size < this.#places) {
      this.#kept.add(name);
      return { kept: true };
    }
    const quietest = this.#quietest(this.#kept);
    if (quietest === undefined) return { kept: false };
    const threshold = CLEARLY_BUSIER * (this.#counted.get(quietest)?.atMost ?? 0);
    if (activity.atMost - activity.inherited <= threshold) return { kept: false };
    this.#kept.delete(quietest);
    this.#kept.add(name);
    return { kept: true, displaced: quietest };
  }

  #admit(name: string): Activity | undefined {
    let inherited = 0;
    if (this.#counted.size >= this.#places * (CANDIDATES_PER_PLACE + 1)) {
      const others = [...this.#counted.keys()].filter((each) => !this.#kept.has(each));
      const quietest = this.#quietest(others);
      if (quietest === undefined) return undefined;
      inherited = this.#counted.get(quietest)?.atMost ?? 0;
      this.#counted.delete(quietest);
    }
    const activity = { atMost: inherited, inherited };
    this.#counted.set(name, activity);
    return activity;
  }

  #quietest(names: Iterable<string>): string | undefined {
    let quietest: string | undefined;
    let least = Number.POSITIVE_INFINITY;
    for (const name of names) {
      const { atMost } = this.#counted.get(name) ?? { atMost: 0 };
      if (atMost >= least) continue;
      quietest = name;
      least = atMost;
    }
    return quietest;
  }

  #halve(at: number): void {
    this.#halvedAt ??= at;
    if (at - this.#halvedAt < DAY_SECONDS) return;
    this.#halvedAt = at;
    for (const activity of this.#counted.values()) {
      activity.atMost /= 2;
      activity.inherited /= 2;
    }
  }
}
