import { describe, expect, it } from 'vitest';
import { type StreamPosition, untilCurrent } from '../../src/cluster/reflector.ts';
import { Backoff } from '../../src/timing/index.ts';

interface Case {
  readonly name: string;
  /** The answers to what is latest; the last is repeated. */
  readonly latest: readonly (string | Error)[];
  /** What the watch has reached, and whether something has just come, at each look; the last is repeated. */
  readonly looks: readonly (readonly [resourceVersion: string, busy: boolean])[];
  readonly expected: boolean | 'rolledBack';
  readonly asked: number;
}

/** How far the watch's clock moves with each look; it does not move otherwise. */
const STEP_MS = 40;
const limits = { currentWithinMs: 100, currentRetryMs: 1 };
const backoff = new Backoff({ firstPauseMs: 1, longestPauseMs: 1 }, () => 0);

function scripted({ latest, looks }: Case) {
  let now = 1_000;
  let heardAt = now;
  let asked = 0;
  let looked = 0;
  const position = (): StreamPosition => {
    const [resourceVersion, busy] = looks[Math.min(looked++, looks.length - 1)] ?? ['', false];
    now += STEP_MS;
    if (busy) heardAt = now;
    return { resourceVersion, heardAt };
  };
  const ask = async () => {
    const answer = latest[Math.min(asked++, latest.length - 1)] ?? '';
    if (answer instanceof Error) throw answer;
    return answer;
  };
  return { position, latest: ask, clock: () => now, asked: () => asked };
}

const busyAt = (resourceVersion: string, times: number) =>
  Array(times).fill([resourceVersion, true] as const);

describe('a watch is current', () => {
  it.each<Case>([
    {
      name: 'when it reaches the latest version at once',
      latest: ['50'],
      looks: [
        ['40', true],
        ['50', true],
      ],
      expected: true,
      asked: 1,
    },
    {
      name: 'when versions have more digits than a double',
      latest: ['90071992547409931'],
      looks: [
        ['90071992547409930', true],
        ...busyAt('90071992547409930', 4),
        ['90071992547409931', true],
        ['90071992547409931', true],
      ],
      expected: true,
      asked: 2,
    },
    {
      name: 'when nothing comes although there is a later version: it is of something else',
      latest: ['50'],
      looks: [['40', false]],
      expected: true,
      asked: 1,
    },
    {
      name: 'only at the next attempt when it reached the version too late',
      latest: ['50', '90'],
      looks: [['40', true], ...busyAt('45', 9), ['50', true], ['80', true], ['90', true]],
      expected: true,
      asked: 2,
    },
    {
      name: 'not by silence alone: the server must have answered',
      latest: [new Error('away'), new Error('away'), '40'],
      looks: [['40', false]],
      expected: true,
      asked: 3,
    },
    {
      name: 'by silence where versions are no numbers',
      latest: ['v-b'],
      looks: [['v-a', true], ...busyAt('v-a', 3), ['v-a', false]],
      expected: true,
      asked: 1,
    },
    {
      name: 'never when the server is behind what it has seen',
      latest: ['39'],
      looks: [['40', false]],
      expected: 'rolledBack',
      asked: 1,
    },
  ])('$name', async (each) => {
    const { asked, ...script } = scripted(each);
    const { signal } = new AbortController();
    expect(await untilCurrent({ ...script, limits, backoff, signal })).toBe(each.expected);
    expect(asked()).toBe(each.asked);
  });

  it('no more once the signal has aborted', async () => {
    const stopping = new AbortController();
    const latest = async () => {
      stopping.abort();
      return '50';
    };
    const position = () => ({ resourceVersion: '50', heardAt: 0 });
    const { signal } = stopping;
    expect(await untilCurrent({ position, latest, limits, backoff, clock: () => 0, signal })).toBe(false);
  });
});
