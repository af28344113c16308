import { describe, expect, it } from 'vitest';
import type { EndpointSource } from '../../src/core/lag/index.ts';
import { readLagScrape, scrapedLag, watchedLag } from '../../src/diagnose/lag-observation.ts';
import type { Exposition } from '../../src/telemetry/index.ts';

const NONE = { count: 0, oldestSeconds: 0 };
const sample = (stage: EndpointSource, lag: number) => ({
  stage,
  namespace: 'shop',
  name: 'web',
  lag,
  at: 0,
});

describe('what a watch has seen', () => {
  it('percentiles by stage, by the nearest rank, and what still waits', () => {
    const lags = Array.from({ length: 200 }, (_, index) => (index + 1) / 100).toReversed();
    const { from, stages, life } = watchedLag(
      'watched for 10 s',
      lags.map((lag) => sample('Endpoints', lag)),
      {
        EndpointSlice: { count: 3, oldestSeconds: 43 },
        Endpoints: NONE,
      },
    );
    expect([from, life]).toEqual(['watched for 10 s', []]);
    expect(stages).toEqual([
      { stage: 'EndpointSlice', samples: 0, p50: undefined, p99: undefined, waiting: 3, oldestSeconds: 43 },
      { stage: 'Endpoints', samples: 200, p50: 1, p99: 1.98, waiting: 0, oldestSeconds: undefined },
    ]);
  });

  it('one sample is every percentile', () => {
    const [slices] = watchedLag('', [sample('EndpointSlice', 2)], {
      EndpointSlice: NONE,
      Endpoints: NONE,
    }).stages;
    expect(slices).toMatchObject({ p50: 2, p99: 2 });
  });
});

/** Cumulative counts of slices' lags in buckets of 0.1 s, 1 s, 10 s and beyond. */
function linger(counts: readonly [number, number, number, number], waiting = 0, oldest = 0): Exposition {
  const edges = ['0.1', '1', '10', '+Inf'];
  const buckets = (stage: string, of: readonly number[]) =>
    edges.map((le, index) => `linger_removal_lag_seconds_bucket{le="${le}",stage="${stage}"} ${of[index]}`);
  const lines = [
    ...buckets('EndpointSlice', counts),
    ...buckets('Endpoints', [0, 0, 0, 0]),
    `linger_removals_unresolved{stage="EndpointSlice"} ${waiting}`,
    `linger_removals_oldest_unresolved_seconds{stage="EndpointSlice"} ${oldest}`,
    'linger_removals_unresolved{stage="Endpoints"} 0',
  ];
  const scrape = readLagScrape(`${lines.join('\n')}\n`);
  if (scrape === undefined) throw new Error('no lags in the scrape');
  return scrape;
}

describe('what a Linger says', () => {
  const first = linger([90, 98, 100, 100]);

  it('over the interval, and since it was started', () => {
    const { stages, life } = scrapedLag('http://linger', first, linger([190, 198, 200, 200], 2, 7));
    expect(stages[0]).toEqual({
      stage: 'EndpointSlice',
      samples: 100,
      p50: 0.05,
      p99: expect.closeTo(0.099, 6),
      waiting: 2,
      oldestSeconds: 7,
    });
    expect(life[0]).toMatchObject({ samples: 200, p99: expect.closeTo(1, 6) });
    expect(stages[1]).toMatchObject({
      stage: 'Endpoints',
      samples: 0,
      p50: undefined,
      p99: undefined,
      waiting: 0,
    });
  });

  it('with one scrape nothing is known of now but what waits', () => {
    const { stages, life, uncounted } = scrapedLag('file', undefined, first);
    expect(uncounted).toBe(true);
    expect([stages[0]?.samples, life[0]?.samples]).toEqual([0, 100]);
  });

  it('of two replicas in one file, which have seen the same removals, counts each removal once', () => {
    const names = [...first.keys()];
    const twice = new Map(
      names.map((name) => [name, [first, first].flatMap((each) => each.get(name) ?? [])]),
    );
    const [slices] = scrapedLag('file', undefined, twice).life;
    expect(slices).toMatchObject({ samples: 100, p99: 1 + 0.5 * 9 });
  });

  it('one that was restarted counts from 0 again', () => {
    expect(scrapedLag('', linger([500, 500, 500, 500]), first).stages[0]?.samples).toBe(100);
  });

  it('beyond the last bucket a percentile is at least its edge', () => {
    expect(scrapedLag('', undefined, linger([0, 0, 1, 100])).life[0]?.p99).toBe(10);
  });

  it.each([
    ['nothing', ''],
    ['another program', 'up 1\n'],
    ['a Linger that reads no cluster', 'linger_build_info{version="0.1.0"} 1\n'],
  ])('%s: nothing', (_what, text) => {
    expect(readLagScrape(text)).toBeUndefined();
  });
});
