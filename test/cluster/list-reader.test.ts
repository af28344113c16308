import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ListReader, sparingParser } from '../../src/cluster/list.ts';
import { cut } from './cut.ts';

const HEAD = { kind: 'PodList', apiVersion: 'v1', metadata: { resourceVersion: '7', continue: 'more' } };

function read(text: string, places: readonly number[] = []) {
  const reader = new ListReader(sparingParser({}));
  const early = cut(Buffer.from(text), places).flatMap((chunk) => reader.push(chunk));
  const { items, ...end } = reader.end();
  return { ...end, items: [...early, ...items], early: early.length };
}

describe('a page', () => {
  const confusing = fc.constantFrom(
    ',{"metadata":',
    '{"metadata":{"name":"a"}},{"metadata":{',
    '"items":[',
    ']}',
  );
  const name = fc.oneof(fc.string({ unit: 'grapheme' }), confusing);
  /** Like items of a list themselves, so that the text between two of them is found within one. */
  const nested = fc.array(fc.record({ metadata: fc.record({ name }) }), { maxLength: 3 });
  const item = fc.record({ metadata: fc.record({ name }), templates: nested });

  it('gives the same items however it is cut into chunks', () => {
    fc.assert(
      fc.property(fc.array(item), fc.array(fc.nat()), (items, places) => {
        const page = JSON.stringify({ ...HEAD, items });
        expect(read(page, places)).toMatchObject({ items, resourceVersion: '7', next: 'more' });
      }),
    );
  });

  it('gives each item when the next one begins', () => {
    const items = [{ metadata: { name: 'a' } }, { metadata: { name: 'b' } }, { metadata: { name: 'c' } }];
    expect(read(JSON.stringify({ ...HEAD, items })).early).toBe(2);
  });

  it.each([
    { name: 'without items', items: [] },
    { name: 'with null for no items', items: null },
    { name: 'with items that begin differently', items: [{ a: 1 }, { b: 2 }] },
    { name: 'with items that are empty', items: [{}, {}] },
  ])('$name is read', ({ items }) => {
    expect(read(`${JSON.stringify({ ...HEAD, items })}\n`).items).toEqual(items ?? []);
  });

  it.each([
    { name: 'with its fields in another order', page: { items: [{ metadata: {} }], ...HEAD } },
    { name: 'with a field after the items', page: { ...HEAD, items: [{ metadata: {} }], more: 1 } },
    { name: 'with "items" in its metadata', page: withItemsInMetadata() },
  ])('$name is read', ({ page }) => {
    expect(read(JSON.stringify(page))).toMatchObject({ resourceVersion: '7', items: page.items });
  });

  it('that is written for people is read', () => {
    const items = [{ metadata: { name: 'a' } }, { metadata: { name: 'b' } }];
    expect(read(JSON.stringify({ ...HEAD, items }, null, 2)).items).toEqual(items);
  });

  it.each([
    { name: 'nothing', text: '' },
    { name: 'something else', text: '<html>' },
    { name: 'a list that ends early', text: '{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{' },
    { name: 'a list without a resourceVersion', text: '{"metadata":{},"items":[]}' },
    { name: 'a list of something else', text: '{"metadata":{"resourceVersion":"7"},"items":"x"}' },
  ])('$name is malformed', ({ text }) => {
    expect(() => read(text)).toThrow(expect.objectContaining({ reason: 'Malformed' }));
  });
});

function withItemsInMetadata() {
  const { metadata } = HEAD;
  return { ...HEAD, metadata: { items: [{ a: 1 }, { a: 2 }], ...metadata }, items: [{ metadata: {} }] };
}
