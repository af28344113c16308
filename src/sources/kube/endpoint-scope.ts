import { LAG_STAGES, type LagStage } from '../../core/lag/sample.ts';
import type { LabelSelector } from '../../core/schema/selector.ts';
import type { KubeConnection } from '../../kube/connection.ts';
import { ObjectFailure, requestObject } from '../../kube/object-request.ts';
import { newAgent } from '../../kube/request.ts';
import { endpointSlicesResource, type SliceProjection } from './endpoint-slices.ts';
import { type EndpointsProjection, endpointsResource } from './endpoints.ts';
import { Pages } from './pages.ts';
import { type PodMetadata, podsResource } from './pods.ts';
import type { Resource } from './resource.ts';
import { type ServiceProjection, servicesResource } from './services.ts';

/** Whose endpoints are watched. */
export interface EndpointScope {
  /** Undefined: all. */
  readonly namespace: string | undefined;
  /** Undefined: all. */
  readonly services: readonly string[] | undefined;
  readonly sources: readonly LagStage[];
  /** Of the pods. Undefined: all, and addresses that are no pod's. */
  readonly selector: LabelSelector | undefined;
}

/** What has to be followed for that; undefined: a source that nobody wants. */
export interface ScopeResources {
  readonly pods: Resource<PodMetadata>;
  readonly services: Resource<ServiceProjection>;
  readonly EndpointSlice: Resource<SliceProjection> | undefined;
  readonly Endpoints: Resource<EndpointsProjection> | undefined;
}

/**
 * The server leaves out what it can: slices of other Services by label; a single other object by name. Not the pods that
 * are not selected: it would tell a change of labels as a deletion, which would begin a removal that is none.
 */
export function resourcesOf({ namespace, services, sources }: EndpointScope): ScopeResources {
  const core = namespace === undefined ? '/api/v1' : `/api/v1/namespaces/${encodeURIComponent(namespace)}`;
  const discovery = core.replace('/api/v1', '/apis/discovery.k8s.io/v1');
  const only = services?.length === 1 ? { fieldSelector: `metadata.name=${services[0]}` } : undefined;
  const labelled =
    services === undefined
      ? undefined
      : { labelSelector: `kubernetes.io/service-name in (${services.join(',')})` };
  const wanted = <T>(source: LagStage, resource: Resource<T>) =>
    sources.includes(source) ? resource : undefined;
  return {
    pods: podsResource(`${core}/pods`),
    services: asked(servicesResource(`${core}/services`), only),
    EndpointSlice: wanted(
      'EndpointSlice',
      asked(endpointSlicesResource(`${discovery}/endpointslices`), labelled),
    ),
    Endpoints: wanted('Endpoints', asked(endpointsResource(`${core}/endpoints`), only)),
  };
}

function asked<T>(resource: Resource<T>, query: Resource<T>['query']): Resource<T> {
  return query === undefined ? resource : { ...resource, query };
}

/** Priority and Fairness may queue it; somebody waits for it. */
const ANSWER_MS = 20_000;

/**
 * Asks for a first object of everything that the scope needs, so that what cannot be read is known at once.
 * @throws WatchFailure
 */
export async function tryScope(
  scope: EndpointScope,
  connection: KubeConnection,
  signal: AbortSignal,
): Promise<void> {
  const { pods, services, ...sources } = resourcesOf(scope);
  const all = [pods, services, ...LAG_STAGES.map((source) => sources[source])];
  for (const resource of all) {
    if (resource === undefined) continue;
    const pages = new Pages(resource, connection);
    try {
      await pages.page(undefined, { limit: 1, signal, answerMs: ANSWER_MS });
    } finally {
      pages.close();
    }
  }
}

/** Whether a namespace exists; somebody who may not ask for it is believed. */
export async function namespaceExists(
  name: string,
  connection: KubeConnection,
  signal: AbortSignal,
): Promise<boolean> {
  const agent = newAgent(connection);
  try {
    const path = `/api/v1/namespaces/${encodeURIComponent(name)}`;
    await requestObject(connection, { method: 'GET', path, agent, signal, withinMs: ANSWER_MS });
    return true;
  } catch (thrown) {
    return !(thrown instanceof ObjectFailure && thrown.reason === 'NotFound');
  } finally {
    agent.destroy();
  }
}
