import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { leaseObject, leaseRecordOf, microTimeOf, microTimeText } from '../../src/leader/lease.ts';

describe('MicroTime', () => {
  it.each([
    [0, '1970-01-01T00:00:00.000000Z'],
    [1, '1970-01-01T00:00:00.000001Z'],
    [1_795_262_400_120_003, '2026-11-21T12:00:00.120003Z'],
  ])('%i is %s', (microseconds, text) => {
    expect(microTimeText(microseconds)).toBe(text);
    expect(microTimeOf(text)).toBe(microseconds);
  });

  it.each([
    '',
    '2026-11-21T12:00:00Z',
    '2026-11-21T12:00:00.123Z',
    '2026-99-99T12:00:00.000000Z',
    7,
    null,
    undefined,
  ])('%j is none', (text) => expect(microTimeOf(text)).toBeUndefined());

  it('comes back as it was written', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 4_102_444_800_000_000 }), (microseconds) => {
        expect(microTimeOf(microTimeText(microseconds))).toBe(microseconds);
      }),
    );
  });
});

describe('a Lease', () => {
  const metadata = { name: 'linger', resourceVersion: '5', labels: { team: 'a' } };
  const object = { apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', metadata };

  it.each([
    ['no spec', undefined],
    ['an empty spec', {}],
    ['forged transitions', { leaseTransitions: 2_147_483_647 }],
  ])('with %s was never held', (_name, spec) => {
    expect(leaseRecordOf(spec === undefined ? object : { ...object, spec })).toEqual({
      holder: '',
      durationSeconds: 0,
      transitions: 0,
      acquiredAt: undefined,
      renewedAt: undefined,
    });
  });

  it('is written over what is there, and keeps what is not ours', () => {
    const spec = { holderIdentity: 'a', strategy: 'OldestEmulationVersion' };
    const record = {
      holder: 'b',
      durationSeconds: 15,
      transitions: 3,
      acquiredAt: 1_000_000,
      renewedAt: 2_000_001,
    };
    const written = leaseObject('linger', record, { ...object, spec });
    expect(written).toEqual({
      ...object,
      spec: {
        strategy: 'OldestEmulationVersion',
        holderIdentity: 'b',
        leaseDurationSeconds: 15,
        leaseTransitions: 3,
        acquireTime: '1970-01-01T00:00:01.000000Z',
        renewTime: '1970-01-01T00:00:02.000001Z',
      },
    });
    expect(leaseRecordOf(written)).toEqual(record);
  });
});
