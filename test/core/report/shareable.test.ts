import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { readManifests } from '../../../src/core/manifest/index.ts';
import { blockYaml, JudgedManifests, shareable } from '../../../src/core/report/index.ts';

describe('what a link carries', () => {
  const SECRET = 'hunter2';
  it.each([
    ['a Secret', `apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {p: ${SECRET}}\n`],
    ['its text', `apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {p: ${SECRET}}\n`],
    ['a ConfigMap', `apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {p: ${SECRET}}\n`],
    ['a list', `apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Secret, data: {p: ${SECRET}}}]\n`],
    [
      'a Template',
      `apiVersion: template.openshift.io/v1\nkind: Template\nobjects: [{apiVersion: v1, kind: Secret, data: {p: ${SECRET}}}]\n`,
    ],
    [
      'a variable',
      `apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, env: [{name: P, value: ${SECRET}}]}]}\n`,
    ],
    [
      'what kubectl keeps of it',
      `apiVersion: v1\nkind: Secret\nmetadata: {name: a, annotations: {kubectl.kubernetes.io/last-applied-configuration: '${SECRET}'}}\n`,
    ],
    ['a comment', `# ${SECRET}\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\n`],
    ['what cannot be read', `a: [${SECRET}\n`],
  ])('has no value of %s', (_, text) => {
    expect(shareable([{ name: 'a.yaml', text }]).text).not.toContain(SECRET);
  });

  it('is judged as the input is', () => {
    const text =
      'apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {on: "yes", n: "1"}}\nspec:\n  containers:\n    - name: a\n      env: [{name: P, value: x}]\n      ports: [{containerPort: 80}]\n';
    const verdicts = (of: string) =>
      new JudgedManifests([{ name: 'a.yaml', text: of }], '').report.rows
        .flatMap(({ findings }) => findings)
        .map(({ line: _, column: __, ...finding }) => finding);
    expect(verdicts(shareable([{ name: 'a.yaml', text }]).text)).toEqual(verdicts(text));
  });
});

it('block YAML reads as what was written, for YAML 1.2 and as kubectl reads it', () => {
  const keys = fc.oneof(fc.string(), fc.constantFrom('on', 'a.b/c', 'yes', '1', '~', '-', 'a: b', '#'));
  const { value } = fc.letrec((tie) => ({
    value: fc.oneof(
      { maxDepth: 4 },
      keys,
      fc.integer(),
      fc.boolean(),
      fc.constant(null),
      fc.array(tie('value')),
      fc.dictionary(keys, tie('value'), { noNullPrototype: true }),
    ),
  }));
  fc.assert(
    fc.property(value, (each) => {
      // A key `__proto__` is none that JSON.parse and the parsers agree on.
      fc.pre(!JSON.stringify(each).includes('__proto__'));
      expect(parse(blockYaml({ a: each }))).toEqual({ a: each });
      const { objects } = readManifests(blockYaml({ kind: 'A', a: each }), 'a.yaml');
      expect(objects.map((object) => object.value)).toEqual([{ kind: 'A', a: each }]);
    }),
  );
});
