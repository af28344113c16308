import { describe, expect, it } from 'vitest';
import type { ClusterEvent } from '../../../src/core/lag/events.ts';
import { LagRecorder, MOST_REMOVALS } from '../../../src/core/lag/recorder.ts';
import { both } from './recorder-specification.ts';
import {
  ALL_CURRENT,
  deleted,
  endpoints,
  marker,
  NAMESPACE,
  recorded,
  service,
  slice,
  terminating,
} from './sample-events.ts';

const MINUTE = 60_000;

/** Slices that change now and after three minutes, by pods that Endpoints never list. */
const unfollowed = (from = 0): ClusterEvent[] => [
  slice(from + MINUTE, { old: 'ready', b: 'ready' }),
  slice(from + 4 * MINUTE, { old: 'ready', b: 'ready', c: 'ready' }),
];

describe('whether a controller maintains Endpoints', () => {
  const ELSEWHERE = { namespace: 'elsewhere', name: 'other' };
  it.each<[what: string, maintained: boolean, events: ClusterEvent[]]>([
    ['nothing has changed', true, both(0, 'old')],
    ['slices changed once', true, [...both(0, 'old'), ...unfollowed().slice(0, 1)]],
    ['slices changed twice, and Endpoints did not follow', false, [...both(0, 'old'), ...unfollowed()]],
    [
      'slices changed twice within two minutes',
      true,
      [...both(0, 'old'), slice(MINUTE, { old: 'ready', b: 'ready' }), slice(2 * MINUTE, { old: 'ready' })],
    ],
    [
      'Endpoints of any Service changed in between',
      true,
      [
        service(ELSEWHERE),
        ...both(0, 'old'),
        ...unfollowed().slice(0, 1),
        endpoints(2 * MINUTE, ['z'], [], ELSEWHERE),
        ...unfollowed().slice(1),
      ],
    ],
    [
      'Endpoints without a selector changed in between: by hand',
      false,
      [
        service({ ...ELSEWHERE, selector: undefined }),
        ...both(0, 'old'),
        ...unfollowed().slice(0, 1),
        endpoints(2 * MINUTE, ['z'], [], ELSEWHERE),
        ...unfollowed().slice(1),
      ],
    ],
    [
      'Endpoints precede the slices, then follow them late',
      true,
      [
        ...both(0, 'old'),
        endpoints(MINUTE - 50, ['old', 'b']),
        ...unfollowed(),
        endpoints(4 * MINUTE + 50, ['old', 'b', 'c']),
      ],
    ],
    [
      'Endpoints changed while their watch was renewed',
      true,
      [
        ...both(0, 'old'),
        ...unfollowed().slice(0, 1),
        marker(MINUTE, 'StreamRotated', 'Endpoints'),
        endpoints(MINUTE + 10, ['old', 'b']),
        marker(MINUTE + 20, 'StreamCurrent', 'Endpoints'),
        ...unfollowed().slice(1),
      ],
    ],
    [
      'the watch of Endpoints broke in between',
      true,
      [
        ...both(0, 'old'),
        ...unfollowed().slice(0, 1),
        marker(2 * MINUTE, 'StreamBroken', 'Endpoints'),
        marker(3 * MINUTE, 'StreamCurrent', 'Endpoints'),
        ...unfollowed().slice(1),
      ],
    ],
    [
      'Endpoints change again later',
      true,
      [...both(0, 'old'), ...unfollowed(), endpoints(5 * MINUTE, ['old', 'b', 'c'])],
    ],
  ])('%s: %s', (_what, maintained, events) => {
    expect(recorded(...events).recorder.maintainsEndpoints).toBe(maintained);
  });

  it('is shown by slices of the trusted namespace only', () => {
    const recorder = new LagRecorder({ trusted: 'linger' });
    const tenant = [...ALL_CURRENT, service(), ...both(0, 'old'), ...unfollowed()];
    for (const event of tenant) recorder.apply(event);
    expect(recorder.maintainsEndpoints).toBe(true);
    const own = { namespace: 'linger' };
    recorder.apply(service(own));
    for (const at of [5 * MINUTE, 8 * MINUTE]) recorder.apply(slice(at, { [`pod-${at}`]: 'ready' }, own));
    expect(recorder.maintainsEndpoints).toBe(false);
  });
});

describe('a pod that stale Endpoints list', () => {
  it('is removed when the slices have withdrawn it', () => {
    const seen = recorded(
      ...both(0, 'old'),
      ...unfollowed(),
      terminating(5 * MINUTE, 'old'),
      slice(5 * MINUTE + 100, { b: 'ready', c: 'ready' }),
    );
    expect(seen).toMatchObject({ lags: ['slice web 0.1'], discarded: {}, unresolved: [] });
    expect(seen.removals).toMatchObject([{ uid: 'old', lag: 0.1 }]);
    expect(seen.recorder.listing({ namespace: NAMESPACE, uid: 'old' })).toEqual([]);
  });

  it('is no longer waited for once that is known', () => {
    const seen = recorded(
      ...both(0, 'old'),
      ...unfollowed().slice(0, 1),
      terminating(3 * MINUTE, 'old'),
      slice(3 * MINUTE + 100, { b: 'ready' }),
    );
    expect(seen.unresolved).toMatchObject([]);
    expect(seen).toMatchObject({ lags: ['slice web 0.1'], discarded: { Unmaintained: 1 } });
    expect(seen.removals).toMatchObject([{ uid: 'old', lag: 0.1 }]);
  });

  // As many as one namespace may have: of slices alone, or of slices and Endpoints.
  it.each([
    ['before', 5 * MINUTE, MOST_REMOVALS / 2],
    ['after', 2 * MINUTE, MOST_REMOVALS / 4],
  ])('takes no place for ever, known %s its removal', (_when, at, count) => {
    const pods = Array.from({ length: count }, (_, index) => `pod-${index}`);
    const removed = [
      ...pods.map((uid) => terminating(at, uid)),
      slice(at + 100, { b: 'ready' }),
      ...pods.map((uid) => deleted(at + 200, uid)),
    ];
    const unmaintained = slice(4 * MINUTE, { c: 'ready' }, { name: 'web-2' });
    const { discarded } = recorded(
      ...both(0, ...pods),
      slice(MINUTE, Object.fromEntries([...pods, 'b'].map((uid) => [uid, 'ready'] as const))),
      ...(at < unmaintained.at ? [...removed, unmaintained] : [unmaintained, ...removed]),
      terminating(6 * MINUTE, 'c'),
      slice(6 * MINUTE + 100, {}, { name: 'web-2' }),
    );
    expect(discarded.TooMany).toBeUndefined();
  });
});
