import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ChangeObserver } from '../../../src/core/lag/endpoint-changes.ts';
import type { ClusterEvent } from '../../../src/core/lag/events.ts';
import { LagRecorder } from '../../../src/core/lag/recorder.ts';
import {
  deleted,
  endpoints,
  ipOf,
  marker,
  observed,
  service,
  short,
  slice,
  sliceDeleted,
  synced,
  terminating,
} from './endpoints.ts';

type Case = readonly [name: string, events: readonly ClusterEvent[], expected: readonly string[]];

function specify(cases: readonly Case[]): void {
  it.each(cases)('%s', (_name, events, expected) => {
    expect(observed(events).map(short)).toEqual(expected);
  });
}

describe('a change', () => {
  specify([
    [
      'appears not ready, becomes ready',
      [...synced(slice(0, {})), slice(1, { a: 'notReady' }), slice(2, { a: 'ready' })],
      ['slice added a', 'slice ready a'],
    ],
    [
      'appears ready: it is added, and ready',
      [...synced(), slice(1, { a: 'ready' }), endpoints(2, 'a')],
      ['slice added a', 'slice ready a', 'endpoints added a', 'endpoints ready a'],
    ],
    [
      'is flipped by its probe',
      [...synced(slice(0, { a: 'ready' })), slice(1, { a: 'notReady' }), slice(2, { a: 'ready' })],
      ['slice notReady a', 'slice ready a'],
    ],
    [
      'is the same as before, though the object was written',
      [...synced(slice(0, { a: 'ready', b: 'notReady' })), slice(1, { b: 'notReady', a: 'ready' })],
      [],
    ],
    [
      'moves to another slice of the Service: none, when it is there before it is gone here',
      [...synced(slice(0, { a: 'ready' })), slice(1, { a: 'ready' }, 'web-2'), slice(2, {})],
      [],
    ],
    [
      'moves with its slice to another Service',
      [...synced(slice(0, { a: 'ready' })), slice(1, { a: 'ready' }, 'web-1', 'api')],
      ['slice removed a', 'slice added a', 'slice ready a'],
    ],
    [
      'of a slice that is deleted',
      [...synced(slice(0, { a: 'ready', b: 'notReady' })), sliceDeleted(1)],
      ['slice removed a', 'slice removed b'],
    ],
    ['of a slice that nobody knew', [...synced(), sliceDeleted(1)], []],
  ]);

  it('says whose it is and when it was seen', () => {
    const [change] = observed([...synced(slice(0, { a: 'ready' })), slice(7, { a: 'notReady' })]);
    expect(change).toEqual({
      change: 'notReady',
      source: 'EndpointSlice',
      namespace: 'shop',
      service: 'web',
      uid: 'uid-a',
      pod: 'a',
      ip: ipOf('a'),
      withdrawn: true,
      at: 7,
      lag: undefined,
      seen: 'live',
    });
  });

  it('of an address that is no pod’s', () => {
    const bare = { ip: '192.0.2.1' };
    const at = (ready: readonly { ip: string }[]): ClusterEvent => ({
      type: 'Endpoints',
      at: 1,
      endpoints: { namespace: 'shop', name: 'web', ready, notReady: [], overCapacity: false },
    });
    const changes = observed([...synced(at([])), at([bare]), at([])]);
    expect(changes.map(({ change, pod, ip }) => [change, pod, ip])).toEqual([
      ['added', undefined, bare.ip],
      ['ready', undefined, bare.ip],
      ['removed', undefined, bare.ip],
    ]);
  });

  it('of a slice without a Service', () => {
    const [change] = observed([...synced(), { ...slice(1, { a: 'notReady' }, 'mine', '') }]);
    expect(change?.service).toBe('');
    const orphan = slice(1, { a: 'notReady' }, 'mine') as Extract<ClusterEvent, { type: 'Slice' }>;
    const [other] = observed([
      ...synced(),
      { ...orphan, slice: { ...orphan.slice, serviceName: undefined } },
    ]);
    expect(other?.service).toBe('');
  });
});

