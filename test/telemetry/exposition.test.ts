import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { MalformedExposition, parseExposition } from '../../src/telemetry/exposition.ts';

const parse = (text: string, ...wanted: readonly string[]) => parseExposition(text, new Set(wanted));

/** The one sample of a line: its labels and its value. */
function sampleOf(line: string) {
  const [sample] = parse(`${line}\n`, 'm').get('m') ?? [];
  return sample && [Object.fromEntries(sample.labels), sample.value];
}

describe('a line', () => {
  it.each([
    ['m 1', {}, 1],
    ['m\t 1 ', {}, 1],
    ['  m 1', {}, 1],
    ['m{} 1', {}, 1],
    ['m{}1', {}, 1],
    ['m{a="b"} 1', { a: 'b' }, 1],
    ['m{a="b",} 1', { a: 'b' }, 1],
    ['m { a = "b" , c = "d" } 1', { a: 'b', c: 'd' }, 1],
    ['m{a=""} 1', { a: '' }, 1],
    ['m{a="x y{}#,= z"} 1', { a: 'x y{}#,= z' }, 1],
    [String.raw`m{a="\"\\\n\t"} 1`, { a: '"\\\n\\t' }, 1],
    ['m{a="é世"} 1', { a: 'é世' }, 1],
    ['m 1.5e-7', {}, 1.5e-7],
    ['m -.5', {}, -0.5],
    ['m 5.', {}, 5],
    ['m +Inf', {}, Number.POSITIVE_INFINITY],
    ['m -Inf', {}, Number.NEGATIVE_INFINITY],
    ['m NaN', {}, Number.NaN],
    ['m 1 1795256749360', {}, 1],
    ['m 1 -17', {}, 1],
    ['m 1 1795256749.36', {}, 1],
    ['m{le="1"} 17 # {trace_id="x"} 0.67 1795256749.36', { le: '1' }, 17],
  ])('%s', (line, labels, value) => {
    expect(sampleOf(line)).toEqual([labels, value]);
  });

  it.each([
    ['m', 'expected a value'],
    ['m ', 'expected a value'],
    ['m one', 'expected a value'],
    ['m 0x1p-2', 'expected a value'],
    ['m 1_000', 'expected a value'],
    ['m 1 2 3', 'expected a value'],
    ['m{a="b"', 'expected labels'],
    ['m{a=b} 1', 'expected labels'],
    ['m{a="b" c="d"} 1', 'expected labels'],
    ['m{a="b\\"} 1', 'expected labels'],
    ['m{="b"} 1', 'expected labels'],
    ['m{a="b"} ', 'expected a value'],
    ['<!doctype html>', 'expected the name'],
    ['{"kind": "Status"}'.replace('"', "'"), 'expected the name'],
    ['1m 1', 'expected the name'],
  ])('%s is refused, by its number', (line, problem) => {
    expect(() => parse(`# HELP m x\n\n${line}\n`, 'm')).toThrow(MalformedExposition);
    expect(() => parse(`# HELP m x\n\n${line}\n`, 'm')).toThrow(`line 3: ${problem}`);
  });
});

describe('a text', () => {
  it('gives the wanted metrics only, in order; of others only the name is looked at', () => {
    const text = 'a 1\nb{nonsense\nc{x="1"} 2\n# TYPE c counter\nc{x="2"} 3\r\nabc 7';
    const found = parse(text, 'a', 'c');
    expect([...found.keys()]).toEqual(['a', 'c']);
    expect(found.get('c')?.map(({ value }) => value)).toEqual([2, 3]);
  });

  it.each([
    ['nothing', ''],
    ['only newlines', '\n\n'],
    ['OpenMetrics’ end', '# EOF\n'],
  ])('%s', (_what, text) => {
    expect(parse(text, 'a').size).toBe(0);
  });

  it('names outside the old alphabet are passed over', () => {
    expect(parse('{"my.metric", a="b"} 1\na 2\n', 'a').get('a')?.length).toBe(1);
  });

  it('a name is no prefix', () => {
    expect(parse('a_total 1\na:b 2\n', 'a').size).toBe(0);
  });

  it('a huge label takes no stack', () => {
    const text = `m{a="${'y\\\\'.repeat(500_000)}"} 1`;
    expect(parse(text, 'm').get('m')?.[0]?.labels.get('a')?.length).toBe(1_000_000);
  });

  it('any label and any number come back as they were written', () => {
    const label = fc.string({ unit: 'binary' }).map((text) => text.replaceAll('\r', '').trim());
    fc.assert(
      fc.property(
        label,
        fc.double().map((number) => number + 0),
        (text, value) => {
          const written = text.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n');
          const spelt = Number.isFinite(value) ? String(value) : String(value).replace('Infinity', 'Inf');
          expect(sampleOf(`m{a="${written}"} ${spelt}`)).toEqual([{ a: text }, value]);
        },
      ),
    );
  });
});
