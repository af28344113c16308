/** How many names are counted for each that is kept: a rising name must be noticed before it displaces another. */
const COUNTED_PER_PLACE = 8;

/**
 * A newcomer must be a quarter busier than the name that it displaces, or two equally busy names would keep displacing each
 * other.
 */
const CLEARLY_BUSIER = 1.25;

const DAY_SECONDS = 86_400;

/**
 * The busiest names, each with a value, in bounded memory however many names there are. Counts are halved every day, so that
 * a name does not keep its place for past activity.
 */
export class HeavyHitters<T> {
  readonly #places: number;
  readonly #newValue: () => T;
  readonly #counts = new Map<string, number>();
  readonly #kept = new Map<string, T>();
  #halvedAt: number | undefined;

  constructor(places: number, newValue: () => T) {
    this.#places = places;
    this.#newValue = newValue;
  }

  get kept(): ReadonlyMap<string, T> {
    return this.#kept;
  }

  /** @returns the name's value; undefined if it is not among the busiest */
  count(name: string, at: number, times = 1): T | undefined {
    this.#halve(at);
    const isNew = !this.#counts.has(name);
    if (isNew && this.#counts.size >= this.#places * (COUNTED_PER_PLACE + 1))
      this.#counts.delete(this.#quietest([...this.#counts.keys()].filter((each) => !this.#kept.has(each))));
    const count = (this.#counts.get(name) ?? 0) + times;
    this.#counts.set(name, count);
    if (!this.#kept.has(name) && this.#hasPlaceFor(count)) this.#kept.set(name, this.#newValue());
    return this.#kept.get(name);
  }

  #hasPlaceFor(count: number): boolean {
    if (this.#kept.size < this.#places) return true;
    const quietest = this.#quietest([...this.#kept.keys()]);
    const threshold = CLEARLY_BUSIER * (this.#counts.get(quietest) ?? 0);
    return count > threshold && this.#kept.delete(quietest);
  }

  /** @param names at least one */
  #quietest(names: readonly string[]): string {
    const countOf = (name: string) => this.#counts.get(name) ?? 0;
    return names.reduce((least, name) => (countOf(name) < countOf(least) ? name : least));
  }

  #halve(at: number): void {
    this.#halvedAt ??= at;
    if (at - this.#halvedAt < DAY_SECONDS) return;
    this.#halvedAt = at;
    for (const [name, count] of this.#counts) this.#counts.set(name, count / 2);
  }
}
