import { describe, expect, test } from 'vitest';
import { type Shortfall, ShortfallLog, shortfallOf, shortfallsIn } from '../../src/audit/shortfalls.ts';
import type { RemovalSample } from '../../src/lag/events.ts';

/** A removal by two Services: of one after a second, of the other after `lag`. */
function removal(lag: number): RemovalSample {
  const common = { stage: 'EndpointSlice', namespace: 'shop', uid: 'u1', at: 0, version: '1' } as const;
  return {
    ...{ namespace: 'shop', pod: 'web-1', uid: 'u1', lag, at: 0 },
    withdrawals: [
      { ...common, name: 'quick', lag: 1 },
      { ...common, name: 'slow', lag },
    ],
  };
}

const told = (lag: number, wait: number | undefined, grace?: number) => {
  const pod = { owner: 'Deployment/web', wait, grace };
  const found = shortfallOf(removal(lag), pod, 1_000);
  return found && [found.seconds, found.at, found.services.join()];
};

describe('a shortfall is the lag less the time until SIGTERM', () => {
  test.each<[string, Parameters<typeof told>, ReturnType<typeof told>]>([
    ['stopped long after', [12, 30], undefined],
    ['stopped at the same instant', [12, 12], undefined],
    ['by less than two watches differ', [12.2, 12], undefined],
    ['stopped before', [51.5, 30], [21.5, 978.5, 'slow']],
    ['without a hook', [12, 0], [12, 988, 'quick,slow']],
    ['a grace that was cut ends the wait', [12, 30, 5], [7, 993, 'slow']],
    ['a grace that was not', [12, 30, 60], undefined],
    ['a hook of which nothing is known accuses nobody', [500, undefined], undefined],
  ])('%s', (_title, given, expected) => expect(told(...given)).toEqual(expected));
});

function shortfall(at: number, uid = String(at)): Shortfall {
  const of = { namespace: 'shop', pod: `web-${uid}`, uid, owner: '', services: ['web'] };
  return { ...of, at, wait: 1, lag: 3.000_04, seconds: 2.000_04 };
}

describe('the log of shortfalls', () => {
  test('is empty text while there is nothing, and the same text until something is added', () => {
    const log = new ShortfallLog();
    expect(log.text).toBe('');
    log.add(shortfall(10));
    const { text } = log;
    log.add(shortfall(10));
    expect(log.text).toBe(text);
    log.add(shortfall(11));
    expect(log.text).not.toBe(text);
  });

  test('what one leader has written the next one goes on with, each pod once', () => {
    const [before, after] = [new ShortfallLog(), new ShortfallLog()];
    before.add(shortfall(10), shortfall(20));
    after.add(shortfall(20), shortfall(30));
    expect(after.restore(JSON.parse(before.text))).toBe(true);
    expect(after.since(0).map(({ at }) => at)).toEqual([10, 20, 30]);
    expect(after.since(15).map(({ at }) => at)).toEqual([20, 30]);
  });

  test('keeps a week, and of very many the latest, within a ConfigMap', () => {
    const log = new ShortfallLog();
    log.add(shortfall(0, 'old'), shortfall(8 * 86_400, 'new'));
    expect(log.since(0)).toHaveLength(1);
    log.add(...Array.from({ length: 5_000 }, (_, index) => shortfall(9 * 86_400 + index)));
    expect(log.since(0)).toHaveLength(2_000);
    expect(log.since(0).at(-1)?.at).toBe(9 * 86_400 + 4_999);
    expect(log.text.length).toBeLessThan(900_000);
  });

  test.each([
    undefined,
    {},
    { v: 2, shortfalls: [] },
    { v: 1, shortfalls: [{}] },
    { v: 1, shortfalls: [{ ...shortfall(1), services: 'web' }] },
    { v: 1, shortfalls: [{ ...shortfall(1), at: 'now' }] },
  ])('refuses what it has not written: %j', (json) => {
    expect(shortfallsIn(json)).toBeUndefined();
    expect(new ShortfallLog().restore(json)).toBeUndefined();
  });
});
