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
import { putChanged, type RawObject, type Resource } from './resource.ts';

/** The part of a Service that decisions and the recorder need. */
export interface ServiceProjection extends ServiceRecord, ServiceState {
  readonly selector: ServiceRecord['selector'];
  /** Undefined: headless, ExternalName, or not assigned yet. */
  readonly clusterIp: string | undefined;
}

/**
 * Replaced by spec.publishNotReadyAddresses in 1.9; endpoint controllers before about 1.24 still honour it, and
 * wrongly assuming that a Service never withdraws only costs samples. Source: k8s.io/kubernetes
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

/** Whether a Service (not validated) lists a terminating pod until it is gone. */
export function neverWithdraws(service: Readonly<Record<string, unknown>>): boolean {
  return (
    memberAt(service, ['spec', 'publishNotReadyAddresses']) === true ||
    memberAt(service, ['metadata', 'annotations', TOLERATE_UNREADY]) === 'true'
  );
}

/**
 * Collects changes of the cluster's Services, and provides an immutable index of them on request.
 * Indexes share the namespaces that have not changed, so a new one costs a copy of the outer map
 * (3 ms for 13,000 namespaces) and the lists of the namespaces that have changed.
 */
export class ServiceTable {
  readonly #services = new Map<string, Map<string, ServiceRecord>>();
  readonly #changed = new Set<string>();
  #lists = new Map<string, readonly ServiceRecord[]>();

  /** @returns whether anything relevant has changed: most changes of a Service are to its status or annotations */
  put(service: ServiceRecord): boolean {
    const { namespace, name } = service;
    let services = this.#services.get(namespace);
    if (services === undefined) {
      services = new Map();
      this.#services.set(namespace, services);
    }
    if (!putChanged(services, name, service)) return false;
    this.#changed.add(namespace);
    return true;
  }

  delete(namespace: string, name: string): boolean {
    const services = this.#services.get(namespace);
    if (services?.delete(name) !== true) return false;
    if (services.size === 0) this.#services.delete(namespace);
    this.#changed.add(namespace);
    return true;
  }

  /** Complete only after every Service has been put. */
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
