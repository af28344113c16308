import { randomBytes } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import { describe, expect, it, vi } from 'vitest';
import { ConsumerEstimator, LagEstimator, LagHistory } from '../../src/core/lag/index.ts';
import {
  bytesOf,
  type ConfigMap,
  type Content,
  HISTORY_NAMES,
  stampAnnotations,
} from '../../src/leader/codec.ts';
import {
  HistoryObjects,
  historyContents,
  restoreHistory,
  type StoredHistory,
} from '../../src/leader/history-objects.ts';
import { randomOf } from '../property/random.ts';
import { longestTurn } from '../webhook/longest-turn.ts';

vi.setConfig({ testTimeout: 120_000 });

const NOW = Date.UTC(2026, 10, 21, 12) / 1000;
const SLICE = 900;
const WEEK_SLICES = 7 * 96;

/** What one replica has measured: as Measurement joins it. */
class Histories implements StoredHistory {
  readonly removals = new LagEstimator();
  readonly consumers = new ConsumerEstimator();

  *parts(now: number) {
    yield* this.removals.parts(now);
    yield* this.consumers.parts(now);
  }

  restorePart(json: unknown, now: number): boolean {
    return this.removals.restorePart(json, now) || this.consumers.restorePart(json, now);
  }
}

/** A week of many different lags in each of so many scopes: the worst that there is to store. */
function busy(namespaces: number, consumers: number): Histories {
  const histories = new Histories();
  const names = Array.from({ length: consumers }, (_, index) => `gateway-${index}`);
  histories.consumers.keep(new Set(names));
  restoreAs(histories, 'cluster', 150);
  for (const name of names) {
    restoreAs(histories, `consumer/${name}/removal`, 2);
    restoreAs(histories, `consumer/${name}/addition`, 2);
  }
  for (let each = 0; each < namespaces; each += 1) restoreAs(histories, `namespace/team-${each}`, 10);
  return histories;
}

/** By the number of lags in each slice, the stored parts of a week, parsed. */
const weeks = new Map<number, readonly object[]>();

function weekOf(lags: number): readonly object[] {
  const random = randomOf(lags);
  const week = new LagHistory();
  for (let slice = 0; slice < WEEK_SLICES; slice += 1)
    for (let lag = 0; lag < lags; lag += 1)
      week.record(60 * random() ** 3, NOW - (WEEK_SLICES - slice) * SLICE + lag);
  return week.parts('', NOW).map((part) => JSON.parse(part.text(1e9)) as object);
}

/** A week of this scope, with so many lags in each slice. */
function restoreAs(histories: Histories, key: string, lags: number): void {
  const parts = weeks.get(lags) ?? weekOf(lags);
  weeks.set(lags, parts);
  for (const part of parts) histories.restorePart({ ...part, key }, NOW);
}

const keysOf = (histories: Histories) => [...histories.parts(NOW)].map(({ key }) => key);

const stored = (contents: readonly Content[], writtenAt = NOW) => {
  const annotations = stampAnnotations({ writer: 'a', term: 1, writtenAt });
  const objects = contents.map(
    (content, index): ConfigMap => ({
      metadata: { name: HISTORY_NAMES[index] ?? '', annotations },
      ...content,
    }),
  );
  return (name: string) => Promise.resolve(objects[HISTORY_NAMES.indexOf(name)]);
};

/**
 * @returns the longest turn of the event loop during some work, in milliseconds of this thread's CPU: the least of three
 * times, because other processes and the garbage of this test can only add to it
 */
async function blockedFor(work: () => Promise<unknown>): Promise<number> {
  const times: number[] = [];
  for (let time = 0; time < 3; time += 1) times.push(await longestTurn(work));
  return Math.min(...times);
}

