import type { SimulatedEvent, SimulatedWait } from '../../../src/core/decision/simulation.ts';
import { randomOf } from '../../property/random.ts';

export const HOUR = 3_600;
export const DAY = 24 * HOUR;

/** Midnight, a Monday. */
export const BEGIN = Date.UTC(2026, 10, 2) / 1000;

/** What happens in a cluster, and how often the wait has reason to change. */
export interface Story {
  readonly name: string;
  readonly events: () => readonly SimulatedEvent[];
  /** Changes of the wait after the first measured one that the story gives reason for, at most. */
  readonly turns: number;
}

/** The waits that differ from the one before. */
export const changesOf = (waits: readonly SimulatedWait[]): readonly SimulatedWait[] =>
  waits.filter(({ waitSeconds }, index) => waitSeconds !== waits[index - 1]?.waitSeconds);

type Lag = (random: () => number) => number;

const between =
  (low: number, high: number): Lag =>
  (random) =>
    low + (high - low) * random();
/** A calm control plane: 200 ms, give or take. */
const CALM = between(0.1, 0.3);
const STORM = between(20, 60);

class Teller {
  readonly #events: SimulatedEvent[] = [];
  readonly #random = randomOf(11);

  /** So many removals an hour from one instant to another, in seconds since the beginning. */
  steadily(perHour: number, lag: Lag, from: number, to: number): this {
    for (let at = from; at < to; at += HOUR / perHour) this.#add(at + this.#random() * (HOUR / perHour), lag);
    return this;
  }

  /** So many removals within so many seconds. */
  burst(count: number, lag: Lag, from: number, seconds: number): this {
    for (let each = 0; each < count; each += 1) this.#add(from + (seconds * each) / count, lag);
    return this;
  }

  #add(at: number, lag: Lag): void {
    this.#events.push({ at: Math.round((BEGIN + at) * 1000) / 1000, lag: lag(this.#random) });
  }

  get events(): readonly SimulatedEvent[] {
    return this.#events.toSorted((a, b) => a.at - b.at);
  }
}

const tell = (story: (teller: Teller) => Teller) => () => story(new Teller()).events;
const days = (count: number) => Array.from({ length: count }, (_, day) => day);

export const STORIES: readonly Story[] = [
  { name: 'steady: 200 ms', turns: 0, events: tell((told) => told.steadily(60, CALM, 0, 14 * DAY)) },
  {
    name: 'steady: gateways that poll every 10 s',
    turns: 0,
    events: tell((told) => told.steadily(60, between(0, 10), 0, 14 * DAY)),
  },
  {
    name: 'one storm of 2,000 removals in a calm week',
    turns: 2,
    events: tell((told) => told.steadily(60, CALM, 0, 18 * DAY).burst(2_000, STORM, 8 * DAY + 10 * HOUR, 60)),
  },
  {
    name: 'a storm every 16.5 h',
    turns: 20,
    events: tell((told) => {
      told.steadily(60, CALM, 0, 21 * DAY);
      for (let at = 16.5 * HOUR; at < 21 * DAY; at += 16.5 * HOUR) told.burst(10, STORM, at, 60);
      return told;
    }),
  },
  {
    name: 'a weekly release: 5,000 pods',
    turns: 1,
    events: tell((told) => {
      told.steadily(20, CALM, 0, 28 * DAY);
      for (let at = 3 * DAY + 10 * HOUR; at < 28 * DAY; at += 7 * DAY)
        told.burst(5_000, between(20, 40), at, 1_800);
      return told;
    }),
  },
  {
    name: '1 s, then 20 s for three days, then 1 s',
    turns: 2,
    events: tell((told) =>
      told
        .steadily(60, between(0.9, 1.1), 0, 8 * DAY)
        .steadily(60, between(20, 20), 8 * DAY, 11 * DAY)
        .steadily(60, between(0.9, 1.1), 11 * DAY, 21 * DAY),
    ),
  },
  {
    name: '30 removals a day',
    turns: 0,
    events: tell((told) => told.steadily(30 / 24, between(2, 4), 0, 42 * DAY)),
  },
  {
    name: 'releases on Mondays only',
    turns: 0,
    events: tell((told) => {
      for (const week of days(6)) told.burst(300, between(3, 9), week * 7 * DAY + 10 * HOUR, 2 * HOUR);
      return told;
    }),
  },
  {
    name: 'nine quiet days, then one removal',
    turns: 0,
    events: tell((told) =>
      told
        .steadily(60, CALM, 0, 8 * DAY)
        .burst(1, CALM, 17 * DAY, 1)
        .steadily(60, CALM, 18 * DAY, 20 * DAY),
    ),
  },
  {
    name: 'a clock that is set ten days ahead',
    turns: 0,
    events: tell((told) =>
      told.steadily(60, between(4, 5), 0, 8 * DAY).steadily(60, between(4, 5), 18 * DAY, 22 * DAY),
    ),
  },
];
