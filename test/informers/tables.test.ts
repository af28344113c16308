import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import {
  type NamespaceRecord,
  namespaceRecord,
  type ServiceRecord,
  serviceIndex,
} from '../../src/core/api/index.ts';
import { putChanged } from '../../src/informers/kept.ts';
import { ServiceTable } from '../../src/informers/services.ts';

const service = (namespace: string, name: string, more: Partial<ServiceRecord> = {}): ServiceRecord => ({
  namespace,
  name,
  labels: {},
  selector: { app: name },
  externalName: false,
  headless: false,
  ...more,
});

const names = fc.constantFrom('a', 'b', 'c');
const change = fc.oneof(
  fc.record({
    kind: fc.constant('put' as const),
    namespace: names,
    name: names,
    selector: fc.option(fc.dictionary(names, names), { nil: undefined }),
    labels: fc.dictionary(names, names),
    externalName: fc.boolean(),
    headless: fc.boolean(),
  }),
  fc.record({ kind: fc.constant('delete' as const), namespace: names, name: names }),
  fc.record({ kind: fc.constant('look' as const) }),
);

/** What an index says, whatever the order. */
function contents({ byNamespace }: ReturnType<ServiceTable['index']>) {
  const sorted = [...byNamespace].map(
    ([namespace, services]) => [namespace, services.toSorted((a, b) => (a.name < b.name ? -1 : 1))] as const,
  );
  return new Map(sorted);
}

describe('the table of Services', () => {
  test('gives the index that all Services together make, after whatever happened', () => {
    fc.assert(
      fc.property(fc.array(change), (changes) => {
        const table = new ServiceTable<ServiceRecord>();
        const all = new Map<string, ServiceRecord>();
        const expected = () => contents(serviceIndex([...all.values()], true));
        for (const { kind, ...each } of changes) {
          if (kind === 'look') {
            expect(contents(table.index())).toEqual(expected());
            continue;
          }
          const { namespace, name } = each as ServiceRecord;
          if (kind === 'put') {
            all.set(`${namespace}/${name}`, each as ServiceRecord);
            table.put(each as ServiceRecord);
          } else expect(table.delete(namespace, name)).toBe(all.delete(`${namespace}/${name}`));
        }
        expect(table.index().complete).toBe(true);
        expect(contents(table.index())).toEqual(expected());
      }),
    );
  });

  it('never changes an index under its reader', () => {
    const table = new ServiceTable<ServiceRecord>();
    table.put(service('shop', 'web'));
    const before = table.index();
    table.put(service('shop', 'api'));
    table.delete('shop', 'web');
    expect([...contents(before).values()].flat().map(({ name }) => name)).toEqual(['web']);
  });

  it('shares with the index before whatever has not changed', () => {
    const table = new ServiceTable<ServiceRecord>();
    table.put(service('shop', 'web'));
    table.put(service('other', 'web'));
    const before = table.index();
    expect(table.index().byNamespace).toBe(before.byNamespace);
    table.put(service('shop', 'api'));
    const after = table.index();
    expect(after.byNamespace.get('other')).toBe(before.byNamespace.get('other'));
    expect(after.byNamespace.get('shop')).not.toBe(before.byNamespace.get('shop'));
  });

  it.each<[string, Partial<ServiceRecord>, boolean]>([
    ['nothing that decisions read', {}, false],
    ['a selector', { selector: { app: 'other' } }, true],
    ['the selector', { selector: undefined }, true],
    ['a label', { labels: { team: 'a' } }, true],
    ['the type', { externalName: true }, true],
  ])('says whether a change says anything new: %s', (_what, more, isNew) => {
    const table = new ServiceTable<ServiceRecord>();
    expect(table.put(service('shop', 'web'))).toBe(true);
    expect(table.put(service('shop', 'web', more))).toBe(isNew);
  });
});

describe('Services for which there is no room', () => {
  it('are wanted again once there is, and only they', () => {
    const table = new ServiceTable<ServiceRecord>();
    const large = { labels: { of: 'x'.repeat(9 * 1024 * 1024) } };
    for (const name of ['a', 'b', 'c']) table.put(service('attacker', name, large));
    expect([...table.unread]).toEqual([['attacker', 1]]);
    table.put(service('shop', 'web'));
    expect(table.hasRoomAgain).toBe(false);
    table.delete('attacker', 'a');
    expect(table.hasRoomAgain).toBe(true);
    table.put(service('attacker', 'c', large));
    expect([table.unread.size, table.hasRoomAgain]).toEqual([0, false]);
  });
});

describe('the table of Namespaces', () => {
  it.each<[string, Record<string, string>, Record<string, string>, boolean]>([
    ['nothing', {}, {}, false],
    ['a label', { team: 'a' }, {}, true],
    ['an annotation', {}, { 'linger.dev/mode': 'Off' }, true],
  ])('says whether a change says anything new: %s', (_what, labels, annotations, isNew) => {
    const table = new Map<string, NamespaceRecord>();
    expect(putChanged(table, 'shop', namespaceRecord('shop', {}, {}))).toBe(true);
    expect(putChanged(table, 'shop', namespaceRecord('shop', labels, annotations))).toBe(isNew);
  });
});
