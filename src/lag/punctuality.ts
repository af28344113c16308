import { setNewest } from './busiest.ts';
import { type Acknowledged, STAMPED_STREAMS, type Stamp, type StampedStream } from './events.ts';

/** The annotation on stamped objects. */
export const STAMP_ANNOTATION = 'linger.dev/stamp';

/** Life, number, instant; then, for each stream, number and instant of the acknowledged stamp. */
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

/** Enough for the burst of a stream that was two minutes behind. */
const KEPT = 128;

/** How many recent writers are kept. */
const WRITERS = 4;

/** Clocks that drift apart by 50 ppm differ by 30 ms after this long. */
const OFFSET_MS = 600_000;

/** Stamps come once a second: one that is older than this proves nothing about a later event. */
const NEIGHBOUR_MS = 2_500;

interface Delivered {
  readonly number: number;
  /** By this process's clock. */
  readonly at: number;
  /** When the API server had stored it at the latest, by the writer's clock; undefined: no later stamp has shown it yet. */
  committedBy: number | undefined;
}

/**
 * How late each stream is, judged by stamps that are written while removals are open. A stream delivers in the order of
 * writes, and a stamp carries when the API server acknowledged earlier stamps. So a stamp that arrives long after its
 * acknowledgement shows that its stream is behind, as were the events next to it.
 */
export class Punctuality {
  /** The latest writer comes last. */
  readonly #writers = new Map<string, Writer>();

  /** A stamp arrived. @param current whether it came by a current watch rather than a list */
  stamp(from: StampedStream, stamp: Stamp, at: number, current: boolean): void {
    this.#writer(stamp.life).stamp(from, stamp, at, current);
  }

  /** The API server has stored one of this process's own stamps. */
  wrote(life: string, stream: StampedStream, acknowledged: Acknowledged): void {
    this.#writer(life).wrote(stream, acknowledged);
  }

  #writer(life: string): Writer {
    const writer = this.#writers.get(life) ?? new Writer();
    setNewest(this.#writers, life, writer, WRITERS);
    return writer;
  }

  /** When a writer other than this one last sent a stamp, by this process's clock. */
  stampedAt(otherThan: string): number {
    const others = [...this.#writers].filter(([life]) => life !== otherThan);
    return Math.max(...others.map(([, { stampedAt }]) => stampedAt));
  }

  /** The watch was interrupted or resumed: earlier stamps prove nothing about later events. */
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

  /** Whether the stream has yet to deliver one of this process's own stamps. */
  awaits(stream: StampedStream): boolean {
    return [...this.#writers.values()].some((writer) => writer.awaits(stream));
  }

  /** How far behind the stream is now, at least: the time for which it has owed the oldest stamp. Milliseconds. */
  behind(stream: StampedStream, now: number): number {
    return Math.max(0, ...[...this.#writers.values()].map((writer) => writer.behind(stream, now)));
  }
}

/** The stamps of one writer in one stream. */
interface StreamStamps {
  /** The highest number that was delivered: an object repeats its stamp with each other change. */
  latest: number;
  /** The highest number that this process has written. */
  written: number;
  delivered: Delivered[];
  /** Acknowledged but not delivered yet, by ascending number. */
  owed: Acknowledged[];
}

const noStamps = (): StreamStamps => ({ latest: 0, written: 0, delivered: [], owed: [] });

/**
 * The stamps of one writer. Its clock is aligned with ours by the stamp that travelled fastest. The true lateness is at
 * least what is computed here, so a punctual stream never counts as late, however long the writes take.
 */
class Writer {
  readonly #streams: Readonly<Record<StampedStream, StreamStamps>> = {
    pods: noStamps(),
    EndpointSlice: noStamps(),
    Endpoints: noStamps(),
  };
  /** Arrival minus sending of the latest stamps, and their minimum. */
  #offsets: { readonly at: number; readonly offset: number }[] = [];
  #offset = Number.POSITIVE_INFINITY;
  #sentAt = Number.NEGATIVE_INFINITY;

  stamp(from: StampedStream, { number, sentAt, acknowledged }: Stamp, at: number, current: boolean): void {
    const stamps = this.#streams[from];
    if (number <= stamps.latest) return;
    stamps.latest = number;
    const committedBy = stamps.owed.find((each) => each.number >= number)?.at;
    stamps.owed = stamps.owed.filter((each) => each.number > number);
    if (!current) return;
    stamps.delivered.push({ number, at, committedBy });
    if (stamps.delivered.length > KEPT) stamps.delivered.shift();
    this.#sentAt = Math.max(this.#sentAt, sentAt);
    this.#offsets.push({ at, offset: at - sentAt });
    if (this.#offsets.length > KEPT || at - (this.#offsets[0]?.at ?? at) > OFFSET_MS) this.#offsets.shift();
    this.#offset = Math.min(...this.#offsets.map(({ offset }) => offset));
    for (const stream of STAMPED_STREAMS) this.#acknowledge(stream, acknowledged[stream]);
  }

  wrote(stream: StampedStream, acknowledged: Acknowledged): void {
    this.#streams[stream].written = acknowledged.number;
    this.#acknowledge(stream, acknowledged);
  }

  awaits(stream: StampedStream): boolean {
    const { written, latest } = this.#streams[stream];
    return written > latest;
  }

  forget(stream: StampedStream): void {
    Object.assign(this.#streams[stream], { delivered: [], owed: [] });
  }

  /** When it last sent a stamp, on this process's clock. */
  get stampedAt(): number {
    return this.#offset === Number.POSITIVE_INFINITY ? Number.NEGATIVE_INFINITY : this.#sentAt + this.#offset;
  }

  lateness(stream: StampedStream, at: number): number | undefined {
    const { delivered } = this.#streams[stream];
    const index = delivered.findIndex((each) => each.at >= at);
    const next = delivered[index];
    if (next?.committedBy === undefined) return undefined;
    const previous = delivered[index - 1];
    const recent = previous !== undefined && at - previous.at <= NEIGHBOUR_MS;
    return Math.max(this.#latenessOf(next), recent ? this.#latenessOf(previous) : 0);
  }

  behind(stream: StampedStream, now: number): number {
    const [oldest] = this.#streams[stream].owed;
    return oldest === undefined ? 0 : now - oldest.at - this.#offset;
  }

  #latenessOf({ at, committedBy }: Delivered): number {
    return committedBy === undefined ? 0 : Math.max(0, at - committedBy - this.#offset);
  }

  /** The API server had stored the stream's stamps up to this number by then. */
  #acknowledge(stream: StampedStream, acknowledged: Acknowledged): void {
    const { number, at } = acknowledged;
    const { delivered, owed, latest } = this.#streams[stream];
    if (number === 0) return;
    for (const each of delivered.toReversed()) {
      if (each.number > number) continue;
      if (each.committedBy !== undefined && each.committedBy <= at) break;
      each.committedBy = at;
    }
    if (number > (owed.at(-1)?.number ?? latest)) owed.push(acknowledged);
  }
}
