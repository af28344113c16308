import type { ClusterFacts, Look } from '../../core/diagnose/facts.ts';
import { isRecord, isString } from '../../core/schema/shape.ts';
import type { RawObject } from '../kube/resource.ts';
import { projectService } from '../kube/services.ts';
import { type ApiReader, messageOf } from './api-reader.ts';

const SERVICES = '/api/v1/services';
const COUNTED = {
  endpointSlices: '/apis/discovery.k8s.io/v1/endpointslices',
  pods: '/api/v1/pods',
  nodes: '/api/v1/nodes',
} as const;

/** Service names that are worth showing. */
const EXAMPLES = 5;

/** Pages of the Services; as many as client-go asks for. */
const PAGE = 500;

export interface Census {
  readonly facts: ClusterFacts;
  readonly looks: readonly Look[];
}

/** Counts what controllers have to do with. What may not be counted is left out, and said. */
export async function takeCensus(api: ApiReader, signal: AbortSignal): Promise<Census> {
  const looks: Look[] = [];
  const attempt = async <T>(what: string, ask: () => Promise<T>): Promise<T | undefined> => {
    try {
      return await ask();
    } catch (thrown) {
      const remedy = `It takes the right to list ${what}`;
      looks.push({ what, seen: false, text: messageOf(thrown, signal), remedy });
      return undefined;
    }
  };
  const services = await attempt('services', () => serviceCounts(api));
  const facts: ClusterFacts = {
    services: services?.services,
    endpointSlices: await attempt('endpointslices', () => countOf(api, COUNTED.endpointSlices)),
    pods: await attempt('pods', () => countOf(api, COUNTED.pods)),
    nodes: await attempt('nodes', () => countOf(api, COUNTED.nodes)),
    neverWithdrawn: services?.neverWithdrawn,
  };
  return { facts, looks };
}

/** One object and how many more there are: the API server counts for us (metav1.ListMeta.remainingItemCount). */
async function countOf(api: ApiReader, path: string): Promise<number> {
  const { metadata, items } = await api.json(`${path}?limit=1`);
  const remaining = isRecord(metadata) ? metadata.remainingItemCount : undefined;
  return (Array.isArray(items) ? items.length : 0) + (typeof remaining === 'number' ? remaining : 0);
}

async function serviceCounts(api: ApiReader) {
  let services = 0;
  let never = 0;
  const examples: string[] = [];
  let from = '';
  do {
    const more = from === '' ? '' : `&continue=${encodeURIComponent(from)}`;
    const { metadata, items } = await api.json(`${SERVICES}?limit=${PAGE}${more}`);
    for (const item of Array.isArray(items) ? (items as RawObject[]) : []) {
      const { namespace, name, publishNotReadyAddresses } = projectService(item);
      services += 1;
      if (!publishNotReadyAddresses) continue;
      never += 1;
      if (examples.length < EXAMPLES) examples.push(`${namespace}/${name}`);
    }
    from = isRecord(metadata) && isString(metadata.continue) ? metadata.continue : '';
  } while (from !== '');
  return { services, neverWithdrawn: { services: never, examples } };
}
