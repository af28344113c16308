import { describe, expect, it } from 'vitest';
import type { ClusterEvent } from '../../../src/core/lag/events.ts';
import { EXPIRY_MS } from '../../../src/core/lag/recorder.ts';
import { both, specify } from './recorder-specification.ts';
import {
  deleted,
  endpoints,
  marker,
  recorded,
  service,
  slice,
  sliceDeleted,
  terminating,
} from './sample-events.ts';

const HOUR = 3_600_000;

describe('interrupted watches', () => {
  const listed = (at: number, stream: 'EndpointSlice' | 'pods', ...items: ClusterEvent[]) => [
    marker(at, 'ListBegins', stream),
    ...items,
    marker(at, 'ListEnds', stream),
    marker(at, 'StreamCurrent', stream),
  ];
  specify([
    [
      'the slices’ watch breaks: what spans it is discarded',
      [
        slice(0, { a: 'ready' }),
        terminating(100, 'a'),
        marker(200, 'StreamBroken', 'EndpointSlice'),
        marker(250, 'StreamCurrent', 'EndpointSlice'),
        slice(300, {}),
      ],
      [],
      { Reconnect: 1 },
    ],
    [
      'the pods’ watch breaks: so is what spans it, of both stages',
      [
        ...both(0, 'a'),
        terminating(100, 'a'),
        marker(200, 'StreamBroken', 'pods'),
        marker(250, 'StreamCurrent', 'pods'),
        slice(300, {}),
        endpoints(300, []),
      ],
      [],
      { Reconnect: 2 },
    ],
    [
      'the watch of the slices does not touch Endpoints',
      [
        ...both(0, 'a'),
        terminating(100, 'a'),
        marker(200, 'StreamBroken', 'EndpointSlice'),
        endpoints(300, []),
      ],
      ['endpoints web 0.2'],
      { Reconnect: 1 },
    ],
    [
      'it begins before the pods’ watch is current',
      [
        slice(0, { a: 'ready' }),
        marker(50, 'StreamBroken', 'pods'),
        terminating(100, 'a'),
        marker(150, 'StreamCurrent', 'pods'),
        terminating(200, 'a'),
        slice(300, {}),
      ],
      [],
      { Reconnect: 1 },
    ],
    [
      'it begins before the slices’ watch is current',
      [
        slice(0, { a: 'ready' }),
        marker(50, 'StreamBroken', 'EndpointSlice'),
        terminating(100, 'a'),
        marker(150, 'StreamCurrent', 'EndpointSlice'),
        slice(300, {}),
      ],
      [],
      { Reconnect: 1 },
    ],
    [
      'a withdrawal from before the break does not meet a termination from after it',
      [
        slice(0, { a: 'ready' }),
        slice(100, { a: 'terminating' }),
        marker(110, 'StreamBroken', 'pods'),
        marker(120, 'StreamCurrent', 'pods'),
        terminating(130, 'a'),
      ],
      [],
    ],
    [
      'a relist that names the pod no longer is no end',
      [slice(0, { a: 'ready' }), terminating(100, 'a'), ...listed(200, 'EndpointSlice', slice(200, {}))],
      [],
      { Reconnect: 1 },
    ],
    [
      'a relist without the slice is no end',
      [slice(0, { a: 'ready' }), terminating(100, 'a'), ...listed(200, 'EndpointSlice')],
      [],
      { Reconnect: 1 },
    ],
    [
      'a pod that the list shows terminating has begun before',
      [
        slice(0, { a: 'ready' }),
        ...listed(100, 'pods', terminating(100, 'a')),
        terminating(150, 'a'),
        deleted(200, 'a'),
        slice(300, {}),
      ],
      [],
      { Reconnect: 1 },
    ],
    [
      'what begins after a relist is measured',
      [...listed(50, 'EndpointSlice', slice(50, { a: 'ready' })), terminating(100, 'a'), slice(300, {})],
      ['slice web 0.2'],
    ],
  ]);

  describe('a watch that the server ends at its timeout', () => {
    specify([
      [
        'what begins before and ends after it is measured: no watch lives as long as a storm',
        [
          slice(0, { a: 'ready' }),
          terminating(100, 'a'),
          marker(200, 'StreamRotated', 'EndpointSlice'),
          marker(300, 'StreamCurrent', 'EndpointSlice'),
          slice(600_100, {}),
        ],
        ['slice web 600'],
      ],
      [
        'an end that came while it was resumed is not',
        [
          slice(0, { a: 'ready' }),
          terminating(100, 'a'),
          marker(200, 'StreamRotated', 'EndpointSlice'),
          slice(250, {}),
          marker(300, 'StreamCurrent', 'EndpointSlice'),
        ],
        [],
        { Reconnect: 1 },
      ],
      [
        'nor a beginning',
        [
          slice(0, { a: 'ready' }),
          marker(50, 'StreamRotated', 'pods'),
          terminating(100, 'a'),
          marker(150, 'StreamCurrent', 'pods'),
          slice(300, {}),
        ],
        [],
        { Reconnect: 1 },
      ],
      [
        'a beginning seen by the pods’ watch while the slices’ is resumed is: its end comes after that',
        [
          slice(0, { a: 'ready' }),
          marker(50, 'StreamRotated', 'EndpointSlice'),
          terminating(100, 'a'),
          marker(150, 'StreamCurrent', 'EndpointSlice'),
          slice(300, {}),
        ],
        ['slice web 0.2'],
      ],
    ]);
  });
});

