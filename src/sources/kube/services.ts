import { NO_LABELS } from '../../core/cluster/selector.ts';
import type { ServiceRecord } from '../../core/cluster/services.ts';
import type { ServiceState } from '../../core/lag/events.ts';
import { isRecord, isString, isStringMap } from '../../core/schema/shape.ts';
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
    publishNotReadyAddresses:
      spec.publishNotReadyAddresses === true || annotations?.[TOLERATE_UNREADY] === 'true',
  };
}
