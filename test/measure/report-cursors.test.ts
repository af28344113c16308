import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ReportCursors } from '../../src/measure/report-cursors.ts';

const name = fc.stringMatching(/^[a-z0-9.-]{1,20}$/);
const number = fc.nat({ max: Number.MAX_SAFE_INTEGER });

describe('a cursor', () => {
  const cursors = new ReportCursors();

  it('is read back by whom it was given to, and by nobody else', () => {
    fc.assert(
      fc.property(name, name, name, number, (consumer, instance, other, given) => {
        const text = cursors.write(consumer, instance, given);
        expect(cursors.read(consumer, instance, text)).toBe(given);
        if (other !== instance) expect(cursors.read(consumer, other, text)).toBe('Foreign');
        if (other !== consumer) expect(cursors.read(other, instance, text)).toBe('Foreign');
        expect(new ReportCursors().read(consumer, instance, text)).toBe('Past');
      }),
    );
  });

  it('that is changed anywhere is none of ours', () => {
    const text = cursors.write('edge', 'gw-1', 4711);
    for (let at = 0; at < text.length; at++) {
      const changed = text.slice(0, at) + (text[at] === 'b' ? 'c' : 'b') + text.slice(at + 1);
      const read = cursors.read('edge', 'gw-1', changed);
      // The last character of 128 bits in base64 has four bits without meaning.
      if (at === text.length - 1) expect(['Foreign', 4711]).toContain(read);
      else expect(read).toBe(at < text.indexOf('.') ? 'Past' : 'Foreign');
    }
  });

  it.each(['', '.', '..', 'x', '__proto__', 'a'.repeat(256), '\u0000'])('%j was never given', (text) => {
    expect(cursors.read('edge', 'gw-1', text)).toBe('Foreign');
  });

  it('is short', () => {
    expect(cursors.write('edge', 'gw-1', Number.MAX_SAFE_INTEGER).length).toBeLessThan(64);
  });
});
