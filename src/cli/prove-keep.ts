import { callApi } from '../cluster/index.ts';
import type { Settings } from './commands.ts';
import { connectAsKubectl } from './connect.ts';
import { type Surroundings, stopRequested } from './terminal.ts';

const DELETE_MS = 8_000;

/** `linger prove-keep`: what a pod beside a copy of `prove --compare` runs. When it is ended, it removes the namespace. */
export async function proveKeep(
  settings: Settings<'prove-keep'>,
  surroundings: Surroundings,
): Promise<number> {
  const connection = await connectAsKubectl(settings, surroundings);
  await stopRequested();
  const call = { signal: AbortSignal.timeout(DELETE_MS), withinMs: DELETE_MS };
  await callApi(connection, 'CoreV1Api', call, (api) => api.deleteNamespace({ name: settings.namespace }));
  return 0;
}
