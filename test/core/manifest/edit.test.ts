import { describe, expect, it } from 'vitest';
import type { Operation } from '../../../src/core/decision/index.ts';
import {
  edit,
  grace,
  hook,
  hookInLifecycle,
  hookInLifecycleOf,
  PLAN_TEXT,
  planMap,
  planMember,
  planMetadata,
  remove,
  set,
} from './sample-edit.ts';

type Case = readonly [name: string, before: string, operations: readonly Operation[], after: string];

const BLOCK: readonly Case[] = [
  [
    'behind the last value, before comments and blank lines that follow',
    'metadata:\n  annotations:\n    a: b   # one\n\n# next\nspec:\n  x: 1\n',
    [planMember, grace],
    `metadata:\n  annotations:\n    a: b   # one\n    linger.dev/plan: '${PLAN_TEXT.replaceAll("'", "''")}'\n\n# next\nspec:\n  x: 1\n  terminationGracePeriodSeconds: 45\n`,
  ],
  [
    'a sequence that is not indented under its key',
    'spec:\n  containers:\n  - name: a\n    image: b\n  - name: c\n',
    [hook],
    'spec:\n  containers:\n  - name: a\n    image: b\n    lifecycle:\n      preStop:\n        sleep:\n          seconds: 15\n  - name: c\n',
  ],
  [
    'the file’s own step, wide dashes, no final line end',
    'spec:\n    containers:\n        -   name: a',
    [hook, grace],
    'spec:\n    containers:\n        -   name: a\n            lifecycle:\n                preStop:\n                    sleep:\n                        seconds: 15\n    terminationGracePeriodSeconds: 45',
  ],
  [
    'a dash on a line of its own',
    'spec:\n  containers:\n  -\n    name: a\n',
    [hook],
    'spec:\n  containers:\n  -\n    name: a\n    lifecycle:\n      preStop:\n        sleep:\n          seconds: 15\n',
  ],
  [
    'CRLF',
    'metadata:\r\n  name: a\r\nspec:\r\n  x: 1 # c\r\n',
    [planMap, grace],
    'metadata:\r\n  name: a\r\n  annotations:\r\n    linger.dev/plan: p\r\nspec:\r\n  x: 1 # c\r\n  terminationGracePeriodSeconds: 45\r\n',
  ],
  [
    'no metadata at all',
    'spec:\n  x: 1\n',
    [planMetadata],
    'spec:\n  x: 1\nmetadata:\n  annotations:\n    linger.dev/plan: p\n',
  ],
  [
    'a null without a word',
    'metadata:\n  annotations: # none\n  # more\n  name: a\n',
    [planMap],
    'metadata:\n  annotations: # none\n    linger.dev/plan: p\n  # more\n  name: a\n',
  ],
  [
    'a null word',
    'metadata:\n  annotations: null # none\n  name: a\n',
    [planMap],
    'metadata:\n  annotations: # none\n    linger.dev/plan: p\n  name: a\n',
  ],
  [
    'an empty mapping',
    'metadata:\n  annotations: {} # none\n  name: a\n',
    [{ ...planMember, value: 'p' }],
    'metadata:\n  annotations: # none\n    linger.dev/plan: p\n  name: a\n',
  ],
  [
    'an empty mapping on the next line',
    'metadata:\n  annotations:\n    {}\n',
    [planMap],
    'metadata:\n  annotations:\n    {linger.dev/plan: p}\n',
  ],
  [
    'behind a block scalar',
    'metadata:\n  annotations:\n    a: |\n      text\n\n\nspec: {}\n',
    [{ ...planMember, value: 'p' }],
    'metadata:\n  annotations:\n    a: |\n      text\n    linger.dev/plan: p\n\n\nspec: {}\n',
  ],
  [
    'behind a block scalar that keeps its blank lines',
    'metadata:\n  annotations:\n    a: >+\n      text\n\n\nspec: {}\n',
    [{ ...planMember, value: 'p' }],
    'metadata:\n  annotations:\n    a: >+\n      text\n\n\n    linger.dev/plan: p\nspec: {}\n',
  ],
  [
    'behind a block scalar without a final line end',
    'metadata:\n  annotations:\n    a: |\n      text',
    [{ ...planMember, value: 'p' }],
    'metadata:\n  annotations:\n    a: |\n      text\n    linger.dev/plan: p',
  ],
  [
    'behind a mapping that ends in a null, an anchor, a long quoted text',
    'metadata:\n  labels:\n    a: "x\n      y"\n    b: &z\n    c:\nspec: {}\n',
    [planMap],
    'metadata:\n  labels:\n    a: "x\n      y"\n    b: &z\n    c:\n  annotations:\n    linger.dev/plan: p\nspec: {}\n',
  ],
  [
    'quoted keys, byte order mark, other scripts',
    '\uFEFF"metadata":\n  "name": "grüße \u{1F600}"\n',
    [planMap],
    '\uFEFF"metadata":\n  "name": "grüße \u{1F600}"\n  annotations:\n    linger.dev/plan: p\n',
  ],
  [
    'two mappings that end on one line: the inner one first',
    'spec:\n  containers:\n  - name: a\n',
    [grace, hookInLifecycleOf('lifecycle')],
    "spec:\n  containers:\n  - name: a\n    lifecycle:\n      preStop:\n        exec:\n          command: [sleep, '15']\n  terminationGracePeriodSeconds: 45\n",
  ],
  [
    'operations that build on each other',
    'metadata:\n  name: a\n',
    [
      { op: 'add', path: '/metadata/annotations', value: {} },
      { op: 'add', path: '/metadata/annotations/a~1b~0c', value: 'x y' },
      { op: 'add', path: '/metadata/annotations/gone', value: '' },
      remove('/metadata/annotations/gone'),
    ],
    "metadata:\n  name: a\n  annotations:\n    'a/b~c': 'x y'\n",
  ],
];

