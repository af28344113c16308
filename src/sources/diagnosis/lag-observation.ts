import { setTimeout as sleep } from 'node:timers/promises';
import { LingerError } from '../../core/catalog/errors.ts';
import { count, span } from '../../core/diagnose/amounts.ts';
import { MalformedExposition } from '../../core/diagnose/exposition.ts';
import type { LagFacts, Look } from '../../core/diagnose/facts.ts';
import { type LagScrape, readLagScrape, scrapedLag, watchedLag } from '../../core/diagnose/lag-facts.ts';
import type { KubeConnection } from '../../kube/connection.ts';
import { messageOf } from './api-reader.ts';
import { isAddress, readMetricsAddress, readMetricsFile } from './metrics-input.ts';
import { type Observation, settled, unseen } from './observation.ts';
import { LagWatch, type LagWatchOptions } from './watched-lag.ts';

const WHAT = 'measured lag';

/** 150,000 pods take a list-watch some 10 s; a cluster that takes longer than this is better asked by its Linger. */
const CURRENT_MS = 60_000;

/**
 * The metrics of a running Linger.
 * @param from a URL, a file or `-`
 * @throws LingerError `metrics-unreadable`, `metrics-invalid`
 */
export async function observeLinger(
  from: string,
  stdin: NodeJS.ReadableStream,
  signal: AbortSignal,
): Promise<Observation<LagFacts>> {
  const look = (text: string): Look => ({ what: WHAT, seen: true, text: `Linger at ${from}, ${text}` });
  if (!isAddress(from)) {
    const saved = scrapeOf(await readMetricsFile(from, stdin), from);
    return settled({ facts: scrapedLag(from, undefined, saved), looks: [look('one scrape')] });
  }
  const take = async () => scrapeOf(await readMetricsAddress({ from }, signal), from);
  const first = await take();
  const end = async (again: boolean) => {
    const once = (text: string) => ({ facts: scrapedLag(from, undefined, first), looks: [look(text)] });
    if (!again) return once('one scrape');
    try {
      return { facts: scrapedLag(from, first, await take()), looks: [look('twice')] };
    } catch (thrown) {
      return once(`one scrape, since the second failed: ${messageOf(thrown, signal)}`);
    }
  };
  return { live: true, end };
}

/** Removals that happen meanwhile, seen by a watch of our own. Resolves when that is current, is refused, or takes too long. */
export async function observeRemovals(
  connection: KubeConnection,
  options: LagWatchOptions,
): Promise<Observation<LagFacts>> {
  const { signal, clock } = options;
  const watch = new LagWatch(connection, options);
  const waiting = new AbortController();
  const late = sleep(CURRENT_MS, false, { signal: AbortSignal.any([signal, waiting.signal]) });
  const isCurrent = await Promise.race([watch.current, late.catch(() => false)]);
  waiting.abort();
  signal.throwIfAborted();
  if (!isCurrent) return unseen([lateLook(watch)]);
  watch.begin();
  const begun = clock();
  const end = () => {
    const from = `watched for ${span((clock() - begun) / 1000)}`;
    const facts = watchedLag(from, watch.samples, watch.waiting());
    const removals = facts.stages.reduce((sum, { samples }) => sum + samples, 0);
    const look = { what: WHAT, seen: true, text: `${from}, ${count(removals, 'removal')}` };
    return Promise.resolve({ facts, looks: [look] });
  };
  return { live: true, end };
}

function lateLook({ late }: LagWatch): Look {
  const why = [...late].map(
    ([stream, message]) => `${stream}${message === undefined ? '' : ` (${message})`}`,
  );
  return {
    what: WHAT,
    seen: false,
    text: `removals cannot be watched, or not within ${span(CURRENT_MS / 1000)}: ${why.join(', ')}`,
    remedy:
      'It takes the right to list and watch pods, services, endpoints and endpointslices; or give the metrics of a running Linger: --linger',
  };
}

function scrapeOf(text: string, from: string): LagScrape {
  let scrape: LagScrape | undefined;
  try {
    scrape = readLagScrape(text);
  } catch (error) {
    if (!(error instanceof MalformedExposition)) throw error;
    throw new LingerError('metrics-invalid', `${from}: ${error.message}`);
  }
  if (scrape !== undefined) return scrape;
  throw new LingerError(
    'metrics-invalid',
    `${from}: expected the metrics of a Linger that measures, with linger_removal_lag_seconds, got others`,
  );
}
