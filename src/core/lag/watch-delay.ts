import { setNewest } from '../api/index.ts';
import { type Acknowledged, HEARTBEAT_STREAMS, type Heartbeat, type HeartbeatStream } from './events.ts';

export const HEARTBEAT_ANNOTATION = 'linger.dev/heartbeat';

/** The format: life, number and instant; then, for each stream, number and instant of the acknowledged heartbeat. */
const HEARTBEAT = /^([\w-]{1,16}):(\d{1,15})@(\d{1,15}):(\d{1,15}@\d{1,15}(?:,\d{1,15}@\d{1,15}){2})$/;

export function heartbeatText({ life, number, sentAt, acknowledged }: Heartbeat): string {
  const pair = (of: Acknowledged) => `${of.number}@${Math.round(of.at)}`;
  const pairs = HEARTBEAT_STREAMS.map((stream) => pair(acknowledged[stream]));
  return `${life}:${pair({ number, at: sentAt })}:${pairs.join()}`;
}

/** @returns undefined for anything else */
export function heartbeatOf(text: string | undefined): Heartbeat | undefined {
  const [, life, number, sentAt, pairs] = HEARTBEAT.exec(text ?? '') ?? [];
  if (life === undefined || pairs === undefined) return undefined;
  const [pods, slices, endpoints] = pairs.split(',').map((pair): Acknowledged => {
    const [acknowledged, at] = pair.split('@').map(Number);
    return { number: acknowledged ?? 0, at: at ?? 0 };
  });
  if (pods === undefined || slices === undefined || endpoints === undefined) return undefined;
  const acknowledged = { pods, EndpointSlice: slices, Endpoints: endpoints };
  return { life, number: Number(number), sentAt: Number(sentAt), acknowledged };
}

/** How many heartbeats are kept: enough for the burst of a stream that was two minutes behind. */
const KEPT = 128;

const WRITERS = 4;

/** How long a clock offset counts: clocks that drift apart by 50 ppm differ by 30 ms after this time. */
const OFFSET_MS = 600_000;

/** Heartbeats come once a second, so one that is further from an event than this proves nothing about it. */
const NEIGHBOUR_MS = 2_500;

interface Delivered {
  readonly number: number;
  /** By this process's clock. */
  readonly at: number;
  /**
   * The time by which the API server had stored it, by the writer's clock; undefined: no later heartbeat has shown it yet.
   */
  committedBy: number | undefined;
}

/**
 * How late each stream is, judged by heartbeats that are written while removals are open. A stream delivers in the order of
 * writes, and a heartbeat carries when the API server acknowledged earlier heartbeats. So a heartbeat that arrives long after its
 * acknowledgement shows that its stream is behind, as were the events next to it.
 */
export class WatchDelay {
  /** The latest writer comes last. */
  readonly #writers = new Map<string, Writer>();

  /** Takes a heartbeat that arrived. @param current whether it came from a watch that keeps up rather than from a list */
  heartbeat(from: HeartbeatStream, heartbeat: Heartbeat, at: number, current: boolean): void {
    this.#writer(heartbeat.life).heartbeat(from, heartbeat, at, current);
  }

  wrote(life: string, stream: HeartbeatStream, acknowledged: Acknowledged): void {
    this.#writer(life).wrote(stream, acknowledged);
  }

  #writer(life: string): Writer {
    const writer = this.#writers.get(life) ?? new Writer();
    setNewest(this.#writers, life, writer, WRITERS);
    return writer;
  }

