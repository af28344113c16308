import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { newStats, type StreamChange, type WatchHandlers } from '../../src/cluster/index.ts';
import { STREAMS, type Stream } from '../../src/core/lag/index.ts';
import { type GuardedChange, ProcessPauseGuard } from '../../src/informers/process-pause.ts';
import { runs } from '../property/runs.ts';

interface Arrival {
  /** When the thing happened; its instant is the one at which this process read it. */
  readonly happened: number;
  readonly at: number;
  readonly stream: Stream;
}

/** List-watches under a guard, driven by hand; a clock of its own that passes only as the test says. */
class Guarded {
  now = 0;
  readonly told: GuardedChange[] = [];
  /** What was told and what arrived, in its order. */
  readonly order: string[] = [];
  readonly guard: ProcessPauseGuard;
  /** When this process was seen awake. */
  readonly looks: number[] = [];
  readonly #stats = new Map(STREAMS.map((stream) => [stream, newStats()]));
  readonly #handlers = new Map<Stream, WatchHandlers<unknown>>();
  readonly #toldCurrent = new Set<Stream>();
  /** What the handlers were called with, and whether the stream was told as current by then. */
  readonly arrivals: (Arrival & { readonly trusted: boolean })[] = [];
  #happened = 0;
  #looksAt = 0;

  constructor() {
    const tell = (change: GuardedChange) => {
      this.told.push(change);
      this.order.push(`${change.type} ${change.stream}`);
      if (change.type === 'StreamCurrent') this.#toldCurrent.add(change.stream);
      else if (change.type !== 'ListEnds') this.#toldCurrent.delete(change.stream);
    };
    // Its own timer has ended with the signal: this looks instead of it, see pass().
    this.guard = new ProcessPauseGuard(tell, { clock: () => this.now, signal: AbortSignal.abort() });
    for (const stream of STREAMS) this.#follow(stream);
  }

  /** Awake for so long: the timer looks, at once where it is overdue. */
  pass(milliseconds: number): void {
    const end = this.now + milliseconds;
    for (;;) {
      const at = Math.max(this.now, this.#looksAt);
      if (at > end) break;
      this.now = at;
      this.timer();
    }
    this.now = end;
  }

  /** No timer fires meanwhile: the process stands still, or reads what has piled up. */
  standStill(milliseconds: number): void {
    this.now += milliseconds;
  }

  timer(): void {
    this.looks.push(this.now);
    this.guard.look(this.now);
    this.#looksAt = this.now + 100;
  }

  arrive(stream: Stream, happened = this.now): void {
    this.#happened = happened;
    this.looks.push(this.now);
    this.#handlers.get(stream)?.onEvent({
      type: 'deleted',
      relist: true,
      identity: { namespace: 'shop', name: 'web', uid: 'u' },
      at: this.now,
    });
  }

  change(stream: Stream, type: StreamChange['type']): void {
    const stats = this.#stats.get(stream)!;
    if (type !== 'ListEnds') stats.current = type === 'StreamCurrent';
    this.#handlers.get(stream)?.onStream?.({ type, at: this.now });
  }

  isCurrent(stream: Stream): boolean {
    return this.#stats.get(stream)!.current;
  }

  isToldCurrent(stream: Stream): boolean {
    return this.#toldCurrent.has(stream);
  }

  #follow(stream: Stream): void {
    const onEvent = ({ at }: { readonly at: number }) => {
      this.order.push(`event ${stream}`);
      const arrival = { happened: this.#happened, at, stream };
      this.arrivals.push({ ...arrival, trusted: this.isToldCurrent(stream) });
    };
    this.guard.follow(stream, { onEvent }, (handlers) => {
      this.#handlers.set(stream, handlers);
      return { ended: Promise.resolve(), stats: this.#stats.get(stream)! };
    });
  }
}

/** All streams current since a while ago, and nothing told since then. */
function current(): Guarded {
  const guarded = new Guarded();
  for (const stream of STREAMS) guarded.change(stream, 'StreamCurrent');
  guarded.pass(1_000);
  guarded.told.length = 0;
  guarded.order.length = 0;
  return guarded;
}

const all = (type: string) => STREAMS.map((stream) => `${type} ${stream}`);

