import { once } from 'node:events';
import { createServer } from 'node:http';
import { PassThrough, Readable } from 'node:stream';
import { describe, expect, it, onTestFinished } from 'vitest';
import { run } from '../../src/cli/index.ts';
import { exitCodeOf } from '../../src/cli/prove.ts';
import { confirmed, type ProveSetting } from '../../src/cli/prove-run.ts';
import type { AtEnd } from '../webhook/connection.ts';
import { listening } from '../webhook/listening.ts';
import { environment, linger } from './linger.ts';
import { writeKubeconfig } from './watching.ts';

describe('linger prove refuses before it asks anything', () => {
  it.each([
    ['to send nothing', ['--urls-only'], '--urls-only: expected a --url'],
    [
      'two gateways of one name',
      ['--url', 'http://shop.example/a', '--url', 'http://shop.example/b'],
      '--url: expected different names, got "shop.example" twice',
    ],
    [
      'more ways than a sender takes',
      [
        '--url-from',
        'cluster',
        '--url',
        Array.from({ length: 15 }, (_, index) => `http://${index}.example`).join(','),
      ],
      '--url: expected at most 14 from the cluster, got 15',
    ],
    ['a timeout that senders refuse', ['--timeout', '90s'], '--timeout: expected 10ms to 60s'],
    ['no timeout', ['--timeout', '0'], '--timeout: expected 10ms to 60s'],
    ['a header that HTTP cannot carry', ['--header', 'X-Name: →'], '--header: expected NAME:VALUE'],
  ])('%s', async (_, flags, problem) => {
    const { code, stderr } = await linger(['prove', 'deployment/web', '--kubeconfig', '/none', ...flags]);
    expect([code, stderr]).toEqual([2, expect.stringContaining(problem)]);
  });
});

it('takes the end of input for a no', { timeout: 5_000 }, async () => {
  const surroundings = { stdin: Readable.from([]), interactive: true, warn: () => undefined };
  const setting = { settings: { yes: false }, surroundings, stopping: new AbortController() };
  const asked = confirmed('rollout of deployment/web', setting as unknown as ProveSetting);
  await expect(asked).rejects.toThrow('not confirmed; nothing was done');
});

/** A run that waits for its API server. */
async function waitingRun(isTTY: boolean) {
  const silent = createServer();
  const url = new URL(`http://127.0.0.1:${await listening(silent)}`);
  const kubeconfig = await writeKubeconfig(url, {}, onTestFinished as AtEnd);
  const asked = once(silent, 'request');
  const [stdin, stdout, stderr] = [new PassThrough(), new PassThrough(), new PassThrough()];
  const streams = {
    stdin: Object.assign(stdin, { isTTY }),
    stdout,
    stderr: Object.assign(stderr, { isTTY }),
  };
  const args = ['prove', 'deployment/web', '--yes', '--kubeconfig', kubeconfig];
  const ended = run(args, environment(), { name: 'linger', version: '1' }, streams);
  await asked;
  return async () => [await ended, String(stderr.read())];
}

/** With the exit code that a shell has for a program which the signal ended. */
const clearedUp = (code: number) => [
  code,
  expect.stringContaining('interrupted; what was created is removed'),
];

it.each([
  ['SIGINT', 130],
  ['SIGTERM', 143],
  ['SIGHUP', 129],
] as const)('clears up on %s, and ends with %i', async (signal, code) => {
  const ended = await waitingRun(true);
  expect(process.emit(signal, signal)).toBe(true);
  if (signal === 'SIGHUP') process.emit(signal, signal);
  expect(await ended()).toEqual(clearedUp(code));
});

it('does not listen for the end of a terminal that it does not have, as under nohup', async () => {
  const ended = await waitingRun(false);
  expect(process.emit('SIGHUP', 'SIGHUP')).toBe(false);
  process.emit('SIGINT', 'SIGINT');
  expect(await ended()).toEqual(clearedUp(130));
});

it.each([
  ['nothing was lost', { lost: 0, upperBound: 0.01 }, 0],
  ['more was lost than may be', { lost: 3, upperBound: null }, 3],
  ['no more was lost than may be', { lost: 2, upperBound: null }, 0],
  ['nothing was proved', { lost: 0, upperBound: null }, 1],
])('ends with the exit code of what was found: %s', (_, found, code) => {
  expect(exitCodeOf(found, 2)).toBe(code);
});