describe('the lag', () => {
  const there = synced(slice(0, { a: 'ready', b: 'ready' }), endpoints(0, 'ab'));
  specify([
    [
      'stands at the line that ends the removal, once for each source',
      [
        ...there,
        terminating(1_000, 'a'),
        slice(1_040, { a: 'terminating', b: 'ready' }),
        endpoints(1_300, 'b'),
        slice(9_000, { b: 'ready' }),
        deleted(9_010, 'a'),
      ],
      ['slice terminating a 0.04', 'endpoints removed a 0.3', 'slice removed a'],
    ],
    [
      'is each pod’s own, in one update',
      [...there, terminating(1_000, 'b'), terminating(2_000, 'a'), endpoints(3_000, '')],
      ['endpoints removed a 1', 'endpoints removed b 2'],
    ],
    [
      'is 0 where the withdrawal shows a little before the termination',
      [...there, slice(1_000, { b: 'ready' }), terminating(1_200, 'a')],
      ['slice removed a 0'],
    ],
    [
      'is unknown where it shows long before',
      [...there, slice(1_000, { b: 'ready' }), terminating(1_400, 'a')],
      ['slice removed a'],
    ],
    [
      'is none of a readiness flip, nor of the pod that had not been ready',
      [
        ...synced(slice(0, { a: 'ready', b: 'notReady' })),
        slice(100, { a: 'notReady', b: 'notReady' }),
        terminating(1_000, 'b'),
        slice(1_100, { a: 'notReady' }),
      ],
      ['slice notReady a', 'slice removed b'],
    ],
    [
      'is none where the Service publishes what is not ready',
      [
        ...synced(slice(0, { a: 'ready' })),
        {
          ...service,
          service: { namespace: 'shop', name: 'web', publishNotReadyAddresses: true },
        } as ClusterEvent,
        terminating(1_000, 'a'),
        slice(1_100, { a: 'published' }),
        slice(9_000, {}),
      ],
      ['slice removed a'],
    ],
  ]);
});

describe('an interruption', () => {
  const there = synced(slice(0, { a: 'ready', b: 'ready' }));
  specify([
    [
      'what a new list shows is late, and has no lag',
      [
        ...there,
        terminating(100, 'a'),
        marker(150, 'StreamBroken', 'EndpointSlice'),
        marker(200, 'ListBegins', 'EndpointSlice'),
        slice(300, { a: 'terminating', b: 'ready', c: 'notReady' }),
        marker(300, 'ListEnds', 'EndpointSlice'),
        marker(400, 'StreamCurrent', 'EndpointSlice'),
        terminating(500, 'b'),
        slice(600, { a: 'terminating', c: 'notReady' }),
      ],
      ['slice terminating a late', 'slice added c late', 'slice removed b 0.1'],
    ],
    [
      'what a renewed watch brings before it is current is late, too',
      [
        ...there,
        marker(150, 'StreamRotated', 'EndpointSlice'),
        slice(300, { a: 'ready', b: 'notReady' }),
        marker(400, 'StreamCurrent', 'EndpointSlice'),
        slice(500, { a: 'ready', b: 'ready' }),
      ],
      ['slice notReady b late', 'slice ready b'],
    ],
    [
      'a rotation is none',
      [
        ...there,
        terminating(100, 'a'),
        marker(150, 'StreamRotated', 'EndpointSlice'),
        marker(200, 'StreamCurrent', 'EndpointSlice'),
        slice(300, { b: 'ready' }),
      ],
      ['slice removed a 0.2'],
    ],
  ]);
});

describe('what is there at the beginning', () => {
  const there = synced(slice(0, { a: 'ready', b: 'terminating' }), endpoints(0, 'a'));

  it('is not shown', () => expect(observed(there)).toEqual([]));

  it('is shown on request, marked as initial', () => {
    expect(observed(there, true).map(short)).toEqual([
      'slice added a initial',
      'slice ready a initial',
      'slice added b initial',
      'slice terminating b initial',
      'endpoints added a initial',
      'endpoints ready a initial',
    ]);
  });
});

describe('when changes are shown', () => {
  const observer = () => {
    const made = new ChangeObserver({ initial: false });
    for (const event of synced(slice(0, { a: 'ready', b: 'ready' }))) made.apply(event);
    return made;
  };

  it('at once, unless a lag may come yet', () => {
    const watched = observer();
    watched.apply(slice(1_000, { a: 'ready', b: 'ready', c: 'notReady' }));
    expect(watched.take(1_000).map(short)).toEqual(['slice added c']);
  });

  it('a withdrawal whose termination has not shown waits for it 250 ms, and what follows with it', () => {
    const watched = observer();
    watched.apply(slice(1_000, { b: 'ready' }));
    watched.apply(slice(1_010, { b: 'ready', c: 'notReady' }));
    expect(watched.take(1_250)).toEqual([]);
    expect(watched.take(1_251).map(short)).toEqual(['slice removed a', 'slice added c']);
    expect(watched.take(1_251)).toEqual([]);
  });

  it('and is shown as soon as it is known', () => {
    const watched = observer();
    watched.apply(slice(1_000, { b: 'ready' }));
    watched.apply(terminating(1_020, 'a'));
    expect(watched.take(1_020).map(short)).toEqual(['slice removed a 0']);
  });
});

