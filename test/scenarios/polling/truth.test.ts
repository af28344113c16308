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

  it('is also known for what might have happened at any instant', () => {
    const truth = truthOf(
      [],
      [
        { by: 'one', began: 100, ended: 110 },
        { by: 'one', began: 200, ended: 210 },
        { by: 'other', began: 150, ended: 190 },
      ],
    );
    // At 0 and 50 the other one is last; at 125 the first one's second sync is; at 175 the other's next is not known.
    const lags = (from: number, to: number) => truth.possibleLags(from, to, 50).map(({ lagMs }) => lagMs);
    expect(lags(0, 150)).toEqual([190, 140, 90]);
    expect(lags(125, 200)).toEqual([85]);
    for (const [gateway, at] of [
      ['one', 115],
      ['other', 230],
      ['one', 240],
    ] as const)
      truth.reported(gateway, { at, cursorAskedAt: at });
    expect(truth.possibleLags(100, 150, 25).map(({ toldMs }) => toldMs)).toEqual([130, 115]);
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
