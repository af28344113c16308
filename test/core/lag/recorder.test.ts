import { describe, expect, it } from 'vitest';
import { both, specify } from './recorder-specification.ts';
import {
  ALL_CURRENT,
  deleted,
  endpoints,
  recorded,
  recordedFrom,
  service,
  slice,
  sliceDeleted,
  terminating,
} from './sample-events.ts';

describe('a removal lasts from the first sign of the end until the object no longer lists the pod as ready', () => {
  specify([
    [
      'the slice shows it terminating',
      [slice(0, { a: 'ready' }), terminating(100, 'a'), slice(500, { a: 'terminating' })],
      ['slice web 0.4'],
    ],
    [
      'the slice shows it not ready',
      [slice(0, { a: 'ready' }), terminating(100, 'a'), slice(500, { a: 'notReady' })],
      ['slice web 0.4'],
    ],
    [
      'the slice is without it',
      [slice(0, { a: 'ready', b: 'ready' }), terminating(100, 'a'), slice(500, { b: 'ready' })],
      ['slice web 0.4'],
    ],
    [
      'the slice is deleted',
      [slice(0, { a: 'ready' }), terminating(100, 'a'), sliceDeleted(500)],
      ['slice web 0.4'],
    ],
    [
      'Endpoints list it as not ready',
      [endpoints(0, ['a']), terminating(100, 'a'), endpoints(500, [], ['a'])],
      ['endpoints web 0.4'],
    ],
    [
      'Endpoints are without it',
      [endpoints(0, ['a', 'b']), terminating(100, 'a'), endpoints(500, ['b'])],
      ['endpoints web 0.4'],
    ],
    [
      'slices and Endpoints are measured apart',
      [...both(0, 'a'), terminating(100, 'a'), slice(300, {}), endpoints(900, [])],
      ['slice web 0.2', 'endpoints web 0.8'],
    ],
    [
      'a bare DELETED is a start',
      [slice(0, { a: 'ready' }), deleted(100, 'a'), slice(500, {})],
      ['slice web 0.4'],
    ],
    [
      'the first sign counts: further ones, a second delete, the DELETED at the end',
      [
        slice(0, { a: 'ready' }),
        terminating(100, 'a'),
        terminating(200, 'a'),
        terminating(300, 'a'),
        deleted(400, 'a'),
        slice(500, {}),
      ],
      ['slice web 0.4'],
    ],
    [
      'an end is told once: it goes from terminating to absent',
      [
        slice(0, { a: 'ready' }),
        terminating(100, 'a'),
        slice(500, { a: 'terminating' }),
        slice(700, { a: 'terminating' }),
        slice(900, {}),
        deleted(950, 'a'),
      ],
      ['slice web 0.4'],
    ],
    [
      'an update of the object that still lists it is no end',
      [
        slice(0, { a: 'ready' }),
        terminating(100, 'a'),
        slice(200, { a: 'ready', b: 'ready' }),
        slice(500, {}),
      ],
      ['slice web 0.4'],
    ],
    [
      'several pods in one update',
      [...both(0, 'a', 'b'), terminating(100, 'a'), terminating(200, 'b'), slice(500, {})],
      ['slice web 0.4', 'slice web 0.3'],
    ],
  ]);

  it('the sample says when, of which pod and in which namespace', () => {
    const { samples } = recorded(slice(0, { a: 'ready' }), terminating(100, 'a'), slice(500, {}));
    const of = { stage: 'EndpointSlice', namespace: 'shop', name: 'web', uid: 'a' };
    expect(samples).toEqual([{ ...of, lag: 0.4, at: 500 }]);
  });
});

describe('what does not list the pod as ready at that instant is not measured', () => {
  specify([
    ['nobody lists it', [terminating(100, 'a')], []],
    ['it was not ready', [slice(0, { a: 'notReady' }), terminating(100, 'a'), slice(500, {})], []],
    [
      'it had become not ready long before',
      [slice(0, { a: 'ready' }), slice(10, { a: 'notReady' }), terminating(9_000, 'a'), slice(9_500, {})],
      [],
    ],
    [
      'it became not ready just before: a readiness flip',
      [slice(0, { a: 'ready' }), slice(90, { a: 'notReady' }), terminating(100, 'a'), slice(500, {})],
      [],
    ],
    [
      'in Endpoints, too',
      [endpoints(0, ['a']), endpoints(90, [], ['a']), terminating(100, 'a'), endpoints(500, [])],
      [],
    ],
    [
      'it is listed only afterwards, by a slice that lags behind',
      [terminating(100, 'a'), slice(200, { a: 'ready' }), terminating(300, 'a'), slice(500, {})],
      [],
    ],
    [
      'readiness flips of a living pod',
      [slice(0, { a: 'ready' }), slice(1, { a: 'notReady' }), slice(2, { a: 'ready' })],
      [],
    ],
    [
      'one that flipped and came back is ready at that instant',
      [
        slice(0, { a: 'ready' }),
        slice(1, { a: 'notReady' }),
        slice(2, { a: 'ready' }),
        terminating(100, 'a'),
        slice(500, {}),
      ],
      ['slice web 0.4'],
    ],
    [
      'endpoints without a pod’s uid',
      [slice(0, {}, { endpoints: [{ ready: true }] }), terminating(1, 'a'), slice(2, {})],
      [],
    ],
  ]);
});

describe('the withdrawal may show before the termination does', () => {
  specify([
    [
      'up to 250 ms: a lag of 0',
      [slice(0, { a: 'ready' }), slice(1_000, { a: 'terminating' }), terminating(1_250, 'a')],
      ['slice web 0'],
    ],
    [
      'beyond: discarded',
      [slice(0, { a: 'ready' }), slice(1_000, { a: 'terminating' }), terminating(1_251, 'a')],
      [],
      { Inversion: 1 },
    ],
    [
      'the pod is gone from the list already',
      [endpoints(0, ['a']), endpoints(1_000, []), terminating(1_100, 'a')],
      ['endpoints web 0'],
    ],
    [
      'and a bare DELETED comes',
      [endpoints(0, ['a']), endpoints(1_000, []), deleted(1_100, 'a')],
      ['endpoints web 0'],
    ],
    [
      'one of the two objects was early',
      [...both(0, 'a'), slice(1_000, { a: 'terminating' }), terminating(1_100, 'a'), endpoints(1_400, [])],
      ['slice web 0', 'endpoints web 0.3'],
    ],
    [
      'it was back in the list before it terminated',
      [
        slice(0, { a: 'ready' }),
        slice(1_000, {}),
        slice(1_010, { a: 'ready' }),
        terminating(1_100, 'a'),
        slice(1_500, {}),
      ],
      ['slice web 0.4'],
    ],
    [
      'a withdrawal of long ago is forgotten',
      [endpoints(0, ['a']), endpoints(1_000, []), slice(12_000, { b: 'ready' }), terminating(12_001, 'a')],
      [],
    ],
  ]);

  it('a pod that was taken out by a change of its labels was not taken out by its end', () => {
    const selecting = [...ALL_CURRENT, service({ selector: { app: 'web' } })];
    const events = (labels: Record<string, string>) => [
      endpoints(0, ['a']),
      endpoints(1_000, []),
      terminating(1_100, 'a', labels),
    ];
    expect(recordedFrom(selecting, events({ app: 'debug' })).lags).toEqual([]);
    expect(recordedFrom(selecting, events({ app: 'web' })).lags).toEqual(['endpoints web 0']);
  });
});
