import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import {
  assess,
  chartOf,
  chartText,
  isTermination,
  type ObservedEnd,
  type Termination,
  terminationOf,
  terminationSummary,
} from '../../../src/core/timeline/index.ts';
import { ROOT } from '../../docs/markdown.ts';
import { CLEAR, SENT, UNKNOWN } from './sample-termination.ts';

describe('whether something was sent after SIGTERM', () => {
  it.each<[string, Partial<Termination>, ReturnType<typeof assess>['afterSigterm'], readonly string[]]>([
    ['all had dropped it', {}, 'clear', []],
    ['one watch was a moment later than another', { sigterm: { after: 8.9, by: 'seen' } }, 'clear', []],
    ['a gateway had not', { sigterm: { after: 5, by: 'seen' } }, 'sent', ['edge']],
    [
      'a list had not',
      { withdrawals: [{ source: 'Endpoints', service: 'web', after: 40 }] },
      'sent',
      ['Endpoints web'],
    ],
    [
      'without any wait, however quick',
      {
        sigterm: { after: 0, by: 'computed' },
        withdrawals: [{ source: 'Endpoints', service: 'web', after: 0 }],
        consumers: [],
      },
      'sent',
      ['Endpoints web'],
    ],
    [
      'one that was asked until SIGTERM still used it',
      { consumers: [{ name: 'edge', after: null, by: 'seen' }] },
      'sent',
      ['edge'],
    ],
    [
      'nothing is known of a consumer',
      { consumers: [{ name: 'mesh', after: null, by: 'unknown' }] },
      'unknown',
      [],
    ],
    ['the lists were not measured', { withdrawals: null }, 'unknown', []],
    ['SIGTERM is not known', { sigterm: { after: null, by: 'unknown' } }, 'unknown', []],
    ['some are left out', { omitted: 3 }, 'unknown', []],
  ])('%s', (_, change, expected, what) => {
    const { afterSigterm, overruns } = assess({ ...CLEAR, ...change });
    expect([afterSigterm, overruns.map((each) => each.what)]).toEqual([expected, what]);
  });

  it('in a sentence', () => {
    expect(terminationSummary(CLEAR)).toBe(
      'Everything known had dropped it before SIGTERM; SIGTERM after 9.1 s; Hold released it: Gone; gone after 12 s.',
    );
    expect(terminationSummary(SENT)).toBe(
      'edge may have sent to it for 4 s after SIGTERM; SIGTERM after 5 s; gone after 12 s.',
    );
    expect(terminationSummary(UNKNOWN)).toBe(
      'Not known whether something sent to it after SIGTERM: when its lists withdrew it, when mesh dropped it; SIGTERM after 5 s.',
    );
  });
});

describe('its picture', () => {
  it('has a lane for each that may send, and the process', () => {
    const { lanes, marks } = chartOf(CLEAR, 'now');
    expect(lanes.map(({ label, note }) => `${label}: ${note}`)).toEqual([
      'Endpoints web: 200 ms',
      'EndpointSlice web: 100 ms',
      'edge: 9 s',
      'cluster-ip: 1.2 s (99 %)',
      'last connection: 8.5 s',
      'the process, hook Hold: 2.9 s to stop',
    ]);
    expect(marks.map(({ label }) => label)).toEqual(['deleted', 'SIGTERM', 'gone']);
  });

  it('what came after SIGTERM is a span of its own', () => {
    const edge = chartOf(SENT, 'now').lanes.find(({ label }) => label === 'edge');
    expect(edge?.spans).toEqual([
      { from: 0, to: 5, tone: 'sends' },
      { from: 5, to: 9, tone: 'lost' },
    ]);
    expect(
      chartOf(CLEAR, 'now')
        .lanes.flatMap(({ spans = [] }) => spans)
        .some(({ tone }) => tone === 'lost'),
    ).toBe(false);
  });

  it('is the one in the guide', async () => {
    const printed = chartText(chartOf(SENT, '2026-03-01 14:05:09 UTC'), { width: 100, colour: false });
    expect(await readFile(join(ROOT, 'docs/service.md'), 'utf8')).toContain(printed);
  });

  it('what is not known is never drawn as fine', () => {
    const { lanes } = chartOf({ ...UNKNOWN, sigterm: { after: null, by: 'unknown' } }, 'now');
    for (const { spans = [] } of lanes) expect(spans.map(({ tone }) => tone)).toEqual(['unknown']);
  });
});

