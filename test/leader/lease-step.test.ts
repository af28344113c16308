import { describe, expect, it } from 'vitest';
import {
  type LeaseStep,
  nextLeaseStep,
  observeLease,
  recordAfter,
  releasedRecord,
  type WritingStep,
} from '../../src/leader/election.ts';
import type { LeaseRecord } from '../../src/leader/lease.ts';

const SECOND = 1_000_000;
const NOON = Date.UTC(2026, 10, 21, 12) * 1000;

const record = (change: Partial<LeaseRecord> = {}): LeaseRecord => ({
  holder: 'a',
  durationSeconds: 15,
  transitions: 7,
  acquiredAt: NOON - 60 * SECOND,
  renewedAt: NOON,
  ...change,
});

describe('nextLeaseStep, for b, with a lease of 15 s', () => {
  interface Case {
    readonly name: string;
    readonly there: LeaseRecord | undefined;
    /** Seconds since it was first seen. */
    readonly age: number;
    readonly leading?: boolean;
    readonly acquired?: boolean;
    readonly step: LeaseStep;
  }
  const ours = record({ holder: 'b' });
  const nobodys = record({ holder: '' });
  it.each<Case>([
    { name: 'held by another', there: record(), age: 14.999, step: { do: 'follow', holder: 'a' } },
    { name: 'held by another, not renewed', there: record(), age: 15, step: { do: 'take' } },
    { name: 'released', there: record({ holder: '', durationSeconds: 1 }), age: 0, step: { do: 'take' } },
    { name: 'ours', there: ours, age: 0, acquired: true, step: { do: 'renew' } },
    { name: 'ours, long expired', there: ours, age: 3_600, acquired: true, step: { do: 'renew' } },
    { name: 'ours without our knowing', there: ours, age: 14.9, step: { do: 'follow', holder: 'b' } },
    { name: 'ours without our knowing, not renewed', there: ours, age: 15, step: { do: 'take' } },
    { name: 'newly made and held by nobody', there: nobodys, age: 14.9, step: { do: 'follow', holder: '' } },
    { name: 'made and held by nobody all the time', there: nobodys, age: 15, step: { do: 'take' } },
    { name: 'held by nobody, while we lead', there: nobodys, age: 0, leading: true, step: { do: 'take' } },
    {
      name: 'of a longer duration',
      there: record({ durationSeconds: 30 }),
      age: 29,
      step: { do: 'follow', holder: 'a' },
    },
    {
      name: 'of a longer duration, over',
      there: record({ durationSeconds: 30 }),
      age: 30,
      step: { do: 'take' },
    },
    {
      name: 'of a shorter duration',
      there: record({ durationSeconds: 1 }),
      age: 2,
      step: { do: 'follow', holder: 'a' },
    },
    { name: 'of an absurd duration', there: record({ durationSeconds: 1e9 }), age: 60, step: { do: 'take' } },
    { name: 'not there', there: undefined, age: 0, step: { do: 'prepare' } },
    { name: 'not there for long', there: undefined, age: 60, step: { do: 'prepare' } },
    { name: 'not there, while we lead', there: undefined, age: 0, leading: true, step: { do: 'create' } },
    {
      name: 'taken while we believe to lead',
      there: record(),
      age: 0,
      leading: true,
      step: { do: 'follow', holder: 'a' },
    },
  ])('$name, seen $age s ago: $step.do', ({ there, age, leading = false, acquired = false, step }) => {
    const now = 5_000_000;
    const observed = { record: there, since: now - age * 1000 };
    const acquiredAt = acquired ? there?.acquiredAt : undefined;
    const candidate = { identity: 'b', leading, acquiredAt };
    expect(nextLeaseStep(observed, now, candidate, 15_000)).toEqual(step);
  });
});

describe('a lease counts as renewed', () => {
  const before = { record: record(), since: 1_000 };
  it.each<{ name: string; seen: LeaseRecord | undefined; renewed: boolean }>([
    { name: 'when its renewal has changed', seen: record({ renewedAt: NOON + 1 }), renewed: true },
    { name: 'even if that went back', seen: record({ renewedAt: NOON - SECOND }), renewed: true },
    { name: 'when its holder has changed', seen: record({ holder: 'c' }), renewed: true },
    { name: 'when it has vanished', seen: undefined, renewed: true },
    { name: 'not when it is the same', seen: record(), renewed: false },
  ])('$name', ({ seen, renewed }) => {
    expect(observeLease(before, seen, 9_000).since).toBe(renewed ? 9_000 : 1_000);
  });

  it('since it was first seen', () => {
    expect(observeLease(undefined, record(), 9_000)).toEqual({ record: record(), since: 9_000 });
    expect(observeLease({ record: undefined, since: 5 }, undefined, 9_000).since).toBe(5);
  });
});

describe('recordAfter', () => {
  const later = NOON + 5 * SECOND;
  const day = 86_400 * SECOND;
  const writer = { identity: 'b', wallMicroseconds: later, durationMs: 15_000 };
  const ours = (change: Partial<LeaseRecord> = {}) => record({ holder: 'b', ...change });

  interface Case {
    readonly name: string;
    readonly step: WritingStep;
    readonly last: LeaseRecord | undefined;
    readonly least?: number;
    readonly next: Partial<LeaseRecord>;
  }
  it.each<Case>([
    { name: 'the first ever', step: 'prepare', last: undefined, next: { transitions: 0 } },
    { name: 'after one that has vanished', step: 'prepare', last: record(), next: { transitions: 7 } },
    { name: 'a change of holder', step: 'take', last: record(), next: { transitions: 8, acquiredAt: later } },
    { name: 'after a release', step: 'take', last: record({ holder: '' }), next: { transitions: 8 } },
    { name: 'ours, vanished', step: 'create', last: ours(), next: { transitions: 7, acquiredAt: later } },
    {
      name: 'a renewal',
      step: 'renew',
      last: ours(),
      next: { transitions: 7, acquiredAt: NOON - 60 * SECOND, renewedAt: later },
    },
    { name: 'a term to outgrow', step: 'renew', last: ours(), least: 12, next: { transitions: 12 } },
    {
      name: 'a clock that was set back',
      step: 'renew',
      last: ours({ renewedAt: later + SECOND }),
      next: { renewedAt: later + SECOND + 1 },
    },
    {
      name: 'a renewal in the same microsecond',
      step: 'renew',
      last: ours({ renewedAt: later }),
      next: { renewedAt: later + 1 },
    },
    {
      name: 'a renewal from far ahead',
      step: 'renew',
      last: ours({ renewedAt: later + 2 * day }),
      next: { renewedAt: later },
    },
  ])('$step: $name', ({ step, last, least = 0, next }) => {
    const written = recordAfter(step, last, { ...writer, leastTransitions: least });
    expect(written).toMatchObject({ holder: step === 'prepare' ? '' : 'b', durationSeconds: 15, ...next });
    expect(written.renewedAt).not.toBe(last?.renewedAt);
  });
});

it('a released lease has no holder, and expires after a second for clients that do not know this', () => {
  const released = releasedRecord(record(), NOON + SECOND);
  expect(released).toMatchObject({
    holder: '',
    durationSeconds: 1,
    transitions: 7,
    renewedAt: NOON + SECOND,
  });
});
