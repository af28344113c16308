import fc from 'fast-check';
import fastJsonPatch from 'fast-json-patch';
import * as yaml from 'yaml';
import type { Operation } from '../../../src/core/decision/index.ts';

export type Json = string | number | boolean | null | Json[] | { [key: string]: Json };
export type Members = { [key: string]: Json };

const word = fc.constantFrom(
  ...['a', 'b', 'yes', '030', '1_000', '12:30', 'null', '~', '# no comment', 'a: b', '- c', "it's", '"q"'],
  ...[
    '',
    ' ',
    'two\nlines',
    'ends\n',
    'ends\n\n',
    '\n lead',
    'tab\tbed',
    'C:\\dir',
    'grüße',
    '日本\u{1F600}',
  ],
  ...[
    '{x}',
    '[y]',
    '*z',
    '&z',
    '!t',
    '%d',
    '@',
    '<<x',
    'x'.repeat(200),
    'many words '.repeat(12),
    '---',
    '...',
  ],
);
const key = fc.constantFrom(
  'name',
  'image',
  'labels',
  'linger.dev/x',
  'a b',
  'yes',
  '1',
  'ä',
  'c~d',
  '"',
  '-',
);
const scalar = fc.oneof(
  word,
  fc.integer(),
  fc.double({ noNaN: true, min: -1e6, max: 1e6 }),
  fc.boolean(),
  fc.constant(null),
);

const { json } = fc.letrec<{ json: Json }>((tie) => ({
  json: fc.oneof(
    { maxDepth: 3, withCrossShrink: true },
    scalar,
    fc.array(tie('json'), { maxLength: 3 }),
    fc.dictionary(key, tie('json'), { maxKeys: 3, noNullPrototype: true }),
  ),
}));

const members = fc.dictionary(key, json, { maxKeys: 3, noNullPrototype: true });
const annotations = fc.constantFrom<Members>(
  { annotations: null },
  { annotations: {} },
  { annotations: { a: 'b' } },
  {},
);
const container = fc
  .tuple(
    members,
    fc.constantFrom<Members>(
      {},
      { lifecycle: null },
      { lifecycle: {} },
      { lifecycle: { postStart: { exec: {} } } },
    ),
  )
  .map(([more, lifecycle]): Json => ({ name: 'c', ...more, ...lifecycle }));
export const manifest = fc
  .record({
    metadata: fc.tuple(members, annotations).map(([more, own]) => ({ ...more, ...own })),
    containers: fc.array(container, { minLength: 1, maxLength: 3 }),
    grace: fc.constantFrom<Members>({}, { terminationGracePeriodSeconds: 30 }),
    more: members,
    specLast: fc.boolean(),
  })
  .map(({ metadata, containers, grace, more, specLast }): Members => {
    const spec: Json = { ...more, containers, ...grace };
    return specLast ? { kind: 'Pod', metadata, ...more, spec } : { kind: 'Pod', spec, ...more, metadata };
  });

export const operation: fc.Arbitrary<(value: Members) => Operation> = fc.oneof(
  { weight: 3, arbitrary: fc.constant(annotate) },
  { weight: 3, arbitrary: fc.tuple(fc.nat(), word).map(([index, text]) => addHook(index, text)) },
  {
    weight: 3,
    arbitrary: fc.nat(600).map((seconds) => () => add('/spec/terminationGracePeriodSeconds', seconds)),
  },
  { weight: 3, arbitrary: fc.tuple(fc.nat(), scalar).map(([nth, value]) => atScalar(nth, value)) },
  { weight: 1, arbitrary: fc.nat().map((nth) => atMember(nth)) },
);

function add(path: string, value: Json): Operation {
  return { op: 'add', path, value };
}

function annotate(value: Members): Operation {
  const plan = JSON.stringify({ v: 1, why: "it's" });
  const { annotations: present } = value.metadata as Members;
  if (present === null || present === undefined) {
    return add('/metadata/annotations', { 'linger.dev/plan': plan });
  }
  return add('/metadata/annotations/linger.dev~1plan', plan);
}

