import { describe, expect, it } from 'vitest';
import { type ManifestError, readManifests } from '../../../src/core/manifest/index.ts';

const values = (text: string): unknown[] => readManifests(text, 'f.yaml').objects.map(({ value }) => value);
const errorOf = (text: string): ManifestError => {
  const [problem] = readManifests(text, 'f.yaml').problems;
  if (problem === undefined) throw new Error('was read');
  return problem;
};

describe('a scalar is read as kubectl reads it', () => {
  // The right-hand side is what k8s.io/apimachinery v0.36.3 (sigs.k8s.io/yaml v1.6.0) decodes.
  it.each([
    ['030', 24],
    ['0o10', 8],
    ['0O17', 15],
    ['09', 9],
    ['0x1F', 31],
    ['-0x1F', -31],
    ['0b11', 3],
    ['-010', -8],
    ['0_7', 7],
    ['1_000', 1000],
    ['1_0.5', 10.5],
    ['+5', 5],
    ['-0', 0],
    ['1e3', 1000],
    ['.5e3', 500],
    ['5.', 5],
    ['1.50', 1.5],
    ['1e400', '1e400'],
    ['12:30:45', '12:30:45'],
    ['2001-01-01', '2001-01-01'],
    ['0o8', '0o8'],
    ['0x', '0x'],
    ['_1', '_1'],
    ['._5', '._5'],
    ['1,000', '1,000'],
    ['yes', true],
    ['y', true],
    ['On', true],
    ['N', false],
    ['off', false],
    ['tRUE', 'tRUE'],
    ['~', null],
    ['NULL', null],
    ['nUll', 'nUll'],
    ['', null],
    ['"030"', '030'],
    ["'yes'", 'yes'],
    ['!!str 030', '030'],
    ['!!int "7"', 7],
    ['!!bool on', true],
    ['!!binary aGk=', 'hi'],
    ['!mine 7', '7'],
    ['C:\\dir', 'C:\\dir'],
    ['"C:\\\\dir"', 'C:\\dir'],
    ["'it''s'", "it's"],
    ['|\n  a\n  b\n', 'a\nb\n'],
    ['|\n  no line end', 'no line end\n'],
    ['>-\n  a\n  b\n\n', 'a b'],
    ['|+\n  a\n\n', 'a\n\n'],
    ['"é\u{1F600}"', 'é\u{1F600}'],
  ])('a: %s', (written, value) => {
    expect(values(`a: ${written}`)).toEqual([{ a: value }]);
  });

  it.each([
    ['on: v', 'true'],
    ['010: v', '8'],
    ['1.30: v', '1.3'],
    ['"on": v', 'on'],
    ['? a\n: v', 'a'],
  ])('the key of %s', (text, key) => {
    expect(values(text)).toEqual([{ [key]: 'v' }]);
  });

  it('merge keys act in the order of the text, and the earlier source of a list wins', () => {
    expect(values('a: &x {p: 1, q: 1}\nb: {p: 5, <<: *x}\nc: {<<: *x, p: 5}\n')).toEqual([
      { a: { p: 1, q: 1 }, b: { p: 1, q: 1 }, c: { p: 5, q: 1 } },
    ]);
    expect(values('a: &x {p: 1}\nb: &y {p: 2, q: 3}\nc:\n  <<: [*x, *y]\n')).toMatchObject([
      { c: { p: 1, q: 3 } },
    ]);
  });
});

describe('documents', () => {
  it.each([
    ['nothing', '', []],
    ['comments only', '# c\n', []],
    ['empty documents', '---\n---\n# c\n---\na: 1\n---\n', [{ a: 1 }]],
    ['an end mark', 'a: 1\n...\n---\nb: 2\n', [{ a: 1 }, { b: 2 }]],
    ['a directive', '%YAML 1.1\n---\na: 030\n', [{ a: 24 }]],
    ['a directive for 1.2 changes nothing', '%YAML 1.2\n---\na: yes\n', [{ a: true }]],
    ['a byte order mark', '\uFEFFa: 1\n', [{ a: 1 }]],
    ['CRLF', 'a: |\r\n  x\r\n  y\r\nb: 2\r\n', [{ a: 'x\ny\n', b: 2 }]],
    ['tabs between key and value', 'a:\t1\t# c\n', [{ a: 1 }]],
    ['a YAML flow mapping', '{a: yes}\n', [{ a: true }]],
    ['a YAML flow mapping that begins like JSON', '{"a": yes}\n', [{ a: true }]],
    ['JSON, byte order mark', '\uFEFF{"a": 1}', [{ a: 1 }]],
    ['JSON, one behind the other', '{"a":1}{"b":[]}\n\n{"c":{}}', [{ a: 1 }, { b: [] }, { c: {} }]],
    ['JSON, between marks', '{"a": 1}\n---\n{"b": 2}\n', [{ a: 1 }, { b: 2 }]],
    ['JSON keeps its strings', '{"a": "yes", "b": "\\u00e9\u2028"}', [{ a: 'yes', b: 'é\u2028' }]],
  ])('%s', (_name, text, expected) => {
    expect(values(text)).toEqual(expected);
  });

  it('a member called __proto__ stays a member', () => {
    const [value] = values('{"__proto__": {"x": 1}}') as [object];
    expect(Object.keys(value)).toEqual(['__proto__']);
    expect('x' in value).toBe(false);
  });
});

