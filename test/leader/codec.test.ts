import { gzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { plannedToText } from '../../src/core/lag/index.ts';
import {
  bytesOf,
  type Content,
  type Forgotten,
  forgottenText,
  isFromFuture,
  notOurs,
  PLANNED_KEY,
  packPart,
  partKey,
  type Refusal,
  readForgotten,
  readHistoryParts,
  readPlanned,
  sameContent,
  stampAnnotations,
  stampOf,
  textContent,
  unpackPart,
} from '../../src/leader/codec.ts';
import { historyOf, tableOf } from '../core/lag/sample-table.ts';

const NOW = Date.UTC(2026, 10, 21, 12) / 1000;
const DAY = 86_400;
const stamp = { writer: 'linger-a_1', term: 7, writtenAt: NOW - 60 };

const table = tableOf({ cluster: historyOf([4], 5_000, NOW) }, NOW);
const PLANNED = textContent('planned', plannedToText(table));

/** As the API server gives it. */
const configMap = (
  content: Content,
  annotations: Readonly<Record<string, string>> = stampAnnotations(stamp),
) => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name: 'x', resourceVersion: '1', annotations },
  ...content,
});
const later = { ...stampAnnotations(stamp), 'linger.dev/format': '3' };
const planned = (text: string): Content => ({ data: { [PLANNED_KEY]: text } });

describe('the published curves', () => {
  it('come back as they were written, with who wrote them', () => {
    expect(readPlanned(configMap(PLANNED))).toEqual({
      outcome: 'read',
      value: table,
      stamp,
      bytes: bytesOf(PLANNED),
    });
  });

  it('count however old they are, and without a mark: as from a backup', () => {
    const old = stampAnnotations({ ...stamp, writtenAt: NOW - 900 * DAY });
    expect(readPlanned(configMap(PLANNED, old))).toMatchObject({ outcome: 'read', value: table });
    expect(readPlanned(configMap(PLANNED, {}))).toMatchObject({ outcome: 'read', value: table });
  });

  it.each([
    ['there is no ConfigMap', undefined],
    ['it was created in advance', configMap({}, {})],
    ['it is empty', configMap({}, stampAnnotations(stamp))],
  ])('are empty when %s', (_name, object) => {
    expect(readPlanned(object)).toEqual({ outcome: 'empty' });
  });

  it.each<{ name: string; object: unknown; refusal: Refusal }>([
    { name: 'a newer version wrote them', object: configMap(PLANNED, later), refusal: 'Newer' },
    {
      name: 'their contents say a newer version',
      object: configMap(planned('{"v":3,"rows":[]}'), {}),
      refusal: 'Newer',
    },
    {
      name: 'a ConfigMap of that name is for something else',
      object: configMap({ data: { 'application.yaml': 'x' } }, {}),
      refusal: 'Foreign',
    },
    {
      name: 'the mark is not one of ours',
      object: configMap(PLANNED, { 'linger.dev/format': 'x' }),
      refusal: 'Foreign',
    },
    { name: 'they are no JSON', object: configMap(planned('{')), refusal: 'Corrupt' },
    { name: 'they are other JSON', object: configMap(planned('{"v":2}')), refusal: 'Corrupt' },
    { name: 'an older version wrote them', object: configMap(planned('{"v":1}')), refusal: 'Corrupt' },
    { name: 'they are null', object: configMap(planned('null')), refusal: 'Corrupt' },
  ])('are refused as $refusal when $name', ({ object, refusal }) => {
    expect(readPlanned(object)).toMatchObject({ outcome: 'refused', refusal });
    expect(notOurs(object)).toBe(refusal === 'Corrupt' ? undefined : refusal);
  });
});

