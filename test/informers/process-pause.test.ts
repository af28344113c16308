import { expect, it } from 'vitest';
import { newStats } from '../../src/cluster/index.ts';
import { type GuardedChange, ProcessPauseGuard } from '../../src/informers/process-pause.ts';

type Look = readonly [now: number, said: { readonly since: number } | 'recovered' | undefined];

/** A guard of one stream, which is current, and what it says at each look. */
function guarded() {
  const changes: GuardedChange[] = [];
  const options = { clock: () => 0, signal: AbortSignal.abort() };
  const guard = new ProcessPauseGuard((change) => void changes.push(change), options);
  const watch = { stats: { ...newStats(), current: true }, ended: Promise.resolve() };
  guard.follow('pods', { onEvent: () => undefined }, () => watch);
  return (now: number): Look[1] => {
    guard.look(now);
    const said = changes.splice(0);
    expect(said.length).toBeLessThanOrEqual(1);
    const [change] = said;
    if (change === undefined) return undefined;
    expect(change).toMatchObject({ stream: 'pods', stoodStill: true });
    if (change.type === 'StreamBroken') return { since: change.at };
    expect(change).toMatchObject({ type: 'StreamCurrent', at: now });
    return 'recovered';
  };
}

it.each<{ name: string; looks: readonly Look[] }>([
  {
    name: 'none',
    looks: [
      [0, undefined],
      [100, undefined],
      [200, undefined],
    ],
  },
  {
    name: 'a pause that is tolerated',
    looks: [
      [0, undefined],
      [1_000, undefined],
    ],
  },
  {
    name: 'it counts from the last look, and is over when nothing has happened for a while',
    looks: [
      [100, undefined],
      [1_101, { since: 100 }],
      [1_900, undefined],
      [2_600, undefined],
      [3_100, undefined],
      [3_101, 'recovered'],
      [3_200, undefined],
    ],
  },
])('$name', ({ looks }) => {
  const look = guarded();
  for (const [now, said] of looks) expect(look(now)).toEqual(said);
});

it('another one, before the first is over, starts over', () => {
  const look = guarded();
  for (const now of [0, 1_500, 2_000]) look(now);
  expect(look(3_400)).toEqual({ since: 2_000 });
  expect(look(4_000)).toBeUndefined();
  expect(look(4_900)).toBeUndefined();
  expect(look(5_400)).toBe('recovered');
});