describe('what kubectl reads is read, and as it reads it', () => {
  // The right-hand side is what sigs.k8s.io/yaml v1.6.0 makes of it.
  it.each<[string, string, unknown]>([
    ['text in quotes that goes on at the key’s column', "a: 'x\ny'\n", { a: 'x y' }],
    ['... deeper in', 'a:\n  b: "x\n  y"\n', { a: { b: 'x y' } }],
    ['... and at a column before it', 'a:\n  b: "x\ny"\n', { a: { b: 'x y' } }],
    ['a list in brackets at the key’s column', 'a: [\nb,\nc\n]\n', { a: ['b', 'c'] }],
    ['a mapping in braces at the key’s column', 'x:\n  a: {\n  b: c\n  }\n', { x: { a: { b: 'c' } } }],
    ['a tab before an item in brackets', 'a: [\n\tb]', { a: ['b'] }],
    ['a comment right behind a bracket', 'a: [b]#x\n', { a: ['b'] }],
    ['a comment right behind a quote', 'a: "x"#c\n', { a: 'x' }],
    ['a hash within a word', 'a: b#c\n', { a: 'b#c' }],
    [
      'a list at the column of its key',
      'a:\n- b\n- c: 1\n  d: 2\n-\n  e: f\n',
      { a: ['b', { c: 1, d: 2 }, { e: 'f' }] },
    ],
    ['a list in a list', 'a:\n- - b\n  - c\n- d\n', { a: [['b', 'c'], 'd'] }],
    ['a key with a question mark', '? a\n: - b\n', { a: ['b'] }],
    ['a key with a question mark and nothing else', '? a\nb: 1\n', { a: null, b: 1 }],
    ['a text that goes on deeper', 'a: b\n  c\n\n  d\ne: 1', { a: 'b c\nd', e: 1 }],
    ['a text with a colon in it', 'a: x:y\n', { a: 'x:y' }],
    [
      'words that begin like indicators',
      'a: -x\nb: ?x\nc: :x\n-d: 1\n',
      { a: '-x', b: '?x', c: ':x', '-d': 1 },
    ],
    ['an address in braces', 'a: {b: http://c:80/d}\n', { a: { b: 'http://c:80/d' } }],
    ['a colon that is part of a word in braces', 'a: {b:, c: 1}\n', { a: { 'b:': null, c: 1 } }],
    ['a comma that is part of a tag', 'a: [!!str, b]\n', { a: ['b'] }],
    ['the tag that says "as it is"', 'a: ! 5\n', { a: '5' }],
    ['a tag in full', 'a: !<tag:yaml.org,2002:int> "5"\n', { a: 5 }],
    ['keys in quotes, colon close', '{"a":1,\'b\':2}\n', { a: 1, b: 2 }],
    ['a pair in brackets', 'a: [b, c: d, {e: f}]', { a: ['b', { c: 'd' }, { e: 'f' }] }],
    ['words without values in braces', 'a: {b, c}', { a: { b: null, c: null } }],
    ['a comma at the end', 'a: [b,]\nc: {d: e, }\n', { a: ['b'], c: { d: 'e' } }],
    ['an anchor on a line of its own', 'a: &x\n  b: 1\nc: *x\n', { a: { b: 1 }, c: { b: 1 } }],
    ['an anchor before a list at the key’s column', 'a: &x\n- 1\nb: *x', { a: [1], b: [1] }],
    ['an anchor before the first key', '&x a: 1\nb: *x\n', { a: 1, b: 'a' }],
    ['a tag on a line of its own', 'a: !!str\n  5\n', { a: '5' }],
    ['escapes', 'a: "\\u00e9\\x41\\n\\t\\"\\\\"\n', { a: 'éA\n\t"\\' }],
    ['an escaped line end', 'a: "x\n\n  y\\\n  z \\\n w"\n', { a: 'x\nyz w' }],
    ['a folded text with deeper lines', 'a: >\n  x\n  y\n   z\n  w\n', { a: 'x y\n z\nw\n' }],
    ['a literal text with its indentation given', 'a: |2\n    x\n   y\n', { a: '  x\n y\n' }],
    ['a literal text after blank lines', 'a: |\n\n  x\n   \n\nb: 1\n', { a: '\nx\n \n', b: 1 }],
    ['a literal text at its key’s column', 'a:\n|-\n x\nb: 1\n', { a: 'x', b: 1 }],
    ['an empty literal text', 'a: |\nb: 1', { a: '', b: 1 }],
    ['blank lines kept', 'a: |+\n  x\n\nb: 1\n', { a: 'x\n\n', b: 1 }],
    ['a comment between key and value', 'a: # c\n  b\n', { a: 'b' }],
    ['a comment behind a tab', 'a: 1\n\t# c\nb: 2\n', { a: 1, b: 2 }],
    ['everything indented', '  a: 1\n  b: 2\n', { a: 1, b: 2 }],
    ['CRLF everywhere', 'a: "x\r\n  y"\r\nb: >\r\n  c\r\n  d\r\n', { a: 'x y', b: 'c d\n' }],
    ['JSON whose colon stands on the next line', '{"a"\n:1}', { a: 1 }],
    ['JSON with its own escapes', '{"a": "\\/\\ud83d\\ude00"}', { a: '/\u{1F600}' }],
  ])('%s', (_name, text, expected) => {
    expect(readManifests(text, 'f.yaml').problems).toEqual([]);
    expect(values(text)).toEqual([expected]);
  });
});

