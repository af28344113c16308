import { expect, it } from 'vitest';
import type { FailureReason } from '../../src/cluster/failure.ts';
import { waitUntil } from '../testbed/waiting.ts';
import { type Arena, describeEvent, type Observed, observe } from './arena.ts';
import type { Fault, Gateway } from './gateway.ts';

const soon = (what: string, look: () => boolean) =>
  waitUntil(what, look, { intervalMs: 5, timeoutMs: 30_000 });

const status = (code: number, message: string) =>
  JSON.stringify({ kind: 'Status', apiVersion: 'v1', status: 'Failure', code, message });
const errorEvent = (code: number) => `{"type":"ERROR","object":${status(code, 'injected')}}\n`;
const answers = (code: number): Fault => ({ status: code, body: status(code, 'injected') });

interface Interruption {
  /** It takes a server that has forgotten its first resourceVersion. */
  readonly needsHistory?: boolean;
  readonly name: string;
  readonly reason: FailureReason;
  readonly interrupt: (gateway: Gateway) => void;
  /** Milliseconds that a watch may be silent, where that matters. */
  readonly silenceMs?: number;
}

/** Nothing is lost, so nothing is listed again. */
const RESUMED: readonly (Interruption & { readonly said: 'StreamBroken' | 'StreamRotated' })[] = [
  { name: 'a reset', reason: 'Cut', said: 'StreamBroken', interrupt: (gateway) => gateway.cut() },
  {
    name: 'an end in good order',
    reason: 'Ended',
    said: 'StreamRotated',
    interrupt: (gateway) => gateway.endWatches(),
  },
  {
    name: 'an end in the middle of a line',
    reason: 'Cut',
    said: 'StreamBroken',
    interrupt: (gateway) => {
      gateway.inject('{"type":"MODIFIED","object":');
      gateway.endWatches();
    },
  },
  {
    name: 'silence without a FIN',
    reason: 'Silent',
    said: 'StreamRotated',
    silenceMs: 500,
    interrupt: (gateway) => gateway.silenceWatches(),
  },
  {
    name: 'an ERROR event other than 410',
    reason: 'ErrorEvent',
    said: 'StreamBroken',
    interrupt: (gateway) => gateway.inject(errorEvent(500)),
  },
  {
    name: 'an ERROR event with 429',
    reason: 'Throttled',
    said: 'StreamBroken',
    interrupt: (gateway) => gateway.inject(errorEvent(429)),
  },
  ...[
    [429, 'Throttled'],
    [500, 'ServerError'],
    [503, 'ServerError'],
    [401, 'Unauthorized'],
    [403, 'Forbidden'],
  ].map(([code, reason]) => ({
    name: `${code} for the next three watches`,
    reason: reason as FailureReason,
    said: 'StreamRotated' as const,
    interrupt: (gateway: Gateway) => {
      gateway.failNext('watch', ...Array<Fault>(3).fill(answers(Number(code))));
      gateway.endWatches();
    },
  })),
];

/** The place where the watch stopped is lost, so everything is listed again. */
const RELISTED: readonly Interruption[] = [
  {
    name: 'the server has forgotten the resourceVersion',
    reason: 'Expired',
    needsHistory: true,
    interrupt: (gateway) => {
      gateway.failNext('watch', { parameters: { resourceVersion: '1' } });
      gateway.cut();
    },
  },
  {
    name: 'the watch is answered with 410',
    reason: 'Expired',
    interrupt: (gateway) => {
      gateway.failNext('watch', answers(410));
      gateway.cut();
    },
  },
  {
    name: 'an ERROR event with 410',
    reason: 'Expired',
    interrupt: (gateway) => gateway.inject(errorEvent(410)),
  },
  {
    name: 'the watch is answered with 400',
    reason: 'Refused',
    interrupt: (gateway) => {
      gateway.failNext('watch', answers(400));
      gateway.cut();
    },
  },
  {
    name: 'a line that is not JSON',
    reason: 'Malformed',
    interrupt: (gateway) => gateway.inject('{"type":\n'),
  },
  {
    name: 'an event without an object',
    reason: 'Malformed',
    interrupt: (gateway) => gateway.inject('{"type":"ADDED"}\n'),
  },
];

/** While nobody can connect: one object changes, one goes, one comes, one goes and comes again under its name. */
async function changeUnseen(arena: Arena, observed: Observed, interrupt: (gateway: Gateway) => void) {
  const { gateway } = arena;
  gateway.refusing = true;
  interrupt(gateway);
  await soon('the watch to be gone', () => gateway.openWatches === 0);
  observed.events.length = 0;
  await arena.put('changed', '2');
  await arena.remove('gone');
  await arena.put('new', '1');
  await arena.remove('replaced');
  await arena.put('replaced', 'again');
  gateway.refusing = false;
}

async function begin(openArena: () => Promise<Arena>, silenceMs = 60_000) {
  const arena = await openArena();
  for (const name of ['changed', 'gone', 'replaced', 'same']) await arena.put(name, '1');
  const observed = observe(arena, { limits: { silenceMs } });
  await observed.upToDate();
  return { arena, observed };
}

