import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import { Arrival, type Attempt, Departure } from '../../../src/core/lag/sightings.ts';
import { randomOf } from '../../property/random.ts';
import { runs } from '../../property/runs.ts';
import { observeArrival, observeDeparture, type SimulatedConsumer } from './simulated-consumer.ts';

const CONSUMER = { everyMs: 25, slowestAnswerMs: 20, hanging: 0, leastMisses: 40 };
const FLIPS = 300;
const ONE_INSTANCE = [1, 2, 3, 5].flatMap((replicas) =>
  [0, 0.3].map((hanging) => ({ replicas, hanging, instances: 1, bias: 25 })),
);
/** What docs/measuring.md says of them, in milliseconds; instances follow evenly within 10 s. */
const SEVERAL_INSTANCES = [
  { replicas: 2, hanging: 0, instances: 3, bias: 50 },
  { replicas: 2, hanging: 0, instances: 10, bias: 300 },
  { replicas: 2, hanging: 0, instances: 20, bias: 500 },
];

function simulated(
  { replicas, hanging, instances }: { replicas: number; hanging: number; instances: number },
  random: () => number,
): SimulatedConsumer {
  const spread = instances === 1 ? 0 : 10_000;
  const from = random() * 1_000;
  return {
    ...CONSUMER,
    replicas,
    hanging,
    leastMisses: instances === 1 ? 40 : 120,
    instances: Array.from({ length: instances }, () => ({ leavesAt: from + random() * spread })),
  };
}

const mean = (values: readonly number[]) => values.reduce((sum, each) => sum + each, 0) / values.length;

describe.each([...ONE_INSTANCE, ...SEVERAL_INSTANCES])(
  '$instances instances, $replicas replicas, $hanging of the attempts hang',
  (kind) => {
    it(`the end is right on average to ${kind.bias} ms, and never much too late`, () => {
      const random = randomOf(1);
      const errors = Array.from({ length: FLIPS }, () => {
        const consumer = simulated(kind, random);
        const truth = Math.max(...consumer.instances.map(({ leavesAt }) => leavesAt));
        return observeDeparture(consumer, random).departure.end!.at - truth;
      });
      expect(Math.abs(mean(errors))).toBeLessThan(kind.bias);
      expect(Math.max(...errors)).toBeLessThan(100 * kind.replicas * kind.instances);
    });

    it(`so is the beginning`, () => {
      const random = randomOf(2);
      const errors = Array.from({ length: FLIPS }, () => {
        const consumer = simulated(kind, random);
        const truth = Math.min(...consumer.instances.map(({ leavesAt }) => leavesAt));
        return observeArrival(consumer, random).beginning!.at - truth;
      });
      expect(Math.abs(mean(errors))).toBeLessThan(kind.bias);
    });
  },
);

test('it is gone only after it has gone, whatever the order in which instances follow', () => {
  fc.assert(
    fc.property(
      fc.array(fc.integer({ min: 0, max: 8_000 }), { minLength: 1, maxLength: 5 }),
      fc.integer({ min: 1, max: 3 }),
      fc.integer(),
      (leaving, replicas, seed) => {
        const instances = leaving.map((leavesAt) => ({ leavesAt }));
        const consumer = { ...CONSUMER, instances, replicas, leastMisses: 120 };
        const { endedAt } = observeDeparture(consumer, randomOf(seed));
        expect(endedAt).toBeGreaterThan(Math.max(...leaving));
      },
    ),
    // One in e²⁰ at the best; with five instances that follow at once in 120 attempts, (14/15)¹²⁰ = one in 4,000.
    { seed: 1, numRuns: 200 },
  );
});

const at = (began: number, met: Attempt['met']): Attempt => ({ began, ended: began + 10, met });
const many = (from: number, count: number, met: Attempt['met']) =>
  Array.from({ length: count }, (_, each) => at(from + 25 * each, met));

describe('what proves nothing', () => {
  it.each([
    { what: 'no answers in time', alone: false, met: 'unclear' as const },
    { what: 'refusals where others could have answered', alone: false, met: 'none' as const },
  ])('$what never make it gone', ({ alone, met }) => {
    const departure = new Departure({ alone, leastMisses: 40 });
    for (const attempt of [...many(0, 9, 'canary'), ...many(1_000, 5_000, met)]) departure.add(attempt);
    expect(departure.gone).toBe(false);
  });

  it('one that was never seen is not gone', () => {
    const departure = new Departure({ alone: false, leastMisses: 40 });
    for (const attempt of many(0, 500, 'fellow')) departure.add(attempt);
    expect(departure.gone).toBe(false);
    expect(departure.end).toBeUndefined();
  });

  it('where no other replica could have answered, refusals do', () => {
    const departure = new Departure({ alone: true, leastMisses: 40 });
    for (const attempt of [...many(0, 9, 'canary'), ...many(225, 39, 'none')]) departure.add(attempt);
    expect(departure.gone).toBe(false);
    departure.add(at(3_000, 'none'));
    expect(departure.gone).toBe(true);
    // The last began at 200 and took 10; half of the 25 between attempts is what it may have been there for longer.
    expect(departure.end).toEqual({ at: 205 + 12.5, within: 5 + 50 });
  });
});

it('the order in which answers come does not matter', () => {
  const attempts = [
    ...many(0, 40, 'canary'),
    ...many(1_010, 60, 'fellow'),
    at(1_500, 'canary'),
    ...many(2_510, 50, 'fellow'),
  ];
  fc.assert(
    fc.property(fc.shuffledSubarray(attempts, { minLength: attempts.length }), (shuffled) => {
      const departures = [attempts, shuffled].map((order) => {
        const departure = new Departure({ alone: false, leastMisses: 40 });
        for (const attempt of order) departure.add(attempt);
        return departure;
      });
      expect(departures[1]!.end).toEqual(departures[0]!.end);
    }),
    runs(500),
  );
});

it('an arrival that was seen once has no beginning yet', () => {
  const arrival = new Arrival();
  arrival.add(at(0, 'fellow'));
  arrival.add(at(25, 'canary'));
  expect([arrival.seen, arrival.beginning]).toEqual([1, undefined]);
});
