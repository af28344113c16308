import { Registry } from '@prometheus-io/client';
import { describe, expect, it } from 'vitest';
import { newStatus, type PublishStatus, registerPublishMetrics } from '../../src/leader/publish-context.ts';

/** The samples of a replica that stands so, sorted. */
async function samplesOf(change: (status: PublishStatus) => void): Promise<readonly string[]> {
  const registry = new Registry();
  const status = newStatus();
  registerPublishMetrics(registry, status);
  // Read when it is scraped, not when it is registered.
  change(status);
  const lines = (await registry.metrics()).split('\n');
  return lines.filter((line) => line.startsWith('linger_')).toSorted();
}

describe('a scrape shows', () => {
  it('a replica that knows nothing yet', async () => {
    expect(await samplesOf(() => undefined)).toEqual([
      'linger_leader 0',
      'linger_lease_transitions 0',
      'linger_publish_writes_total{object="clusterPolicyStatus"} 0',
      'linger_publish_writes_total{object="consumers"} 0',
      'linger_publish_writes_total{object="history"} 0',
      'linger_publish_writes_total{object="planned"} 0',
      'linger_publish_writes_total{object="policyStatus"} 0',
      'linger_publish_writes_total{object="shortfalls"} 0',
      'linger_publish_writes_total{object="status"} 0',
    ]);
  });

  it('a leader, what it has written and what went wrong', async () => {
    const samples = await samplesOf((status) => {
      Object.assign(status, { leading: true, term: 7 });
      Object.assign(status.published.planned, { writtenAt: 1_800_000_000, bytes: 992, writes: 3 });
      status.failures.history.Throttled = 2;
    });
    expect(samples).toEqual(
      expect.arrayContaining([
        'linger_leader 1',
        'linger_lease_transitions 7',
        'linger_publish_failures_total{object="history",reason="Throttled"} 2',
        'linger_publish_writes_total{object="planned"} 3',
        'linger_published_bytes{object="planned"} 992',
        'linger_published_timestamp_seconds{object="planned"} 1800000000',
      ]),
    );
  });

  it('no time where the writer’s stamp says none', async () => {
    const samples = await samplesOf(({ published }) => {
      published.planned.writtenAt = Number.NaN;
    });
    expect(samples.filter((line) => line.includes('timestamp'))).toEqual([]);
  });

  it.each([
    { leading: true, told: ['history', 'planned', 'shortfalls'] },
    { leading: false, told: ['planned'] },
  ])('what cannot be used, leading: $leading', async ({ leading, told }) => {
    const samples = await samplesOf((status) => {
      status.leading = leading;
      status.published.planned.refusal = 'Newer';
      status.published.history.refusal = 'Corrupt';
      status.published.shortfalls.refusal = 'Foreign';
    });
    const refused = samples.filter((line) => line.startsWith('linger_published_refused'));
    expect(refused.map((line) => /object="(\w+)"/.exec(line)?.[1])).toEqual(told);
  });
});
