import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { isRecord } from '../../../src/core/api/index.ts';
import { discover } from '../../../src/core/discovery/index.ts';
import { suggest } from '../../../src/core/judge/index.ts';
import { ManifestError, readDocuments } from '../../../src/core/manifest/index.ts';
import { explanationsIn, survey } from '../../../src/core/report/index.ts';
import { randomOf } from '../../property/random.ts';
import { FUZZ } from '../../property/runs.ts';
import { EMPTY_SNAPSHOT } from '../decision/sample-snapshot.ts';
import { judgedText } from '../judge/judged-text.ts';

// Manifests of strangers: whatever stands where a text, a list or a record is expected, reading and judging them ends in words.

const ROOT = join(import.meta.dirname, '..', '..', 'testdata');
const MANIFESTS = ['cases', 'audit', 'corpus'].flatMap((folder) =>
  globSync(`${folder}/*.{yaml,json}`, { cwd: ROOT }).toSorted(),
);
const CHANGES = 12 * FUZZ;

/** No text can be made of the first; the others are what JSON and YAML hold besides texts. */
const VALUES: readonly unknown[] = [
  { toString: 1, valueOf: 1 },
  [[]],
  {},
  null,
  1e300,
  -1,
  true,
  '',
  [null],
  ['x', { toString: 1, valueOf: 1 }],
];

/** Every value inside, as a function that puts another in its place. */
function* placesIn(value: unknown): Generator<(other: unknown) => void> {
  if (Array.isArray(value))
    for (const [index, each] of value.entries()) {
      yield (other) => {
        value[index] = other;
      };
      yield* placesIn(each);
    }
  if (isRecord(value))
    for (const [key, each] of Object.entries(value)) {
      yield (other) => {
        value[key] = other;
      };
      yield* placesIn(each);
    }
}

function objectsIn(text: string): unknown[] {
  return [...readDocuments(text, 'x')].flatMap((document) =>
    [...document.objects()].flatMap((each) => (each instanceof ManifestError ? [] : [each.value])),
  );
}

/** What all commands that read manifests do with them. */
function judged(text: string): number {
  const input = { name: 'x.yaml', text };
  const selection = { namespace: 'default', selector: undefined };
  const surveyed = survey([input], 'default');
  const reading = { report: () => undefined, failed: false };
  explanationsIn([input], surveyed, EMPTY_SNAPSHOT, selection, reading);
  const { subjects, objects, related } = judgedText(text, EMPTY_SNAPSHOT);
  suggest(subjects, related, () => EMPTY_SNAPSHOT);
  discover(objects, 'default');
  return subjects.length;
}

describe('manifests with anything anywhere', () => {
  test.each(MANIFESTS)('%s', (file) => {
    const text = readFileSync(join(ROOT, file), 'utf8');
    const seed = Date.now() % 2 ** 31;
    const random = randomOf(seed);
    const count = objectsIn(text).length;
    for (let change = 0; count > 0 && change < CHANGES; change += 1) {
      const objects = objectsIn(text);
      const places = [...placesIn(objects)];
      for (let more = 1 + Math.floor(random() * 2); more > 0; more -= 1)
        places[Math.floor(random() * places.length)]?.(VALUES[Math.floor(random() * VALUES.length)]);
      const changed = objects.map((each) => JSON.stringify(each)).join('\n---\n');
      let thrown: unknown;
      try {
        judged(changed);
      } catch (error) {
        thrown = error;
      }
      const { stack } = (thrown ?? {}) as Error;
      expect(thrown && { seed, changed, stack }).toBeUndefined();
    }
  });

  test('there are workloads among them', () => {
    expect(judged(readFileSync(join(ROOT, 'cases', '20-misplaced-grace.yaml'), 'utf8'))).toBeGreaterThan(0);
  });
});