/**
 * What holds against any API server: a model of one, and the real one.
 * @param forgets whether the server no longer remembers its first resourceVersion. One that has just booted does: its
 *   watch cache begins there, and drops nothing that is younger than 75 s.
 */
export function itListsAndWatches(openArena: () => Promise<Arena>, forgets: boolean): void {
  it('lists in pages, then brings each change', async () => {
    const arena = await openArena();
    const names = ['a', 'b', 'c', 'd', 'e', 'f', 'g'];
    for (const name of names) await arena.put(name, '1');
    const { events, changes, watch, upToDate } = observe(arena);
    await upToDate();
    const listed = events.filter((event) => 'listed' in event && event.listed).map(describeEvent);
    expect(listed.sort()).toEqual(expect.arrayContaining(names.map((name) => `added ${name} (listed)`)));
    expect(changes.map(({ type }) => type)).toEqual(['ListBegins', 'ListEnds', 'StreamCurrent']);
    expect(
      arena.gateway.requests('list').filter(({ parameters }) => parameters.has('continue')).length,
    ).toBeGreaterThan(1);
    events.length = 0;
    await arena.put('a', '2');
    await arena.put('h', '1');
    await arena.remove('b');
    await upToDate();
    expect(events.map(describeEvent)).toEqual(['modified a', 'added h', 'deleted b']);
    const { lists, objects, handlerErrors } = watch.stats;
    const { size } = await arena.truth();
    expect({ lists, objects, handlerErrors }).toEqual({ lists: 1, objects: size, handlerErrors: 0 });
  });

  it.each(RESUMED)('resumes where it was after $name', async ({ interrupt, reason, said, silenceMs }) => {
    const { arena, observed } = await begin(openArena, silenceMs);
    const { changes, events, watch, upToDate } = observed;
    changes.length = 0;
    await changeUnseen(arena, observed, interrupt);
    await upToDate();
    expect(watch.stats.restarts[reason]).toBeGreaterThan(0);
    expect(watch.stats.lists).toBe(1);
    expect(changes[0]?.type).toBe(said);
    expect(changes.at(-1)?.type).toBe('StreamCurrent');
    expect(events.map(describeEvent)).toEqual([
      'modified changed',
      'deleted gone',
      'added new',
      'deleted replaced',
      'added replaced',
    ]);
  });

  it('says that a silent connection was dead before it brings what was missed, and since when', async () => {
    const { arena, observed } = await begin(openArena, 500);
    const { changes, events, watch, upToDate } = observed;
    changes.length = 0;
    events.length = 0;
    arena.gateway.silenceWatches();
    const silencedAt = performance.now();
    await arena.put('changed', '2');
    await soon('the silence to be noticed', () => watch.stats.restarts.Silent > 0);
    await upToDate();
    expect(changes.map(({ type }) => type)).toEqual(['StreamRotated', 'StreamBroken', 'StreamCurrent']);
    expect(changes[1]?.at).toBeLessThanOrEqual(silencedAt);
    expect(events.map(describeEvent)).toEqual(['modified changed']);
    expect(watch.stats).toMatchObject({ stalls: 1, lists: 1 });
  });

  it('resumes a watch that has nothing to tell, and takes it for no interruption', async () => {
    const { observed } = await begin(openArena, 500);
    const { changes, watch, failures } = observed;
    await soon('three silences', () => watch.stats.restarts.Silent === 3);
    await soon('the watch to be current', () => watch.stats.current);
    expect(changes.map(({ type }) => type)).not.toContain('StreamBroken');
    expect(watch.stats).toMatchObject({ stalls: 0, lists: 1 });
    expect(failures).toEqual([]);
  });

  const relisted = RELISTED.filter(({ needsHistory }) => forgets || needsHistory !== true);
  it.each(relisted)('lists again when $name, and finds what is gone', async ({ interrupt, reason }) => {
    const { arena, observed } = await begin(openArena);
    const { changes, events, watch, upToDate } = observed;
    changes.length = 0;
    await changeUnseen(arena, observed, interrupt);
    await upToDate();
    expect(watch.stats.restarts[reason]).toBeGreaterThan(0);
    expect(watch.stats.lists).toBe(2);
    expect(changes.map(({ type }) => type)).toEqual([
      'StreamBroken',
      'ListBegins',
      'ListEnds',
      'StreamCurrent',
    ]);
    const seen = events.map(describeEvent).filter((each) => !each.includes('kube-root-ca'));
    expect(seen.toSorted()).toEqual([
      'added new (listed)',
      'added replaced (listed)',
      'deleted gone (relist)',
      'deleted replaced (relist)',
      'modified changed (listed)',
      'modified same (listed)',
    ]);
    // A name is given up before it is taken again.
    expect(seen.indexOf('deleted replaced (relist)')).toBeLessThan(seen.indexOf('added replaced (listed)'));
    expect(changes.map(({ at }) => at)).toEqual(changes.map(({ at }) => at).toSorted((a, b) => a - b));
  });

  it('ends at once and leaves no connection behind, whatever it is doing', async () => {
    const { arena, observed } = await begin(openArena);
    await observed.stop();
    await soon('every connection to be closed', () => arena.gateway.connections === 0);
    expect(observed.watch.stats.state).toBe('ended');
  });
}
