import { describe, expect, it, test } from 'vitest';
import { type ClusterEvent, compareVersions } from '../../../src/core/lag/events.ts';
import { both } from './recorder-specification.ts';
import {
  deleted,
  endpoints,
  marker,
  recorded,
  service,
  serviceDeleted,
  slice,
  terminating,
} from './sample-events.ts';

const API = { name: 'api-1', serviceName: 'api' };

type Case = [what: string, events: ClusterEvent[], lags: (string | number)[][]];

describe('one removed pod, one sample: the last withdrawal ends it', () => {
  test.each<Case>([
    [
      'slices and Endpoints',
      [...both(0, 'a'), terminating(100, 'a'), slice(300, {}), endpoints(900, [])],
      [['a', 0.8]],
    ],
    [
      'the slices of two Services, whichever is last',
      [
        service({ name: 'api' }),
        slice(0, { a: 'ready' }),
        slice(0, { a: 'ready' }, API),
        terminating(100, 'a'),
        slice(200, {}, API),
        slice(700, {}),
      ],
      [['a', 0.6]],
    ],
    [
      'two pods, each when its own last withdrawal shows',
      [
        ...both(0, 'a', 'b'),
        terminating(100, 'a'),
        terminating(200, 'b'),
        slice(300, {}),
        endpoints(400, ['a']),
        endpoints(900, []),
      ],
      [
        ['b', 0.2],
        ['a', 0.8],
      ],
    ],
    ['none while one group still lists it', [...both(0, 'a'), terminating(100, 'a'), slice(300, {})], []],
    [
      'a withdrawal that showed first counts as 0',
      [...both(0, 'a'), slice(1_000, { a: 'terminating' }), terminating(1_100, 'a'), endpoints(1_400, [])],
      [['a', 0.3]],
    ],
    [
      'only withdrawals that showed first: 0',
      [slice(0, { a: 'ready' }), slice(1_000, { a: 'terminating' }), terminating(1_100, 'a')],
      [['a', 0]],
    ],
    [
      'what never withdraws does not count',
      [
        service({ name: 'api', publishNotReadyAddresses: true }),
        slice(0, { a: 'ready' }),
        slice(0, { a: 'ready' }, API),
        terminating(100, 'a'),
        slice(300, {}),
      ],
      [['a', 0.2]],
    ],
    [
      'truncated Endpoints do not count',
      [
        slice(0, { a: 'ready' }),
        endpoints(0, ['a'], [], { overCapacity: true }),
        terminating(100, 'a'),
        slice(300, {}),
      ],
      [['a', 0.2]],
    ],
    [
      'a Service that is deleted meanwhile does not count any more',
      [
        service({ name: 'api' }),
        slice(0, { a: 'ready' }),
        slice(0, { a: 'ready' }, API),
        terminating(100, 'a'),
        slice(300, {}, API),
        serviceDeleted(500),
      ],
      [['a', 0.2]],
    ],
    [
      'an interruption of one of the watches: its lag is not known',
      [
        ...both(0, 'a'),
        terminating(100, 'a'),
        marker(200, 'StreamBroken', 'EndpointSlice'),
        marker(250, 'StreamCurrent', 'EndpointSlice'),
        slice(300, {}),
        endpoints(400, []),
      ],
      [],
    ],
    [
      'a withdrawal long before the termination: the pods’ watch may be late',
      [...both(0, 'a'), slice(1_000, { a: 'terminating' }), terminating(1_300, 'a'), endpoints(1_400, [])],
      [],
    ],
    [
      'listed again before the last has withdrawn it: its lag is not known',
      [
        ...both(0, 'a'),
        terminating(100, 'a'),
        slice(200, {}),
        slice(300, { a: 'ready' }),
        slice(400, {}),
        endpoints(900, []),
      ],
      [],
    ],
    [
      'the pod is gone before the last has withdrawn it',
      [...both(0, 'a'), terminating(100, 'a'), slice(300, {}), deleted(400, 'a'), endpoints(900, [])],
      [['a', 0.8]],
    ],
  ])('%s', (_, events, lags) => {
    expect(recorded(...events).removals.map(({ uid, lag }) => [uid, lag])).toEqual(lags);
  });

  it('has the instant and the version of each withdrawal', () => {
    const { removals } = recorded(
      ...both(0, 'a'),
      terminating(100, 'a'),
      slice(300, {}, { version: '101' }),
      endpoints(900, [], [], { version: '99' }),
    );
    expect(removals).toMatchObject([
      {
        namespace: 'shop',
        pod: 'pod-a',
        lag: 0.8,
        at: 900,
        withdrawals: [
          { stage: 'EndpointSlice', at: 300, version: '101' },
          { stage: 'Endpoints', at: 900, version: '99' },
        ],
      },
    ]);
  });
});

it.each([
  ['9', '10', -1],
  ['10', '10', 0],
  ['11', '10', 1],
  ['100', '99', 1],
  ['18446744073709551616', '18446744073709551615', 1],
  ['a', '1', undefined],
  ['01', '1', undefined],
])('the order of resourceVersions %s and %s', (a, b, order) => {
  const compared = compareVersions(a, b);
  expect(compared === undefined ? undefined : Math.sign(compared)).toBe(order);
});
