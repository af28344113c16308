import { setTimeout as sleep } from 'node:timers/promises';
import type { ApiClient } from './api.ts';
import { WaitTimeout, waitUntil } from './waiting.ts';

/** Where no EndpointSlice or Endpoints has been written for this long, their writers have nothing left to do. */
const CALM_MS = 2_000;

/** The longest backlog of a storm that the suite makes takes less. */
const AT_MOST_MS = 120_000;

/**
 * Waits until the controllers have done what others have left to do: namespaces that are deleted end with their pods, and
 * these and their Services are withdrawn and collected for a while afterwards, at 20 writes a second. After two minutes
 * it is as calm as it will be.
 */
export async function untilCalm(api: ApiClient): Promise<void> {
  const leftAlone = async () => {
    const before = await written(api);
    await sleep(CALM_MS);
    return before === (await written(api));
  };
  try {
    await waitUntil('no namespace to be terminating', async () => !(await isTerminating(api)), {
      timeoutMs: AT_MOST_MS,
    });
    await waitUntil('nobody to write EndpointSlices and Endpoints', leftAlone, { timeoutMs: AT_MOST_MS });
  } catch (error) {
    if (!(error instanceof WaitTimeout)) throw error;
    console.warn(`the cluster is not calm: ${error.message}`);
  }
}

async function isTerminating(api: ApiClient): Promise<boolean> {
  type Listed = { items: readonly { metadata: { deletionTimestamp?: string } }[] };
  const { items } = await api.call<Listed>('GET', '/api/v1/namespaces');
  return items.some(({ metadata }) => metadata.deletionTimestamp !== undefined);
}

/** Changes with each write of a slice or Endpoints. */
async function written(api: ApiClient): Promise<string> {
  type Listed = { items: readonly { metadata: { uid: string; resourceVersion: string } }[] };
  const paths = ['/api/v1/endpoints', '/apis/discovery.k8s.io/v1/endpointslices'];
  const lists = await Promise.all(paths.map((path) => api.call<Listed>('GET', path)));
  const objects = lists.flatMap(({ items }) => items.map(({ metadata }) => metadata));
  return objects.map(({ uid, resourceVersion }) => `${uid}/${resourceVersion}`).join();
}
