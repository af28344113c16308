import { describe, expect, test } from 'vitest';
import { DOCUMENT_SCHEMAS } from '../../src/core/api/index.ts';
import { BUILT_IN_VALUES, fitGrace } from '../../src/core/decision/index.ts';
import { codeOf, read, tableUnder } from './markdown.ts';

const PAGE = 'docs/reference/policies.md';
const fields = tableUnder(PAGE, 'Fields');

// linger.dev/inject is no field of a document.
test.each(Object.keys(BUILT_IN_VALUES).filter((field) => field !== 'inject'))('%s is documented', (field) => {
  expect(fields.map((each) => codeOf(each.field))).toContain(field);
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
