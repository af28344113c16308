import type { DiscardReason } from './discards.ts';
import type { ServiceState } from './events.ts';
import type { ListingGroup } from './traces.ts';

interface KnownService {
  readonly neverWithdraws: boolean;
  readonly selector: ServiceState['selector'];
  /** The list in which it was named last. */
  seen: number;
}

/** What the Services say about when their pods are withdrawn. */
export class Withdrawal {
  readonly #services = new Map<string, KnownService>();

  get size(): number {
    return this.#services.size;
  }

  put({ namespace, name, publishNotReadyAddresses, selector }: ServiceState, seen: number): void {
    this.#services.set(`${namespace}/${name}`, { neverWithdraws: publishNotReadyAddresses, selector, seen });
  }

  delete(namespace: string, name: string): void {
    this.#services.delete(`${namespace}/${name}`);
  }

  /** The Services that the list did not name. */
  missing(list: number): { readonly namespace: string; readonly name: string }[] {
    const missing = [];
    for (const [key, { seen }] of this.#services) {
      if (seen === list) continue;
      const [namespace = '', name = ''] = key.split('/');
      missing.push({ namespace, name });
    }
    return missing;
  }

  /** Why the removals of this group are not measured; undefined when they are. */
  exclusionOf(group: ListingGroup): DiscardReason | undefined {
    const service = this.#services.get(`${group.namespace}/${group.service}`);
    if (service === undefined) return 'NoService';
    if (service.neverWithdraws) return 'NeverWithdrawn';
    if (group.overCapacity) return 'OverCapacity';
    return undefined;
  }

  /**
   * Whether the pod's labels are known not to match the Service any more: then it was withdrawn because somebody
   * changed the labels, and not because it terminates.
   */
  deselects(group: ListingGroup, labels: Readonly<Record<string, string>> | undefined): boolean {
    const selector = this.#services.get(`${group.namespace}/${group.service}`)?.selector;
    if (selector === undefined || labels === undefined) return false;
    return Object.entries(selector).some(([key, value]) => labels[key] !== value);
  }
}
