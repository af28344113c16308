import { LingerError } from '../../core/catalog/errors.ts';
import { span } from '../../core/diagnose/amounts.ts';
import {
  activityOf,
  type ControllerActivity,
  type TakenScrape,
} from '../../core/diagnose/controller-activity.ts';
import { type ControllerScrape, readControllerScrape } from '../../core/diagnose/controller-scrape.ts';
import { MalformedExposition } from '../../core/diagnose/exposition.ts';
import { CONTROLLER_METRICS, type Look } from '../../core/diagnose/facts.ts';
import { messageOf } from './api-reader.ts';
import { type MetricsInput, readMetricsAddress } from './metrics-input.ts';
import { type Clocks, type Observation, settled, unseen } from './observation.ts';
import type { SoughtMetrics } from './proxied-metrics.ts';

/**
 * One or two saved scrapes, the older first.
 * @throws LingerError `metrics-invalid`
 */
export function observeSaved(
  scrapes: readonly { readonly from: string; readonly text: string }[],
  apartSeconds: number,
): Observation<ControllerActivity> {
  const taken = scrapes.map(({ from, text }, index) => ({
    scrape: scrapeOf(text, from),
    at: index * apartSeconds,
  }));
  const last = taken.at(-1);
  const facts = last && activityOf(taken.length > 1 ? taken[0] : undefined, last);
  const names = scrapes.map(({ from }) => from).join(' and ');
  const text =
    taken.length > 1 ? `${names}, said to be ${span(apartSeconds)} apart` : `${names}: one scrape, no rates`;
  return settled({ facts, looks: [{ what: CONTROLLER_METRICS, seen: true, text }] });
}

/**
 * The address that somebody named.
 * @throws LingerError `metrics-unreadable`, `metrics-invalid`, `settings-invalid`
 */
export async function observeAddress(
  input: MetricsInput,
  clocks: Clocks,
  signal: AbortSignal,
): Promise<Observation<ControllerActivity>> {
  const read = () => readMetricsAddress(input, signal);
  return observeLive(input.from, await read(), read, clocks, { signal, looks: [] });
}

/** What the API server could reach, if anything. */
export function observeSought(
  { way, looks }: SoughtMetrics,
  clocks: Clocks,
  signal: AbortSignal,
): Observation<ControllerActivity> {
  if (way === undefined) return unseen(looks);
  return observeLive(way.from, way.first, way.again, clocks, { signal, looks });
}

function observeLive(
  from: string,
  firstText: string,
  read: () => Promise<string>,
  clocks: Clocks,
  { signal, looks }: { readonly signal: AbortSignal; readonly looks: readonly Look[] },
): Observation<ControllerActivity> {
  const take = (text: string): TakenScrape => ({
    scrape: scrapeOf(text, from),
    at: clocks.clock() / 1000,
    epochSeconds: clocks.epochSeconds(),
  });
  const first = take(firstText);
  const seen = (text: string): Look => ({ what: CONTROLLER_METRICS, seen: true, text });
  const end = async (again: boolean) => {
    const once = (text: string) => ({ facts: activityOf(undefined, first), looks: [...looks, seen(text)] });
    if (!again) return once(`${from}: one scrape, no rates`);
    try {
      const last = take(await read());
      const text = `${from}, twice in ${span(last.at - first.at)}`;
      return { facts: activityOf(first, last), looks: [...looks, seen(text)] };
    } catch (thrown) {
      return once(`${from}: one scrape, no rates, since the second failed: ${messageOf(thrown, signal)}`);
    }
  };
  return { live: true, end };
}

function scrapeOf(text: string, from: string): ControllerScrape {
  let scrape: ControllerScrape;
  try {
    scrape = readControllerScrape(text);
  } catch (error) {
    if (!(error instanceof MalformedExposition)) throw error;
    throw new LingerError('metrics-invalid', `${from}: ${error.message}`);
  }
  // One that stands by for the leader has not made its controllers, and so has no queues.
  if (scrape.queues.size > 0 || scrape.leading === false) return scrape;
  throw new LingerError(
    'metrics-invalid',
    `${from}: expected the metrics of a kube-controller-manager, with workqueue_depth{name="endpoint_slice"}, got others`,
  );
}
