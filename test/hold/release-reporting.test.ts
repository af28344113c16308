import { Registry } from '@prometheus-io/client';
import { expect, it } from 'vitest';
import type { Release } from '../../src/hold/holds.ts';
import { registerHoldMetrics, reportRelease } from '../../src/hold/release-reporting.ts';
import type { ReleaseReason } from '../../src/hold/release-rules.ts';
import type { Logger } from '../../src/telemetry/index.ts';

type ObjectEvents = Parameters<typeof reportRelease>[2]['events'];

const SEVEN = ['a', 'b', 'c', 'd', 'e', 'f', 'g'];

function released(change: Partial<Release> = {}): Release {
  return {
    pod: { namespace: 'shop', name: 'web-1', uid: 'u1' } as Release['pod'],
    reason: 'Gone',
    heldMs: 2_345.6,
    waitingFor: [],
    skipped: [],
    open: undefined,
    undeclared: undefined,
    remotes: undefined,
    lag: undefined,
    consumers: [],
    counted: undefined,
    ...change,
  };
}

/** What metrics, the log and the Event say of it. */
async function reported(release: Release) {
  const registry = new Registry();
  const lines: object[] = [];
  const log = (level: string) => (members: object, message: string) =>
    void lines.push({ level, message, ...members });
  const logger = { info: log('info'), warn: log('warn') } as unknown as Logger;
  const told: unknown[] = [];
  const events = { tell: (event: unknown) => void told.push(event) } as unknown as ObjectEvents;
  reportRelease(release, registerHoldMetrics(registry, { held: () => 3, unreached: () => 2 }), {
    logger,
    events,
  });
  return { metrics: await registry.metrics(), lines, told };
}

it('says which pod, why, and after how long', async () => {
  const { metrics, lines, told } = await reported(released());
  expect(lines).toEqual([
    {
      level: 'info',
      message: 'pod released',
      namespace: 'shop',
      pod: 'web-1',
      reason: 'Gone',
      seconds: 2.346,
    },
  ]);
  expect(told).toEqual([
    {
      object: { kind: 'Pod', namespace: 'shop', name: 'web-1', uid: 'u1' },
      type: 'Normal',
      reason: 'HoldGone',
      action: 'Release',
      note: 'Released after 2.3s. Everything that listed the pod has withdrawn it, and every consumer that applies has dropped it.',
    },
  ]);
  expect(metrics).toContain('linger_hold_released_total{reason="Gone"} 1\n');
  expect(metrics).toContain('linger_hold_released_total{reason="Max"} 0\n');
  expect(metrics).toContain('linger_hold_seconds_bucket{le="2",reason="Gone"} 0\n');
  expect(metrics).toContain('linger_hold_seconds_bucket{le="3",reason="Gone"} 1\n');
  expect(metrics).toMatch(/linger_hold_seconds_sum\{reason="Gone"\} 2\.34\d+\n/);
  expect(metrics).toContain('linger_hold_pods 3\n');
});

it.each<[ReleaseReason, string, string]>([
  ['Gone', 'info', 'Normal'],
  ['NotServing', 'info', 'Normal'],
  ['NotTerminating', 'info', 'Normal'],
  ['Observed', 'info', 'Normal'],
  ['Unsure', 'info', 'Warning'],
  ['Max', 'warn', 'Warning'],
  ['NodeShutdown', 'warn', 'Warning'],
])('%s: logged as %s, an Event of type %s', async (reason, level, type) => {
  const { lines, told } = await reported(released({ reason }));
  // Its reason says why, and not every reason is hold.max.
  expect(lines).toMatchObject([{ level, reason, message: expect.not.stringContaining('hold.max') }]);
  expect(told).toMatchObject([{ type, reason: `Hold${reason}` }]);
});

it('names what was still awaited where the pod is cut short, and what was awaited last where not', async () => {
  const waitingFor = [{ consumer: 'edge', instances: SEVEN }, { consumer: 'cluster-dns' }];
  const words = ['edge: a, b, c, d, e and 2 more', 'cluster-dns'];
  const cut = await reported(released({ reason: 'Max', waitingFor }));
  expect(cut.lines).toMatchObject([{ waitingFor: words }]);
  expect(cut.lines[0]).not.toHaveProperty('last');
  expect(cut.told).toMatchObject([
    { note: expect.stringContaining(` Still waiting for: ${words.join('; ')}.`) },
  ]);
  const gone = await reported(released({ waitingFor: [{ consumer: 'edge', instances: SEVEN.slice(0, 5) }] }));
  expect(gone.lines).toMatchObject([{ last: ['edge: a, b, c, d, e'] }]);
  expect(gone.lines[0]).not.toHaveProperty('waitingFor');
  expect(gone.told).toMatchObject([
    { note: expect.stringContaining(' Last waited for: edge: a, b, c, d, e.') },
  ]);
});

it('names what it did not wait for, who came undeclared, what was open, and the lag', async () => {
  const { lines, told } = await reported(
    released({
      skipped: [{ consumer: 'edge', instances: ['a'] }],
      undeclared: { connections: 4, seconds: 2, remotes: SEVEN },
      open: 2,
      lag: 1.23456,
    }),
  );
  expect(lines).toMatchObject([
    { notWaitedFor: ['edge: a'], undeclared: 4, from: SEVEN.slice(0, 5), open: 2, lag: 1.235 },
  ]);
  expect(told).toMatchObject([
    {
      note: expect.stringMatching(
        / Not waited for, as stale in three holds in a row: edge: a\. 4 connections came after every known consumer had dropped the pod, from a, b, c, d, e\. 2 connections were open\.$/,
      ),
    },
  ]);
});

it('says that senders are not known where none was seen', async () => {
  const { told } = await reported(released({ undeclared: { connections: 4, seconds: 2, remotes: [] } }));
  expect(told).toMatchObject([{ note: expect.stringContaining('from addresses not known.') }]);
});

it.each([0, undefined])('does not speak of %s open connections', async (open) => {
  const { lines, told } = await reported(released({ open }));
  expect(lines[0]).not.toHaveProperty('open');
  expect(told).toMatchObject([{ note: expect.not.stringContaining('open') }]);
});

it('limits how many consumers an Event names', async () => {
  const waitingFor = SEVEN.map((consumer) => ({ consumer }));
  const { told } = await reported(released({ reason: 'Max', waitingFor, skipped: waitingFor }));
  const named = 'a; b; c; d; e.';
  expect(told).toMatchObject([{ note: expect.stringContaining(`Still waiting for: ${named}`) }]);
  expect(told).toMatchObject([{ note: expect.stringContaining(`stale in three holds in a row: ${named}`) }]);
});