const addHook =
  (index: number, text: string) =>
  (value: Members): Operation => {
    const { containers } = value.spec as { containers: Members[] };
    const at = index % containers.length;
    const preStop = { exec: { command: ['sleep', text, 15] } };
    const { lifecycle } = containers[at]!;
    if (lifecycle === null || lifecycle === undefined)
      return add(`/spec/containers/${at}/lifecycle`, { preStop });
    return add(`/spec/containers/${at}/lifecycle/preStop`, preStop);
  };

const atScalar =
  (nth: number, replacement: Json) =>
  (value: Members): Operation => {
    const paths = [...pathsOf(value, '')].filter(([, at]) => typeof at !== 'object' || at === null);
    return { op: 'replace', path: paths[nth % paths.length]![0], value: replacement };
  };

const atMember =
  (nth: number) =>
  (value: Members): Operation => {
    const paths = [...pathsOf(value, '')].filter(([, , parent]) => !Array.isArray(parent));
    return { op: 'remove', path: paths[nth % paths.length]![0] };
  };

function* pathsOf(value: Json, path: string): Generator<[path: string, value: Json, parent: Json]> {
  if (typeof value !== 'object' || value === null) return;
  for (const [name, member] of Object.entries(value)) {
    const at = `${path}/${fastJsonPatch.escapePathComponent(name)}`;
    yield [at, member, value];
    yield* pathsOf(member, at);
  }
}

/** The operations that apply one after another, each made for the value that its predecessors leave. */
export function patchFor(value: Members, makers: readonly ((value: Members) => Operation)[]): Operation[] {
  let current = fastJsonPatch.deepClone(value) as Members;
  const operations: Operation[] = [];
  for (const make of makers) {
    if (typeof current.metadata !== 'object' || typeof current.spec !== 'object') break;
    if (current.metadata === null || !Array.isArray((current.spec as Members).containers)) break;
    if ((current.spec as { containers: Json[] }).containers.some((c) => typeof c !== 'object' || !c)) break;
    const next = make(current);
    try {
      const patch = fastJsonPatch.deepClone([next]) as fastJsonPatch.Operation[];
      current = fastJsonPatch.applyPatch(current, patch, true, false).newDocument;
      operations.push(next);
    } catch {
      // The parent is a scalar or null: no operation of ours would be made for it.
    }
  }
  return operations;
}

export const style = fc.record({
  indent: fc.constantFrom(1, 2, 3, 4, 8),
  indentSeq: fc.boolean(),
  collectionStyle: fc.constantFrom('any', 'block', 'flow'),
  flowCollectionPadding: fc.boolean(),
  defaultStringType: fc.constantFrom(
    'PLAIN',
    'QUOTE_DOUBLE',
    'QUOTE_SINGLE',
    'BLOCK_LITERAL',
    'BLOCK_FOLDED',
  ),
  defaultKeyType: fc.constantFrom('PLAIN', 'QUOTE_DOUBLE', 'QUOTE_SINGLE'),
  nullStr: fc.constantFrom('null', '~', ''),
  lineWidth: fc.constantFrom(0, 40, 80),
});
export const layout = fc.record({
  eol: fc.constantFrom('\n', '\r\n'),
  finalEol: fc.boolean(),
  bom: fc.boolean(),
  /** The lines, counted around the text, behind which a comment or a blank line stands. */
  decorated: fc.array(fc.tuple(fc.nat(60), fc.constantFrom('', '# c', '      # c', '\t# c')), {
    maxLength: 4,
  }),
  trailing: fc.array(fc.nat(60), { maxLength: 3 }),
});

type Style = typeof style extends fc.Arbitrary<infer T> ? T : never;
type Layout = typeof layout extends fc.Arbitrary<infer T> ? T : never;

/** Writes it in some style; comments that would break the text, or become part of a value, are taken out again. */
export function written(value: Json, { nullStr, ...options }: Style, look: Layout): string {
  // A null key in braces needs its word; `1.1` quotes what either version of YAML would take for a number.
  const word = options.collectionStyle === 'flow' && nullStr === '' ? '~' : nullStr;
  // Without it, the package writes an empty list in block style where no reader takes it for the key's value.
  const indentSeq = options.indentSeq || options.collectionStyle === 'block';
  const plain = yaml.stringify(value, {
    version: '1.1',
    ...options,
    indentSeq,
    nullStr: word,
    aliasDuplicateObjects: false,
  } as yaml.ToStringOptions);
  // The package breaks long texts in flow style at places where it cannot read them itself.
  fc.pre(sameValue(plain, plain));
  const commented = decorate(plain, look);
  const text = sameValue(plain, commented) ? commented : plain;
  const lines = text.replaceAll('\n', look.eol);
  const cut = look.finalEol ? lines : lines.slice(0, -look.eol.length);
  return (look.bom ? '\uFEFF' : '') + cut;
}

