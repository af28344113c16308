import { describe, expect, it } from 'vitest';
import { renderSummary, type WatchSummary } from '../../src/cli/watch-output.ts';
import { DISCARDS, type DiscardCounts, type DiscardReason } from '../../src/core/lag/index.ts';

const counts = (more: Partial<Record<DiscardReason, number>> = {}): DiscardCounts => {
  const none = Object.keys(DISCARDS).map((reason) => [reason, 0]);
  return { ...(Object.fromEntries(none) as DiscardCounts), ...more };
};

const NO_CHANGES = { added: 0, ready: 0, notReady: 0, terminating: 0, removed: 0 };

const NOTHING: WatchSummary = {
  seconds: 2.5,
  sources: [{ source: 'Endpoints', changes: NO_CHANGES, samples: 0, lag: undefined }],
  slowest: [],
  unresolved: [],
  discarded: counts(),
  gaps: [],
};

const waiting = (ageSeconds: number) =>
  ({ stage: 'Endpoints', namespace: 'shop', name: 'web', pod: 'web-1', ageSeconds }) as const;

describe('the summary', () => {
  it('of nothing says so, and nothing else', () => {
    expect(renderSummary(NOTHING)).toBe(`Watched for 2.500s.

Lag of removals  samples  p50  p90  p99  max
  Endpoints            0    -    -    -    -

Changes      added  ready  notReady  terminating  removed
  Endpoints      0      0         0            0        0
`);
  });

  it('has the lags, the slowest, what waits, what was not measured, and interruptions', () => {
    const change = {
      change: 'removed',
      source: 'Endpoints',
      namespace: 'shop',
      service: 'web',
      uid: 'u',
      pod: 'web-1',
      ip: '10.0.0.1',
      withdrawn: true,
      at: 0,
      seen: 'live',
    } as const;
    const text = renderSummary({
      seconds: 724,
      sources: [
        {
          source: 'EndpointSlice',
          changes: { ...NO_CHANGES, terminating: 12 },
          samples: 12,
          lag: { p50: 0.038, p90: 1.2, p99: 4.2154, max: 72.4 },
        },
      ],
      slowest: [
        { ...change, lag: 72.4 },
        { ...change, lag: 0.9, service: '', pod: undefined },
      ],
      unresolved: [waiting(12.34)],
      discarded: counts({ Reconnect: 3, Expired: 1 }),
      gaps: [
        {
          what: 'pods in shop',
          since: new Date('2026-03-04T05:06:07.089Z'),
          seconds: 3.1,
          goesOn: false,
          cause: 'Cut: aborted',
        },
        {
          what: 'Endpoints',
          since: new Date('2026-03-04T05:07:00Z'),
          seconds: 61,
          goesOn: true,
          cause: undefined,
        },
      ],
    });
    expect(text).toBe(`Watched for 12m04s.

Lag of removals  samples   p50     p90     p99    max
  EndpointSlice       12  38ms  1.200s  4.215s  72.4s

Changes          added  ready  notReady  terminating  removed
  EndpointSlice      0      0         0           12        0

Slowest removals
  72.4s  Endpoints  shop/web  web-1
  900ms  Endpoints  shop/-    -

Not withdrawn yet, and for how long
  12.3s  Endpoints  shop/web  web-1

Removals without a lag, of everything watched
  3  Reconnect  ${DISCARDS.Reconnect.means}
  1  Expired    ${DISCARDS.Expired.means}

Interruptions: changes during them have no lag
        3.100s  2026-03-04T05:06:07.089Z  pods in shop  Cut: aborted
  61.0s so far  2026-03-04T05:07:00.000Z  Endpoints     nothing was received
`);
  });

  it('lists ten of what waits, and says how many more there are', () => {
    const unresolved = Array.from({ length: 12 }, (_, index) => waiting(100 - index));
    const lines = renderSummary({ ...NOTHING, unresolved }).split('\n');
    expect(lines.filter((line) => line.includes('web-1'))).toHaveLength(10);
    expect(lines).toContain('  and 2 more');
  });
});
