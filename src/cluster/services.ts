import { isDeepStrictEqual } from 'node:util';
import {
  isRecord,
  isString,
  isStringMap,
  memberAt,
  NO_LABELS,
  type ServiceIndex,
  type ServiceRecord,
} from '../api/index.ts';
import type { ServiceState } from '../lag/index.ts';
import type { RawObject, Resource } from './resource.ts';

/** What decisions and the recorder need of a Service. */
export interface ServiceProjection extends ServiceRecord, ServiceState {
  readonly selector: ServiceRecord['selector'];
  /** Undefined: headless, ExternalName, or not given yet. */
  readonly clusterIp: string | undefined;
}

/**
 * What spec.publishNotReadyAddresses replaced in 1.9; endpoint controllers of before 1.24 or so still follow it, and
 * a Service wrongly taken for one that never withdraws only costs samples. Source: k8s.io/kubernetes
 * pkg/controller/endpoint (TolerateUnreadyEndpointsAnnotation).
 */
const TOLERATE_UNREADY = 'service.alpha.kubernetes.io/tolerate-unready-endpoints';

export function servicesResource(path = '/api/v1/services'): Resource<ServiceProjection> {
  return { path, afterMetadata: 'spec', project: projectService };
}

export function projectService({ metadata, spec: given }: RawObject): ServiceProjection {
  const { namespace = '', name, labels = NO_LABELS, annotations } = metadata;
  const spec = isRecord(given) ? given : {};
  const { clusterIP } = spec;
  return {
    namespace,
    name,
    labels,
    selector: isStringMap(spec.selector) ? spec.selector : undefined,
    externalName: spec.type === 'ExternalName',
    headless: clusterIP === 'None',
    clusterIp: isString(clusterIP) && clusterIP !== '' && clusterIP !== 'None' ? clusterIP : undefined,
    publishNotReadyAddresses: neverWithdraws({ metadata: { annotations }, spec }),
  };
}

/** Whether a Service, unchecked, lists a terminating pod until it is gone. */
export function neverWithdraws(service: Readonly<Record<string, unknown>>): boolean {
  return (
    memberAt(service, ['spec', 'publishNotReadyAddresses']) === true ||
    memberAt(service, ['metadata', 'annotations', TOLERATE_UNREADY]) === 'true'
  );
}

/**
 * The cluster's Services as they change one by one, and an immutable index of them whenever one is asked for.
 * An index shares with the one before it every namespace that has not changed, so it costs a copy of the outer map
 * (3 ms for 13,000 namespaces) and the lists of the namespaces that have: not one entry for each Service.
 */
export class ServiceTable {
  readonly #services = new Map<string, Map<string, ServiceRecord>>();
  readonly #changed = new Set<string>();
  #lists = new Map<string, readonly ServiceRecord[]>();

  /** @returns whether it says anything new: most changes of a Service are to its status or annotations */
  put(service: ServiceRecord): boolean {
    const { namespace, name } = service;
    let services = this.#services.get(namespace);
    if (services === undefined) {
      services = new Map();
      this.#services.set(namespace, services);
    }
    if (isDeepStrictEqual(services.get(name), service)) return false;
    services.set(name, service);
    this.#changed.add(namespace);
    return true;
  }

  /** @returns whether it was here */
  delete(namespace: string, name: string): boolean {
    const services = this.#services.get(namespace);
    if (services?.delete(name) !== true) return false;
    if (services.size === 0) this.#services.delete(namespace);
    this.#changed.add(namespace);
    return true;
  }

  /** Complete: to be asked for once every Service has been put. */
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
    return { complete: true, byNamespace: this.#lists };
  }
}
