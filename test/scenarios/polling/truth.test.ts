import { describe, expect, it } from 'vitest';
import { tableOf } from './slices.ts';
import { Truth } from './truth.ts';

const A = { service: 'shop/web', address: '10.0.0.1:80' };
const B = { service: 'shop/web', address: '10.0.0.2:80' };

/** `at` of the discovery service, `began` and `ended` of gateways; all of what they saw leave. */
function truthOf(
  changes: readonly { at: number; removed?: readonly (typeof A)[]; added?: readonly (typeof A)[] }[],
  syncs: readonly { by: string; began: number; ended: number; removed?: readonly (typeof A)[] }[],
): Truth {
  const truth = new Truth(['one', 'other']);
  for (const { at, removed = [], added = [] } of changes) {
    truth.changed({ event: 'changed', at, removed, added });
  }
  for (const { by, began, ended, removed = [] } of syncs) {
    truth.synced(by, { event: 'synced', began, ended, removed, added: [] });
  }
  return truth;
}

describe('the truth about gateways', () => {
  it.each([
    {
      name: 'a lag lasts until the last of them has followed',
      truth: truthOf(
        [{ at: 100, removed: [A] }],
        [
          { by: 'one', began: 150, ended: 160, removed: [A] },
          { by: 'other', began: 900, ended: 950, removed: [A] },
        ],
      ),
      expected: [850],
    },
    {
      name: 'as long as one of them has not followed there is none',
      truth: truthOf(
        [{ at: 100, removed: [A] }],
        [
          { by: 'one', began: 150, ended: 160, removed: [A] },
          { by: 'other', began: 150, ended: 160 },
        ],
      ),
      expected: [],
    },
    {
      name: 'an address that leaves twice has two, one if a gateway slept through the first',
      truth: truthOf(
        [
          { at: 100, removed: [A, B] },
          { at: 300, added: [A, B] },
          { at: 500, removed: [A, B] },
        ],
        [
          { by: 'one', began: 150, ended: 160, removed: [A, B] },
          { by: 'one', began: 510, ended: 520, removed: [A, B] },
          { by: 'other', began: 200, ended: 210, removed: [A] },
          { by: 'other', began: 600, ended: 610, removed: [A, B] },
        ],
      ),
      expected: [110, 110, 110],
    },
  ])('$name', ({ truth, expected }) => {
    expect(truth.lags('removed').map(({ lagMs }) => lagMs)).toEqual(expected);
    expect(truth.lags('removed', 'shop/other')).toEqual([]);
  });

  it('also has when the last of them had reported it', () => {
    const truth = truthOf(
      [{ at: 100, removed: [A] }],
      [
        { by: 'one', began: 150, ended: 160, removed: [A] },
        { by: 'other', began: 200, ended: 250, removed: [A] },
      ],
    );
    for (const at of [155, 400]) truth.reported('one', { at, cursorAskedAt: at });
    expect(truth.lags('removed')[0]).toMatchObject({ lagMs: 150, toldMs: Number.NaN });
    truth.reported('other', { at: 260, cursorAskedAt: 260 });
    expect(truth.lags('removed')[0]).toMatchObject({ lagMs: 150, toldMs: 300 });
  });

  it.each<{
    name: string;
    reports: readonly [gateway: string, cursorAskedAt: number, at: number][];
    expected: number;
  }>([
    { name: 'is not known before a second report', reports: [['one', 100, 110]], expected: 0 },
    {
      name: 'counts from when a gateway had first reported',
      reports: [
        ['one', 100, 180],
        ['one', 300, 310],
      ],
      expected: 130,
    },
    {
      name: 'then from when the cursor before was asked for',
      reports: [
        ['one', 100, 110],
        ['one', 300, 390],
        ['one', 500, 510],
      ],
      expected: 280,
    },
    {
      name: 'is that of the slowest gateway, however late others began',
      reports: [
        ['one', 100, 110],
        ['one', 500, 510],
        ['other', 520, 530],
        ['one', 550, 560],
        ['other', 610, 620],
      ],
      expected: 400,
    },
    {
      name: 'goes on where a report is lost, and where two arrive in the other order',
      reports: [
        ['one', 100, 110],
        ['one', 300, 390],
        ['one', 200, 400],
        ['one', 700, 710],
      ],
      expected: 410,
    },
  ])('the longest lag that can be known $name', ({ reports, expected }) => {
    const truth = new Truth(['one', 'other']);
    for (const [gateway, cursorAskedAt, at] of reports) truth.reported(gateway, { at, cursorAskedAt });
    expect(truth.longestKnown).toBe(expected);
  });
});

describe('the table of the discovery service', () => {
  const slice = (name: string, endpoints: readonly object[] | null, more: object = {}) => ({
    metadata: { name, namespace: 'shop', labels: { 'kubernetes.io/service-name': 'web' } },
    addressType: 'IPv4',
    ports: [{ port: 8080 }],
    endpoints: endpoints as never,
    ...more,
  });

  it('has what is ready, each address once, of all slices of a Service', () => {
    const slices = [
      slice('web-1', [
        { addresses: ['10.0.0.2'], conditions: { ready: true } },
        { addresses: ['10.0.0.1'] },
        { addresses: ['10.0.0.9'], conditions: { ready: false } },
      ]),
      slice('web-2', [{ addresses: ['10.0.0.2'] }]),
      slice('web-3', null),
      slice('web-6', [{ addresses: ['fd00::1'] }], { addressType: 'IPv6' }),
    ];
    expect(tableOf(slices)).toEqual({ 'shop/web': ['10.0.0.1:8080', '10.0.0.2:8080'] });
  });
});
