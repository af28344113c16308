import { Registry } from '@prometheus-io/client';
import { describe, expect, it } from 'vitest';
import { type ConsumerView, consumerOf, consumerView } from '../../src/core/lag/index.ts';
import { registerConsumerMetrics } from '../../src/measurement/index.ts';

const NOW = 1_800_000_000;
const EDGE = consumerOf('edge', { measure: { reports: {} } });
const EUREKA = consumerOf('eureka', { measure: { declared: { lag: 3 } } });

function registered(...views: readonly ConsumerView[]) {
  const registry = new Registry();
  const metrics = registerConsumerMetrics(registry, { views: () => views, epochSeconds: () => NOW });
  const samples = async () => {
    const text = await registry.metrics();
    return text.split('\n').filter((line) => /^linger_/.test(line) && !line.includes('_bucket'));
  };
  return { ...metrics, samples };
}

describe('a scrape shows', () => {
  it('nothing where nothing is measured', async () => {
    expect(await registered().samples()).toEqual([]);
  });

  it('of each consumer whether it is measured, and why', async () => {
    const lag = {
      scope: 'cluster' as const,
      samples: 812,
      historySeconds: 60,
      latest: NOW - 20,
      quantile: () => 2,
      coverage: () => 1,
    };
    const facts = { additions: undefined, removals: lag, state: { trouble: undefined, limits: [] } };
    const edge = consumerView({ ...facts, consumer: EDGE }, NOW);
    const eureka = consumerView({ ...facts, removals: undefined, consumer: EUREKA, state: undefined }, NOW);
    const silent = consumerView(
      { ...facts, consumer: { ...EDGE, name: 'silent' }, removals: undefined },
      NOW,
    );
    expect(await registered(edge, eureka, silent).samples()).toEqual([
      'linger_consumer_measured{consumer="edge",reason="Measured"} 1',
      'linger_consumer_measured{consumer="eureka",reason="Declared"} 1',
      'linger_consumer_measured{consumer="silent",reason="Waiting"} 0',
      'linger_consumer_samples{consumer="edge"} 812',
      'linger_consumer_samples{consumer="eureka"} 0',
      'linger_consumer_samples{consumer="silent"} 0',
      'linger_consumer_last_sample_age_seconds{consumer="edge"} 20',
    ]);
  });

  it('lags by consumer, and none of those that are gone', async () => {
    const { removal, present, samples } = registered();
    removal('edge', 2);
    removal('edge', 3);
    removal('other', 1);
    present([EDGE, EUREKA]);
    expect(await samples()).toEqual([
      'linger_consumer_lag_seconds_sum{consumer="edge"} 5',
      'linger_consumer_lag_seconds_count{consumer="edge"} 2',
    ]);
  });
});
