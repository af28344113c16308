import { Counter, type Registry } from '@prometheus-io/client';
import { asFailure, type KubeConnection, listSome, type ObjectEvents } from '../../cluster/index.ts';
import {
  asError,
  authorityOf,
  canonicalAddress,
  EVERYTHING,
  type InspectSpec,
  labelQueryOf,
  type PageFindings,
  pageReader,
  type ServiceRecord,
  selectsNamespace,
  unseenNamespace,
  usualPath,
} from '../../core/api/index.ts';
import type { ClusterSnapshot } from '../../core/decision/index.ts';
import {
  type Consumer,
  type Departed,
  PodAddresses,
  type ServiceName,
  sendsThrough,
} from '../../core/lag/index.ts';
import { type AddressedPod, addressedPodsResource, endpointSlicesResource } from '../../informers/index.ts';
import type { Leadership, Runnable } from '../../manager/index.ts';
import { gaugeAtScrape, type Logger, LogOnce } from '../../telemetry/index.ts';
import { Schedule, tick } from '../../timing/index.ts';
import type { ConsumerMeasurement } from '../measurement.ts';
import { measuredBy } from '../measures.ts';
import { type PageAnswer, readHeaderValue, readPage, trustOf } from '../requests/gateway-client.ts';
import { isForbidden, type Problem, problem, resolve } from '../requests/probe.ts';
import { Inspection, type InspectionOptions } from './inspect.ts';
import {
  firstOf,
  type Inspected,
  type InstanceList,
  instancesAt,
  NONE,
  type PageInstance,
  type PageToRead,
  type Source,
} from './inspected.ts';
import type { StaleUpstream } from './stale-upstreams.ts';

export interface InspectingContext {
  readonly connection: KubeConnection;
  readonly snapshot: { current(): ClusterSnapshot };
  readonly measurement: ConsumerMeasurement;
  /** Whether pages may be read from link-local addresses and from cloud metadata. */
  readonly allowLinkLocal: boolean;
  /** The folder with the files that consumers may refer to; undefined: they may refer to none. */
  readonly files: string | undefined;
  /** Linger's own. */
  readonly namespace: string;
  readonly logger: Logger;
  readonly metrics: { readonly registry: Registry };
  readonly events: ObjectEvents;
  readonly clock: () => number;
  readonly random: () => number;
  readonly signal: AbortSignal;
}

/** How soon an added or removed consumer or Service is noticed, and how often states are published. */
const LOOK_EVERY_MS = 1_000;
const PAGE_MS = 5_000;
const LIST_MS = 10_000;
const MOST_INSTANCES = 200;
/** Up to this many namespaces are listed one by one; for more, a single request lists all. */
const MOST_NAMESPACES = 4;
/** Up to this many Services are selected by name; for more, all slices are listed. */
const MOST_SERVICES = 50;
const MOST_SLICES = 200_000;
/**
 * Every replica makes this list, perhaps of all slices in the cluster, which may fail just when the API server is
 * overloaded.
 */
const LIST_PACE = { everyMs: 0, firstPauseMs: 1_000, longestPauseMs: 15_000 };

/** While this replica leads, asks the instances of inspected consumers. The caller passes each removal to the inspection. */
export function startInspecting(context: InspectingContext) {
  const { snapshot, measurement, clock, logger } = context;
  const present = () => inspectedIn(snapshot.current());
  const sendersTo: InspectionOptions['sendersTo'] = (services) => {
    const consumers = present();
    if (consumers.length === 0) return [];
    const now = snapshot.current();
    const known = services.map((service) => [service, recordOf(service, now)] as const);
    return consumers.filter(({ consumer }) => known.some((each) => mightSend(consumer, each, now)));
  };
  const addresses = new PodAddresses((service) => sendersTo([service]).length > 0);
  const inspection: Inspection = new Inspection({
    clock,
    addresses,
    sendersTo,
    instancesOf: (consumer, until) =>
      consumer.followed === undefined
        ? instancesOf(consumer.inspect, context, until)
        : sources.instancesOf(consumer.name, until),
    ask: async (consumer, instance, page, until) => {
      if (consumer.followed !== undefined)
        return { outcome: sources.find(consumer.name, instance, page), bytes: 0 };
      const onConnect = () => inspection.connected(instance.address);
      return ask(consumer.inspect, instance, page, { ...context, onConnect }, until);
    },
    lagOf: (consumer) => measurement.measured(consumer, 'removal')?.quantile(STALE_PERCENTILE),
    isReused: (departed, until) => isReused(departed, context, until),
    onStale: (found) => reportStale(found, context),
    onSkipped: (consumer, instance, skipped) => {
      const members = { consumer, instance };
      if (skipped)
        logger.warn(members, 'instance did not drop three held pods in a row; Hold no longer waits for it');
      else logger.info(members, 'instance drops held pods again; Hold waits for it');
    },
    onLag: (consumer, lag) => measurement.record({ consumer, direction: 'removal', lag }),
    count: registerInspectionMetrics(context.metrics.registry, () => inspection),
  });
  const sources = new Sources(context);
  const lead = async ({ signal: term }: Leadership) => {
    try {
      const asking = inspection.run(term);
      do {
        sources.keep();
        inspection.keep(present());
        for (const [name, state] of inspection.states()) measurement.report(name, state);
      } while (await tick(LOOK_EVERY_MS, term));
      await asking;
    } finally {
      inspection.keep([]);
      sources.forget();
    }
  };
  const onEvent = inspection.observe.bind(inspection);
  const run = () => keepAddresses(addresses, present, context);
  return { inspection, runnable: { name: 'inspection', onEvent, run, lead } satisfies Runnable };
}