describe('properties', () => {
  const PODS = ['a', 'b', 'c', 'd'] as const;
  const listed = fc.constantFrom('ready', 'notReady', 'terminating', 'published' as const);
  const states = fc.dictionary(fc.constantFrom(...PODS), listed, { maxKeys: 4, noNullPrototype: true });
  const pods = fc.uniqueArray(fc.constantFrom(...PODS)).map((names) => names.join(''));
  const happening = fc.oneof(
    fc.record({ of: fc.constant('slice' as const), name: fc.constantFrom('web-1', 'web-2'), states }),
    fc.record({ of: fc.constant('gone' as const), name: fc.constantFrom('web-1', 'web-2') }),
    fc.record({ of: fc.constant('endpoints' as const), ready: pods, notReady: pods }),
    fc.record({ of: fc.constant('terminating' as const), pod: fc.constantFrom(...PODS) }),
    fc.record({ of: fc.constant('deleted' as const), pod: fc.constantFrom(...PODS) }),
  );
  type Happening = typeof happening extends fc.Arbitrary<infer T> ? T : never;
  const steps = fc.array(fc.tuple(fc.nat(400), happening), { maxLength: 40 });

  function eventOf(at: number, what: Happening): ClusterEvent {
    if (what.of === 'slice') return slice(at, what.states, what.name);
    if (what.of === 'gone') return sliceDeleted(at, what.name);
    if (what.of === 'endpoints') return endpoints(at, what.ready, what.notReady);
    return what.of === 'terminating' ? terminating(at, what.pod) : deleted(at, what.pod);
  }

  function eventsOf(happenings: readonly (readonly [number, Happening])[]): readonly ClusterEvent[] {
    let at = 0;
    return happenings.map(([after, what]) => {
      at += after;
      return eventOf(at, what);
    });
  }

  it('changes replayed give what is listed at the end', () => {
    fc.assert(
      fc.property(steps, (happenings) => {
        const events = eventsOf(happenings);
        const replayed = new Map<string, string>();
        for (const { source, pod = '', change } of observed([...synced(), ...events])) {
          const key = `${source} ${pod}`;
          if (change === 'added') expect(replayed.has(key)).toBe(false);
          else expect(replayed.has(key)).toBe(true);
          if (change === 'removed') replayed.delete(key);
          else replayed.set(key, change === 'added' ? 'notReady' : change);
        }
        expect(new Map([...replayed].toSorted())).toEqual(new Map([...endOf(events)].toSorted()));
      }),
    );
  });

  it('every sample of the recorder stands at one line, and no line has another', () => {
    fc.assert(
      fc.property(steps, (happenings) => {
        // Where all are ready at first, most runs have removals.
        const all = slice(0, { a: 'ready', b: 'ready', c: 'ready', d: 'ready' });
        const events = [...synced(all, endpoints(0, 'abcd')), ...eventsOf(happenings)];
        const shown = observed(events).filter(({ lag }) => lag !== undefined);
        expect(shown.map((each) => `${each.source} ${each.uid} ${each.lag}`).toSorted()).toEqual(
          samplesOf(events).toSorted(),
        );
      }),
    );
  });

  it('lines come in the order in which they were seen, however often they are taken', () => {
    fc.assert(
      fc.property(steps, fc.nat(300), (happenings, later) => {
        const observer = new ChangeObserver({ initial: false });
        const taken: string[] = [];
        const times: number[] = [];
        for (const event of [...synced(), ...eventsOf(happenings)]) {
          observer.apply(event);
          for (const each of observer.take(event.at + (later % 2))) {
            taken.push(short(each));
            times.push(each.at);
          }
        }
        for (const each of observer.takeAll()) {
          taken.push(short(each));
          times.push(each.at);
        }
        expect(times).toEqual(times.toSorted((a, b) => a - b));
        expect(taken).toHaveLength(observed([...synced(), ...eventsOf(happenings)]).length);
      }),
    );
  });
});

/** What is listed after these events, computed from scratch from the last state of each object. */
function endOf(events: readonly ClusterEvent[]): ReadonlyMap<string, string> {
  const slices = new Map<string, ReadonlyMap<string, string>>();
  let addresses: ReadonlyMap<string, string> = new Map();
  for (const event of events) {
    if (event.type === 'Slice') {
      const states = event.slice.endpoints.map(
        ({ targetName = '', ready, terminating: ends }) =>
          [targetName, ready ? 'ready' : ends ? 'terminating' : 'notReady'] as const,
      );
      slices.set(event.slice.name, new Map(states));
    }
    if (event.type === 'SliceDeleted') slices.delete(event.name);
    if (event.type === 'Endpoints') {
      const { ready, notReady } = event.endpoints;
      const states = [
        ...notReady.map(({ targetName = '' }) => [targetName, 'notReady'] as const),
        ...ready.map(({ targetName = '' }) => [targetName, 'ready'] as const),
      ];
      addresses = new Map(states);
    }
  }
  const end = new Map<string, string>();
  // The later wins where they differ: from the least usable to the most.
  for (const state of ['notReady', 'terminating', 'ready']) {
    for (const states of slices.values()) {
      for (const [pod, is] of states) if (is === state) end.set(`EndpointSlice ${pod}`, state);
    }
  }
  for (const [pod, state] of addresses) end.set(`Endpoints ${pod}`, state);
  return end;
}

function samplesOf(events: readonly ClusterEvent[]): readonly string[] {
  const recorder = new LagRecorder();
  return events.flatMap((event) =>
    recorder.apply(event).stages.map(({ stage, uid, lag }) => `${stage} ${uid} ${lag}`),
  );
}
