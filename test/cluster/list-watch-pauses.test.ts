import { describe, expect, it, vi } from 'vitest';
import { waitUntil } from '../testbed/waiting.ts';
import { type Arena, observe } from './arena.ts';
import { bearer } from './bearer.ts';
import type { Fault, Seen } from './gateway.ts';
import { openModel } from './model-arena.ts';

vi.setConfig({ testTimeout: 60_000 });

const soon = (what: string, look: () => boolean) =>
  waitUntil(what, look, { intervalMs: 5, timeoutMs: 30_000 });

async function withObjects(count = 4): Promise<{ arena: Arena }> {
  const { arena, model } = await openModel();
  for (let index = 0; index < count; index++) model.put(`object-${index}`, '1');
  return { arena };
}

describe('pauses', () => {
  it('follow Retry-After', async () => {
    const { arena } = await withObjects();
    const { upToDate } = observe(arena);
    await upToDate();
    arena.gateway.failNext('watch', { status: 429, headers: { 'retry-after': '1' } });
    arena.gateway.endWatches();
    await soon('the watch after', () => arena.gateway.requests('watch').length === 3);
    const [, refused, next] = arena.gateway.requests('watch');
    expect((next?.at ?? 0) - (refused?.at ?? 0)).toBeGreaterThanOrEqual(1_000);
  });

  it('follow Retry-After when the question how far behind a watch is meets it', async () => {
    const { arena } = await withObjects();
    const asked: Seen[] = [];
    arena.gateway.fault = (seen) => {
      if (seen.parameters.get('limit') !== '1') return undefined;
      asked.push(seen);
      return asked.length <= 2 ? { status: 429, headers: { 'retry-after': '1' } } : undefined;
    };
    const { upToDate } = observe(arena);
    await upToDate();
    expect(asked).toHaveLength(3);
    expect(gapsReached(asked, [1_000, 1_000])).toBe(true);
  });

  it.each<{ name: string; fault: Fault }>([
    { name: 'ends at once, in good order', fault: { status: 200 } },
    { name: 'is forbidden', fault: { status: 403 } },
    { name: 'expires at once', fault: { status: 410 } },
  ])('grow while every watch $name', async ({ fault }) => {
    const { arena } = await withObjects();
    arena.gateway.fault = ({ kind }) => (kind === 'watch' ? fault : undefined);
    const limits = { healthyMs: 30_000, firstPauseMs: 40, longestPauseMs: 320 };
    observe(arena, { limits });
    await soon('six watches', () => arena.gateway.requests('watch').length >= 6);
    expect(gapsReached(arena.gateway.requests('watch'), [20, 40, 80, 160, 160])).toBe(true);
  });

  it('grow while no list gets beyond its first page', async () => {
    const { arena } = await withObjects(60);
    arena.gateway.fault = ({ parameters }) => (parameters.has('continue') ? { status: 410 } : undefined);
    const { upToDate } = observe(arena, { limits: { firstPauseMs: 40, longestPauseMs: 320 } });
    await upToDate();
    const first = ({ parameters }: Seen) => !parameters.has('continue') && parameters.get('limit') !== '1';
    const lists = arena.gateway.requests('list').filter(first);
    expect(lists.map(({ parameters }) => parameters.get('limit'))).toEqual([
      '3',
      '6',
      '12',
      '24',
      '48',
      '96',
    ]);
    expect(gapsReached(lists, [20, 40, 80, 160, 160])).toBe(true);
  });
});

/** Whether requests are at least so many milliseconds apart: the lower ends of 20–40, 40–80, … 160–320. */
function gapsReached(requests: readonly Seen[], least: readonly number[]): boolean {
  // Timers may fire a fraction of a millisecond early.
  return least.every((ms, index) => (requests[index + 1]?.at ?? 0) - (requests[index]?.at ?? 0) >= ms - 1);
}

describe('credentials', () => {
  it('are read again after a 401, as a rotated token needs', async () => {
    const { arena } = await withObjects();
    let token = 'old';
    arena.gateway.fault = ({ headers }) =>
      headers.authorization === 'Bearer new'
        ? undefined
        : { status: 401, body: '{"message":"Unauthorized"}' };
    const { upToDate, watch, failures } = observe(arena, { credentials: async () => bearer(token) });
    await soon('a refusal', () => failures.length > 0);
    token = 'new';
    await upToDate();
    expect(failures.every(({ reason }) => reason === 'Unauthorized')).toBe(true);
    expect(watch.stats.lists).toBe(1);
  });

  it('that cannot be read now are asked for again later', async () => {
    const { arena } = await withObjects();
    let missing = true;
    const credentials = async () => {
      if (missing) throw new Error('the file is away');
      return {};
    };
    const { upToDate, failures } = observe(arena, { credentials });
    await soon('a failure', () => failures.length > 0);
    missing = false;
    await upToDate();
    expect(failures[0]).toMatchObject({
      reason: 'Unauthorized',
      message: 'no credentials: the file is away',
    });
  });
});
