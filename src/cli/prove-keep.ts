import { removeNamespace } from '../prove/index.ts';
import type { Settings } from './commands.ts';
import { connectAsKubectl } from './connect.ts';
import { type Surroundings, stopRequested } from './terminal.ts';

/** `linger prove-keep`: runs in a pod beside a copy of `prove --compare`. When it is ended, it removes the namespace. */
export async function proveKeep(
  settings: Settings<'prove-keep'>,
  surroundings: Surroundings,
): Promise<number> {
  const connection = await connectAsKubectl(settings, surroundings);
  await stopRequested();
  await removeNamespace(connection, settings.namespace);
  return 0;
}
