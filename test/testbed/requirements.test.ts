import { expect, test } from 'vitest';
import { unlocked } from './requirements.ts';

const TRIES = { times: 4, pauseMs: 1 };
const LOCKED = 'E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)';

test.each([
  ['is free', [['', 0]], 1, 0],
  [
    'is held for a while',
    [
      [LOCKED, 100],
      [LOCKED, 100],
      ['', 0],
    ],
    3,
    0,
  ],
  ['is held for ever', [[LOCKED, 100]], 4, 100],
  ['is not what fails', [['E: Unable to locate package x', 100]], 1, 100],
] as const)('a package lock that %s', async (_, answers, times, code) => {
  let tries = 0;
  const last = await unlocked(async () => {
    const [stderr, of] = answers[Math.min(tries, answers.length - 1)]!;
    tries += 1;
    return { stderr, code: of };
  }, TRIES);
  expect([tries, last.code]).toEqual([times, code]);
});