type InspectedConsumer = Inspected & { readonly consumer: Consumer };

function inspectedIn({ measured }: ClusterSnapshot): readonly InspectedConsumer[] {
  return measured.flatMap((consumer): InspectedConsumer[] => {
    const inspecting = measuredBy('inspection', consumer);
    if (inspecting === undefined) return [];
    return [{ name: consumer.name, ...inspecting.inspected(consumer.measure), consumer }];
  });
}

interface Started {
  readonly consumer: Consumer;
  readonly ending: AbortController;
  readonly starting: Promise<Source>;
  source?: Source;
}

/** The sources that are followed, one for each consumer. */
class Sources {
  readonly #context: InspectingContext;
  readonly #started = new Map<string, Started>();
  #seen: AppliedFacts | undefined;

  constructor(context: InspectingContext) {
    this.#context = context;
  }

  instancesOf(consumer: string, signal: AbortSignal): Promise<InstanceList | Problem> {
    const { starting } = this.#started.get(consumer) ?? {};
    if (starting === undefined) return Promise.resolve(NONE);
    return starting.then(
      (source) => source.instances(signal),
      (error) => problem('Unreachable', `fails (${asError(error).message})`),
    );
  }

  find(consumer: string, instance: PageInstance, page: PageToRead): PageFindings | Problem {
    const { source } = this.#started.get(consumer) ?? {};
    return source?.find(instance, page) ?? problem('Unreachable', 'are not followed');
  }