describe('a standstill', () => {
  it.each<{ name: string; happens: (guarded: Guarded) => void; order: readonly string[] }>([
    { name: 'that is short changes nothing', happens: (g) => g.standStill(900), order: ['event pods'] },
    {
      name: 'breaks all streams before the first event after it',
      happens: (g) => g.standStill(1_100),
      order: [...all('StreamBroken'), 'event pods'],
    },
    {
      name: 'breaks them once, whoever notices it',
      happens: (g) => {
        g.standStill(1_100);
        g.timer();
      },
      order: [...all('StreamBroken'), 'event pods'],
    },
    {
      name: 'lasts until what has piled up must have been read',
      happens: (g) => {
        g.standStill(5_000);
        g.timer();
        g.pass(1_900);
      },
      order: [...all('StreamBroken'), 'event pods'],
    },
    {
      name: 'is over by itself',
      happens: (g) => {
        g.standStill(5_000);
        g.timer();
        g.pass(2_100);
      },
      order: [...all('StreamBroken'), ...all('StreamCurrent'), 'event pods'],
    },
    {
      name: 'is over for the streams that are current by then',
      happens: (g) => {
        g.standStill(5_000);
        g.timer();
        g.change('pods', 'StreamBroken');
        g.change('EndpointSlice', 'StreamRotated');
        g.change('services', 'StreamRotated');
        g.change('services', 'StreamCurrent');
        g.pass(2_100);
      },
      order: [
        ...all('StreamBroken'),
        'StreamBroken pods',
        'StreamRotated EndpointSlice',
        'StreamRotated services',
        'StreamCurrent services',
        'StreamCurrent Endpoints',
        'event pods',
      ],
    },
    {
      name: 'of a stream that is not current leaves that to become so by itself',
      happens: (g) => {
        g.change('pods', 'ListBegins');
        g.standStill(5_000);
        g.timer();
        g.pass(2_100);
        g.change('pods', 'ListEnds');
        g.change('pods', 'StreamCurrent');
      },
      order: [
        'ListBegins pods',
        ...all('StreamBroken'),
        ...all('StreamCurrent').filter((each) => each !== 'StreamCurrent pods'),
        'ListEnds pods',
        'StreamCurrent pods',
        'event pods',
      ],
    },
  ])('$name', ({ happens, order }) => {
    const guarded = current();
    happens(guarded);
    guarded.arrive('pods');
    expect(guarded.order).toEqual(order);
  });

  it('is reported with the last instant at which this process was awake, and as the guard’s own finding', () => {
    const guarded = current();
    const { now } = guarded;
    guarded.standStill(3_000);
    guarded.arrive('Endpoints');
    for (const { at, stoodStill } of guarded.told)
      expect({ at, stoodStill }).toEqual({ at: now, stoodStill: true });
    guarded.change('pods', 'StreamBroken');
    expect(guarded.told.at(-1)).toEqual({
      type: 'StreamBroken',
      at: now + 3_000,
      stream: 'pods',
      stoodStill: false,
    });
  });
});

it('a stream’s own handlers are called even where a change is withheld', () => {
  const order: string[] = [];
  const guard = new ProcessPauseGuard(({ type }) => order.push(`told ${type}`), {
    clock: () => 0,
    signal: AbortSignal.abort(),
  });
  let handlers: WatchHandlers<unknown> | undefined;
  const own = {
    onEvent: () => undefined,
    onListed: () => void order.push('listed'),
    onCurrent: () => void order.push('current'),
  };
  const stats = newStats();
  guard.follow('pods', own, (given) => {
    handlers = given;
    return { ended: Promise.resolve(), stats };
  });
  guard.look(0);
  handlers?.onStream?.({ type: 'ListEnds', at: 10 });
  handlers?.onListed?.();
  guard.look(5_000);
  stats.current = true;
  handlers?.onStream?.({ type: 'StreamCurrent', at: 5_010 });
  handlers?.onCurrent?.();
  expect(order).toEqual(['told ListEnds', 'listed', 'told StreamBroken', 'current']);
});

