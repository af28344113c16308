import { describe, expect, it } from 'vitest';
import { ManifestError, readManifests } from '../../src/manifest/index.ts';

const values = (text: string): unknown[] => readManifests(text, 'f.yaml').objects.map(({ value }) => value);
const errorOf = (text: string): ManifestError => {
  try {
    readManifests(text, 'f.yaml');
  } catch (error) {
    if (error instanceof ManifestError) return error;
    throw error;
  }
  throw new Error('was read');
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

describe('what is refused, where, and what to do', () => {
  it.each([
    ['duplicate keys', 'a: 1\nb: 2\na: 3\n', 'f.yaml:3:1: the key "a" appears twice'],
    ['duplicates once read', 'on: 1\n"true": 2\n', 'f.yaml:2:1: the key "true" appears twice'],
    ['duplicate keys in JSON', '{"a":1,\n "a":2}', 'f.yaml:2:2: the key "a" appears twice'],
    ['broken YAML', 'a:\n  - b\n c: 1\n', 'f.yaml:3:'],
    ['a tab as indentation', 'a:\n\t- 1\n', 'f.yaml:2:1: '],
    ['a template', 'a: {{ .Values.x }}\n', 'render it first'],
    ['truncated JSON', '{"a": {"b": 1', 'f.yaml:1:14: not valid JSON: expected "," or "}", got the end'],
    ['an unclosed string', '{"a": "b}', 'no closing quote'],
    ['rubbish behind JSON', '{"a": 1} x', 'not valid JSON'],
    ['a number too large', '{"a": 1e999}', 'out of range'],
    ['infinity', 'a: .inf\n', 'f.yaml:1:4: ".inf" has no JSON value'],
    ['a null key', '~: 1\n', 'f.yaml:1:1: a key must not be null'],
    ['a mapping as a key', '? {a: 1}\n: 2\n', 'f.yaml:1:3: a key must be a text'],
    ['a key beyond 2^53', '9007199254740993: 1\n', 'quote it'],
    ['a float as a key that kubectl would rewrite', '1e7: 1\n', 'quote it'],
    ['a wrong tag', 'a: !!int x\n', 'f.yaml:1:10: "x" is not a value of type !!int'],
    ['the tag !', 'a: ! 5\n', 'remove it'],
    ['an alias without anchor', 'a: *x\n', 'f.yaml:1:4: the alias *x has no anchor'],
    ['an alias in its own anchor', 'a: &x\n  b: *x\n', 'f.yaml:2:6: the alias *x stands inside'],
    ['a merge of no mapping', 'a: &x [1]\nb: {<<: *x}\n', 'f.yaml:2:9: a merge key'],
    ['text between ... and ---', 'a: 1\n...\nb: 2\n', 'f.yaml:3:1: kubectl reads nothing'],
    ['a line separator', 'a: 1 # x\u2028b: 1\n', 'f.yaml:1:9: the character U+2028'],
    ['a lone CR', 'a: 1\rb: 2\n', 'U+000D'],
    ['a colon without space in braces', 'a: {b:, c: 1}\n', 'f.yaml:1:7: kubectl takes this colon'],
    ['a tag up to a comma', 'a: [!!str, b]\n', 'kubectl takes this comma'],
    ['a list', '- a\n', 'f.yaml document 1 (line 1): expected a Kubernetes object (a mapping), got a list'],
    ['a text', '---\n---\nhello\n', 'f.yaml document 2 (line 3): expected'],
    ['a List with a null', 'kind: List\nitems:\n- a: 1\n-\n', 'items[1] (line 4): expected'],
    ['deep JSON', `${'{"a":'.repeat(100_000)}1`, 'nested deeper than 500 levels'],
    ['deep YAML', `a: ${'['.repeat(100_000)}`, 'nested too deeply'],
    [
      'aliases that multiply',
      `a: &a0 [1]\n${Array.from({ length: 30 }, (_, i) => `b${i}: &a${i + 1} [*a${i}, *a${i}]\n`).join('')}`,
      'aliases repeat more than',
    ],
  ])('%s', (_name, text, message) => {
    const error = errorOf(text);
    expect(error.message).toContain(message);
    expect(error.message).toContain('f.yaml');
    expect(error.internal).toBe(false);
  });
});
