import { expect, test } from 'vitest';
import type { AuditEvent } from '../../testbed/cluster.ts';
import { trueRemovals } from './endpoint-history.ts';

/** An answer 10 ms after the request, at so many milliseconds of some second. */
function answered(
  at: number,
  verb: string,
  resource: string,
  name: string,
  more: Partial<AuditEvent> = {},
): AuditEvent {
  const stamp = (ms: number) =>
    `2026-01-01T00:00:${String(Math.floor(ms / 1000)).padStart(2, '0')}.${String(ms % 1000).padStart(3, '0')}000Z`;
  return {
    auditID: '',
    stage: 'ResponseComplete',
    verb,
    user: { username: 'somebody' },
    objectRef: { resource, namespace: 'shop', name },
    responseStatus: { code: 200 },
    requestReceivedTimestamp: stamp(at - 10),
    stageTimestamp: stamp(at),
    ...more,
  };
}

const target = (name: string) => ({ targetRef: { kind: 'Pod', name, uid: `uid of ${name}` } });

function slice(
  at: number,
  name: string,
  ready: readonly string[],
  notReady: readonly string[] = [],
): AuditEvent {
  const endpoints = [
    ...ready.map((pod) => ({ ...target(pod), conditions: { ready: true } })),
    ...notReady.map((pod) => ({ ...target(pod), conditions: { ready: false } })),
  ];
  const labels = { 'kubernetes.io/service-name': 'web' };
  const requestObject = { metadata: { name, labels }, addressType: 'IPv4', endpoints };
  return answered(at, 'update', 'endpointslices', name, { requestObject });
}

function endpoints(at: number, ready: readonly string[]): AuditEvent {
  const requestObject = { metadata: { name: 'web' }, subsets: [{ addresses: ready.map(target) }] };
  return answered(at, 'update', 'endpoints', 'web', { requestObject });
}

const deleted = (at: number, pod: string, more: Partial<AuditEvent> = {}) =>
  answered(at, 'delete', 'pods', pod, more);

/** Stage, pod and the milliseconds from start to end. */
function told(...events: readonly AuditEvent[]): readonly (readonly [string, string, number | undefined])[] {
  return trueRemovals(events).map(({ stage, pod, start, end }) => [
    stage,
    pod,
    end === undefined ? undefined : Math.round(end - start),
  ]);
}

const SLICE = 'EndpointSlice';

const CASES: readonly [string, readonly AuditEvent[], ReturnType<typeof told>][] = [
  [
    'a pod that is left out',
    [slice(0, 's', ['a', 'b']), deleted(1000, 'a'), slice(1040, 's', ['b'])],
    [[SLICE, 'a', 40]],
  ],
  [
    'a pod that is listed as not ready',
    [slice(0, 's', ['a']), deleted(1000, 'a'), slice(1040, 's', [], ['a'])],
    [[SLICE, 'a', 40]],
  ],
  [
    'a slice that is deleted',
    [slice(0, 's', ['a']), deleted(1000, 'a'), answered(1040, 'delete', 'endpointslices', 's')],
    [[SLICE, 'a', 40]],
  ],
  [
    'both stages',
    [
      slice(0, 's', ['a']),
      endpoints(0, ['a']),
      deleted(1000, 'a'),
      slice(1040, 's', []),
      endpoints(1060, []),
    ],
    [
      [SLICE, 'a', 40],
      ['Endpoints', 'a', 60],
    ],
  ],
  [
    'a pod that moves to another slice first',
    [
      slice(0, 's', ['a']),
      deleted(1000, 'a'),
      slice(1020, 't', ['a']),
      slice(1030, 's', []),
      slice(1040, 't', []),
    ],
    [[SLICE, 'a', 40]],
  ],
  [
    'a second deletion',
    [slice(0, 's', ['a']), deleted(1000, 'a'), slice(1040, 's', []), deleted(2000, 'a')],
    [[SLICE, 'a', 40]],
  ],
  ['a pod that was not ready', [slice(0, 's', [], ['a']), deleted(1000, 'a'), slice(1040, 's', [])], []],
  ['a pod that nobody withdraws', [slice(0, 's', ['a']), deleted(1000, 'a')], [[SLICE, 'a', undefined]]],
  [
    'a withdrawal that is answered before the deletion is',
    [slice(0, 's', ['a']), slice(995, 's', []), deleted(1000, 'a')],
    [[SLICE, 'a', -5]],
  ],
  [
    'a write that was refused',
    [
      slice(0, 's', ['a']),
      deleted(1000, 'a'),
      { ...slice(1020, 's', []), responseStatus: { code: 409 } },
      slice(1040, 's', []),
    ],
    [[SLICE, 'a', 40]],
  ],
  [
    'a slice that the API server has named',
    [
      answered(0, 'create', 'endpointslices', 's', {
        ...slice(0, 's', ['a']),
        verb: 'create',
        objectRef: { resource: 'endpointslices', namespace: 'shop' },
        responseObject: { metadata: { name: 's' } },
      }),
      deleted(1000, 'a'),
      slice(1040, 's', []),
    ],
    [[SLICE, 'a', 40]],
  ],
];

test.each(CASES)('%s', (_, events, removals) => {
  // Logs of several servers come one after the other.
  const seen = told(...events.toReversed()).toSorted();
  expect(seen).toEqual(removals);
});

test('the pod is known by its uid, too', () => {
  const events = [slice(0, 's', ['a', 'b']), deleted(1000, 'a'), slice(1040, 's', ['b'])];
  expect(trueRemovals(events).map(({ uid }) => uid)).toEqual(['uid of a']);
});
