import { describe, expect, it } from 'vitest';
import type { ClusterEvent } from '../../../src/core/lag/events.ts';
import { MOST_REMOVALS } from '../../../src/core/lag/recorder.ts';
import { deleted, recorded, service, slice, terminating } from './sample-events.ts';

const EVIL = { namespace: 'evil' };
const SERVICES = Array.from({ length: 300 }, (_, index) => `web-${index}`);
const PODS = Array.from({ length: 100 }, (_, index) => `evil-${index}`);

/** The same event in the attacker's namespace. */
function evil(event: ClusterEvent): ClusterEvent {
  return 'pod' in event ? { ...event, pod: { ...event.pod, ...EVIL } } : event;
}

/** Every Service of the attacker lists the same pods, and all of these terminate: 30,000 removals, and 25,000 are followed. */
const listings = SERVICES.flatMap((name) => [
  service({ ...EVIL, name }),
  slice(0, Object.fromEntries(PODS.map((uid) => [uid, 'ready'])), { ...EVIL, name, serviceName: name }),
]);
const flood = [...listings, ...PODS.map((uid) => evil(terminating(1, uid)))];
const withdrawals = SERVICES.map((name) => slice(2, {}, { ...EVIL, name, serviceName: name }));

const removal = [slice(3, { a: 'ready' }), terminating(100, 'a'), slice(600, {})];
const MEASURED = ['slice web 0.5'];

describe('a tenant who opens removals without end', () => {
  it('leaves half of the places to others, whose removals are measured', () => {
    const { recorder, lags, discarded } = recorded(...flood, ...removal);
    expect(recorder.size.open).toBe(MOST_REMOVALS / 2);
    expect(lags).toEqual(MEASURED);
    expect(discarded).toEqual({ TooMany: SERVICES.length * PODS.length - MOST_REMOVALS / 2 });
    expect([...recorder.leftOut]).toEqual([['evil', SERVICES.length * PODS.length - MOST_REMOVALS / 2]]);
  });

  it('gets no new places for pods that stay, and all of them back once the pods are gone', () => {
    const again = PODS.map((uid) => evil(terminating(4, `more-${uid}`)));
    const more = SERVICES.map((name) =>
      slice(3, Object.fromEntries(PODS.map((uid) => [`more-${uid}`, 'ready'])), {
        ...EVIL,
        name,
        serviceName: name,
      }),
    );
    const { recorder, lags } = recorded(...flood, ...withdrawals, ...more, ...again, ...removal);
    expect(recorder.size.open).toBe(0);
    expect(lags.filter((lag) => lag === MEASURED[0])).toEqual(MEASURED);
    for (const uid of PODS) for (const pod of [uid, `more-${uid}`]) recorder.apply(evil(deleted(700, pod)));
    for (const name of SERVICES) recorder.apply(slice(701, {}, { ...EVIL, name, serviceName: name }));
    expect(recorder.leftOut.size).toBe(0);
    for (const event of [...more, ...again]) recorder.apply(event);
    expect(recorder.size.open).toBe(MOST_REMOVALS / 2);
  });

  it('makes nobody forget a withdrawal that shows shortly before its termination', () => {
    const many = (from: number) =>
      Object.fromEntries(Array.from({ length: 1_000 }, (_, index) => [`${from + index}`, 'ready'] as const));
    const lists = Array.from({ length: 40 }, (_, index) => [
      slice(90, many(index * 1_000), { ...EVIL, name: 'web-0', serviceName: 'web-0' }),
      slice(91, {}, { ...EVIL, name: 'web-0', serviceName: 'web-0' }),
    ]).flat();
    const early = [slice(0, { a: 'ready' }), slice(80, {}), ...lists, terminating(100, 'a')];
    expect(recorded(...early).lags).toEqual(['slice web 0']);
  });
});

describe('an object that names the uid of another namespace’s pod', () => {
  const forged = { ...EVIL, name: 'web-0', serviceName: 'web-0' };

  it('neither lists it, nor keeps its removal open, nor withdraws it', () => {
    const events = [service({ ...EVIL, name: 'web-0' }), slice(0, { a: 'ready' }, forged)];
    const { recorder, lags, unresolved } = recorded(...events, ...removal);
    expect(lags).toEqual(MEASURED);
    expect(unresolved).toEqual([]);
    expect(recorder.listing({ namespace: 'shop', uid: 'a' })).toEqual([]);
    recorder.apply(deleted(700, 'a'));
    expect(recorder.size.pods).toBe(1);
    const early = [slice(0, { a: 'ready' }, forged), slice(90, {}, forged), terminating(100, 'a')];
    expect(recorded(service({ ...EVIL, name: 'web-0' }), ...early).lags).toEqual([]);
  });
});

describe('a slice without room', () => {
  it('is unknown: what is missing from it gives no sample', () => {
    const events = [slice(0, { a: 'ready' }), terminating(100, 'a'), slice(600, {}, { unread: true })];
    const { recorder, lags, discarded, unresolved } = recorded(...events);
    expect({ lags, discarded, unresolved }).toEqual({
      lags: [],
      discarded: { OverCapacity: 1 },
      unresolved: [],
    });
    expect([recorder.hasUnread('shop'), recorder.hasUnread('evil')]).toEqual([true, false]);
    recorder.apply(slice(700, { b: 'ready' }));
    expect(recorder.hasUnread('shop')).toBe(false);
    recorder.apply(terminating(800, 'b'));
    expect(recorder.apply(slice(900, {})).removals).toHaveLength(1);
  });

  it('makes its Service’s other slices unknown, too', () => {
    const other = { name: 'web-2', unread: true } as const;
    const events = [slice(0, { a: 'ready' }), slice(1, {}, other), terminating(100, 'a'), slice(600, {})];
    expect(recorded(...events)).toMatchObject({ lags: [], discarded: { OverCapacity: 1 } });
  });
});
