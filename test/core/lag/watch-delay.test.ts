import { describe, expect, it } from 'vitest';
import type { Acknowledged, Heartbeat, HeartbeatStream } from '../../../src/core/lag/events.ts';
import { WatchDelay } from '../../../src/core/lag/watch-delay.ts';

const NONE: Acknowledged = { number: 0, at: 0 };

/** Heartbeats of one writer, whose clock is as far from ours as it likes. */
class Written {
  readonly delay = new WatchDelay();
  readonly #life: string;
  #number = 0;

  constructor(life = 'leader') {
    this.#life = life;
  }

  /** @param committed of the pods' stream, which heartbeat the API server is known to have stored by when */
  arrives(
    sentAt: number,
    at: number,
    committed = NONE,
    { stream = 'pods', current = true }: { stream?: HeartbeatStream; current?: boolean } = {},
  ): number {
    this.#number += 1;
    const acknowledged = { pods: committed, EndpointSlice: NONE, Endpoints: NONE };
    const heartbeat: Heartbeat = { life: this.#life, number: this.#number, sentAt, acknowledged };
    this.delay.heartbeat(stream, heartbeat, at, current);
    return this.#number;
  }
}

describe('the clock of a writer', () => {
  it('is ahead or behind by the least that a heartbeat has taken', () => {
    const { delay } = new Written();
    expect(delay.heartbeatAt('')).toBe(Number.NEGATIVE_INFINITY);
    const written = new Written();
    written.arrives(1_000, 5_300);
    written.arrives(2_000, 6_010);
    written.arrives(3_000, 7_500);
    expect(written.delay.heartbeatAt('')).toBe(3_000 + 4_010);
    expect(written.delay.heartbeatAt('leader')).toBe(Number.NEGATIVE_INFINITY);
  });

  it('may drift: a heartbeat from more than ten minutes before says nothing of it', () => {
    const written = new Written();
    written.arrives(0, 10);
    written.arrives(599_950, 600_000);
    expect(written.delay.heartbeatAt('')).toBe(599_960);
    written.arrives(599_961, 600_011);
    expect(written.delay.heartbeatAt('')).toBe(600_011);
  });

  it('is known from the last 128 heartbeats', () => {
    const written = new Written();
    written.arrives(0, 10);
    for (let each = 1; each < 128; each += 1) written.arrives(each * 1_000, each * 1_000 + 50);
    expect(written.delay.heartbeatAt('')).toBe(127_010);
    written.arrives(128_000, 128_050);
    expect(written.delay.heartbeatAt('')).toBe(128_050);
  });
});

describe('how late an event was', () => {
  it('is as much as the heartbeat after it, from its acknowledgement on', () => {
    const written = new Written();
    const first = written.arrives(1_000, 1_010);
    expect(written.delay.lateness('pods', 1_005)).toBeUndefined();
    written.delay.wrote('leader', 'pods', { number: first, at: 1_005 });
    expect(written.delay.lateness('pods', 1_005)).toBe(0);
    const second = written.arrives(2_000, 2_900);
    written.delay.wrote('leader', 'pods', { number: second, at: 2_010 });
    expect(written.delay.lateness('pods', 2_500)).toBe(2_900 - 2_010 - 10);
    expect(written.delay.lateness('pods', 2_901)).toBeUndefined();
    expect(written.delay.lateness('EndpointSlice', 2_500)).toBeUndefined();
  });

  it('is as much as the heartbeat before it, if that is no older than 2.5 s', () => {
    const written = new Written();
    const numbers = [written.arrives(0, 10), written.arrives(2_000, 3_000), written.arrives(6_000, 6_010)];
    for (const [index, at] of [5, 2_005, 6_005].entries())
      written.delay.wrote('leader', 'pods', { number: numbers[index] ?? 0, at });
    const late = 3_000 - 2_005 - 10;
    expect(written.delay.lateness('pods', 5_500)).toBe(late);
    expect(written.delay.lateness('pods', 5_501)).toBe(0);
  });

  it('is what the earliest acknowledgement says', () => {
    const written = new Written();
    const first = written.arrives(1_000, 1_010);
    written.delay.wrote('leader', 'pods', { number: first, at: 1_400 });
    // A later heartbeat acknowledges the same, and knows it from earlier.
    written.arrives(2_000, 2_010, { number: first, at: 900 });
    expect(written.delay.lateness('pods', 1_010)).toBe(1_010 - 900 - 10);
    written.arrives(3_000, 3_010, { number: first, at: 950 });
    expect(written.delay.lateness('pods', 1_010)).toBe(1_010 - 900 - 10);
  });

  it('is not known from heartbeats of a list, nor of before an interruption', () => {
    const written = new Written();
    const listed = written.arrives(1_000, 1_010, NONE, { current: false });
    written.delay.wrote('leader', 'pods', { number: listed, at: 1_005 });
    expect(written.delay.lateness('pods', 1_005)).toBeUndefined();
    const watched = written.arrives(2_000, 2_010);
    written.delay.wrote('leader', 'pods', { number: watched, at: 2_005 });
    written.delay.forget('EndpointSlice');
    expect(written.delay.lateness('pods', 2_005)).toBe(0);
    written.delay.forget('pods');
    expect(written.delay.lateness('pods', 2_005)).toBeUndefined();
  });
});

describe('a heartbeat that does not come', () => {
  it('is overdue from its acknowledgement on, until it or a later one comes', () => {
    const written = new Written();
    written.arrives(1_000, 1_010);
    written.delay.wrote('leader', 'pods', { number: 2, at: 2_000 });
    written.delay.wrote('leader', 'pods', { number: 3, at: 3_000 });
    expect(written.delay.awaits('pods')).toBe(true);
    expect(written.delay.awaits('EndpointSlice')).toBe(false);
    expect(written.delay.behind('pods', 4_000)).toBe(4_000 - 2_000 - 10);
    expect(written.delay.behind('pods', 2_005)).toBe(0);
    written.arrives(2_000, 4_000);
    expect(written.delay.behind('pods', 4_500)).toBe(4_500 - 3_000 - 10);
    written.arrives(3_000, 4_100);
    expect(written.delay.behind('pods', 4_500)).toBe(0);
    expect(written.delay.awaits('pods')).toBe(false);
  });

  it('is owed once, and not by what was delivered before', () => {
    const written = new Written();
    written.arrives(1_000, 1_010);
    written.delay.wrote('leader', 'pods', { number: 1, at: 1_005 });
    written.delay.wrote('leader', 'pods', NONE);
    expect(written.delay.behind('pods', 9_000)).toBe(0);
    written.delay.wrote('leader', 'pods', { number: 2, at: 2_000 });
    written.delay.wrote('leader', 'pods', { number: 2, at: 5_000 });
    expect(written.delay.behind('pods', 9_000)).toBe(9_000 - 2_000 - 10);
    written.delay.forget('pods');
    expect(written.delay.behind('pods', 9_000)).toBe(0);
  });
});

it('remembers four writers', () => {
  const delay = new WatchDelay();
  const acknowledged = { pods: NONE, EndpointSlice: NONE, Endpoints: NONE };
  for (const life of ['a', 'b', 'c', 'd', 'e']) {
    delay.wrote(life, 'pods', { number: 1, at: 0 });
    delay.heartbeat('EndpointSlice', { life, number: 1, sentAt: 0, acknowledged }, 10, true);
  }
  for (const life of ['b', 'c', 'd', 'e'])
    delay.heartbeat('pods', { life, number: 1, sentAt: 0, acknowledged }, 10, true);
  // What the first of them has written is not awaited.
  expect(delay.awaits('pods')).toBe(false);
});