describe('unresolved removals', () => {
  it('are visible, oldest first, with their beginning', () => {
    const { unresolved } = recorded(...both(0, 'a'), terminating(100, 'a'), slice(300, {}));
    expect(unresolved).toEqual([
      { stage: 'Endpoints', namespace: 'shop', name: 'web', pod: 'pod-a', uid: 'a', since: 100 },
    ]);
  });

  it('stay visible across a break, except while their watch is blind', () => {
    const before = [
      slice(0, { a: 'ready' }),
      terminating(100, 'a'),
      marker(200, 'StreamBroken', 'EndpointSlice'),
    ];
    expect(recorded(...before).unresolved).toEqual([]);
    const after = recorded(...before, marker(900, 'StreamCurrent', 'EndpointSlice'));
    expect(after.unresolved).toMatchObject([{ since: 100 }]);
  });

  it('whose beginning fell into an interruption of the pods’ watch count from when they were seen', () => {
    const interrupted = (type: 'StreamBroken' | 'StreamRotated') => [
      ...both(0, 'a', 'b'),
      marker(100, type, 'pods'),
      terminating(400, 'a'),
      terminating(400, 'b'),
      marker(500, 'StreamCurrent', 'pods'),
    ];
    for (const type of ['StreamBroken', 'StreamRotated'] as const) {
      const during = recorded(...interrupted(type), slice(600, { b: 'ready' }));
      expect(during.unresolved.map(({ stage, uid, since }) => [stage, uid, since])).toEqual([
        ['Endpoints', 'a', 400],
        ['EndpointSlice', 'b', 400],
        ['Endpoints', 'b', 400],
      ]);
      const after = recorded(...interrupted(type), slice(600, {}), endpoints(700, []));
      expect(after).toMatchObject({ lags: [], discarded: { Reconnect: 4 }, unresolved: [] });
    }
  });

  it('expire after two hours', () => {
    const begun = [slice(0, { a: 'ready' }), terminating(100, 'a')];
    const justBefore = slice(100 + EXPIRY_MS - 1, { a: 'ready', b: 'ready' });
    expect(recorded(...begun, justBefore).unresolved).toHaveLength(1);
    const seen = recorded(...begun, slice(100 + EXPIRY_MS, { a: 'ready' }), slice(9 * HOUR, {}));
    expect(seen).toMatchObject({ lags: [], discarded: { Expired: 1 }, unresolved: [] });
  });
});

describe('memory follows what is listed and terminating now', () => {
  it.each<[string, ClusterEvent[]]>([
    [
      'a whole life',
      [
        ...both(0, 'a'),
        terminating(1, 'a'),
        slice(2, { a: 'terminating' }),
        endpoints(3, []),
        slice(4, {}),
        deleted(5, 'a'),
      ],
    ],
    ['DELETED before the slice follows', [...both(0, 'a'), deleted(1, 'a'), slice(2, {}), endpoints(3, [])]],
    [
      'a slice that lags behind the DELETED',
      [terminating(1, 'a'), deleted(2, 'a'), slice(3, { a: 'ready' }), slice(4, {})],
    ],
    ['a change of labels', [...both(0, 'a'), slice(1, {}), endpoints(2, [])]],
    [
      'a pod that ended unseen',
      [terminating(1, 'a'), marker(2, 'ListBegins', 'pods'), deleted(3, 'a'), marker(3, 'ListEnds', 'pods')],
    ],
    [
      'objects that ended unseen',
      [
        ...both(0, 'a'),
        marker(2, 'ListBegins', 'Endpoints'),
        { type: 'EndpointsDeleted', at: 3, namespace: 'shop', name: 'web' },
        marker(3, 'ListEnds', 'Endpoints'),
        marker(2, 'ListBegins', 'EndpointSlice'),
        sliceDeleted(3),
        marker(3, 'ListEnds', 'EndpointSlice'),
      ],
    ],
  ])('%s leaves nothing behind', (_, events) => {
    const { recorder } = recorded(...events, sliceDeleted(50), {
      type: 'EndpointsDeleted',
      at: 50,
      namespace: 'shop',
      name: 'web',
    });
    // Withdrawals are remembered for 10 s.
    recorder.apply(service({}, 20_000));
    expect(recorder.size).toEqual({ pods: 0, objects: 0, open: 0 });
  });
});