function decorate(text: string, { decorated, trailing }: Layout): string {
  const lines = text.split('\n').slice(0, -1);
  for (const nth of trailing) {
    const at = nth % lines.length;
    lines[at] += '  # trailing';
  }
  for (const [nth, line] of decorated) lines.splice(nth % (lines.length + 1), 0, line);
  return `${lines.join('\n')}\n`;
}

export function sameValue(a: string, b: string): boolean {
  try {
    return JSON.stringify(independently(a)) === JSON.stringify(independently(b));
  } catch {
    return false;
  }
}

/** What another reader makes of it: the `yaml` package's own YAML 1.1. */
export function independently(text: string): unknown {
  const documents = yaml.parseAllDocuments(text, { version: '1.1', merge: true });
  const failure = documents.flatMap(({ errors }) => errors)[0];
  if (failure) throw failure;
  return documents.map((document) => document.toJS() as unknown);
}

/** How a text is written that YAML 1.2 refuses, or reads as something else, and kubectl accepts. */
export const dialect = fc.record({
  /** What quoted text that goes on is indented by: its key's column, or less. */
  continued: fc.constantFrom(0, 1, 2),
  quote: fc.constantFrom('"', "'"),
  /** The column at which lines between brackets stand, where their parent's is 2. */
  between: fc.constantFrom(0, 2, 3),
  close: fc.constantFrom(']', '  ]'),
  comment: fc.constantFrom('', '#x', ' # x'),
  tabs: fc.boolean(),
  eol: fc.constantFrom('\n', '\r\n'),
  bom: fc.boolean(),
});

type Dialect = typeof dialect extends fc.Arbitrary<infer T> ? T : never;

/** A Pod in that dialect, and what kubectl reads. */
export function inDialect(words: readonly [string, string], look: Dialect): { text: string; value: Members } {
  const { continued, quote, between, close, comment, tabs, eol, bom } = look;
  const [first, second] = words;
  const indent = tabs ? '\t' : ' '.repeat(between);
  const lines = [
    'kind: Pod',
    'metadata:',
    '  labels: {',
    `${indent}a: b,`,
    `${indent}c: on`,
    `  }${comment}`,
    '  annotations:',
    `    about: ${quote}${first}`,
    '',
    `${' '.repeat(continued)}${second}${quote}${comment}`,
    'spec:',
    `  args: [${first},`,
    `${indent}${second}`,
    `${close}${comment}`,
    '  containers:',
    `  - name: ${quote}a${quote}${comment}`,
    `    ports: [{containerPort: 0x50}]${comment}`,
    '',
  ];
  const value: Members = {
    kind: 'Pod',
    metadata: { labels: { a: 'b', c: true }, annotations: { about: `${first}\n${second}` } },
    spec: { args: [first, second], containers: [{ name: 'a', ports: [{ containerPort: 80 }] }] },
  };
  return { text: (bom ? '\uFEFF' : '') + lines.join(eol), value };
}

/** Documents that are no workloads, in which a key stands twice; `value`: as kubectl reads it, the last one counts. */
export const twice = fc.constantFrom(
  { text: 'kind: ConfigMap\ndata:\n  a: b\n  a: c\n', value: { kind: 'ConfigMap', data: { a: 'c' } } },
  { text: '{"kind": "ConfigMap", "data": 1, "data": {}}\n', value: { kind: 'ConfigMap', data: {} } },
  { text: 'kind: X\n"kind": ConfigMap\n', value: { kind: 'ConfigMap' } },
  { text: 'on: 1\n"true": 2\nkind: ConfigMap\n', value: { true: 2, kind: 'ConfigMap' } },
);
