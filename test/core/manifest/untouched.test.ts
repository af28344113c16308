import { describe, expect, it } from 'vitest';
import type { Operation } from '../../../src/core/decision/index.ts';
import { ManifestError } from '../../../src/core/manifest/index.ts';
import { edit, editFile, grace, planMap, readFile, remove, set } from './sample-edit.ts';

describe('what is not changed', () => {
  const text = '%YAML 1.1\n---\n# c\na:   0o10\nspec: { b:   yes }\n...\n---\n---\nspec: {b: 1}\n';

  it('comes out byte for byte, with and without a change in another document', () => {
    const file = readFile(text, 'f.yaml');
    expect(editFile(file, []).text).toBe(text);
    const [first, second] = file.objects;
    expect(editFile(file, [{ object: second!, operations: [], at: '' }]).text).toBe(text);
    expect(editFile(file, [{ object: first!, operations: [grace], at: '' }]).text).toBe(
      text.replace('b:   yes ', 'b:   yes, terminationGracePeriodSeconds: 45 '),
    );
  });

  it('items of a List are edited one by one, under a prefix', () => {
    const list =
      'kind: List\nitems:\n- spec:\n    template:\n      spec: {a: 1}\n- spec:\n    template:\n      spec: {a: 1}\n';
    const file = readFile(list, 'f.yaml');
    const edits = [{ object: file.objects[1]!, operations: [grace], at: '/spec/template' }];
    const expected = list.replace(/\{a: 1\}\n$/, '{a: 1, terminationGracePeriodSeconds: 45}\n');
    expect(editFile(file, edits).text).toBe(expected);
  });
});

describe('a place that others share is left alone, with a note', () => {
  it.each([
    ['an alias', 'spec: &s\n  a: 1\nother: *s\n', '/spec', '&s'],
    ['reached through the alias', 'other: &s\n  a: 1\nspec: *s\n', '/spec', '&s'],
    ['an anchor further out', 'all: &t\n  spec:\n    a: 1\nelse: *t\n', '/all/spec', '&t'],
    ['a merged member', 'base: &b\n  spec: {a: 1}\nx:\n  <<: *b\n', '/x/spec', '<<'],
    ['a shared scalar', 'spec:\n  terminationGracePeriodSeconds: &g 30\nother: *g\n', '/spec', '&g'],
    ['an alias as the scalar', 'other: &g 30\nspec:\n  terminationGracePeriodSeconds: *g\n', '/spec', '&g'],
  ])('%s', (_name, text, place, means) => {
    const at = place.slice(0, -'/spec'.length);
    const { text: after, notes } = edit(text, [grace], at);
    expect(after).toBe(text);
    expect(notes).toHaveLength(1);
    expect(notes[0]).toContain('f.yaml document 1 (line 1): left unchanged');
    expect(notes[0]).toContain(`${place}/terminationGracePeriodSeconds`);
    expect(notes[0]).toContain(means);
  });

  it('only that object stays; its other operations are not carried out either', () => {
    const text = 'metadata: {}\nspec: &s {a: 1}\no: *s\n---\nmetadata: {}\nspec: {a: 1}\n';
    const { text: after, notes } = edit(text, [planMap, grace]);
    expect(notes).toHaveLength(1);
    expect(after.startsWith('metadata: {}\nspec: &s {a: 1}\no: *s\n---\nmetadata:\n')).toBe(true);
  });

  it('a removed value that holds a used anchor stays too', () => {
    const text = 'a:\n  b: &x 1\nc: *x\n';
    expect(edit(text, [remove('/a')])).toMatchObject({ text, notes: [expect.stringContaining('&x')] });
  });

  it('an unused anchor, and a new member beside a merge key, are no obstacle', () => {
    expect(edit('spec: &s {a: 1}\n', [grace]).text).toContain('terminationGracePeriodSeconds: 45');
    expect(edit('b: &b {a: 1}\nspec:\n  <<: *b\n', [grace]).text).toBe(
      'b: &b {a: 1}\nspec:\n  <<: *b\n  terminationGracePeriodSeconds: 45\n',
    );
  });
});

it('an item of a list is neither added nor removed, and the note says what to do', () => {
  const text = 'l: [1, 2]\nspec: {a: 1}\n---\nspec: {a: 1}\n';
  const file = readFile(text, 'f.yaml');
  const [first, second] = file.objects;
  const edits = [
    { object: first!, operations: [grace, remove('/l/1')], at: '' },
    { object: second!, operations: [grace], at: '' },
  ];
  const { text: after, notes } = editFile(file, edits);
  expect(after).toBe(text.replace(/\{a: 1\}\n$/, '{a: 1, terminationGracePeriodSeconds: 45}\n'));
  expect(notes).toEqual([
    'f.yaml document 1 (line 1): left unchanged, because items of lists are neither added nor removed here: change /l/1 by hand, then run this again',
  ]);
});

describe('an operation that does not apply is an internal error', () => {
  it.each<[string, Operation]>([
    ['no such parent', { op: 'add', path: '/x/y', value: 1 }],
    ['no such member', set('/x', 1)],
    ['no such item', set('/l/5', 1)],
    ['a scalar has no members', { op: 'add', path: '/a/b', value: 1 }],
    ['the whole object', set('', {})],
    ['no value', { op: 'add', path: '/b', value: undefined }],
  ])('%s', (_name, operation) => {
    const run = (): unknown => edit('a: 1\nl: [1]\n', [operation]);
    expect(run).toThrow(ManifestError);
    expect(run).toThrow(`${operation.op} "${operation.path}"`);
  });
});
