import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Inventory } from '../../src/cluster/reflector.ts';
import type { ObjectIdentity } from '../../src/cluster/resource.ts';
import { runs } from '../property/runs.ts';

const identity = fc.record<ObjectIdentity>({
  namespace: fc.constantFrom('', 'a', 'b'),
  name: fc.constantFrom('x', 'y', 'z'),
  uid: fc.constantFrom('1', '2'),
});
const step = fc.oneof(
  { weight: 6, arbitrary: fc.record({ type: fc.constant('put' as const), object: identity }) },
  { weight: 3, arbitrary: fc.record({ type: fc.constant('remove' as const), object: identity }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constantFrom('beginList' as const, 'endList' as const) }) },
);

/** The same by the plainest means: everything that is known, and everything that the list has named. */
class Plain {
  readonly known = new Map<string, ObjectIdentity>();
  named: Set<string> | undefined;

  put(object: ObjectIdentity) {
    const key = `${object.namespace}/${object.name}`;
    const before = this.known.get(key)?.uid;
    this.known.set(key, object);
    this.named?.add(key);
    return before;
  }

  remove({ namespace, name, uid }: ObjectIdentity) {
    const key = `${namespace}/${name}`;
    // A list goes on in the state that it began with, so what it has not named yet is not touched.
    if (this.named !== undefined && !this.named.has(key)) return;
    if (this.known.get(key)?.uid === uid) this.known.delete(key);
  }

  endList() {
    if (this.named === undefined) return [];
    const gone = [...this.known].filter(([key]) => this.named?.has(key) === false);
    for (const [key] of gone) this.known.delete(key);
    this.named = undefined;
    return gone.map(([, object]) => object);
  }
}

const sorted = (objects: readonly ObjectIdentity[]) => objects.map((each) => JSON.stringify(each)).toSorted();

describe('the inventory', () => {
  it('knows what is there, what was replaced, and what a list no longer names', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const inventory = new Inventory();
        const plain = new Plain();
        for (const each of steps) {
          if (each.type === 'put') expect(inventory.put(each.object)).toEqual(plain.put(each.object));
          if (each.type === 'remove') {
            inventory.remove(each.object);
            plain.remove(each.object);
          }
          if (each.type === 'beginList') {
            inventory.beginList();
            plain.named = new Set();
          }
          if (each.type === 'endList') expect(sorted(inventory.endList())).toEqual(sorted(plain.endList()));
          expect(inventory.size).toBe(plain.known.size);
        }
      }),
      runs(300),
    );
  });
});
