import { Arrival, type Attempt, Departure } from '../../../src/core/lag/sightings.ts';

/** One instance of a consumer: since when it no longer sends to the canary, and how fast it answers. */
export interface SimulatedInstance {
  /** Milliseconds after the zero point. */
  readonly leavesAt: number;
}

export interface SimulatedConsumer {
  readonly instances: readonly SimulatedInstance[];
  /** Replicas that can answer, the canary among them. */
  readonly replicas: number;
  readonly everyMs: number;
  /** The time of an answer is drawn evenly from 0 up to this. */
  readonly slowestAnswerMs: number;
  /** Share of attempts that hang. */
  readonly hanging: number;
  readonly leastMisses: number;
}

/** How long attempts go on before the zero point. */
const BASELINE_MS = 1_500;

/** A departure as it is observed: attempts at a steady pace, each led to any instance, and from there to any replica. */
export function observeDeparture(
  consumer: SimulatedConsumer,
  random: () => number,
): { readonly departure: Departure; readonly endedAt: number } {
  const { everyMs, replicas, leastMisses } = consumer;
  const departure = new Departure({ alone: replicas === 1, leastMisses });
  let now = -BASELINE_MS - random() * everyMs;
  while (!(departure.gone && now > 0)) {
    departure.add(attemptAt(now, consumer, random, ({ leavesAt }, chosenAt) => chosenAt < leavesAt));
    now += everyMs;
  }
  return { departure, endedAt: now };
}

/** The other way round: instances send to the canary from `leavesAt` on. */
export function observeArrival(consumer: SimulatedConsumer, random: () => number): Arrival {
  const arrival = new Arrival();
  let now = -random() * consumer.everyMs;
  while (arrival.seen < 9) {
    arrival.add(attemptAt(now, consumer, random, ({ leavesAt }, chosenAt) => chosenAt >= leavesAt));
    now += consumer.everyMs;
  }
  return arrival;
}

function attemptAt(
  began: number,
  { instances, replicas, slowestAnswerMs, hanging }: SimulatedConsumer,
  random: () => number,
  has: (instance: SimulatedInstance, chosenAt: number) => boolean,
): Attempt {
  const tookMs = random() * slowestAnswerMs;
  const ended = began + tookMs;
  if (random() < hanging) return { began, ended: began + 2_000, met: 'unclear' };
  const instance = instances[Math.floor(random() * instances.length)]!;
  const canary = has(instance, began + random() * tookMs);
  if (canary && random() < 1 / replicas) return { began, ended, met: 'canary' };
  return { began, ended, met: replicas === 1 ? 'none' : 'fellow' };
}
