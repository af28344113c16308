import { describe, expect, test } from 'vitest';
import {
  clusterTerminationPolicySpec,
  DOCUMENT_SCHEMAS,
  EXCLUDABLE_KINDS,
  EXISTING_HOOK_RULES,
  formatDuration,
  HOOK_CHOICES,
  MODES,
  POD_SCOPES,
  terminationPolicySpec,
  WAIT_SOURCES,
} from '../../src/core/api/index.ts';
import { BUILT_IN_VALUES, DURATION_FIELDS, type Field, fitGrace } from '../../src/core/decision/index.ts';
import { codeOf, codesOf, read, tableUnder } from './markdown.ts';
import { leafPaths } from './schema-leaves.ts';

const PAGE = 'docs/reference/policies.md';
const fields = tableUnder(PAGE, 'Fields');
const row = (field: string) => fields.find((each) => codeOf(each.field) === field);
const clusterFields = leafPaths(clusterTerminationPolicySpec);

/** The text of a default in the table: durations as a policy says them, lists as YAML. */
function shown(field: Field): string {
  const value = BUILT_IN_VALUES[field];
  if (value === undefined) return 'none';
  if (Array.isArray(value)) return `\`[${value.join(', ')}]\``;
  const text = DURATION_FIELDS.has(field) ? formatDuration(Number(value)) : String(value);
  return `\`${text}\``;
}

describe('policy fields', () => {
  test('the table has exactly the fields of the schema', () => {
    expect(fields.map((each) => codeOf(each.field)).toSorted()).toEqual([...clusterFields].toSorted());
  });

  // linger.dev/inject is no field of a document.
  const decided = (Object.keys(BUILT_IN_VALUES) as Field[]).filter((field) => field !== 'inject');
  test.each(decided)('%s is documented with its default', (field) => {
    expect(row(field)?.default).toBe(shown(field));
  });

  const namespaced = new Set(leafPaths(terminationPolicySpec));
  test.each(clusterFields)('%s is marked as cluster only where it is', (field) => {
    expect(row(field)?.meaning?.startsWith('*Cluster only.*')).toBe(!namespaced.has(field));
  });

  test.each<[string, readonly string[]]>([
    ['mode', MODES],
    ['pods', POD_SCOPES],
    ['exclude', EXCLUDABLE_KINDS],
    ['wait.from', WAIT_SOURCES],
    ['hook', HOOK_CHOICES],
    ['existingHook', EXISTING_HOOK_RULES],
    ['ceiling.mode', MODES],
  ])('the values of %s are documented', (field, values) => {
    const documented = codesOf(row(field)?.values).map((value) => value.replaceAll("'", ''));
    expect(documented.toSorted()).toEqual([...values].toSorted());
  });
});

test('every kind is introduced', () => {
  const documented = tableUnder(PAGE, 'Policies').map((each) => codeOf(each.kind));
  expect(documented).toEqual(Object.keys(DOCUMENT_SCHEMAS));
});

describe('the arithmetic of the page', () => {
  const examples = tableUnder(PAGE, 'How the wait becomes a number');
  test.each(examples)('grace $grace to $["new grace"]', (example) => {
    const [grace, wait, max] = [example.grace, example['wait asked for'], example['`grace.max`']].map(Number);
    const expected = { grace: Number(example['new grace']), wait: Number(example.wait) };
    expect(fitGrace(wait ?? Number.NaN, grace ?? Number.NaN, max ?? Number.NaN)).toEqual(expected);
  });

  test('there are examples', () => expect(examples.length).toBeGreaterThan(4));
});

test('the numbers in prose are the built-in ones', () => {
  expect(read('README.md')).toContain(`${BUILT_IN_VALUES['wait.initial']} s by default`);
  const page = read(PAGE);
  expect(page).toContain(`\`grace.max\` is ${BUILT_IN_VALUES['grace.max']} s`);
  expect(page).toContain(
    `(${BUILT_IN_VALUES['wait.min']} s and ${BUILT_IN_VALUES['wait.max']} s), all of them by \`ceiling.wait\` (${BUILT_IN_VALUES['ceiling.wait']} s)`,
  );
});
