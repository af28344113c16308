import { type Acknowledged, STAMPED_STREAMS, type Stamp, type StampedStream } from './events.ts';

/** On the objects that are stamped. */
export const STAMP_ANNOTATION = 'linger.dev/stamp';

/** Life, number, instant; then number and instant of what was acknowledged, for each stream. */
const STAMP = /^([\w-]{1,16}):(\d{1,15})@(\d{1,15}):(\d{1,15}@\d{1,15}(?:,\d{1,15}@\d{1,15}){2})$/;

/** The value of the annotation. */
export function stampText({ life, number, sentAt, acknowledged }: Stamp): string {
  const pair = (of: Acknowledged) => `${of.number}@${Math.round(of.at)}`;
  const pairs = STAMPED_STREAMS.map((stream) => pair(acknowledged[stream]));
  return `${life}:${pair({ number, at: sentAt })}:${pairs.join()}`;
}

/** @returns undefined for what is no stamp */
export function stampOf(text: string | undefined): Stamp | undefined {
  const [, life, number, sentAt, pairs] = STAMP.exec(text ?? '') ?? [];
  if (life === undefined || pairs === undefined) return undefined;
  const [pods, slices, endpoints] = pairs.split(',').map((pair): Acknowledged => {
    const [acknowledged, at] = pair.split('@').map(Number);
    return { number: acknowledged ?? 0, at: at ?? 0 };
  });
  if (pods === undefined || slices === undefined || endpoints === undefined) return undefined;
  const acknowledged = { pods, EndpointSlice: slices, Endpoints: endpoints };
  return { life, number: Number(number), sentAt: Number(sentAt), acknowledged };
}

/** Enough for what a stream that was two minutes behind brings at once. */
const KEPT = 128;

/** Replicas that stamped lately. */
const WRITERS = 4;

/** Clocks that drift apart by 50 ppm differ by 30 ms after so long. */
const OFFSET_MS = 600_000;

/** Stamps come once a second: one that is older than this says nothing of an event after it. */
const NEIGHBOUR_MS = 2_500;

interface Delivered {
  readonly number: number;
  /** This process's clock. */
  readonly at: number;
  /** By when the API server had it, on the writer's clock; undefined: no later stamp has said so yet. */
  committedBy: number | undefined;
}

/**
 * How late each stream is, by the stamps that are written while removals are open. A stream delivers in the order of
 * writes, and a stamp says when the API server had acknowledged the ones before. So a stamp that arrives long after its
 * acknowledgement shows that its stream is behind, and so was every event next to it.
 */
export class Punctuality {
  /** The latest last. */
  readonly #writers = new Map<string, Writer>();

  /** A stamp arrived. @param current whether its stream brings events when they happen; a list does not */
  stamp(from: StampedStream, stamp: Stamp, at: number, current: boolean): void {
    const writer = this.#writers.get(stamp.life) ?? new Writer();
    if (writer.stamp(from, stamp, at, current)) this.#add(stamp.life, writer);
  }

  #add(life: string, writer: Writer): void {
    this.#writers.delete(life);
    this.#writers.set(life, writer);
    const [oldest = ''] = this.#writers.keys();
    if (this.#writers.size > WRITERS) this.#writers.delete(oldest);
  }

