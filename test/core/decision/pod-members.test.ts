import fc from 'fast-check';
import { expect, it } from 'vitest';
import { decide } from '../../../src/core/decision/decide.ts';
import { patchFor } from '../../../src/core/decision/patch.ts';
import { type Member, type Members, POD_MEMBERS } from '../../../src/core/decision/pod-members.ts';
import { randomOf } from '../../property/random.ts';
import { runs } from '../../property/runs.ts';
import { arbitraryOddPod } from './arbitrary-pod.ts';
import { arbitraryHeldSnapshot, arbitrarySnapshot } from './arbitrary-policy.ts';
import { withMembers } from './kubernetes-members.ts';
import { holdToken } from './sample-hold.ts';
import { lives, reviewOf } from './sample-pass.ts';
import { type PodObject, pod } from './sample-pod.ts';

const SNAPSHOTS = fc.oneof(arbitrarySnapshot, arbitraryHeldSnapshot);

/**
 * A view of a JSON value that records which members are read, as paths that leave out the places in lists. Members that are
 * only copied, all at once into another object, are not read: what the copy is for reads them where they came from.
 */
function recording<T>(value: T, reads: Set<string>, path = '', views = new WeakMap<object, object>()): T {
  if (typeof value !== 'object' || value === null) return value;
  const known = views.get(value);
  if (known !== undefined) return known as T;
  const isList = Array.isArray(value);
  const at = (member: string) => (isList ? path : path === '' ? member : `${path}.${member}`);
  /** Those that a copy has still to come to, and the one that it is about to take. */
  let coming: readonly (string | symbol)[] = [];
  let taken: string | symbol | undefined;
  const view = new Proxy(value, {
    ownKeys: (target) => {
      coming = Reflect.ownKeys(target);
      return Reflect.ownKeys(target);
    },
    getOwnPropertyDescriptor: (target, member) => {
      const isNext = coming[0] === member;
      coming = isNext ? coming.slice(1) : [];
      taken = isNext ? member : undefined;
      return Reflect.getOwnPropertyDescriptor(target, member);
    },
    has: (target, member) => {
      if (typeof member === 'string' && !isList) reads.add(at(member));
      return Reflect.has(target, member);
    },
    get: (target, member, receiver) => {
      const found: unknown = Reflect.get(target, member, receiver);
      const isCopied = taken === member;
      taken = undefined;
      if (typeof member === 'symbol' || typeof found === 'function' || member === 'toJSON') return found;
      if (!isCopied && !isList) reads.add(at(member));
      return recording(found, reads, at(member), views);
    },
  });
  views.set(value, view);
  return view as T;
}

/** Whether a path leads to a row, or to what is below one without members of its own. */
function hasRow(path: string): boolean {
  let row: Member | undefined = { members: POD_MEMBERS };
  for (const name of path.split('.')) {
    const { members, keep }: Member = row;
    if (members === undefined) return keep === undefined;
    row = Object.hasOwn(members, name) ? members[name] : undefined;
    if (row === undefined) return false;
  }
  return true;
}

function rowsOf(members: Members, above = ''): readonly string[] {
  return Object.entries(members).flatMap(([name, { members: own = {} }]) => [
    above + name,
    ...rowsOf(own, `${above}${name}.`),
  ]);
}

/** The paths of everything in a JSON value, without the places in lists. */
function pathsIn(value: unknown, path = ''): readonly string[] {
  if (Array.isArray(value)) return value.slice(0, 10).flatMap((each) => pathsIn(each, path));
  if (typeof value !== 'object' || value === null) return [path];
  const prefix = path === '' ? '' : `${path}.`;
  return [path, ...Object.entries(value).flatMap(([name, each]) => pathsIn(each, prefix + name))];
}

it('what decisions and patches read of a pod has a row in POD_MEMBERS, and each member of a typed object is read', () => {
  const reads = new Set<string>();
  fc.assert(
    fc.property(arbitraryOddPod, SNAPSHOTS, (object, snapshot) => {
      for (const each of lives(object, snapshot)) {
        const view = recording(each, reads);
        const token = holdToken();
        patchFor(view, decide(reviewOf(view, snapshot, token), snapshot));
      }
    }),
    runs(200),
  );
  expect([...reads].filter((path) => !hasRow(path))).toEqual([]);
  const typed = rowsOf(POD_MEMBERS).filter((path) => /^(metadata|spec|spec\.containers)\.\w+$/.test(path));
  expect(typed.length).toBeGreaterThan(20);
  expect(typed.filter((path) => !reads.has(path))).toEqual([]);
});

it('a member without a row is noticed, absent or not, and what is only copied is not read', () => {
  const reads = new Set<string>();
  const view = recording<PodObject>(pod({ nonsense: 'a' }), reads);
  const copy = { ...view, spec: { ...view.spec } };
  expect([...reads]).toEqual(['spec']);
  expect([view.spec.missing, copy.spec.containers[0]?.name, 'nonsense' in view.spec]).toEqual([
    undefined,
    'app',
    true,
  ]);
  expect([...reads].filter((path) => !hasRow(path))).toEqual(['spec.missing', 'spec.nonsense']);
});

it('each row is in some of the arbitrary pods, or added to them by its type', () => {
  const random = randomOf(1);
  const present = new Set(
    fc
      .sample(arbitraryOddPod, { seed: 1, numRuns: 1000 })
      .flatMap((each) => pathsIn(withMembers(each, 'V1Pod', random))),
  );
  expect(rowsOf(POD_MEMBERS).filter((path) => !present.has(path))).toEqual([]);
});
