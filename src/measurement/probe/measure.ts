import { CANARY_SERVICE } from '../canary/flip.ts';
import { type AttemptContext, SHARED_MISSES } from '../canary/timed.ts';
import type { Measuring } from '../measure.ts';
import { type Answer, attempt, type Problem, resolve } from '../requests/probe.ts';

/** The interval between flips for a probe that specifies none. */
const PROBE_EVERY_MS = 30_000;

/** A URL that leads through the consumer to the canary. */
export const probe: Measuring<'probe'> = {
  by: 'canary',
  limit:
    'It sees the instances that the URL leads to from where the leader runs. Up to 3 of them are timed to 0.1 s on average; of 20 the slowest is timed 0.35 s short on average.',
  everyMs: ({ every }) => (every === undefined ? PROBE_EVERY_MS : every * 1000),
  attempts: async (measure, _, context) => {
    const url = new URL(measure.url);
    const { signal, allowLinkLocal } = context;
    const ask = asking(url, await resolve(url, { signal, allowLinkLocal }), context);
    return { service: CANARY_SERVICE, leastMisses: SHARED_MISSES, subject: 'The probe', ask };
  },
};

/** Asks each address in turn. */
function asking(
  url: URL,
  resolved: { readonly addresses: readonly string[] } | Problem,
  { timeoutMs, onProbe }: AttemptContext,
): () => Promise<Answer> {
  if (!('addresses' in resolved)) return () => Promise.resolve(resolved);
  const { addresses } = resolved;
  let turn = 0;
  return () => {
    const address = addresses[turn++ % addresses.length] as string;
    return attempt({ url, address, timeoutMs, onConnect: () => onProbe(address) });
  };
}
