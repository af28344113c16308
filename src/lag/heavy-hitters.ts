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
 * The busiest names, each with a value, in bounded memory however many names there are: the Space-Saving counters
 * (Metwally, Agrawal and El Abbadi, 2005), halved every day so that last month's rush does not keep its place forever.
 */
export class HeavyHitters<T> {
  readonly #places: number;
  readonly #newValue: () => T;
  readonly #counted = new Map<string, Activity>();
  readonly #kept = new Map<string, T>();
  #halvedAt: number | undefined;

  constructor(places: number, newValue: () => T) {
    this.#places = places;
    this.#newValue = newValue;
  }

  get kept(): ReadonlyMap<string, T> {
    return this.#kept;
  }

  /** @returns the name's value; undefined where it is not among the busiest */
  count(name: string, at: number, times = 1): T | undefined {
    this.#halve(at);
    const activity = this.#counted.get(name) ?? this.#admit(name);
    activity.atMost += times;
    if (!this.#kept.has(name) && this.#hasPlaceFor(activity)) this.#kept.set(name, this.#newValue());
    return this.#kept.get(name);
  }

  /** Displaces the quietest name where that makes room. */
  #hasPlaceFor({ atMost, inherited }: Activity): boolean {
    if (this.#kept.size < this.#places) return true;
    const quietest = this.#quietest(this.#kept.keys());
    const threshold = CLEARLY_BUSIER * (this.#counted.get(quietest)?.atMost ?? 0);
    return atMost - inherited > threshold && this.#kept.delete(quietest);
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
