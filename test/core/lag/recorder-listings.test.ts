import { describe, expect, it } from 'vitest';
import { both, specify } from './recorder-specification.ts';
import {
  ALL_CURRENT,
  deleted,
  endpoints,
  recorded,
  recordedFrom,
  service,
  serviceDeleted,
  slice,
  sliceDeleted,
  terminating,
} from './sample-events.ts';

const IPV6 = { name: 'web-6', addressType: 'IPv6' };
const SECOND = { name: 'web-2' };
const MIRRORED = { managedBy: 'endpointslicemirroring-controller.k8s.io' };

describe('pods in several places', () => {
  const api = { name: 'api-1', serviceName: 'api' };
  it('each Service that lists it gives a sample', () => {
    const seen = recorded(
      service({ name: 'api' }),
      slice(0, { a: 'ready' }),
      slice(0, { a: 'ready' }, api),
      terminating(100, 'a'),
      slice(200, {}),
      slice(300, {}, api),
    );
    expect(seen.lags).toEqual(['slice web 0.1', 'slice api 0.2']);
  });

  specify([
    [
      'dual-stack: each address family',
      [
        slice(0, { a: 'ready' }),
        slice(0, { a: 'ready' }, IPV6),
        terminating(100, 'a'),
        slice(200, {}),
        slice(400, {}, IPV6),
      ],
      ['slice web 0.1', 'slice web 0.3'],
    ],
    [
      'several slices of one family: the last that lists it',
      [
        slice(0, { a: 'ready' }),
        slice(0, { a: 'ready' }, SECOND),
        terminating(100, 'a'),
        slice(200, {}),
        slice(400, { a: 'terminating' }, SECOND),
      ],
      ['slice web 0.3'],
    ],
    [
      'moved to another slice while it is still ready: no end',
      [
        slice(0, { a: 'ready' }),
        terminating(100, 'a'),
        slice(200, { a: 'ready' }, SECOND),
        slice(210, {}),
        slice(900, {}, SECOND),
      ],
      ['slice web 0.8'],
    ],
    [
      'moved before it terminated',
      [
        slice(0, { a: 'ready' }),
        slice(20, {}),
        slice(30, { a: 'ready' }, SECOND),
        terminating(100, 'a'),
        slice(900, {}, SECOND),
      ],
      ['slice web 0.8'],
    ],
    [
      'taken out of one slice and put into the next afterwards: the sample was too short, and that is counted',
      [
        slice(0, { a: 'ready' }),
        terminating(100, 'a'),
        slice(200, {}),
        slice(210, { a: 'ready' }, SECOND),
        slice(900, {}, SECOND),
      ],
      ['slice web 0.1'],
      { Relisted: 1 },
    ],
    [
      'two subsets of one Endpoints: ready in one is ready',
      [
        endpoints(0, ['a', 'a'], ['a']),
        terminating(100, 'a'),
        endpoints(200, ['a'], ['a']),
        endpoints(300, [], ['a']),
      ],
      ['endpoints web 0.2'],
    ],
    [
      'a slice that changes to another Service leaves the first',
      [
        slice(0, { a: 'ready' }),
        terminating(100, 'a'),
        slice(300, { a: 'ready' }, { serviceName: 'other' }),
        slice(500, {}, { serviceName: 'other' }),
      ],
      ['slice web 0.2'],
    ],
  ]);
});

describe('names and addresses are reused, uids are not', () => {
  specify([
    [
      'a StatefulSet’s next pod of that name does not prolong the removal of the first',
      [
        slice(0, { a: 'ready' }),
        terminating(100, 'a'),
        slice(400, { a2: 'ready' }),
        terminating(500, 'a2'),
        slice(700, {}),
      ],
      ['slice web 0.3', 'slice web 0.2'],
    ],
    [
      'the end of one that nobody lists says nothing about its successor',
      [slice(0, { a2: 'ready' }), terminating(100, 'a'), deleted(200, 'a'), slice(400, {})],
      [],
    ],
  ]);
});

