import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ReportCursors } from '../../src/measurement/reports/reports.ts';

const KEY = Buffer.alloc(32, 7);
const NEXT = Buffer.alloc(32, 8);
const name = fc.stringMatching(/^[a-z0-9.-]{1,20}$/);
const version = fc.option(fc.stringMatching(/^[1-9][0-9]{0,19}$/), { nil: undefined });
const given = fc.record({
  now: fc.double({ min: 0, max: 1e12, noNaN: true }),
  slices: version,
  endpoints: version,
});
const versions = { EndpointSlice: '48213', Endpoints: '48109' };

describe('a cursor', () => {
  const cursors = new ReportCursors(() => [KEY]);

  it('says to the instance that it was given to what Linger had seen and when, and nothing to others', () => {
    fc.assert(
      fc.property(name, name, name, given, (consumer, instance, other, { now, slices, endpoints }) => {
        const seen = { EndpointSlice: slices ?? '', Endpoints: endpoints ?? '' };
        const text = cursors.write(consumer, instance, now, seen);
        const { givenAt, versions } = cursors.read(consumer, instance, text)!;
        expect(versions).toEqual(seen);
        expect(givenAt).toBeLessThanOrEqual(now);
        expect(givenAt).toBeGreaterThan(now - 0.01);
        if (other !== instance) expect(cursors.read(consumer, other, text)).toBeUndefined();
        if (other !== consumer) expect(cursors.read(other, instance, text)).toBeUndefined();
      }),
    );
  });

  it('of another lead with the same key says what had been seen, and not when', () => {
    const text = cursors.write('edge', 'gw-1', 4_711, versions);
    expect(new ReportCursors(() => [KEY]).read('edge', 'gw-1', text)).toEqual({
      by: 'cursor',
      givenAt: undefined,
      versions,
    });
    expect(new ReportCursors(() => [NEXT]).read('edge', 'gw-1', text)).toBeUndefined();
  });

  it('outlives a change of the key, and is signed with the new one', () => {
    let keys: readonly [Buffer, ...Buffer[]] = [KEY];
    const changing = new ReportCursors(() => keys);
    const before = changing.write('edge', 'gw-1', 4_711, versions);
    keys = [NEXT, KEY];
    expect(changing.read('edge', 'gw-1', before)?.versions).toEqual(versions);
    const after = changing.write('edge', 'gw-1', 4_711, versions);
    expect(new ReportCursors(() => [NEXT]).read('edge', 'gw-1', after)?.versions).toEqual(versions);
    expect(new ReportCursors(() => [KEY]).read('edge', 'gw-1', after)).toBeUndefined();
  });

  it('that is changed anywhere is none of ours', () => {
    const text = cursors.write('edge', 'gw-1', 4_711, versions);
    // The last character of 128 bits in base64 has four bits without meaning.
    for (let at = 0; at < text.length - 1; at++) {
      const changed = text.slice(0, at) + (text[at] === '7' ? '6' : '7') + text.slice(at + 1);
      expect(cursors.read('edge', 'gw-1', changed)).toBeUndefined();
    }
  });

  it.each(['', '.', '..', 'x', '__proto__', 'a'.repeat(256), '\u0000'])('%j was never given', (text) => {
    expect(cursors.read('edge', 'gw-1', text)).toBeUndefined();
  });

  it('carries no version that cannot be compared', () => {
    const text = cursors.write('edge', 'gw-1', 4_711, { EndpointSlice: 'opaque', Endpoints: '7' });
    expect(cursors.read('edge', 'gw-1', text)?.versions).toEqual({ EndpointSlice: '', Endpoints: '7' });
  });

  it('is short', () => {
    const long = '9'.repeat(20);
    const text = cursors.write('edge', 'gw-1', 1e12, { EndpointSlice: long, Endpoints: long });
    expect(text.length).toBeLessThan(128);
  });
});
