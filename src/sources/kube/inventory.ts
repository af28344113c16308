import type { ObjectIdentity } from './resource.ts';

export interface Placed {
  /** The object was here before, under this name and uid. */
  readonly known: boolean;
  /** The uid of another object that had this name, and is therefore gone. */
  readonly replaced: string | undefined;
}

type Names = Map<string, Map<string, string>>;

/**
 * Which objects there are: their names and uids, and nothing else. That is all it takes to notice at the next list
 * who is gone; what an object looked like is kept by whoever needs it, in the form in which it is needed, and not a
 * second time here. Names stand below their namespace, so that no key has to be made and held: about 150 bytes each.
 */
export class Inventory {
  #names: Names = new Map();
  /** While a list is read: those of before that it has not named yet. */
  #unnamed: Names | undefined;
  #size = 0;
  #unnamedSize = 0;

  get size(): number {
    return this.#size + this.#unnamedSize;
  }

  put({ namespace, name, uid }: ObjectIdentity): Placed {
    let names = this.#names.get(namespace);
    if (names === undefined) {
      names = new Map();
      this.#names.set(namespace, names);
    }
    const before = names.get(name) ?? this.#takeUnnamed(namespace, name);
    if (!names.has(name)) this.#size += 1;
    names.set(name, uid);
    return { known: before === uid, replaced: before === undefined || before === uid ? undefined : before };
  }

  /** Only the object of this uid: another of the same name may already be here. */
  remove({ namespace, name, uid }: ObjectIdentity): void {
    const names = this.#names.get(namespace);
    if (names?.get(name) !== uid) return;
    names.delete(name);
    this.#size -= 1;
    if (names.size === 0) this.#names.delete(namespace);
  }

  /** From here on every object is named anew with {@link put}. A list that was begun and not ended begins anew. */
  beginList(): void {
    const unnamed = this.#unnamed ?? new Map<string, Map<string, string>>();
    for (const [namespace, names] of this.#names) {
      const into = unnamed.get(namespace);
      if (into === undefined) unnamed.set(namespace, names);
      else for (const [name, uid] of names) into.set(name, uid);
    }
    this.#unnamedSize += this.#size;
    this.#unnamed = unnamed;
    this.#names = new Map();
    this.#size = 0;
  }

  /** Forgets those that the list has not named. @returns them */
  endList(): readonly ObjectIdentity[] {
    const gone = [...(this.#unnamed ?? [])].flatMap(([namespace, names]) =>
      [...names].map(([name, uid]) => ({ namespace, name, uid })),
    );
    this.#unnamed = undefined;
    this.#unnamedSize = 0;
    return gone;
  }

  #takeUnnamed(namespace: string, name: string): string | undefined {
    const names = this.#unnamed?.get(namespace);
    const uid = names?.get(name);
    if (uid === undefined) return undefined;
    names?.delete(name);
    this.#unnamedSize -= 1;
    return uid;
  }
}
