import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { waitUntil } from '../testbed/waiting.ts';
import type { ModelApiServer } from './api-server.ts';
import { type Arena, describeEvent, observe } from './arena.ts';
import type { Fault } from './gateway.ts';
import { itListsAndWatches } from './list-watch-behaviours.ts';
import { openModel } from './model-arena.ts';
import { seeded, soak } from './soak.ts';

vi.setConfig({ testTimeout: 60_000 });

const soon = (what: string, look: () => boolean) =>
  waitUntil(what, look, { intervalMs: 5, timeoutMs: 30_000 });
const NAMES = ['a', 'b', 'c', 'd', 'e', 'f', 'g'];

async function withObjects(
  names: readonly string[] = NAMES,
): Promise<{ arena: Arena; model: ModelApiServer }> {
  const opened = await openModel();
  for (const name of names) opened.model.put(name, '1');
  return opened;
}

describe('against a model API server', () => {
  itListsAndWatches(async () => (await openModel()).arena, true);

  it('sees what the server has after a few seconds of random faults', async () => {
    const { arena } = await openModel();
    const seed = 20_260_101;
    const outcome = await soak(arena, { durationMs: 4_000, changeMs: 5, faultMs: 60, random: seeded(seed) });
    expect(outcome.lists).toBeGreaterThan(1);
    expect(outcome.restarts.Cut).toBeGreaterThan(0);
  });
});

describe('a list', () => {
  it('is a consistent read of limited pages, over one connection', async () => {
    const { arena } = await withObjects();
    const { upToDate } = observe(arena);
    await upToDate();
    const pages = arena.gateway.requests('list').filter(({ parameters }) => parameters.get('limit') === '3');
    expect(pages).toHaveLength(3);
    expect(pages.every(({ parameters }) => !parameters.has('resourceVersion'))).toBe(true);
    expect(new Set(pages.map(({ port }) => port)).size).toBe(1);
  });

  it.each<{ name: string; fault: Fault }>([
    { name: '429', fault: { status: 429 } },
    { name: '500', fault: { status: 500 } },
    { name: 'a proxy that says 502 in HTML', fault: { status: 502, body: '<html>' } },
    { name: '200 and half a page', fault: { status: 200, body: '{"metadata":{"resourceVe' } },
  ])('asks for a page again that was answered with $name', async ({ fault }) => {
    const { arena } = await withObjects();
    arena.gateway.failNext('list', fault);
    const { upToDate, watch, changes, failures } = observe(arena);
    await upToDate();
    expect(failures).toHaveLength(1);
    expect(watch.stats.lists).toBe(1);
    expect(changes.filter(({ type }) => type === 'ListBegins')).toHaveLength(1);
  });

  it('goes on with the page that failed, not from the beginning', async () => {
    const { arena } = await withObjects();
    const pass = { parameters: {} };
    arena.gateway.failNext('list', pass, { status: 503 });
    const { upToDate, events } = observe(arena);
    await upToDate();
    expect(events.map(describeEvent)).toEqual(NAMES.map((name) => `added ${name} (listed)`));
  });

  it('starts over, with larger pages, when its continuation has expired', async () => {
    const { arena, model } = await withObjects();
    let listed = 0;
    const { upToDate, changes, watch } = observe(arena, {
      onEvent: () => {
        listed += 1;
        if (listed !== 3) return;
        model.remove('a');
        model.compact();
      },
    });
    await upToDate();
    const limits = arena.gateway.requests('list').map(({ parameters }) => parameters.get('limit'));
    expect(limits.filter((limit) => limit !== '1')).toEqual(['3', '3', '6']);
    expect(changes.map(({ type }) => type)).toEqual([
      'ListBegins',
      'ListBegins',
      'ListEnds',
      'StreamCurrent',
    ]);
    expect(watch.stats).toMatchObject({ lists: 1, objects: 6 });
  });

  it('gives up an answer that stops in the middle', async () => {
    const { arena } = await withObjects();
    arena.gateway.failNext('list', 'hang');
    const { upToDate, failures } = observe(arena, { limits: { answerMs: 200 } });
    await upToDate();
    expect(failures.map(({ reason }) => reason)).toEqual(['Unreachable']);
  });
});

