import { gzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { exactly } from '../../src/core/lag/combine.ts';
import { LagEstimator } from '../../src/core/lag/estimator.ts';
import { NOTHING_PLANNED, nextPlanned } from '../../src/core/lag/planned.ts';
import { plannedToText } from '../../src/core/lag/published.ts';
import {
  bytesOf,
  type Content,
  HISTORY_KEY,
  historyContent,
  PENDING_KEY,
  PLANNED_KEY,
  plannedContent,
  type Refusal,
  readHistory,
  readPlanned,
  sameContent,
  stampAnnotations,
  stampOf,
  untouchable,
} from '../../src/measure/publication.ts';
import { taken } from '../core/lag/steps.ts';

const NOW = Date.UTC(2026, 10, 21, 12) / 1000;
const DAY = 86_400;
const stamp = { writer: 'linger-a_1', term: 7, writtenAt: NOW - 60 };

const lag = {
  scope: 'cluster' as const,
  samples: 5_000,
  historySeconds: 2 * DAY,
  density: exactly(4),
  stages: [],
};
const measured = { cluster: { lag, latest: NOW }, namespaces: new Map() };
const table = nextPlanned(NOTHING_PLANNED, measured, NOW);
const pending = nextPlanned(
  table,
  { ...measured, cluster: { lag: { ...lag, density: exactly(20) }, latest: NOW + 1 } },
  NOW + 1,
);

const PLANNED = plannedContent(plannedToText(table, false));
const snapshot = taken(new LagEstimator().snapshotWithin(1e6, NOW));
const HISTORY = await historyContent(snapshot, plannedToText(pending, true));

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
const zipped = (text: string) => gzipSync(text).toString('base64');
const later = { ...stampAnnotations(stamp), 'linger.dev/format': '2' };

describe('the planned lags', () => {
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
    ['somebody made one in advance', configMap({}, {})],
    ['it is empty', configMap({}, stampAnnotations(stamp))],
  ])('are not there when %s', (_name, object) => {
    expect(readPlanned(object)).toEqual({ outcome: 'empty' });
  });

  it.each<{ name: string; object: unknown; refusal: Refusal }>([
    { name: 'a newer version wrote them', object: configMap(PLANNED, later), refusal: 'Newer' },
    {
      name: 'their contents say a newer version',
      object: configMap(plannedContent('{"v":2,"rows":[]}'), {}),
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
    { name: 'they are no JSON', object: configMap(plannedContent('{')), refusal: 'Corrupt' },
    { name: 'they are other JSON', object: configMap(plannedContent('{"v":1}')), refusal: 'Corrupt' },
    { name: 'they are null', object: configMap(plannedContent('null')), refusal: 'Corrupt' },
  ])('are refused as $refusal when $name', ({ object, refusal }) => {
    expect(readPlanned(object)).toMatchObject({ outcome: 'refused', refusal });
    // Whatever was worth something to somebody is not written over.
    expect(untouchable(object)).toBe(refusal === 'Corrupt' ? undefined : refusal);
  });
});

describe('the histories', () => {
  const read = (content: Content, annotations = stampAnnotations(stamp)) =>
    readHistory(configMap(content, annotations), NOW);

  it('come back as they were written, with what was pending', async () => {
    expect(await read(HISTORY)).toEqual({
      outcome: 'read',
      value: { snapshot: JSON.parse(snapshot), planned: pending },
      stamp,
      bytes: bytesOf(HISTORY),
    });
  });

  it('count even where what was pending is lost', async () => {
    const binaryData = { ...HISTORY.binaryData, [PENDING_KEY]: 'AAAA' };
    expect(await read({ binaryData })).toMatchObject({ outcome: 'read', value: { planned: undefined } });
  });

  it('are not there when there is no ConfigMap, or an empty one', async () => {
    expect(await readHistory(undefined, NOW)).toEqual({ outcome: 'empty' });
    expect(await read({})).toEqual({ outcome: 'empty' });
  });

  const at = (seconds: number) => stampAnnotations({ ...stamp, writtenAt: NOW + seconds });
  const binary = (base64: string) => ({ binaryData: { [HISTORY_KEY]: base64 } });
  it.each<{ name: string; content?: Content; annotations?: Record<string, string>; refusal: Refusal }>([
    { name: 'a newer version wrote them', annotations: later, refusal: 'Newer' },
    { name: 'their contents say a newer version', content: binary(zipped('{"v":2}')), refusal: 'Newer' },
    {
      name: 'they are for something else',
      content: { data: { key: 'x' } },
      annotations: {},
      refusal: 'Foreign',
    },
    { name: 'they are older than a week', annotations: at(-7 * DAY - 1), refusal: 'Old' },
    { name: 'they are from tomorrow', annotations: at(DAY), refusal: 'Future' },
    { name: 'they are no base64', content: binary('§'), refusal: 'Corrupt' },
    { name: 'they are not in gzip', content: binary(btoa(snapshot)), refusal: 'Corrupt' },
    {
      name: 'they are cut',
      content: binary(HISTORY.binaryData![HISTORY_KEY]!.slice(0, 40)),
      refusal: 'Corrupt',
    },
    { name: 'they are no JSON', content: binary(zipped('{"v":')), refusal: 'Corrupt' },
    {
      name: 'they unfold to more than anybody wrote',
      content: binary(zipped(' '.repeat(20 * 1024 * 1024))),
      refusal: 'Corrupt',
    },
  ])('are refused as $refusal when $name', async ({ content = HISTORY, annotations, refusal }) => {
    expect(await read(content, annotations)).toMatchObject({ outcome: 'refused', refusal });
  });

  it('count though their writer’s clock was ahead a little', async () => {
    expect(await read(HISTORY, at(3_000))).toMatchObject({ outcome: 'read' });
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
  expect(sameContent(configMap(HISTORY), HISTORY)).toBe(true);
  expect(sameContent(configMap({ ...HISTORY, data: { x: '' } }), HISTORY)).toBe(false);
  expect(sameContent(configMap(PLANNED), plannedContent(`${PLANNED.data?.[PLANNED_KEY]} `))).toBe(false);
  expect(sameContent(configMap({}), PLANNED)).toBe(false);
});

it('binary data count as what they stand for', () => {
  expect(bytesOf({ data: { a: 'é' }, binaryData: { b: btoa('12345') } })).toBe(7);
});
