import { describe, expect, it } from 'vitest';
import type { Shortfall, TerminationRecord } from '../../src/audit/index.ts';
import { endedOf, shortfallsOf } from '../../src/cli/now-report.ts';
import { CLEAR, SENT, UNKNOWN } from '../core/timeline/sample-termination.ts';

const NOW = 1_700_000_000;
const shortfall = (pod: string, more: Partial<Shortfall> = {}): Shortfall => ({
  reason: 'StoppedTooEarly',
  at: NOW - 60,
  namespace: 'shop',
  pod,
  uid: pod,
  owner: 'Deployment/web',
  seconds: 4,
  wait: 0,
  lag: 4,
  services: ['web'],
  consumer: 'edge',
  ...more,
});
const record = (more: Partial<TerminationRecord>): TerminationRecord => ({
  findings: [],
  ended: [],
  incompleteBefore: 0,
  terminations: [],
  ...more,
});

describe('pods that stopped too early', () => {
  it('are one line for each workload and cause, with the longest and the latest', () => {
    const { consumer: _, ...late } = shortfall('web-late', { at: NOW - 5, wait: 3, lag: 7 });
    const findings = [
      ...Array.from({ length: 60 }, (_, each) =>
        shortfall(`web-${each}`, { seconds: each / 10, lag: each / 10 }),
      ),
      late,
      shortfall('other', { namespace: 'infra' }),
      shortfall('old', { at: NOW - 100_000 }),
      shortfall('bare', { owner: '' }),
    ];
    expect(shortfallsOf(record({ findings }), NOW)).toEqual([
      {
        at: NOW - 60,
        namespace: 'shop',
        owner: 'Deployment/web',
        pods: 60,
        seconds: 5.9,
        text: 'no wait; edge follows within 5.9 s (p99)',
      },
      expect.objectContaining({ pods: 1, at: NOW - 5, text: 'waited 3 s; web listed them for up to 7 s' }),
      expect.objectContaining({ namespace: 'infra', owner: 'Deployment/web' }),
      expect.objectContaining({ owner: 'Pod/bare' }),
    ]);
  });
});

describe('the terminations of the last hours', () => {
  it('have how long each pod waited and was sent to, the latest first; what is not known is null', () => {
    const terminations = [CLEAR, SENT, UNKNOWN].map((each, index) => ({
      ...each,
      deletedAt: NOW - 90 + index,
    }));
    const old = { ...CLEAR, deletedAt: NOW - 7 * 3_600 };
    expect(endedOf(record({ terminations: [old, ...terminations] }), NOW)).toMatchObject([
      { uid: 'u3', lagSeconds: null, afterSigterm: 'unknown' },
      { uid: 'u2', waitSeconds: 5, lagSeconds: 9, afterSigterm: 'sent' },
      { uid: 'u1', waitSeconds: 9.1, lagSeconds: 9, afterSigterm: 'clear' },
    ]);
  });

  it('of a pod that something still used when the observation ended, the time is not known', () => {
    const terminations = [
      { ...CLEAR, deletedAt: NOW, consumers: [{ name: 'edge', after: null, by: 'seen' as const }] },
    ];
    expect(endedOf(record({ terminations }), NOW)?.[0]?.lagSeconds).toBeNull();
  });
});
