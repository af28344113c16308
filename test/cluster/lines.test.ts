import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { LineReader } from '../../src/cluster/reflector.ts';
import { cut } from './cut.ts';

const read = (reader: LineReader, chunks: readonly Buffer[]) =>
  chunks.flatMap((chunk) => [...reader.push(chunk)].map(String));

describe('lines', () => {
  it('are the same however they are cut into chunks', () => {
    const text = fc.string({ unit: 'grapheme', minLength: 1 }).map((each) => each.replaceAll('\n', ' '));
    fc.assert(
      fc.property(fc.array(text), fc.array(fc.nat()), (lines, places) => {
        const bytes = Buffer.from(lines.map((line) => `${line}\n`).join(''));
        const reader = new LineReader();
        expect(read(reader, cut(bytes, places))).toEqual(lines);
        expect(reader.incomplete).toBe(false);
      }),
    );
  });

  it('that are empty are left out, and one without an end is incomplete', () => {
    const reader = new LineReader();
    expect(read(reader, [Buffer.from('\na\n\n\nb')])).toEqual(['a']);
    expect(reader.incomplete).toBe(true);
  });

  it('that never end are given up, and no more than the limit is held', () => {
    const reader = new LineReader();
    const half = Buffer.alloc(8 * 1024 * 1024, 'a');
    const end = Buffer.from('\n');
    expect(read(reader, [half, half, end]).map(({ length }) => length)).toEqual([16 * 1024 * 1024]);
    expect(() => read(reader, [half, half, Buffer.from('a')])).toThrow('more than 16777216 bytes');
  });
});
