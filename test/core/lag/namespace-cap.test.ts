import { describe, expect, it } from 'vitest';
import { taken } from '../../../src/core/api/index.ts';
import { LagEstimator } from '../../../src/core/lag/estimator.ts';
import { BUILT_IN_ENOUGH, NOTHING_PLANNED, nextPlanned } from '../../../src/core/lag/planned-lag.ts';
import { plannedLags } from '../../../src/core/lag/planned-lag-query.ts';
import { deleted, recorded, service, slice, terminating } from './sample-events.ts';
import { START } from './sample-table.ts';

const DAY = 86_400;

interface Story {
  readonly namespace: string;
  readonly removals: number;
  /** In turn. */
  readonly lags: readonly number[];
}

/** What two days with these removals, evenly over the time, give. */
function cluster(stories: readonly Story[]) {
  const removals = stories.flatMap(({ namespace, removals: count, lags }) =>
    Array.from({ length: count }, (_, index) => ({
      namespace,
      lag: lags[index % lags.length] ?? 0,
      at: START + ((index + 0.5) * 2 * DAY) / count,
    })),
  );
  const estimator = new LagEstimator();
  for (const removal of removals.sort((a, b) => a.at - b.at)) estimator.record(removal, removal.at);
  const { cluster: all, namespaces } = estimator;
  const table = taken(
    nextPlanned(NOTHING_PLANNED, { cluster: all, namespaces, consumers: undefined }, START + 2 * DAY),
  );
  return (namespace: string) => {
    const { known, coverage } = plannedLags(table).planned(namespace, [], BUILT_IN_ENOUGH);
    const p99 = known?.quantile(99) ?? Number.NaN;
    const own = stories.find((story) => story.namespace === namespace)?.lags ?? [];
    return {
      p99: Math.round(p99),
      told: coverage?.(1.02 * p99) ?? Number.NaN,
      trueShare: removals.filter(({ lag }) => lag <= 1.02 * p99).length / removals.length,
      ownShare: own.filter((lag) => lag <= 1.02 * p99).length / own.length,
    };
  };
}

/** 1 % of the removals take 10 s, half a per cent 12 s, one in a thousand 15 s. */
const HONEST_LAGS = Array.from({ length: 1_000 }, (_, index) => {
  if (index === 0) return 15;
  if (index % 200 === 1) return 12;
  return index % 50 === 2 ? 10 : 1;
});
const honest = (count: number, removals = 300): readonly Story[] =>
  Array.from({ length: count }, (_, index) => ({
    namespace: `team-${index}`,
    removals,
    lags: HONEST_LAGS.map((_lag, at) => HONEST_LAGS[(at + 37 * index) % 1_000] as number),
  }));

describe('one namespace whose removals take as long as it likes', () => {
  const before = cluster(honest(20))('team-3');

  it.each([
    ['60 pods', 60, 12],
    ['60 pods, deleted again and again', 20_000, 10],
  ])(
    'of %s: the wait of others is at most what covers half of what they miss without it',
    (_, removals, p99) => {
      const attacked = cluster([...honest(20), { namespace: 'evil', removals, lags: [300] }]);
      expect(before.p99).toBe(10);
      // Their own p99.5; by the share of the removals it would be 300 s.
      for (const namespace of ['team-3', 'team-19', 'new']) expect(attacked(namespace).p99).toBe(p99);
      // It has the waits that it asks for.
      expect(attacked('evil').p99).toBeGreaterThanOrEqual(290);
    },
  );

  it('shortens nothing by any number of quick ones either', () => {
    const quick = cluster([...honest(20), { namespace: 'evil', removals: 100_000, lags: [0.1] }]);
    expect(quick('team-3').p99).toBe(10);
  });

  it('is found among more namespaces than have a history', () => {
    const attacked = cluster([...honest(200, 30), { namespace: 'evil', removals: 60, lags: [300] }]);
    for (const namespace of ['team-3', 'team-150']) expect(attacked(namespace).p99).toBeLessThanOrEqual(15);
  });

  it('leaves what a plan tells true: the share of all removals that its wait would have covered', () => {
    const attacked = cluster([...honest(20), { namespace: 'evil', removals: 600, lags: [300] }]);
    const { told, trueShare } = attacked('team-3');
    expect(told).toBeCloseTo(trueShare, 3);
    expect(told).toBeLessThan(0.92);
  });
});

describe('an honest namespace that has most of the cluster', () => {
  const large: Story = { namespace: 'business', removals: 900, lags: [...Array<number>(19).fill(2), 40] };

  it('is covered as before, although its removals are slower than those of all others', () => {
    const lags = cluster([large, ...honest(3, 60)]);
    expect(lags('business').p99).toBe(40);
    expect(lags('business').ownShare).toBe(1);
    expect(lags('business').told).toBeCloseTo(lags('business').trueShare, 3);
    // What it costs: they have not seen it.
    expect(lags('team-1').p99).toBe(12);
  });

  it('so are others that are as slow, however small', () => {
    const alike: Story = { ...large, namespace: 'access', removals: 40 };
    const lags = cluster([large, alike, ...honest(3, 60)]);
    expect(lags('access').ownShare).toBe(1);
  });

  it('is the cluster where there is hardly another', () => {
    expect(cluster([large])('business').p99).toBe(40);
    expect(cluster([large, ...honest(1, 50)])('new').p99).toBe(40);
  });

  it('changes nothing where all are alike', () => {
    const [first, ...others] = honest(5);
    expect(cluster([{ ...first!, removals: 900 }, ...others])('team-3').p99).toBe(10);
  });
});

describe('a slice that lists a pod which its Service does not select', () => {
  const events = (labels: Record<string, string>) => [
    service(),
    slice(0, { a: 'ready' }),
    { ...terminating(100, 'a'), pod: { uid: 'a', namespace: 'shop', name: 'a', labels } },
    slice(35_100, {}),
    deleted(35_200, 'a'),
  ];

  it('gives no sample, whoever claims to manage it', () => {
    const { lags, discarded } = recorded(...events({ app: 'other' }));
    expect({ lags, discarded }).toEqual({ lags: [], discarded: { NoSelector: 1 } });
    expect(recorded(...events({ app: 'web', tier: 'front' })).lags).toEqual(['slice web 35']);
  });
});