describe('objects', () => {
  it('say where they stand', () => {
    const text =
      '# head\nkind: Pod\n---\nkind: List\nitems:\n- kind: A\n- kind: List\n  items:\n  - kind: B\n';
    const { objects } = readManifests(text, 'deploy.yaml');
    expect(objects.map(({ where, line }) => ({ where, line }))).toEqual([
      { where: 'deploy.yaml document 1', line: 2 },
      { where: 'deploy.yaml document 2 items[0]', line: 6 },
      { where: 'deploy.yaml document 2 items[1] items[0]', line: 9 },
    ]);
  });

  it('of a typed list take their kind from it', () => {
    const text = '{"kind":"DeploymentList","apiVersion":"apps/v1","items":[{"metadata":{}},{"kind":"X"}]}';
    expect(values(text)).toEqual([
      { kind: 'Deployment', apiVersion: 'apps/v1', metadata: {} },
      { kind: 'X', apiVersion: 'apps/v1' },
    ]);
  });

  it('with a member "items" are no lists', () => {
    expect(values('kind: ConfigMap\nitems: [1]\n')).toEqual([{ kind: 'ConfigMap', items: [1] }]);
  });
});

describe('a key that is written twice', () => {
  it.each([
    ['in YAML', 'a: 1\nb: 2\na: 3\n', { a: 3, b: 2 }, 'f.yaml:3:1: the key "a" appears twice'],
    ['once read', 'on: 1\n"true": 2\n', { true: 2 }, 'f.yaml:2:1: the key "true" appears twice'],
    ['in JSON', '{"a":1,\n "a":2}', { a: 2 }, 'f.yaml:2:2: the key "a" appears twice'],
    ['further in', 'a: {b: 1, b: 2}\n', { a: { b: 2 } }, 'f.yaml:1:11: the key "b" appears twice'],
    ['in an item', 'kind: List\nitems:\n- a: 1\n  a: 2\n', { a: 2 }, 'f.yaml:4:3: the key "a" appears twice'],
  ])('%s: the last one counts, as for kubectl, and the object says so', (_name, text, value, message) => {
    const [object] = readManifests(text, 'f.yaml').objects;
    expect(object?.value).toEqual(value);
    expect(object?.duplicateKey?.message).toContain(message);
  });

  it('is said of the object that has it, and of no other', () => {
    const text = 'a: 1\na: 2\n---\nb: 1\n---\nkind: List\nitems:\n- c: 1\n- d: 1\n  d: 2\n';
    const { objects } = readManifests(text, 'f.yaml');
    expect(objects.map(({ duplicateKey }) => duplicateKey !== undefined)).toEqual([true, false, false, true]);
  });
});