const SCALARS: readonly Case[] = [
  ['a number, with its comment', 'a: 030 # thirty\n', [set('/a', 45)], 'a: 45 # thirty\n'],
  [
    'the same value in another writing',
    'a: 030\nb: 1_000\n',
    [set('/a', 24), set('/b', 1000)],
    'a: 030\nb: 1_000\n',
  ],
  ['double quotes stay', 'a: ["sleep", "30"]\n', [set('/a/1', '45')], 'a: ["sleep", "45"]\n'],
  ['single quotes stay', "a:\n- sleep\n- '30' # c\n", [set('/a/1', '45')], "a:\n- sleep\n- '45' # c\n"],
  ['a bare word stays bare', 'a: sleep\n', [set('/a', 'wait')], 'a: wait\n'],
  ['a text that looks like a number gets quotes', 'a: 30\n', [set('/a', '45')], "a: '45'\n"],
  ['a text that looks like a boolean gets quotes', 'a: b\n', [set('/a', 'y')], "a: 'y'\n"],
  ['a number takes the place of a text', 'a: "30"\n', [set('/a', 45)], 'a: 45\n'],
  ['a block scalar', 'a:\n- |-\n  sleep 30\n- b\n', [set('/a/0', 'sleep 45')], "a:\n- 'sleep 45'\n- b\n"],
  ['an escaped text', 'a: "x"\n', [set('/a', 'é\n\u2028"')], 'a: "é\\n\\u2028\\""\n'],
  ['an absent value', 'a:\nb: 1\n', [set('/a', 45)], 'a: 45\nb: 1\n'],
  ['a tag stays', 'a: !!str 30\n', [set('/a', '45')], "a: !!str '45'\n"],
  ['a number’s tag stays', 'a: !!int 030 # c\n', [set('/a', 45)], 'a: !!int 45 # c\n'],
  ['an anchor of its own stays', 'a: &x 30\n', [set('/a', 45)], 'a: &x 45\n'],
  ['a Windows path', "a: 'C:\\x'\n", [set('/a', 'D:\\y')], "a: 'D:\\y'\n"],
];

const FLOW: readonly Case[] = [
  [
    'on one line',
    'spec: {containers: [{name: a}]}\n',
    [hook, grace],
    'spec: {containers: [{name: a, lifecycle: {preStop: {sleep: {seconds: 15}}}}], terminationGracePeriodSeconds: 45}\n',
  ],
  ['empty', 'metadata: {annotations: {}}\n', [planMap], 'metadata: {annotations: {linger.dev/plan: p}}\n'],
  ['with a trailing comma', 'spec: {a: 1,}\n', [grace], 'spec: {a: 1, terminationGracePeriodSeconds: 45,}\n'],
  [
    'behind a lone key',
    'spec: {a, b}\n',
    [grace, set('/spec/a', 'x')],
    'spec: {a: x, b , terminationGracePeriodSeconds: 45}\n',
  ],
  ['behind a null', 'spec: {a: }\n', [grace], 'spec: {a: , terminationGracePeriodSeconds: 45 }\n'],
  [
    'on several lines',
    'spec: {\n  a: 1,\n  b: 2\n}\n',
    [grace],
    'spec: {\n  a: 1,\n  b: 2,\n  terminationGracePeriodSeconds: 45\n}\n',
  ],
  [
    'on several lines, with comments',
    'spec: {\n  a: 1, # one\n  b: 2 # two\n  # end\n}\n',
    [grace],
    'spec: {\n  a: 1, # one\n  b: 2, # two\n  terminationGracePeriodSeconds: 45\n  # end\n}\n',
  ],
  [
    'on several lines, with a comment behind a trailing comma',
    'spec: {\n  a: 1, # one\n}\n',
    [grace],
    'spec: {\n  a: 1, # one\n  terminationGracePeriodSeconds: 45,\n}\n',
  ],
  [
    'empty but for a comment',
    'spec: { # c\n  }\n',
    [grace],
    'spec: {terminationGracePeriodSeconds: 45 # c\n  }\n',
  ],
  [
    'JSON between YAML marks',
    '---\n{"spec": {"a": 1}}\n---\nspec:\n  a: 1\n',
    [grace],
    '---\n{"spec": {"a": 1, "terminationGracePeriodSeconds": 45}}\n---\nspec:\n  a: 1\n  terminationGracePeriodSeconds: 45\n',
  ],
];

