interface Activity {
  /** Lags counted, halved every day. At most this many. */
  atMost: number;
  /** How many of them may have belonged to the name that this one displaced. */
  inherited: number;
}

/** How many candidates are counted per kept name: a rising name must be noticed before it is admitted. */
const CANDIDATES_PER_PLACE = 8;

/** A newcomer must be a quarter busier than the name that it displaces, or two equally busy names would alternate. */
const CLEARLY_BUSIER = 1.25;

const DAY_SECONDS = 86_400;

/**
 * Which names are the busiest, in bounded memory however many there are: the Space-Saving counters (Metwally, Agrawal
 * and El Abbadi, 2005), halved every day so that last month's rush does not keep its place forever.
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

  /** @returns whether the name is kept, and the name that it displaced */
  count(name: string, at: number, times = 1): { readonly kept: boolean; readonly displaced?: string } {
    this.#halve(at);
    const activity = this.#counted.get(name) ?? this.#admit(name);
    activity.atMost += times;
    if (this.#kept.has(name)) return { kept: true };
    const displaced = this.#kept.size < this.#places ? undefined : this.#quietest(this.#kept);
    const threshold = CLEARLY_BUSIER * (this.#counted.get(displaced ?? '')?.atMost ?? 0);
    if (displaced !== undefined && activity.atMost - activity.inherited <= threshold) return { kept: false };
    this.#kept.add(name);
    if (displaced === undefined) return { kept: true };
    this.#kept.delete(displaced);
    return { kept: true, displaced };
  }

  #admit(name: string): Activity {
    let inherited = 0;
    if (this.#counted.size >= this.#places * (CANDIDATES_PER_PLACE + 1)) {
      const quietest = this.#quietest([...this.#counted.keys()].filter((each) => !this.#kept.has(each)));
      inherited = this.#counted.get(quietest)?.atMost ?? 0;
      this.#counted.delete(quietest);
    }
    const activity = { atMost: inherited, inherited };
    this.#counted.set(name, activity);
    return activity;
  }

  /** @param names at least one */
  #quietest(names: Iterable<string>): string {
    const activity = (name: string) => this.#counted.get(name)?.atMost ?? 0;
    return [...names].reduce((least, name) => (activity(name) < activity(least) ? name : least));
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