  /** Starts and stops sources according to the current consumers. */
  keep(): void {
    const now = this.#context.snapshot.current();
    const wanted = new Map(inspectedIn(now).map((each) => [each.name, each]));
    for (const [name, { consumer, ending }] of this.#started) {
      const spec = wanted.get(name)?.consumer.measure;
      if (JSON.stringify(spec) === JSON.stringify(consumer.measure)) continue;
      ending.abort();
      this.#started.delete(name);
    }
    for (const { name, consumer, followed } of wanted.values()) {
      if (followed === undefined || this.#started.has(name)) continue;
      const ending = new AbortController();
      const starting = startSource(consumer, this.#context, ending.signal);
      const started: Started = { consumer, ending, starting };
      this.#started.set(name, started);
      starting.then(
        (source) => {
          started.source = source;
          this.#seen = undefined;
        },
        () => undefined,
      );
    }
    if (appliesAsBefore(this.#seen, now)) return;
    this.#seen = now;
    for (const [name, { source }] of this.#started) {
      const consumer = wanted.get(name)?.consumer;
      if (source?.follow === undefined || consumer === undefined) continue;
      source.follow(servicesOf([consumer], now));
    }
  }

  forget(): void {
    for (const { ending } of this.#started.values()) ending.abort();
    this.#started.clear();
  }
}

/** The facts that determine to which Services a consumer applies. */
type AppliedFacts = Pick<ClusterSnapshot, 'measured' | 'services' | 'namespaces'>;

function appliesAsBefore(seen: AppliedFacts | undefined, now: AppliedFacts): boolean {
  return (
    seen?.measured === now.measured && seen.services === now.services && seen.namespaces === now.namespaces
  );
}

/** The Services to which any of the consumers apply. */
function servicesOf(consumers: readonly Consumer[], now: ClusterSnapshot): readonly ServiceRecord[] {
  const all = consumers.length === 0 ? [] : [...now.services.byNamespace.values()].flat();
  return all.filter((each) => consumers.some((consumer) => mightSend(consumer, [each, each], now)));
}

async function startSource(
  consumer: Consumer,
  context: InspectingContext,
  signal: AbortSignal,
): Promise<Source> {
  const follow = measuredBy('inspection', consumer)?.follow;
  if (follow === undefined) throw new Error(`measure.${consumer.measure.kind} follows nothing`);
  return follow(consumer.measure, { ...context, signal });
}

function recordOf(
  { namespace, name }: ServiceName,
  { services }: ClusterSnapshot,
): ServiceRecord | undefined {
  return services.byNamespace.get(namespace)?.find((each) => each.name === name);
}

function mightSend(
  consumer: Consumer,
  [{ namespace }, record]: readonly [ServiceName, ServiceRecord | undefined],
  { namespaces }: ClusterSnapshot,
): boolean {
  const within = namespaces.get(namespace) ?? unseenNamespace(namespace);
  return sendsThrough(consumer, within, record ?? 'unknown');
}

/** Lists the slices of Services that have become relevant: their watch events were ignored while no consumer needed them. */
async function keepAddresses(
  addresses: PodAddresses,
  present: () => readonly InspectedConsumer[],
  context: InspectingContext,
): Promise<void> {
  const { snapshot, logger, clock, random, signal } = context;
  const once = new LogOnce(logger);
  const schedule = new Schedule(LIST_PACE, clock(), random);
  let seen: AppliedFacts | undefined;
  let kept: ReadonlySet<string> = new Set();
  do {
    const now = snapshot.current();
    if (appliesAsBefore(seen, now) || !schedule.due(clock())) continue;
    const consumers = present().map(({ consumer }) => consumer);
    const names = servicesOf(consumers, now);
    const next = new Set(names.map(({ namespace, name }) => `${namespace}/${name}`));
    const added = names.filter(({ namespace, name }) => !kept.has(`${namespace}/${name}`));
    if ([...kept].some((each) => !next.has(each))) addresses.prune(clock());
    try {
      if (added.length > 0) await listSlices(addresses, context, [...new Set(added.map(({ name }) => name))]);
      kept = next;
      seen = now;
      schedule.done(clock());
      once.over('slices', {}, 'listing pod addresses recovered');
    } catch (error) {
      if (signal.aborted) return;
      const { message, retryAfterMs } = asFailure(error);
      schedule.failed(clock(), retryAfterMs);
      once.warn('slices', { problem: message }, 'listing pod addresses failed; retrying');
    }
  } while (await tick(LOOK_EVERY_MS, signal));
}

async function listSlices(
  addresses: PodAddresses,
  { connection, clock, signal }: InspectingContext,
  names: readonly string[],
): Promise<void> {
  const slices = endpointSlicesResource();
  const labelSelector = `kubernetes.io/service-name in (${names.join(',')})`;
  const { take, end } = addresses.listing();
  const resource = {
    ...slices,
    ...(names.length <= MOST_SERVICES ? { query: { labelSelector } } : {}),
    project: (raw: Parameters<typeof slices.project>[0]) => take(slices.project(raw), clock()),
  };
  try {
    await listSome(resource, connection, { signal, answerMs: LIST_MS, most: MOST_SLICES });
  } finally {
    end();
  }
}

/** The selected pods with their addresses, which the watch of pods does not contain; or the addresses of a URL's host. */
async function instancesOf(
  inspect: InspectSpec,
  { connection, snapshot, allowLinkLocal }: InspectingContext,
  signal: AbortSignal,
): Promise<InstanceList | Problem> {
  const { instances, url, format, tls } = inspect;
  if (url !== undefined) {
    const page = new URL(url);
    const found = await resolve(page, { signal, allowLinkLocal });
    return 'addresses' in found ? instancesAt(page, found, MOST_INSTANCES) : found;
  }
  if (instances === undefined) return NONE;
  const { namespaceSelector, podSelector = EVERYTHING, port, path = usualPath(format) } = instances;
  const selected = [...snapshot.current().namespaces.values()].filter(
    (namespace) => selectsNamespace(namespaceSelector, namespace) === true,
  );
  const names = new Set(selected.map(({ name }) => name));
  const query = { labelSelector: labelQueryOf(podSelector) };
  const paths =
    names.size <= MOST_NAMESPACES
      ? [...names].map((name) => `/api/v1/namespaces/${encodeURIComponent(name)}/pods`)
      : ['/api/v1/pods'];
  try {
    const options = { signal, answerMs: LIST_MS, most: MOST_INSTANCES + 1 };
    // Otherwise pods of other namespaces, whose labels anyone may choose, could take the places of the selected ones.
    const isSelected = (pod: AddressedPod) => names.has(pod.namespace) && pod.address !== undefined;
    const lists = paths.map((each) =>
      listSome(addressedPodsResource(each, query), connection, options, isSelected),
    );
    const pods = (await Promise.all(lists)).flat();
    const scheme = tls === undefined ? 'http' : 'https';
    const pages = pods.flatMap(({ namespace, name, address = '' }) => {
      if (canonicalAddress(address) === undefined || (!allowLinkLocal && isForbidden(address))) return [];
      const url = new URL(`${scheme}://${authorityOf(address, port)}${path}`);
      return [{ name: `${namespace}/${name}`, address, url }];
    });
    return firstOf(pages, MOST_INSTANCES);
  } catch (error) {
    return problem('Unreachable', `is not answered by the API server (${asError(error).message})`);
  }
}

async function ask(
  { format, tls = {}, tokenFile }: InspectSpec,
  { address }: PageInstance,
  { url, wanted }: PageToRead,
  { files, onConnect }: Pick<InspectingContext, 'files'> & { readonly onConnect: () => void },
  signal: AbortSignal,
): Promise<PageAnswer> {
  try {
    const token = tokenFile === undefined ? undefined : await readHeaderValue(files, tokenFile);
    return await readPage({
      url,
      reader: pageReader(format, wanted),
      to: { host: address },
      trust: await trustOf(files, tls),
      token,
      timeoutMs: PAGE_MS,
      signal,
      onConnect,
    });
  } catch (error) {
    return { outcome: problem('Unreachable', asError(error).message), bytes: 0 };
  }
}

/** An address is stale if a consumer keeps it for longer than this percentile of its lag. */
const STALE_PERCENTILE = 99.9;

/** Whether another pod has got the address in the meantime. */
async function isReused(
  { uid, address }: Departed,
  { connection }: InspectingContext,
  signal: AbortSignal,
): Promise<boolean | undefined> {
  const resource = addressedPodsResource('/api/v1/pods', { fieldSelector: `status.podIP=${address}` });
  try {
    const pods = await listSome(resource, connection, { signal, answerMs: LIST_MS, most: MOST_INSTANCES });
    return pods.some((each) => each.uid !== uid && each.address !== undefined);
  } catch {
    return undefined;
  }
}

/** Reports a stale address. The Event is for the Service's team, so it does not name pods of other namespaces. */
function reportStale(
  { consumer, instance, departed: { address, service } }: StaleUpstream,
  { logger, events }: InspectingContext,
): void {
  const { namespace, name } = service;
  const members = { consumer, instance, address, namespace, service: name };
  logger.warn(members, 'instance still sends to an address that no slice lists');
  events.tell({
    object: { kind: 'Service', namespace, name },
    type: 'Warning',
    reason: 'StaleUpstream',
    action: 'Inspect',
    note: `Consumer ${consumer} still sends to ${address}, which no EndpointSlice lists any more: requests to it fail, or reach whatever gets the address next. The operators of that consumer must restart the instance that linger consumers names.`,
  });
}

/** Registers the metrics of inspection. @param inspection has no instances on a replica that does not lead */
export function registerInspectionMetrics(
  registry: Registry,
  inspection: () => Pick<Inspection, 'instances' | 'stale'>,
): InspectionOptions['count'] {
  const registers = [registry];
  const pages = new Counter({
    name: 'linger_inspect_pages_total',
    help: 'Pages that instances of consumers were asked for: read, or why not.',
    reference:
      'Pages that instances of a consumer were [asked for](../measuring.md#pages): `read`, or the [reason](consumers.md#conditions) why not. The leader asks.',
    labelNames: ['consumer', 'result'] as const,
    registers,
  });
  const bytes = new Counter({
    name: 'linger_inspect_bytes_total',
    help: 'Size of those pages.',
    labelNames: ['consumer'] as const,
    registers,
  });
  const lost = new Counter({
    name: 'linger_inspect_removals_lost_total',
    help: 'Removals that gave no sample because some instance’s page could not show whether it still used the pod.',
    labelNames: ['consumer'] as const,
    registers,
  });
  gaugeAtScrape(registry, {
    name: 'linger_inspect_instances',
    help: 'Instances that are asked for pages, by whether the last answer could be used; only on the leader.',
    reference:
      'Instances that are polled, by whether the last page was usable: `answering` or `silent`. Only on the leader.',
    labelNames: ['consumer', 'state'],
    read: () =>
      [...inspection().instances()].flatMap(([consumer, answering, silent]) => [
        [{ consumer, state: 'answering' }, answering] as const,
        [{ consumer, state: 'silent' }, silent] as const,
      ]),
  });
  gaugeAtScrape(registry, {
    name: 'linger_inspect_stale_upstreams',
    help: 'Addresses that an instance still sends to and that no slice lists; only on the leader, and only above 0.',
    reference:
      '[Dead addresses](../measuring.md#dead-addresses) that an instance still sends to. Only on the leader, and only above 0.',
    labelNames: ['consumer', 'instance'],
    read: () =>
      [...inspection().stale()].map(
        ([consumer, instance, kept]) => [{ consumer, instance }, kept.length] as const,
      ),
  });
  return {
    page: (consumer, result, length) => {
      pages.inc({ consumer, result });
      bytes.inc({ consumer }, length);
    },
    lost: (consumer) => lost.inc({ consumer }),
  };
}