const JSON_TEXT: readonly Case[] = [
  ['compact', '{"spec":{"a":[]}}', [grace], '{"spec":{"a":[],"terminationGracePeriodSeconds":45}}'],
  [
    'one line',
    '{ "spec": {"a": 1} }\n',
    [grace],
    '{ "spec": {"a": 1, "terminationGracePeriodSeconds": 45} }\n',
  ],
  [
    'several objects, each in its style',
    '{"spec":{"a":1}}{\n  "spec": {\n    "a": 1\n  }\n}\n',
    [grace],
    '{"spec":{"a":1,"terminationGracePeriodSeconds":45}}{\n  "spec": {\n    "a": 1,\n    "terminationGracePeriodSeconds": 45\n  }\n}\n',
  ],
  [
    'a text with quotes',
    '{"metadata":{"annotations":{"a":"\\u00e9"}}}',
    [planMember],
    `{"metadata":{"annotations":{"a":"\\u00e9","linger.dev/plan":${JSON.stringify(PLAN_TEXT)}}}}`,
  ],
  ['a replaced text', '{"a": ["sleep", "30"]}', [set('/a/1', '45')], '{"a": ["sleep", "45"]}'],
  ['removals', '{"a": 1, "b": 2, "c": 3}', [remove('/a'), remove('/c')], '{"b": 2}'],
  ['all removed', '{"a": {"b": 2, "c": 3}}', [remove('/a/b'), remove('/a/c')], '{"a": {}}'],
];

const REMOVED: readonly Case[] = [
  ['the last entry', 'a: 1\nb:\n  c: 1 # x\n# d\n', [remove('/b')], 'a: 1\n# d\n'],
  [
    'comments inside it go with it, those behind it stay',
    'a: |\n  x\nb:\n  c: 1\n\n  # in b\n\n# d\nd: 1\n',
    [remove('/b')],
    'a: |\n  x\n\n# d\nd: 1\n',
  ],
  [
    'the last entry with its comments, where others come',
    's:\n  a: 1\n  b:\n    c: 1\n    # in b\n',
    [{ op: 'add', path: '/t', value: 3 }, { op: 'add', path: '/s/d', value: 2 }, remove('/s/b')],
    's:\n  a: 1\n  d: 2\nt: 3\n',
  ],
  ['the first entry', 'a: 1\nb: 2\n', [remove('/a')], 'b: 2\n'],
  ['behind a dash', 'l:\n- a: 1\n  b: 2\n  c: 3\n', [remove('/l/0/a')], 'l:\n- b: 2\n  c: 3\n'],
  ['two behind a dash', 'l:\n- a: 1\n  b: 2\n  c: 3\n', [remove('/l/0/a'), remove('/l/0/b')], 'l:\n- c: 3\n'],
  ['the only entry', 'a:\n  b:\n    c: 1\nd: 2\n', [remove('/a/b')], 'a:\n  {}\nd: 2\n'],
  [
    'one for another',
    'l:\n- a: 1\nd: 2\n',
    [remove('/l/0/a'), { op: 'add', path: '/l/0/b', value: 2 }],
    'l:\n- b: 2\nd: 2\n',
  ],
  [
    'a collection replaced by another',
    'a:\n  exec: [x] # old\n  b: 1\nc: 2\n',
    [set('/a', { sleep: { seconds: 15 } })],
    'a:\n  sleep:\n    seconds: 15\nc: 2\n',
  ],
];

describe.each([
  ['block YAML', BLOCK],
  ['replaced scalars', SCALARS],
  ['flow YAML', FLOW],
  ['JSON', JSON_TEXT],
  ['removed members', REMOVED],
] as const)('%s', (_group, cases) => {
  it.each(cases)('%s', (_name, before, operations, after) => {
    expect(edit(before, operations)).toEqual({ text: after, notes: [] });
  });
});

it.each(['  ', '    ', '\t'])('pretty JSON is written as JSON.stringify with step %j would', (step) => {
  const value = { metadata: { annotations: {} }, spec: { containers: [{ name: 'a' }] } };
  const expected = structuredClone(value) as Record<string, unknown>;
  Object.assign(expected, {
    metadata: { annotations: { 'linger.dev/plan': PLAN_TEXT } },
    spec: {
      containers: [{ name: 'a', lifecycle: { preStop: hookInLifecycle.value } }],
      terminationGracePeriodSeconds: 45,
    },
  });
  const operations = [planMember, hookInLifecycleOf('lifecycle'), grace];
  for (const eol of ['\n', '\r\n']) {
    const print = (v: unknown): string => `${JSON.stringify(v, null, step)}\n`.replaceAll('\n', eol);
    expect(edit(print(value), operations).text).toBe(print(expected));
  }
});