describe('200 consumers and 50 namespaces', () => {
  it('fit into the ConfigMaps, are all restored, and block for less than 20 ms', async () => {
    const histories = busy(50, 200);
    let contents: readonly Content[] = [];
    const writing = await blockedFor(async () => {
      contents = await contentsOf(historyContents(histories, NOW));
    });
    expect(contents.length).toBeLessThanOrEqual(HISTORY_NAMES.length);
    for (const content of contents) expect(bytesOf(content)).toBeLessThan(1024 * 1024);
    const keys = contents.flatMap(({ binaryData = {} }) => Object.keys(binaryData));
    expect(keys).toHaveLength(keysOf(histories).length);
    expect(keys.length).toBeGreaterThanOrEqual(1 + 50 + 2 * 200);

    let restored = new Histories();
    const reading = await blockedFor(() => {
      restored = new Histories();
      return restoreHistory(stored(contents), restored, NOW);
    });
    expect(keysOf(restored)).toEqual(keysOf(histories));
    expect(restored.removals.cluster.samples).toBe(histories.removals.cluster.samples);
    console.log(
      `${contents.length} ConfigMaps, ${contents.reduce((sum, each) => sum + bytesOf(each), 0)} bytes; writing blocks for ${writing} ms, reading for ${reading} ms`,
    );
    expect(writing).toBeLessThan(20);
    expect(reading).toBeLessThan(20);
  });

  it('fit even where text hardly compresses', async () => {
    const random = randomOf(2);
    const digits = () => Math.floor(random() * 2 ** 30).toString(36);
    const noise = (characters: number) => {
      let text = '';
      while (text.length < characters) text += digits();
      return text.slice(0, characters);
    };
    const part = (key: string) => ({ key, text: noise });
    const parts = [
      part('cluster'),
      ...Array.from({ length: 400 }, (_, index) => part(`consumer/${index}/removal`)),
      ...Array.from({ length: 50 }, (_, index) => part(`namespace/${index}`)),
    ];
    const contents: Content[] = [];
    for await (const content of historyContents({ parts: () => parts }, NOW)) contents.push(content);
    expect(contents.length).toBeLessThanOrEqual(HISTORY_NAMES.length);
    for (const content of contents) expect(bytesOf(content)).toBeLessThan(1024 * 1024);
  });
});

it('a busy cluster keeps its namespaces beside 15 reporting consumers', async () => {
  const histories = busy(20, 15);
  const contents = await contentsOf(historyContents(histories, NOW));
  const keys = contents.flatMap(({ binaryData = {} }) => Object.keys(binaryData));
  for (let each = 0; each < 20; each += 1) expect(keys).toContain(`namespace.team-${each}.json.gz`);
});

it('of a history that has become shorter nothing is left, not even if it did not fit before', async () => {
  const held = new Map<string, Content>();
  const store = {
    write: async (name: string, content: Content) => {
      held.set(name, content);
      return 'written';
    },
  };
  const noise = randomBytes(600_000).toString('base64');
  let scopes = HISTORY_NAMES.length + 1;
  const parts = () =>
    Array.from({ length: scopes }, (_, each) => ({ key: `namespace/${each}`, text: () => noise }));
  const objects = new HistoryObjects(store as never, { parts, restorePart: () => true });
  const write = () => objects.write({} as never, [], NOW, new AbortController().signal);
  expect((await write()).outcome).toBe('written');
  expect(held.size).toBe(HISTORY_NAMES.length);
  scopes = 2;
  expect((await write()).outcome).toBe('written');
  const full = [...held].filter(([, { binaryData = {} }]) => Object.keys(binaryData).length > 0);
  expect(full.map(([name]) => name)).toEqual(HISTORY_NAMES.slice(0, 2));
});

async function contentsOf(contents: AsyncIterable<Content>): Promise<readonly Content[]> {
  const all: Content[] = [];
  for await (const content of contents) all.push(content);
  return all;
}