describe('a watch', () => {
  it('asks for bookmarks and a timeout within its range, each on a new connection', async () => {
    const { arena, model } = await withObjects();
    const { upToDate } = observe(arena);
    for (let round = 0; round < 8; round++) {
      await upToDate();
      const before = arena.gateway.requests('watch').length;
      arena.gateway.endWatches();
      await soon('the next watch', () => arena.gateway.requests('watch').length > before);
    }
    const watches = arena.gateway.requests('watch');
    const timeouts = watches.map(({ parameters }) => Number(parameters.get('timeoutSeconds')));
    expect(Math.min(...timeouts)).toBeGreaterThanOrEqual(240);
    expect(Math.max(...timeouts)).toBeLessThanOrEqual(300);
    expect(new Set(timeouts).size).toBeGreaterThan(1);
    expect(new Set(watches.map(({ port }) => port)).size).toBe(watches.length);
    expect(watches.every(({ parameters }) => parameters.get('allowWatchBookmarks') === 'true')).toBe(true);
    // The server would close idle ones itself, after 5 s.
    const alone = () => arena.gateway.connections === 1;
    await waitUntil('the connections of before to be closed', alone, { intervalMs: 5, timeoutMs: 3_000 });
    expect(new Set(watches.map(({ parameters }) => parameters.get('resourceVersion')))).toEqual(
      new Set([String(model.revision)]),
    );
  });

  it('resumes from the last bookmark', async () => {
    const { arena, model } = await withObjects();
    const { upToDate, watch } = observe(arena);
    await upToDate();
    for (let count = 0; count < 5; count++) model.writeElsewhere();
    model.compact();
    model.bookmark();
    await soon('the bookmark', () => watch.stats.bookmarks === 1);
    arena.gateway.cut();
    await soon('another watch', () => arena.gateway.requests('watch').length === 2);
    await upToDate();
    expect(arena.gateway.requests('watch')[1]?.parameters.get('resourceVersion')).toBe(
      String(model.revision),
    );
    expect(watch.stats.lists).toBe(1);
  });

  it('takes a bookmark for a sign of life', async () => {
    const { arena, model } = await withObjects();
    const bookmarks = setInterval(() => model.bookmark(), 50);
    onTestFinished(() => clearInterval(bookmarks));
    const { watch } = observe(arena, { limits: { silenceMs: 1_000 } });
    await soon('more bookmarks than fit into the limit', () => watch.stats.bookmarks > 30);
    expect(watch.stats).toMatchObject({ events: 0, restarts: { Silent: 0 } });
  });

  it('lists again after a second ERROR event in a row', async () => {
    const { arena } = await withObjects();
    const { upToDate, watch } = observe(arena);
    await upToDate();
    const error = {
      status: 200,
      body: '{"type":"ERROR","object":{"code":500,"message":"broken for good"}}\n',
    };
    arena.gateway.failNext('watch', error, error, error);
    arena.gateway.cut();
    await soon('another list', () => watch.stats.lists === 2);
    await upToDate();
    expect(watch.stats.restarts).toMatchObject({ ErrorEvent: 3, Expired: 0 });
  });

  it('lists again when the server has gone back in time', async () => {
    const { arena, model } = await withObjects();
    const { upToDate, watch, failures } = observe(arena);
    await upToDate();
    model.rollBack(5);
    arena.gateway.cut();
    await soon('another list', () => watch.stats.lists === 2);
    await upToDate();
    expect(failures.map(({ reason }) => reason)).toEqual(['Cut', 'Expired']);
  });

  it('is not current before it has brought what had piled up', async () => {
    const { arena, model } = await withObjects();
    const { upToDate, changes, events } = observe(arena);
    await upToDate();
    arena.gateway.refusing = true;
    arena.gateway.endWatches();
    await soon('the watch to be gone', () => arena.gateway.openWatches === 0);
    for (let count = 0; count < 500; count++) model.put('a', String(count));
    events.length = 0;
    arena.gateway.refusing = false;
    await upToDate();
    const lastOfThePile = events.at(-1)?.at ?? Number.POSITIVE_INFINITY;
    expect(events).toHaveLength(500);
    expect(changes.at(-1)).toMatchObject({ type: 'StreamCurrent' });
    expect(changes.at(-1)?.at).toBeGreaterThanOrEqual(lastOfThePile);
  });

  it('is current under churn that never pauses', async () => {
    const { arena, model } = await withObjects();
    const churn = setInterval(() => model.put('a', String(performance.now())), 5);
    onTestFinished(() => clearInterval(churn));
    const { watch } = observe(arena);
    await soon('the watch to be current', () => watch.stats.current);
  });
});

describe('what a handler throws', () => {
  it.each([
    { name: 'onEvent', options: { onEvent: fail } },
    { name: 'a projection', options: { onProject: fail } },
  ])('is counted and reported, and the watch goes on: $name', async ({ options }) => {
    const { arena, model } = await withObjects();
    const { watch, errors } = observe(arena, options);
    await soon('the list', () => watch.stats.lists === 1);
    model.put('h', '1');
    await soon('the event', () => watch.stats.handlerErrors === 8);
    expect(errors.map(({ message }) => message)).toEqual(Array(8).fill('a mistake'));
    expect(watch.stats).toMatchObject({ objects: 8, restarts: { Internal: 0, Malformed: 0 } });
  });
});

describe('the signal', () => {
  it.each<{ name: string; fault: Fault }>([
    { name: 'waiting for a list', fault: 'hang' },
    { name: 'pausing', fault: { status: 429, headers: { 'retry-after': '50' } } },
  ])('ends it while it is $name', async ({ fault }) => {
    const { arena } = await withObjects();
    arena.gateway.fault = () => fault;
    const { stop, watch } = observe(arena);
    await soon('the request', () => arena.gateway.seen.length > 0);
    const began = performance.now();
    await stop();
    expect(performance.now() - began).toBeLessThan(1_000);
    await soon('every connection to be closed', () => arena.gateway.connections === 0);
    expect(watch.stats.state).toBe('ended');
  });

  it('ends it right after the start, before any watch', async () => {
    const { arena } = await withObjects();
    const { stop } = observe(arena);
    await stop();
    expect(arena.gateway.requests('watch')).toEqual([]);
    await soon('every connection to be closed', () => arena.gateway.connections === 0);
  });
});

function fail(): never {
  throw new Error('a mistake');
}