  /** The API server has a stamp of this process's own. */
  wrote(life: string, stream: StampedStream, acknowledged: Acknowledged): void {
    const writer = this.#writers.get(life) ?? new Writer();
    if (!this.#writers.has(life)) this.#add(life, writer);
    writer.wrote(stream, acknowledged);
  }

  /** When another writer than this last sent a stamp, on this process's clock. */
  stampedAt(otherThan: string): number {
    const others = [...this.#writers].filter(([life]) => life !== otherThan);
    return Math.max(...others.map(([, { stampedAt }]) => stampedAt));
  }

  /** The watch is interrupted or resumed: the stamps before say nothing about the events after. */
  forget(stream: StampedStream): void {
    for (const writer of this.#writers.values()) writer.forget(stream);
  }

  /**
   * How late at least an event was that this stream delivered at an instant: milliseconds, 0 for none.
   * @returns undefined while the next stamp of the stream, or the one that acknowledges it, has not come
   */
  lateness(stream: StampedStream, at: number): number | undefined {
    const known = [...this.#writers.values()].flatMap((writer) => writer.lateness(stream, at) ?? []);
    return known.length === 0 ? undefined : Math.max(...known);
  }

  /** Whether a stamp of this process's own is still to come by the stream. */
  awaits(stream: StampedStream): boolean {
    return [...this.#writers.values()].some((writer) => writer.awaits(stream));
  }

  /** How far behind the stream is now, at least: the time for which it has owed the oldest stamp. Milliseconds. */
  behind(stream: StampedStream, now: number): number {
    return Math.max(0, ...[...this.#writers.values()].map((writer) => writer.behind(stream, now)));
  }
}

/**
 * The stamps of one writer. Its clock is compared with ours by the stamp that travelled fastest: all lateness is at least
 * what is found here, so a stream in time is never taken for a late one, however long the writes take.
 */
class Writer {
  /** The highest number of each stream: an object shows its stamp again with every other change of it. */
  readonly #latest = new Map<StampedStream, number>();
  readonly #delivered = new Map<StampedStream, Delivered[]>();
  /** The highest number that this process has written. */
  readonly #written = new Map<StampedStream, number>();
  /** Acknowledged and not delivered, by ascending number. */
  readonly #owed = new Map<StampedStream, Acknowledged[]>();
  /** Arrival less sending, of the latest stamps, and the least of them. */
  #offsets: { readonly at: number; readonly offset: number }[] = [];
  #offset = Number.POSITIVE_INFINITY;
  #sentAt = Number.NEGATIVE_INFINITY;

  /** @returns whether it is a new one */
  stamp(from: StampedStream, { number, sentAt, acknowledged }: Stamp, at: number, current: boolean): boolean {
    if (number <= (this.#latest.get(from) ?? 0)) return false;
    this.#latest.set(from, number);
    const owed = this.#owed.get(from) ?? [];
    this.#owed.set(
      from,
      owed.filter((each) => each.number > number),
    );
    if (!current) return true;
    const delivered = this.#delivered.get(from) ?? [];
    delivered.push({ number, at, committedBy: owed.find((each) => each.number >= number)?.at });
    if (delivered.length > KEPT) delivered.shift();
    this.#delivered.set(from, delivered);
    this.#sentAt = Math.max(this.#sentAt, sentAt);
    this.#offsets.push({ at, offset: at - sentAt });
    if (this.#offsets.length > KEPT || at - (this.#offsets[0]?.at ?? at) > OFFSET_MS) this.#offsets.shift();
    this.#offset = Math.min(...this.#offsets.map(({ offset }) => offset));
    for (const stream of STAMPED_STREAMS) this.#acknowledge(stream, acknowledged[stream]);
    return true;
  }

  wrote(stream: StampedStream, acknowledged: Acknowledged): void {
    this.#written.set(stream, acknowledged.number);
    this.#acknowledge(stream, acknowledged);
  }

  awaits(stream: StampedStream): boolean {
    return (this.#written.get(stream) ?? 0) > (this.#latest.get(stream) ?? 0);
  }

  forget(stream: StampedStream): void {
    this.#delivered.delete(stream);
    this.#owed.delete(stream);
  }

  /** When it last sent a stamp, on this process's clock. */
  get stampedAt(): number {
    return this.#offset === Number.POSITIVE_INFINITY ? Number.NEGATIVE_INFINITY : this.#sentAt + this.#offset;
  }

  lateness(stream: StampedStream, at: number): number | undefined {
    const delivered = this.#delivered.get(stream) ?? [];
    const index = delivered.findIndex((each) => each.at >= at);
    const next = delivered[index];
    if (next?.committedBy === undefined) return undefined;
    const previous = delivered[index - 1];
    const recent = previous !== undefined && at - previous.at <= NEIGHBOUR_MS;
    return Math.max(this.#latenessOf(next), recent ? this.#latenessOf(previous) : 0);
  }

  behind(stream: StampedStream, now: number): number {
    const [oldest] = this.#owed.get(stream) ?? [];
    return oldest === undefined ? 0 : now - oldest.at - this.#offset;
  }

  #latenessOf({ at, committedBy }: Delivered): number {
    return committedBy === undefined ? 0 : Math.max(0, at - committedBy - this.#offset);
  }

  /** The API server had the stream's stamps up to this number by then. */
  #acknowledge(stream: StampedStream, acknowledged: Acknowledged): void {
    const { number, at } = acknowledged;
    if (number === 0) return;
    for (const each of (this.#delivered.get(stream) ?? []).toReversed()) {
      if (each.number > number) continue;
      if (each.committedBy !== undefined && each.committedBy <= at) break;
      each.committedBy = at;
    }
    const owed = this.#owed.get(stream) ?? [];
    if (number > (owed.at(-1)?.number ?? this.#latest.get(stream) ?? 0))
      this.#owed.set(stream, [...owed, acknowledged]);
  }
}
