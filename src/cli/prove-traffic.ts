import { jsonIn } from '../core/api/index.ts';
import { lineOf, sendTraffic, trafficPlan } from '../prove/index.ts';
import type { Settings } from './commands.ts';
import { usageError } from './flags.ts';
import { stopRequested, type Terminal } from './terminal.ts';

/** `linger prove-traffic`: runs in the pods of `linger prove`. */
export async function proveTraffic(
  { plan }: Settings<'prove-traffic'>,
  { print }: Terminal,
): Promise<number> {
  const read = trafficPlan.safeParse(jsonIn(plan));
  if (!read.success) throw usageError(`--plan: expected what prove writes: ${read.error.issues[0]?.message}`);
  const stopping = new AbortController();
  const ended = stopRequested();
  void ended.then(() => stopping.abort());
  await sendTraffic(read.data, (each) => print(`${lineOf(each)}\n`), { signal: stopping.signal });
  // Keep the pod, because its log can be read only as long as it exists.
  await ended;
  return 0;
}