describe('what is stored', () => {
  const zipped = (text: string) => gzipSync(text).toString('base64');

  it('is restored up to what cannot be read, which is reported', async () => {
    const good = new Histories();
    good.removals.record({ namespace: 'shop', lag: 4 }, NOW);
    const [content] = await contentsOf(historyContents(good, NOW));
    const damaged = {
      binaryData: { ...content?.binaryData, 'x.json.gz': 'AAAA', 'y.json.gz': zipped('{}') },
    };
    const restored = new Histories();
    const { refused, stamp, objects } = await restoreHistory(stored([damaged]), restored, NOW);
    expect(refused).toMatchObject({ refusal: 'Corrupt' });
    expect(refused?.problem).toContain('linger-history: 2 of 4 parts');
    expect([stamp?.writer, objects]).toEqual(['a', 1]);
    expect(restored.removals.cluster.samples).toBe(1);
  });

  it('by a clock that is a year ahead is restored without what is of the future, and refused', async () => {
    const [ahead, later] = [new Histories(), NOW + 365 * 86_400];
    ahead.consumers.keep(new Set(['edge']));
    for (const at of [NOW - 3 * 86_400, NOW - 900, later]) ahead.consumers.record('edge', 'removal', 4, at);
    const contents = await contentsOf(historyContents(ahead, later));
    const restored = new Histories();
    const { refused } = await restoreHistory(stored(contents, later), restored, NOW);
    expect(refused).toMatchObject({ refusal: 'Future' });
    const edge = restored.consumers.measured('edge', 'removal', NOW);
    expect([edge?.samples, edge?.latest]).toEqual([2, NOW]);
  });

  it('of 21 KB that unfolds to 16 MB twice ends nothing', async () => {
    const bomb = zipped(' '.repeat(16 * 1024 * 1024));
    expect(bomb.length).toBeLessThan(22_000);
    const content = { binaryData: { 'history.json.gz': bomb, 'planned.json.gz': bomb } };
    const blocked = await blockedFor(async () => {
      const { refused } = await restoreHistory(stored([content]), new Histories(), NOW);
      expect(refused).toMatchObject({ refusal: 'Corrupt' });
    });
    expect(blocked).toBeLessThan(20);
  });

  it('of thousands of bombs is given up in time', async () => {
    const bomb = zipped(' '.repeat(2 * 1024 * 1024));
    const parts = Object.fromEntries(Array.from({ length: 400 }, (_, index) => [`${index}.json.gz`, bomb]));
    const cpu = process.cpuUsage();
    const { refused } = await restoreHistory(stored([{ binaryData: parts }]), new Histories(), NOW);
    expect(refused?.problem).toContain('400 of 400 parts');
    const { user } = process.cpuUsage(cpu);
    expect(user / 1e6).toBeLessThan(3);
  });

  it('can be restored again and again, and older data never replace newer', async () => {
    const histories = new Histories();
    const edge = () => [...histories.consumers.removals!.values()][0]?.samples;
    histories.consumers.keep(new Set(['edge']));
    for (let each = 0; each < 3_600; each += 1) histories.consumers.record('edge', 'removal', 4, NOW - each);
    const old = await contentsOf(historyContents(histories, NOW));
    for (let each = 0; each < 10_800; each += 1)
      histories.consumers.record('edge', 'removal', 4, NOW - 20_000 - each);
    expect(edge()).toBe(14_400);
    await restoreHistory(stored(old), histories, NOW);
    await restoreHistory(stored(old), histories, NOW);
    expect(edge()).toBe(14_400);
  });

  it('of a deleted consumer does not come back', async () => {
    const histories = new Histories();
    histories.consumers.keep(new Set(['edge', 'gone']));
    for (const name of ['edge', 'gone']) histories.consumers.record(name, 'removal', 4, NOW);
    const old = await contentsOf(historyContents(histories, NOW));
    histories.consumers.keep(new Set(['edge']));
    await restoreHistory(stored(old), histories, NOW);
    expect([...histories.consumers.removals!.keys()]).toEqual(['edge']);
  });
});
