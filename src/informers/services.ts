import type { RawObject, Resource } from '../cluster/index.ts';
import {
  isRecord,
  isString,
  isStringMap,
  NO_LABELS,
  neverWithdraws,
  objectKey,
  recordsAt,
  type ServiceIndex,
  type ServiceRecord,
  Shares,
} from '../core/api/index.ts';
import type { ServiceState } from '../core/lag/index.ts';
import { isSmall, keptLabels, putChanged } from './kept.ts';

/** The part of a Service that decisions and the recorder need. */
export interface ServiceProjection extends ServiceRecord, ServiceState {
  readonly selector: ServiceRecord['selector'];
  /** Undefined: the Service is headless, an ExternalName, or has none assigned yet. */
  readonly clusterIp: string | undefined;
  /** Its labels or its selector are unknown, because they are too large to be kept. */
  readonly unread?: true;
}

/** How many ports are kept: a pod is behind all ports of its Service, and few Services have this many. */
const MOST_PORTS = 16;

export function servicesResource(path = '/api/v1/services'): Resource<ServiceProjection> {
  return { path, project: projectService };
}

export function projectService({ metadata, spec: given }: RawObject): ServiceProjection {
  const { namespace = '', name, annotations } = metadata;
  const spec = isRecord(given) ? given : {};
  const { clusterIP } = spec;
  const labels = keptLabels(metadata);
  const selector = isStringMap(spec.selector) ? spec.selector : undefined;
  const ports = recordsAt(spec, 'ports')
    .flatMap(({ port, protocol = 'TCP' }) => (protocol === 'TCP' && typeof port === 'number' ? port : []))
    .slice(0, MOST_PORTS);
  const unread = labels === undefined || !isSmall(selector ?? NO_LABELS);
  return {
    namespace,
    name,
    labels: labels ?? NO_LABELS,
    selector: unread ? undefined : selector,
    ...(unread && { unread }),
    externalName: spec.type === 'ExternalName',
    headless: clusterIP === 'None',
    ...(ports.length > 0 && { ports }),
    clusterIp: isString(clusterIP) && clusterIP !== '' && clusterIP !== 'None' ? clusterIP : undefined,
    publishNotReadyAddresses: neverWithdraws({ metadata: { annotations }, spec }),
  };
}

type KeptService = ServiceRecord & Pick<ServiceProjection, 'unread'>;

/**
 * Collects changes of the cluster's Services, and provides an immutable index of them on request. Indexes share unchanged
 * namespaces, so a new one costs a copy of the outer map (3 ms for 13,000 namespaces) and the lists of the namespaces that
 * have changed.
 */
export class ServiceTable<T extends KeptService = ServiceProjection> {
  readonly #shares = new Shares();
  readonly #unread = new Shares();
  /** Services that are unknown for lack of room. Once there is room again, a new list adds them. */
  readonly #withoutRoom = new Set<string>();
  readonly #services = new Map<string, Map<string, T>>();
  readonly #changed = new Set<string>();
  #lists = new Map<string, readonly ServiceRecord[]>();

  /** @returns whether anything relevant has changed, because most changes of a Service are to its status or annotations */
  put(service: T): boolean {
    const { namespace, name } = service;
    const services = this.#services.get(namespace) ?? new Map<string, T>();
    this.#services.set(namespace, services);
    this.#account(services.get(name), -1);
    const hasRoom = this.#shares.hasRoomFor(namespace, weightOf(service), MOST_WEIGHT);
    const kept = hasRoom
      ? service
      : { ...service, labels: NO_LABELS, selector: undefined, unread: true as const };
    this.#account(kept, 1);
    if (hasRoom) this.#withoutRoom.delete(objectKey(service));
    else this.#withoutRoom.add(objectKey(service));
    if (!putChanged(services, name, kept)) return false;
    this.#changed.add(namespace);
    return true;
  }

  #account(service: T | undefined, sign: 1 | -1): void {
    if (service === undefined) return;
    const { namespace, unread } = service;
    this.#shares.add(namespace, sign * weightOf(service));
    if (unread) this.#unread.add(namespace, sign);
  }

  /** How many Services are unknown, by namespace. */
  get unread(): ReadonlyMap<string, number> {
    return this.#unread.byNamespace;
  }

  /** Whether there may be room now for Services that are unknown. */
  get hasRoomAgain(): boolean {
    return this.#withoutRoom.size > 0 && 2 * this.#shares.total < MOST_WEIGHT;
  }

  delete(namespace: string, name: string): boolean {
    this.#withoutRoom.delete(objectKey({ namespace, name }));
    const services = this.#services.get(namespace);
    this.#account(services?.get(name), -1);
    if (services?.delete(name) !== true) return false;
    if (services.size === 0) this.#services.delete(namespace);
    this.#changed.add(namespace);
    return true;
  }

  get(namespace: string, name: string): T | undefined {
    return this.#services.get(namespace)?.get(name);
  }

  index(): ServiceIndex {
    if (this.#changed.size > 0) {
      const lists = new Map(this.#lists);
      for (const namespace of this.#changed) {
        const services = this.#services.get(namespace);
        if (services === undefined) lists.delete(namespace);
        else lists.set(namespace, [...services.values()]);
      }
      this.#changed.clear();
      this.#lists = lists;
    }
    return { complete: true, byNamespace: this.#lists, unread: new Set(this.#unread.byNamespace.keys()) };
  }
}

/** Characters of all labels and selectors together; 13,000 Services have 2 MB. */
const MOST_WEIGHT = 32 * 1024 * 1024;

function weightOf({ labels, selector, unread }: KeptService): number {
  return unread ? 0 : 100 + JSON.stringify([labels, selector]).length;
}