  /** When a writer other than this one last sent a heartbeat, by this process's clock. */
  heartbeatAt(otherThan: string): number {
    const others = [...this.#writers].filter(([life]) => life !== otherThan);
    return Math.max(...others.map(([, { heartbeatAt }]) => heartbeatAt));
  }

  /** Forgets a stream that was interrupted or resumed: earlier heartbeats prove nothing about later events. */
  forget(stream: HeartbeatStream): void {
    for (const writer of this.#writers.values()) writer.forget(stream);
  }

  /**
   * A lower bound of how late an event was that this stream delivered at an instant: milliseconds, 0 for punctual.
   * @returns undefined until the next heartbeat of the stream, and the one that acknowledges it, have arrived
   */
  lateness(stream: HeartbeatStream, at: number): number | undefined {
    const known = [...this.#writers.values()].flatMap((writer) => writer.lateness(stream, at) ?? []);
    return known.length === 0 ? undefined : Math.max(...known);
  }

  /** Whether the stream has not delivered one of this process's own heartbeats yet. */
  awaits(stream: HeartbeatStream): boolean {
    return [...this.#writers.values()].some((writer) => writer.awaits(stream));
  }

  /** A lower bound of the stream's delay: how long its oldest missing heartbeat is overdue. Milliseconds. */
  behind(stream: HeartbeatStream, now: number): number {
    return Math.max(0, ...[...this.#writers.values()].map((writer) => writer.behind(stream, now)));
  }
}

interface StreamHeartbeats {
  /** The highest number that was delivered. Objects repeat their last heartbeat with each other change. */
  latest: number;
  written: number;
  delivered: Delivered[];
  /** Heartbeats that are acknowledged but not delivered yet, in ascending order. */
  owed: Acknowledged[];
}

const noHeartbeats = (): StreamHeartbeats => ({ latest: 0, written: 0, delivered: [], owed: [] });

/**
 * The heartbeats of one writer. Its clock is aligned with ours by the heartbeat that travelled fastest. Computed lateness
 * never exceeds the true one, so a punctual stream never counts as late, however long the writes take.
 */
class Writer {
  readonly #streams: Readonly<Record<HeartbeatStream, StreamHeartbeats>> = {
    pods: noHeartbeats(),
    EndpointSlice: noHeartbeats(),
    Endpoints: noHeartbeats(),
  };
  /** Arrival minus sending of the latest heartbeats, and their minimum. */
  #offsets: { readonly at: number; readonly offset: number }[] = [];
  #offset = Number.POSITIVE_INFINITY;
  #sentAt = Number.NEGATIVE_INFINITY;

  heartbeat(
    from: HeartbeatStream,
    { number, sentAt, acknowledged }: Heartbeat,
    at: number,
    current: boolean,
  ): void {
    const heartbeats = this.#streams[from];
    if (number <= heartbeats.latest) return;
    heartbeats.latest = number;
    const committedBy = heartbeats.owed.find((each) => each.number >= number)?.at;
    heartbeats.owed = heartbeats.owed.filter((each) => each.number > number);
    if (!current) return;
    heartbeats.delivered.push({ number, at, committedBy });
    if (heartbeats.delivered.length > KEPT) heartbeats.delivered.shift();
    this.#sentAt = Math.max(this.#sentAt, sentAt);
    this.#offsets.push({ at, offset: at - sentAt });
    if (this.#offsets.length > KEPT || at - (this.#offsets[0]?.at ?? at) > OFFSET_MS) this.#offsets.shift();
    this.#offset = Math.min(...this.#offsets.map(({ offset }) => offset));
    for (const stream of HEARTBEAT_STREAMS) this.#acknowledge(stream, acknowledged[stream]);
  }

  wrote(stream: HeartbeatStream, acknowledged: Acknowledged): void {
    this.#streams[stream].written = acknowledged.number;
    this.#acknowledge(stream, acknowledged);
  }

  awaits(stream: HeartbeatStream): boolean {
    const { written, latest } = this.#streams[stream];
    return written > latest;
  }

  forget(stream: HeartbeatStream): void {
    Object.assign(this.#streams[stream], { delivered: [], owed: [] });
  }

  /** When it last sent a heartbeat, on this process's clock. */
  get heartbeatAt(): number {
    return this.#offset === Number.POSITIVE_INFINITY ? Number.NEGATIVE_INFINITY : this.#sentAt + this.#offset;
  }

  lateness(stream: HeartbeatStream, at: number): number | undefined {
    const { delivered } = this.#streams[stream];
    const index = delivered.findIndex((each) => each.at >= at);
    const next = delivered[index];
    if (next?.committedBy === undefined) return undefined;
    const previous = delivered[index - 1];
    const recent = previous !== undefined && at - previous.at <= NEIGHBOUR_MS;
    return Math.max(this.#latenessOf(next), recent ? this.#latenessOf(previous) : 0);
  }

  behind(stream: HeartbeatStream, now: number): number {
    const [oldest] = this.#streams[stream].owed;
    return oldest === undefined ? 0 : now - oldest.at - this.#offset;
  }

  #latenessOf({ at, committedBy }: Delivered): number {
    return committedBy === undefined ? 0 : Math.max(0, at - committedBy - this.#offset);
  }

  /** Records that the API server had stored this stream's heartbeats up to this number by then. */
  #acknowledge(stream: HeartbeatStream, acknowledged: Acknowledged): void {
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