describe('what was observed becomes a termination', () => {
  const END: ObservedEnd = {
    namespace: 'shop',
    pod: 'web-1',
    uid: 'u1',
    owner: 'Deployment/web',
    hook: 'Sleep',
    deletedAt: 100,
    gone: 12,
    listed: true,
    withdrawals: [
      { stage: 'EndpointSlice', name: 'web', lag: 0.1 },
      { stage: 'Endpoints', name: 'web', lag: 2 },
    ],
    consumers: [{ name: 'edge', seconds: 4 }],
    wait: 10,
    released: undefined,
  };
  const held = (reason: string, consumers: NonNullable<ObservedEnd['released']>['consumers']) =>
    terminationOf({ ...END, hook: 'Hold', released: { reason, after: 7, consumers, witness: null } });

  it('with a planned wait, SIGTERM and the consumers are computed', () => {
    expect(terminationOf(END)).toMatchObject({
      withdrawals: [
        { source: 'Endpoints', after: 2 },
        { source: 'EndpointSlice', after: 0.1 },
      ],
      consumers: [{ name: 'edge', after: 6, by: 'computed' }],
      sigterm: { after: 10, by: 'computed' },
    });
  });

  it.each<[string, Partial<ObservedEnd>, Partial<Termination>]>([
    ['a hook that cannot be read', { wait: undefined }, { sigterm: { after: null, by: 'unknown' } }],
    ['Hold that never called', { hook: 'Hold' }, { sigterm: { after: null, by: 'unknown' } }],
    [
      'lists that were not measured',
      { withdrawals: undefined },
      { withdrawals: null, consumers: [{ name: 'edge', after: null, by: 'unknown' }] },
    ],
    [
      'nothing that listed it',
      { withdrawals: undefined, listed: false },
      { withdrawals: [], consumers: [{ name: 'edge', after: 4, by: 'computed' }] },
    ],
    [
      'a consumer of which nothing is known',
      { consumers: [{ name: 'edge', seconds: undefined }] },
      { consumers: [{ name: 'edge', after: null, by: 'unknown' }] },
    ],
  ])('%s', (_, change, expected) => expect(terminationOf({ ...END, ...change })).toMatchObject(expected));

  it.each([
    ['Gone', { by: 'word', after: 6.5 }, { after: 6.5, by: 'seen' }],
    ['Max', { by: 'word', after: undefined }, { after: null, by: 'seen' }],
    ['NotServing', { by: 'word', after: undefined }, { after: null, by: 'unknown' }],
    ['Gone', { by: 'time', after: 6.1 }, { after: 6, by: 'computed' }],
    ['Gone', { by: 'unknown', after: 6.5 }, { after: null, by: 'unknown' }],
  ] as const)('released %s: a consumer judged %o', (reason, judged, expected) => {
    const { consumers, sigterm } = held(reason, [{ name: 'edge', ...judged }]);
    expect(consumers).toEqual([{ name: 'edge', ...expected }]);
    expect(sigterm).toEqual({ after: 7, by: 'seen' });
  });

  it('a helper that is left to itself may wait on', () => {
    expect(held('Unsure', []).sigterm).toEqual({ after: null, by: 'unknown' });
  });

  it('of two hundred consumers the ones that matter are kept, and the number of others', () => {
    const consumers = Array.from({ length: 200 }, (_, index) => ({
      name: `c${index}`,
      seconds: index === 7 ? undefined : index,
    }));
    const kept = terminationOf({ ...END, consumers });
    expect(kept.consumers.slice(0, 2).map(({ name }) => name)).toEqual(['c7', 'c199']);
    expect(kept.consumers.length + kept.omitted).toBe(200);
    expect(isTermination(JSON.parse(JSON.stringify(kept)))).toBe(true);
  });
});

describe('what a leader has published of terminations', () => {
  it.each([
    ['nothing', null],
    ['a name that is none', { ...CLEAR, pod: 7 }],
    ['an instant that JSON does not have', { ...CLEAR, gone: 'soon' }],
    ['more than a leader writes', { ...CLEAR, consumers: Array(9).fill(CLEAR.consumers[0]) }],
    ['a source of another version', { ...CLEAR, sigterm: { after: 1, by: 'guessed' } }],
  ])('%s is none', (_, value) => expect(isTermination(value)).toBe(false));
});