describe('never sampled', () => {
  it('Services that publish not-ready addresses', () => {
    const seen = recorded(
      service({ publishNotReadyAddresses: true }),
      ...both(0, 'a'),
      terminating(100, 'a'),
      slice(30_000, {}),
    );
    expect(seen).toMatchObject({ lags: [], discarded: { NeverWithdrawn: 2 }, unresolved: [] });
  });

  it('nor those that begin to while a removal is under way', () => {
    const seen = recorded(
      slice(0, { a: 'ready' }),
      terminating(100, 'a'),
      service({ publishNotReadyAddresses: true }, 200),
      slice(30_000, {}),
    );
    expect(seen).toMatchObject({ lags: [], discarded: { NeverWithdrawn: 1 }, unresolved: [] });
  });

  it.each([undefined, {}])('Services whose selector is %j: their slices stay as they are', (selector) => {
    const seen = recorded(
      service({ selector }),
      ...both(0, 'a'),
      terminating(100, 'a'),
      service({ selector: { app: 'web' } }, 25_000),
      slice(25_100, {}),
      endpoints(25_100, []),
    );
    expect(seen).toMatchObject({ lags: [], discarded: { NoSelector: 2 }, unresolved: [] });
  });

  it.each([undefined, { app: 'other' }])('nor those whose selector becomes %j meanwhile', (selector) => {
    const seen = recorded(
      ...both(0, 'a'),
      terminating(100, 'a'),
      service({ selector }, 200),
      service({}, 25_000),
      slice(25_100, {}),
      endpoints(25_100, []),
    );
    expect(seen).toMatchObject({ lags: [], discarded: { NoSelector: 2 }, unresolved: [] });
  });

  it('objects of a Service that is not known', () => {
    const seen = recordedFrom(ALL_CURRENT, [...both(0, 'a'), terminating(100, 'a'), slice(300, {})]);
    expect(seen).toMatchObject({ lags: [], discarded: { NoService: 2 }, unresolved: [] });
  });

  specify([
    [
      'objects of a Service that is deleted meanwhile: they are garbage, collected some time',
      [slice(0, { a: 'ready' }), terminating(100, 'a'), serviceDeleted(200), sliceDeleted(30_000)],
      [],
      { NoService: 1 },
    ],
    [
      'truncated Endpoints',
      [
        endpoints(0, ['a'], [], { overCapacity: true }),
        terminating(100, 'a'),
        endpoints(300, [], [], { overCapacity: true }),
      ],
      [],
      { OverCapacity: 1 },
    ],
    [
      'Endpoints that are truncated when the pod disappears',
      [endpoints(0, ['a']), terminating(100, 'a'), endpoints(300, [], [], { overCapacity: true })],
      [],
      { OverCapacity: 1 },
    ],
    [
      'a pod that truncation hid just before its end',
      [endpoints(0, ['a']), endpoints(90, [], [], { overCapacity: true }), terminating(100, 'a')],
      [],
    ],
    [
      'Endpoints that are no longer truncated are measured again',
      [
        endpoints(0, ['a'], [], { overCapacity: true }),
        endpoints(50, ['a']),
        terminating(100, 'a'),
        endpoints(300, []),
      ],
      ['endpoints web 0.2'],
    ],
    [
      'mirrored slices, even with the uid of a pod of ours',
      [slice(0, { a: 'ready' }, MIRRORED), terminating(100, 'a'), slice(300, {}, MIRRORED)],
      [],
    ],
    [
      'slices of a Service without a selector that name our pod are: consumers read them',
      [
        service({ name: 'copy' }),
        slice(0, { a: 'ready' }, { serviceName: 'copy', managedBy: 'copier' }),
        terminating(100, 'a'),
        slice(300, {}, { serviceName: 'copy', managedBy: 'copier' }),
      ],
      ['slice copy 0.2'],
    ],
  ]);
});
