import fc from 'fast-check';
import fastJsonPatch from 'fast-json-patch';
import { describe, expect, it } from 'vitest';
import * as yaml from 'yaml';
import type { Operation } from '../../../src/core/decision/index.ts';
import { decodeText, type Encoding, encodeText } from '../../../src/core/manifest/index.ts';
import { runs } from '../../property/runs.ts';
import {
  dialect,
  inDialect,
  independently,
  layout,
  type Members,
  manifest,
  operation,
  patchFor,
  sameValue,
  style,
  twice,
  written,
} from './arbitrary-manifest.ts';
import { editFile, readFile } from './sample-edit.ts';

function isSubsequence<T>(part: Iterable<T>, whole: Iterable<T>): boolean {
  const rest = whole[Symbol.iterator]();
  for (const element of part) {
    let next = rest.next();
    while (!next.done && next.value !== element) next = rest.next();
    if (next.done) return false;
  }
  return true;
}

/** Block style throughout, and nothing there yet at the operations' places. */
const onlyAddsLines = (text: string, operations: readonly Operation[], value: unknown): boolean =>
  !/[{[~]|null/.test(text) &&
  operations.every(({ op, path }) => op === 'add' && memberAt(value, path) === undefined);

function memberAt(value: unknown, path: string): unknown {
  try {
    return fastJsonPatch.getValueByPointer(value, path) ?? undefined;
  } catch {
    return undefined;
  }
}

function check(text: string, makers: readonly ((value: Members) => Operation)[]): Operation[] {
  const file = readFile(text, 'f.yaml');
  const [object] = file.objects;
  const operations = patchFor(object!.value as Members, makers);
  const edited = editFile(file, [{ object: object!, operations, at: '' }]);
  expect(edited.notes).toEqual([]);

  const [before] = independently(text) as [Members];
  const patch = fastJsonPatch.deepClone(operations) as fastJsonPatch.Operation[];
  const expected: unknown = fastJsonPatch.applyPatch(
    fastJsonPatch.deepClone(before),
    patch,
    true,
  ).newDocument;
  expect(fastJsonPatch.deepClone((independently(edited.text) as [Members])[0])).toEqual(expected);

  const lines = (t: string): string[] => t.split(/(?<=\n)/).map((line) => line.replace(/\r?\n$/, ''));
  if (onlyAddsLines(text, operations, before)) {
    expect(isSubsequence(lines(text), lines(edited.text))).toBe(true);
  }

  const again = readFile(edited.text, 'f.yaml');
  const repeated = operations.filter(
    (each) =>
      each.op !== 'remove' &&
      JSON.stringify(memberAt(again.objects[0]!.value, each.path)) === JSON.stringify(each.value),
  );
  const edits = [{ object: again.objects[0]!, operations: repeated, at: '' }];
  expect(editFile(again, edits).text).toBe(edited.text);
  return operations;
}

describe('whatever the style, the edited text reads as the patched value', () => {
  const makers = fc.array(operation, { minLength: 1, maxLength: 5 });

  it('YAML', () => {
    let edits = 0;
    fc.assert(
      fc.property(manifest, style, layout, makers, (value, options, look, ops) => {
        edits += check(written(value, options, look), ops).length;
      }),
      runs(100),
    );
    expect(edits).toBeGreaterThan(150);
  });

  it('JSON', () => {
    fc.assert(
      fc.property(
        manifest,
        fc.constantFrom(undefined, 1, 2, 4, '\t'),
        layout,
        makers,
        (value, step, look, ops) => {
          const text =
            JSON.stringify(value, null, step).replaceAll('\n', look.eol) + (look.finalEol ? look.eol : '');
          const operations = patchFor(value, ops);
          const file = readFile(text, 'f.json');
          const edited = editFile(file, [{ object: file.objects[0]!, operations, at: '' }]);
          const patch = fastJsonPatch.deepClone(operations) as fastJsonPatch.Operation[];
          const expected = fastJsonPatch.applyPatch(fastJsonPatch.deepClone(value), patch)
            .newDocument as Members;
          expect(fastJsonPatch.deepClone(JSON.parse(edited.text))).toEqual(expected);
          if (operations.every(({ op }) => op === 'add')) {
            const print = JSON.stringify(expected, null, step).replaceAll('\n', look.eol);
            expect(edited.text.trimEnd()).toBe(print);
          }
        },
      ),
      runs(100),
    );
  });

  it('a stream of documents: those that are not edited keep every byte', () => {
    const documents = fc.array(fc.tuple(manifest, style, layout), { minLength: 2, maxLength: 4 });
    fc.assert(
      fc.property(documents, fc.nat(), makers, (parts, nth, ops) => {
        const texts = parts.map(([value, options, look]) =>
          written(value, options, { ...look, eol: '\n', bom: false, finalEol: true }),
        );
        const file = readFile(texts.join('---\n'), 'f.yaml');
        const index = nth % texts.length;
        const object = file.objects[index]!;
        const operations = patchFor(object.value as Members, ops);
        const { text } = editFile(file, [{ object, operations, at: '' }]);
        const head = texts
          .slice(0, index)
          .map((part) => `${part}---\n`)
          .join('');
        const tail = texts
          .slice(index + 1)
          .map((part) => `---\n${part}`)
          .join('');
        expect(text.startsWith(head)).toBe(true);
        expect(text.endsWith(tail)).toBe(true);
      }),
      runs(40),
    );
  });

  it('text by hand, with comments in all places', () => {
    const pieces = fc.record({
      head: fc.constantFrom('', '# head\n\n', '---\n', '%YAML 1.1\n---\n', '\uFEFF', '--- # c\n'),
      metadata: fc.constantFrom(
        'metadata:\n  name: a # n\n  # about\n  annotations: # none\n\n',
        'metadata: {name: a, # n\n  annotations: {}}\n',
        'metadata:\n      name: a\n      annotations: {} # none\n# end of metadata\n',
        'metadata: {\n    "name": "a",\n    "annotations": {"x": "1"}, # c\n  }\n',
        'metadata:\n    annotations:\n        x: |\n            y\n\n\n        # not text\n',
        '"metadata":\n  ? annotations\n  : x: y\n',
        "metadata: &own\n  name: 'a\n    b'\n",
        'metadata: !!map\n  name: "a\\\n    b"\n',
      ),
      spec: fc.constantFrom(
        'spec:\n  containers:\n  - name: a # c\n  # between\n  - name: b\n    lifecycle:   # none\n',
        'spec:\n  containers:\n  # first\n\n  - # dash\n    name: a\n    args: [x,\n      y] # c\n',
        'spec:\n  containers: [{name: a}, {name: b, lifecycle: }]\n  terminationGracePeriodSeconds: 030 # c\n',
        'spec:\n    containers:\n        -   name: a\n            args:\n            - >-\n              x\n\n    # end\n',
        'spec: {containers: [{"name":"a"}], }\n',
        'spec:\n  terminationGracePeriodSeconds: &t 30\n  containers:\n  - name: a\n    image:\n',
        'spec:\n  containers:\n  - &first\n    name: a\n    command: ["sh", "-c", "sleep 30"]\n  - {name: b}   \n\n',
      ),
      order: fc.boolean(),
      tail: fc.constantFrom('', '# tail\n', '...\n', '\n\n', '---\n', '  # tail'),
      eol: fc.constantFrom('\n', '\r\n'),
    });
    fc.assert(
      fc.property(pieces, makers, ({ head, metadata, spec, order, tail, eol }, ops) => {
        check((head + (order ? metadata + spec : spec + metadata) + tail).replaceAll('\n', eol), ops);
      }),
      runs(100),
    );
  });

  it('anchors and aliases: patched as it should be, or left byte for byte with a note', () => {
    let [patched, left] = [0, 0];
    fc.assert(
      fc.property(manifest, fc.boolean(), makers, (value, flow, ops) => {
        // Values that are one object become an anchor and its aliases.
        const [first] = (value.spec as { containers: Members[] }).containers;
        const shared = { ...value, again: first!, also: value.metadata! };
        const text = yaml.stringify(shared, {
          version: '1.1',
          collectionStyle: flow ? 'flow' : 'block',
          lineWidth: 0,
        });
        fc.pre(sameValue(text, text));
        const file = readFile(text, 'f.yaml');
        const object = file.objects[0]!;
        const operations = patchFor(object.value as Members, ops);
        const edited = editFile(file, [{ object, operations, at: '' }]);
        if (edited.notes.length > 0) {
          left++;
          expect(edited.text).toBe(text);
          return;
        }
        patched++;
        const [before] = independently(text) as [unknown];
        const patch = fastJsonPatch.deepClone(operations) as fastJsonPatch.Operation[];
        const expected: unknown = fastJsonPatch.applyPatch(
          fastJsonPatch.deepClone(before),
          patch,
        ).newDocument;
        expect(fastJsonPatch.deepClone((independently(edited.text) as [unknown])[0])).toEqual(expected);
      }),
      runs(100),
    );
    expect(Math.min(patched, left)).toBeGreaterThan(5);
  });

  it('what kubectl reads and YAML 1.2 does not, in every encoding', () => {
    const word = fc.constantFrom('x', 'two words', 'http://c:80', 'a#b', 'grüße', '日本\u{1F600}');
    const encodings = fc.constantFrom<Encoding>('utf-8', 'utf-16le', 'utf-16be');
    const documents = fc.record({ words: fc.tuple(word, word), look: dialect, before: fc.option(twice) });
    fc.assert(
      fc.property(documents, encodings, makers, ({ words, look, before }, encoding, ops) => {
        const { text, value } = inDialect(words, { ...look, bom: look.bom || encoding !== 'utf-8' });
        const head = before === null ? '' : `${before.text.replaceAll('\n', look.eol)}---${look.eol}`;
        // A byte order mark stands at the very beginning.
        const whole = text.startsWith('\uFEFF') ? `\uFEFF${head}${text.slice(1)}` : head + text;
        const decoded = decodeText(Buffer.concat([...encodeText(whole, encoding)]), 'f.yaml');
        expect(decoded).toEqual({ text: whole, encoding });

        const file = readFile(decoded.text);
        const object = file.objects.at(-1)!;
        expect(file.objects.map((each) => each.value)).toEqual([...(before ? [before.value] : []), value]);
        expect(file.objects.map((each) => each.duplicateKey !== undefined)).toEqual(
          before ? [true, false] : [false],
        );
        const operations = patchFor(value, ops);
        const edited = editFile(file, [{ object, operations, at: '' }]);
        const patch = fastJsonPatch.deepClone(operations) as fastJsonPatch.Operation[];
        const expected: unknown = fastJsonPatch.applyPatch(fastJsonPatch.deepClone(value), patch).newDocument;
        expect(edited.notes).toEqual([]);
        expect(edited.text.startsWith(whole.slice(0, whole.length - text.replace('\uFEFF', '').length))).toBe(
          true,
        );
        expect(fastJsonPatch.deepClone(readFile(edited.text).objects.at(-1)!.value)).toEqual(expected);
      }),
      runs(100),
    );
  });
});
