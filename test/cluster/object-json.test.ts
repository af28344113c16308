import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import { readEvent, readListPage } from '../../src/cluster/object-json.ts';

const HEAD = { kind: 'PodList', apiVersion: 'v1', metadata: { resourceVersion: '7', continue: 'more' } };

function read(text: string) {
  const items: unknown[] = [];
  const steps = readListPage(Buffer.from(text), (item) => items.push(item));
  for (;;) {
    const step = steps.next();
    if (step.done === true) return { ...step.value, items };
  }
}

const text = fc.oneof(
  fc.string({ unit: 'grapheme' }),
  fc.constantFrom(',{"metadata":', '{"metadata":{"name":"a"}},{"metadata":{', '"items":[', ']}', '\\', '"'),
);
const map = fc.dictionary(text, text);
/**
 * As JSON has it: no negative zero, no null prototype. No key needs an escape: V8 13.6 takes one such as `"` for another of the
 * same length that begins with a backslash, where an object of that shape has been seen, as in
 * `JSON.parse('{"☃":{"x":1,"\\\\":1},"z":{"x":1,"\\"":2}}')`. No name in Kubernetes has either.
 */
const ESCAPED_KEY = /"(?:[^"\\]|\\.)*\\.(?:[^"\\]|\\.)*":/;
const asJson = <T>(arbitrary: fc.Arbitrary<T>) =>
  arbitrary
    .map((value) => JSON.stringify(value))
    .filter((json) => !ESCAPED_KEY.test(json))
    .map((json): T => JSON.parse(json));

describe('a page', () => {
  const metadata = fc.record({ name: text, labels: map });
  const item = asJson(fc.record({ metadata, spec: fc.jsonValue() }));

  it.each([undefined, 2])('gives its items, whatever their strings are, indented by %s', (indent) => {
    fc.assert(
      fc.property(fc.array(item), (items) => {
        const page = JSON.stringify({ ...HEAD, items }, null, indent);
        expect(read(page)).toEqual({ items, resourceVersion: '7', next: 'more' });
      }),
    );
  });

  it.each([
    { name: 'without items', page: { ...HEAD, items: [] } },
    { name: 'with null for no items', page: { ...HEAD, items: null } },
    { name: 'with items that are empty', page: { ...HEAD, items: [{}, {}] } },
    { name: 'with its fields in another order', page: { items: [{ metadata: {} }], ...HEAD } },
    {
      name: 'with "items" in its metadata',
      page: { metadata: { items: [1], ...HEAD.metadata }, items: [{}] },
    },
  ])('$name is read', ({ page }) => {
    expect(read(`${JSON.stringify(page)}\n`)).toMatchObject({
      resourceVersion: '7',
      items: page.items ?? [],
    });
  });

  it.each([
    { name: 'nothing', text: '' },
    { name: 'something else', text: '<html>' },
    { name: 'a list that ends early', text: '{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{' },
    { name: 'a list without a resourceVersion', text: '{"metadata":{},"items":[]}' },
    { name: 'a list of something else', text: '{"metadata":{"resourceVersion":"7"},"items":["x"]}' },
  ])('$name is malformed', ({ text }) => {
    expect(() => read(text)).toThrow(expect.objectContaining({ reason: 'Malformed' }));
  });
});

describe('a large object', () => {
  const padding = { managedFields: [{ manager: 'x'.repeat(40_000) }] };
  const identity = { name: 'web', namespace: 'shop', uid: 'u', resourceVersion: '123456789' };
  const event = (metadata: object, more: object = {}) =>
    readEvent(Buffer.from(JSON.stringify({ type: 'MODIFIED', object: { metadata, ...more } })));

  test('loses its managedFields and nothing that is read, whatever its strings are', () => {
    fc.assert(
      fc.property(asJson(map), asJson(map), asJson(fc.jsonValue()), (labels, annotations, spec) => {
        const read = { ...identity, labels, annotations, deletionGracePeriodSeconds: 30 };
        const expected = { type: 'MODIFIED', object: { metadata: read, spec } };
        expect(event({ ...read, ...padding }, { spec })).toEqual(expected);
      }),
    );
  });

  const many = (count: number, value: (index: number) => string) =>
    Object.fromEntries(Array.from({ length: count }, (_, index) => [`key-${index}`, value(index)]));

  test.each([
    ['too many labels', { labels: many(4_000, () => 'value') }],
    ['one label that is too long', { labels: { a: 'x'.repeat(40_000) } }],
    ['labels whose hashes collide', { labels: many(33, (index) => String(1e8 + index * 2 ** 15)) }],
    ['too many owners', { ownerReferences: Array(2_000).fill({ kind: 'ReplicaSet', name: 'web' }) }],
    ['a plan that is too long', { annotations: { 'linger.dev/plan': 'x'.repeat(40_000) } }],
  ])('%s: they are left out, and it says so', (_what, excess) => {
    expect(event({ ...identity, ...excess })).toEqual({
      type: 'MODIFIED',
      object: { metadata: { ...identity, leftOut: true } },
    });
  });

  test('of many annotations it keeps those that are read', () => {
    const read = { 'linger.dev/mode': 'Off', 'endpoints.kubernetes.io/over-capacity': 'truncated' };
    const annotations = { ...many(4_000, () => 'value'), ...read };
    expect(event({ ...identity, annotations })?.object).toEqual({
      metadata: { ...identity, annotations: read },
    });
  });

  test('its other strings of digits do not collide, and it stays readable', () => {
    const subsets = Array.from({ length: 40 }, (_, index) => ({
      ip: '10.0.0.1',
      n: String(1e8 + index * 2 ** 15),
    }));
    expect(event(identity, { subsets })?.object).toEqual({
      metadata: identity,
      subsets: subsets.map((each) => ({ ...each, n: `~${each.n}` })),
    });
  });
});