describe('one document that cannot be read', () => {
  it('is a problem, and the others are read', () => {
    const { objects, problems } = readManifests('a: 1\n---\nb: [\n---\nc: 3\n---\n- d\n', 'f.yaml');
    expect(objects.map(({ value, where }) => [value, where])).toEqual([
      [{ a: 1 }, 'f.yaml document 1'],
      [{ c: 3 }, 'f.yaml document 3'],
    ]);
    expect(problems.map(({ message }) => message)).toEqual([
      expect.stringMatching(/^f\.yaml:3:4: this bracket has no closing "]"/),
      expect.stringMatching(/^f\.yaml:7:1: f\.yaml document 4: expected a Kubernetes object/),
    ]);
  });

  it('is quoted by a part of a line at most, however long it is', () => {
    const long = 'x'.repeat(1_000_000);
    for (const text of [
      `a: b\n ${long}: c\n`,
      `a: !!int ${long}\n`,
      `${long}: 1\n${long}: 2\n`,
      long,
      `a: *${long}\n`,
    ]) {
      const { objects, problems } = readManifests(text, 'f.yaml');
      const { message } = problems[0] ?? objects[0]?.duplicateKey ?? {};
      expect(message?.length).toBeLessThan(300);
      expect(message).not.toContain('\n');
    }
  });
});

describe('what is refused, where, and what to do', () => {
  it.each([
    ['broken YAML', 'a:\n  - b\n c: 1\n', 'f.yaml:3:'],
    ['a tab as indentation', 'a:\n\t- 1\n', 'f.yaml:2:1: '],
    ['a template', 'a: {{ .Values.x }}\n', 'render it first'],
    ['truncated JSON', '{"a": {"b": 1', 'f.yaml:1:7: this bracket has no closing "}"'],
    ['an unclosed string', '{"a": "b}', 'f.yaml:1:7: this quote is never closed'],
    ['rubbish behind JSON', '{"a": 1} x', 'f.yaml:1:10: "x" cannot stand here'],
    ['a number too large', '{"a": 1e999}', 'out of range'],
    ['infinity', 'a: .inf\n', 'f.yaml:1:4: ".inf" has no JSON value'],
    ['a null key', '~: 1\n', 'f.yaml:1:1: a key must not be null'],
    ['a mapping as a key', '? {a: 1}\n: 2\n', 'f.yaml:1:3: a key must be a text'],
    ['a key beyond 2^53', '9007199254740993: 1\n', 'quote it'],
    ['a float as a key that kubectl would rewrite', '1e7: 1\n', 'quote it'],
    ['a wrong tag', 'a: !!int x\n', 'f.yaml:1:10: "x" is not a value of type !!int'],
    ['an alias without anchor', 'a: *x\n', 'f.yaml:1:4: the alias *x has no anchor'],
    ['an alias in its own anchor', 'a: &x\n  b: *x\n', 'f.yaml:2:6: the alias *x is used inside'],
    ['a merge of no mapping', 'a: &x [1]\nb: {<<: *x}\n', 'f.yaml:2:9: a merge key'],
    ['text between ... and ---', 'a: 1\n...\nb: 2\n', 'f.yaml:3:1: nothing is read between'],
    ['a line separator', 'a: 1 # x\u2028b: 1\n', 'f.yaml:1:9: the character U+2028'],
    ['a lone CR', 'a: 1\rb: 2\n', 'U+000D'],
    [
      'a list',
      '- a\n',
      'f.yaml:1:1: f.yaml document 1: expected a Kubernetes object (a mapping with apiVersion and kind), got a list',
    ],
    ['a text', '---\n---\nhello\n', 'f.yaml:3:1: f.yaml document 2: expected'],
    [
      'a List with a null',
      'kind: List\nitems:\n- a: 1\n-\n',
      'f.yaml:4:2: f.yaml document 1 items[1]: expected',
    ],
    ['deep JSON', `${'{"a":'.repeat(100_000)}1`, 'nested too deeply'],
    ['deep YAML', `a: ${'['.repeat(100_000)}`, 'nested too deeply'],
    ['deep lists', '- '.repeat(100_000), 'nested too deeply'],
    [
      'deep lists, one to a line',
      Array.from({ length: 2_000 }, (_, n) => `${' '.repeat(n)}-`).join('\n'),
      'too deeply',
    ],
    ['deep keys', '? '.repeat(100_000), 'nested too deeply'],
    [
      'aliases that multiply',
      `a: &a0 [1]\n${Array.from({ length: 30 }, (_, i) => `b${i}: &a${i + 1} [*a${i}, *a${i}]\n`).join('')}`,
      'aliases repeat more than',
    ],
  ])('%s', (_name, text, message) => {
    const error = errorOf(text);
    expect(error.message).toContain(message);
    expect(error.message).toContain('f.yaml');
  });
});