it('has ended once the signal has aborted and its watches have', async () => {
  const stopping = new AbortController();
  const watching = Promise.withResolvers<void>();
  const guard = new ProcessPauseGuard(() => undefined, { clock: () => 0, signal: stopping.signal });
  guard.follow('pods', { onEvent: () => undefined }, () => ({ ended: watching.promise, stats: newStats() }));
  let hasEnded = false;
  const ended = guard.ended().then(() => {
    hasEnded = true;
  });
  stopping.abort();
  await new Promise(setImmediate);
  expect(hasEnded).toBe(false);
  watching.resolve();
  await ended;
});

type Step =
  | { readonly kind: 'event'; readonly stream: Stream; readonly after: number }
  | {
      readonly kind: 'change';
      readonly stream: Stream;
      readonly after: number;
      readonly type: StreamChange['type'];
    }
  | {
      readonly kind: 'standstill';
      readonly ms: number;
      /** Whether the timer comes before what has piled up. */
      readonly timerFirst: boolean;
      /** Read after it, one by one: the backlog of events, and watches that are opened again. */
      readonly piled: readonly {
        readonly stream: Stream;
        readonly fraction: number;
        readonly after: number;
        readonly type: StreamChange['type'] | undefined;
      }[];
    };

const stream = fc.constantFrom(...STREAMS);
const after = fc.nat({ max: 400 });
const type = fc.constantFrom<StreamChange['type'][]>(
  'ListBegins',
  'ListEnds',
  'StreamBroken',
  'StreamRotated',
  'StreamCurrent',
  'StreamCurrent',
  'StreamCurrent',
);
const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({ kind: fc.constant('event' as const), stream, after }),
  fc.record({ kind: fc.constant('change' as const), stream, after, type }),
  fc.record({
    kind: fc.constant('standstill' as const),
    ms: fc.oneof(fc.integer({ min: 1, max: 1_000 }), fc.integer({ min: 1_001, max: 20_000 })),
    timerFirst: fc.boolean(),
    piled: fc.array(
      fc.record({
        stream,
        fraction: fc.double({ min: 0, max: 1, noNaN: true }),
        after: fc.nat({ max: 20 }),
        type: fc.option(type, { nil: undefined }),
      }),
      { maxLength: 12 },
    ),
  }),
);

function play(guarded: Guarded, steps: readonly Step[]): void {
  for (const each of steps) {
    if (each.kind !== 'standstill') {
      guarded.pass(each.after);
      if (each.kind === 'event') guarded.arrive(each.stream);
      else guarded.change(each.stream, each.type);
      continue;
    }
    const begun = guarded.now;
    guarded.standStill(each.ms);
    if (each.timerFirst) guarded.timer();
    for (const { stream, fraction, after, type } of each.piled) {
      guarded.standStill(after);
      if (type === undefined) guarded.arrive(stream, begun + fraction * each.ms);
      else guarded.change(stream, type);
    }
  }
}

const played = (holds: (guarded: Guarded) => void) =>
  fc.assert(
    fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
      const guarded = new Guarded();
      guarded.pass(100);
      play(guarded, steps);
      holds(guarded);
    }),
    runs(500),
  );

describe('whatever happens', () => {
  it('events on a stream that is reported as current are late by no more than is tolerated', () =>
    played(({ arrivals }) => {
      // Looks are 250 ms apart, and reading what has piled up takes up to 12 × 20 ms.
      for (const { trusted, at, happened } of arrivals)
        if (trusted) expect(at - happened).toBeLessThanOrEqual(1_240);
    }));

  it('no stream is reported as current that is not', () =>
    played((guarded) => {
      for (const each of STREAMS) if (guarded.isToldCurrent(each)) expect(guarded.isCurrent(each)).toBe(true);
    }));

  it('a stream that is current is reported so in the end', () =>
    played((guarded) => {
      guarded.timer();
      guarded.pass(2_200);
      for (const each of STREAMS) expect(guarded.isToldCurrent(each)).toBe(guarded.isCurrent(each));
    }));

  it('streams are reported as broken from when this process was last seen awake', () =>
    played(({ told, arrivals, looks }) => {
      const broken = told.filter(({ type, stoodStill }) => stoodStill && type === 'StreamBroken');
      for (const { at, happened } of arrivals) {
        if (at - happened <= 1_240) continue;
        const awake = looks.findLast((each) => each <= happened);
        expect(broken.map((each) => each.at)).toContain(awake);
      }
    }));
});
