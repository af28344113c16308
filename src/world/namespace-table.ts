import type { NamespaceRecord } from '../core/cluster/namespaces.ts';
import type { World } from '../core/plan/world.ts';
import { sameLabels } from './service-table.ts';

/** The cluster's Namespaces as they change one by one, and an immutable map of them whenever one is asked for. */
export class NamespaceTable {
  readonly #namespaces = new Map<string, NamespaceRecord>();

  /** @returns whether it says anything new */
  put(namespace: NamespaceRecord): boolean {
    const before = this.#namespaces.get(namespace.name);
    if (before !== undefined && saysTheSame(before, namespace)) return false;
    this.#namespaces.set(namespace.name, namespace);
    return true;
  }

  /** @returns whether it was here */
  delete(name: string): boolean {
    return this.#namespaces.delete(name);
  }

  all(): World['namespaces'] {
    return new Map(this.#namespaces);
  }
}

function saysTheSame(a: NamespaceRecord, b: NamespaceRecord): boolean {
  return sameLabels(a.labels, b.labels) && sameLabels(a.annotations, b.annotations);
}