describe('the parts of a history', () => {
  const binary = (...parts: string[]) => ({
    binaryData: Object.fromEntries(parts.map((part, index) => [`${index}.json.gz`, part])),
  });

  it('come back as they were written', async () => {
    const packed = await packPart('{"key":"cluster"}');
    const content = binary(packed);
    expect(readHistoryParts(configMap(content))).toEqual({
      outcome: 'read',
      value: [packed],
      stamp,
      bytes: bytesOf(content),
    });
    expect(await unpackPart(packed)).toEqual({ json: { key: 'cluster' }, bytes: 17 });
  });

  it('are from the future where the writer’s clock was ahead by more than a little', () => {
    const ages = [DAY, 3_000, -90 * DAY];
    expect(ages.map((age) => isFromFuture({ ...stamp, writtenAt: NOW + age }, NOW))).toEqual([
      true,
      false,
      false,
    ]);
  });

  it.each<{ name: string; object: unknown; refusal: Refusal }>([
    { name: 'a newer version wrote them', object: configMap(binary('AAAA'), later), refusal: 'Newer' },
    { name: 'they are of something else', object: configMap({ data: { key: 'x' } }, {}), refusal: 'Foreign' },
  ])('are refused as $refusal when $name', ({ object, refusal }) => {
    expect(readHistoryParts(object)).toMatchObject({ outcome: 'refused', refusal });
  });

  const zipped = (text: string) => gzipSync(text).toString('base64');
  it.each([
    ['no base64', '§'],
    ['not in gzip', btoa('{"v":2}')],
    ['cut', zipped('{"v":2}').slice(0, 16)],
    ['no JSON', zipped('{"v":')],
    ['larger than a part may be', zipped(' '.repeat(2 * 1024 * 1024))],
    ['a number that takes a second to parse', zipped('9'.repeat(1_000_000))],
  ])('that are %s are unreadable', async (_name, packed) => {
    const before = process.threadCpuUsage();
    expect((await unpackPart(packed)).json).toBeUndefined();
    // Not by the clock, which runs on while other processes have the processor.
    expect(process.threadCpuUsage(before).user / 1000).toBeLessThan(500);
  });

  it('have keys that a ConfigMap may hold', () => {
    expect(partKey('namespace/shop')).toBe('namespace.shop.json.gz');
    for (const key of [`consumer/${'a.'.repeat(126)}b/removal`, 'consumer/é'])
      expect(partKey(key)).toMatch(/^[0-9a-f]{64}\.json\.gz$/);
  });
});

describe('what has been forgotten', () => {
  const entries: readonly Forgotten[] = [
    { from: NOW - DAY, to: NOW },
    { from: NOW - DAY, to: NOW, namespace: 'shop' },
    { from: NOW - DAY, to: NOW, consumer: 'edge' },
  ];
  const noted = (text: string) => configMap({}, { 'linger.dev/forgotten': text });

  it('comes back as it was recorded', () => {
    expect(readForgotten(noted(forgottenText(entries)))).toEqual(entries);
    expect(readForgotten(configMap({}))).toEqual([]);
    expect(readForgotten(undefined)).toEqual([]);
  });

  it.each(['{', 'null', '7', '[null]', '[{"from":"x","to":"y"}]', '[{"from":1,"to":2}]'])(
    'is nothing where it is %s',
    (text) => expect(readForgotten(noted(text))).toEqual([]),
  );

  it('is never wider than what was meant', () => {
    const text = '[{"from":"2026-11-20T00:00:00Z","to":"2026-11-21T00:00:00Z","namespace":["shop"]}]';
    expect(readForgotten(noted(text))).toEqual([]);
  });
});

describe('a stamp', () => {
  it('comes back as it was written', () => {
    expect(stampOf(configMap({}))).toEqual(stamp);
  });

  it.each([
    ['nothing', undefined],
    ['no annotations', { metadata: {} }],
    ['forged ones', configMap({}, { 'linger.dev/term': '99999999999', 'linger.dev/written-at': 'x' })],
    ['others', configMap({}, { 'linger.dev/term': '-1' })],
  ])('of %s says nothing', (_name, object) => {
    expect(stampOf(object)).toEqual({ writer: '', term: 0, writtenAt: Number.NaN });
  });
});

it('contents are the same, or not', () => {
  expect(sameContent(configMap(PLANNED), PLANNED)).toBe(true);
  expect(sameContent(configMap({ ...PLANNED, binaryData: { x: '' } }), PLANNED)).toBe(false);
  expect(sameContent(configMap({}), PLANNED)).toBe(false);
  expect(sameContent(configMap({}), { annotations: { note: '1' } })).toBe(false);
});

it('binary data count as what they stand for', () => {
  expect(bytesOf({ data: { a: 'é' }, binaryData: { b: btoa('12345') } })).toBe(7);
});
