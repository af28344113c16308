import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Counter, type Registry } from '@prometheus-io/client';
import {
  asError,
  EVERYTHING,
  labelQueryOf,
  type ServiceRecord,
  selectsNamespace,
  unseenNamespace,
} from '../api/index.ts';
import { canonicalAddress } from '../certs/index.ts';
import { type KubeConnection, listSome } from '../cluster/index.ts';
import type { ClusterSnapshot } from '../decision/index.ts';
import { addressedPodsResource, endpointSlicesResource } from '../informers/index.ts';
import { type Consumer, PodAddresses, type ServiceName, sendsThrough } from '../lag/index.ts';
import type { Leadership, Runnable } from '../manager/index.ts';
import { gaugeAtScrape, type Logger, LogOnce } from '../telemetry/index.ts';
import { tick } from '../timing/index.ts';
import { type PageAnswer, readPage } from './gateway-client.ts';
import {
  type Inspected,
  Inspection,
  type InspectionOptions,
  type PageInstance,
  type PageToRead,
  USUAL_PATHS,
} from './inspect.ts';
import type { ConsumerMeasurement } from './measurement.ts';
import { authorityOf, readerOf } from './page-formats.ts';
import { isForbidden, type Problem, problem, resolve } from './probe.ts';

export interface InspectingContext {
  readonly connection: KubeConnection;
  readonly snapshot: { current(): ClusterSnapshot };
  readonly measurement: ConsumerMeasurement;
  /** Whether pages may be read from link-local addresses and cloud metadata. */
  readonly allowLinkLocal: boolean;
  /** The folder with the files that consumers may refer to; undefined: none. */
  readonly files: string | undefined;
  readonly logger: Logger;
  readonly metrics: { readonly registry: Registry };
  readonly clock: () => number;
  readonly signal: AbortSignal;
}

/** How soon an added or removed consumer or Service counts, and how often states are published. */
const LOOK_EVERY_MS = 1_000;
const PAGE_MS = 5_000;
const LIST_MS = 10_000;
const MOST_INSTANCES = 200;
/** Up to this many namespaces are listed one by one; more are listed with a single request. */
const MOST_NAMESPACES = 4;
/** Up to this many Services are selected by name; for more, all slices are listed. */
const MOST_SERVICES = 50;
const MOST_SLICES = 200_000;

/** Asks the instances of inspected consumers while this replica leads; the caller passes each removal to the inspection. */
export function startInspecting(context: InspectingContext) {
  const { snapshot, measurement, clock } = context;
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
    instancesOf: (consumer, until) => instancesOf(consumer, context, until),
    ask: (consumer, instance, page, until) => {
      const onConnect = () => inspection.connected(instance.address);
      return ask(consumer, instance, page, { ...context, onConnect }, until);
    },
    onLag: (consumer, lag) => measurement.record({ consumer, direction: 'removal', lag }),
    count: registerInspectionMetrics(context.metrics.registry, () => [...inspection.instances()]),
  });
  const lead = async ({ signal: term }: Leadership) => {
    try {
      const asking = inspection.run(term);
      do {
        inspection.keep(present());
        for (const [name, state] of inspection.states()) measurement.report(name, state);
      } while (await tick(LOOK_EVERY_MS, term));
      await asking;
    } finally {
      inspection.keep([]);
    }
  };
  const onEvent = inspection.observe.bind(inspection);
  const run = () => keepAddresses(addresses, present, context);
  return { inspection, runnable: { name: 'inspection', onEvent, run, lead } satisfies Runnable };
}

interface InspectedConsumer extends Inspected {
  readonly consumer: Consumer;
}

function inspectedIn({ measured }: ClusterSnapshot): readonly InspectedConsumer[] {
  return measured.flatMap((consumer) => {
    const { name, measure } = consumer;
    return measure.kind === 'inspect' ? [{ name, inspect: measure.inspect, consumer }] : [];
  });
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

/** Lists the slices of Services that start to count: their watch events passed while no consumer needed them. */
async function keepAddresses(
  addresses: PodAddresses,
  present: () => readonly InspectedConsumer[],
  context: InspectingContext,
): Promise<void> {
  const { snapshot, logger, clock, signal } = context;
  const once = new LogOnce(logger);
  let seen: Pick<ClusterSnapshot, 'measured' | 'services' | 'namespaces'> | undefined;
  let kept: ReadonlySet<string> = new Set();
  do {
    const now = snapshot.current();
    const { measured, services, namespaces } = now;
    const isSame =
      seen?.measured === measured && seen.services === services && seen.namespaces === namespaces;
    if (isSame) continue;
    const inspected = present();
    const all = inspected.length === 0 ? [] : [...services.byNamespace.values()].flat();
    const names = all.filter((each) =>
      inspected.some(({ consumer }) => mightSend(consumer, [each, each], now)),
    );
    const next = new Set(names.map(({ namespace, name }) => `${namespace}/${name}`));
    const added = names.filter(({ namespace, name }) => !kept.has(`${namespace}/${name}`));
    if ([...kept].some((each) => !next.has(each))) addresses.prune(clock());
    try {
      if (added.length > 0) await listSlices(addresses, context, [...new Set(added.map(({ name }) => name))]);
      kept = next;
      seen = { measured, services, namespaces };
      once.over('slices', {}, 'listing pod addresses works again');
    } catch (error) {
      const { message } = asError(error);
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

/** The selected pods with their addresses, which the watch of pods does not have; or the addresses of a URL's host. */
async function instancesOf(
  { inspect }: Inspected,
  { connection, snapshot, allowLinkLocal }: InspectingContext,
  signal: AbortSignal,
): Promise<readonly PageInstance[] | Problem> {
  const { instances, url, format, tls } = inspect;
  if (url !== undefined) {
    const page = new URL(url);
    const found = await resolve(page, { signal, allowLinkLocal });
    if (!('addresses' in found)) return found;
    return found.addresses.slice(0, MOST_INSTANCES).map((address) => ({ name: address, address, url: page }));
  }
  if (instances === undefined) return [];
  const { namespaceSelector, podSelector = EVERYTHING, port, path = USUAL_PATHS[format] } = instances;
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
    const options = { signal, answerMs: LIST_MS, most: MOST_INSTANCES };
    const lists = paths.map((each) => listSome(addressedPodsResource(each, query), connection, options));
    const pods = (await Promise.all(lists)).flat().filter(({ namespace }) => names.has(namespace));
    const scheme = tls === undefined ? 'http' : 'https';
    return pods.flatMap(({ namespace, name, address = '' }) => {
      if (canonicalAddress(address) === undefined || (!allowLinkLocal && isForbidden(address))) return [];
      const url = new URL(`${scheme}://${authorityOf(address, port)}${path}`);
      return [{ name: `${namespace}/${name}`, address, url }];
    });
  } catch (error) {
    return problem('Unreachable', `is not answered by the API server (${asError(error).message})`);
  }
}

async function ask(
  { inspect: { format, tls = {}, tokenFile } }: Inspected,
  { address }: PageInstance,
  { url, wanted }: PageToRead,
  { files, onConnect }: Pick<InspectingContext, 'files'> & { readonly onConnect: () => void },
  signal: AbortSignal,
): Promise<PageAnswer> {
  try {
    const { caFile, ...trust } = tls;
    const ca = caFile === undefined ? undefined : await readNamed(files, caFile);
    const token = tokenFile === undefined ? undefined : await readNamed(files, tokenFile);
    return await readPage({
      url,
      reader: readerOf(format, wanted),
      to: { host: address },
      trust: { ...trust, ca },
      token: token?.toString('latin1').trim(),
      timeoutMs: PAGE_MS,
      signal,
      onConnect,
    });
  } catch (error) {
    return { outcome: problem('Unreachable', `cannot be asked for: ${asError(error).message}`), bytes: 0 };
  }
}

/** Read each time, because tokens are rotated. */
async function readNamed(folder: string | undefined, name: string): Promise<Buffer> {
  if (folder === undefined) throw new Error(`it needs the file ${name}, and --inspect-files names no folder`);
  return readFile(join(folder, name)).catch(() => {
    throw new Error(`the file ${name} of --inspect-files cannot be read`);
  });
}

/** Registers the metrics of inspection. @param instances by consumer; none on a replica that does not lead */
export function registerInspectionMetrics(
  registry: Registry,
  instances: () => readonly (readonly [consumer: string, answering: number, silent: number])[],
): InspectionOptions['count'] {
  const registers = [registry];
  const pages = new Counter({
    name: 'linger_inspect_pages_total',
    help: 'Pages that instances of consumers were asked for: read, or why not.',
    labelNames: ['consumer', 'result'] as const,
    registers,
  });
  const bytes = new Counter({
    name: 'linger_inspect_bytes_total',
    help: 'How long those pages were.',
    labelNames: ['consumer'] as const,
    registers,
  });
  const lost = new Counter({
    name: 'linger_inspect_removals_lost_total',
    help: 'Removals that gave no sample because not every instance could say whether it had let go.',
    labelNames: ['consumer'] as const,
    registers,
  });
  gaugeAtScrape(registry, {
    name: 'linger_inspect_instances',
    help: 'Instances that are asked for pages, by whether the last answer could be used; only on the leader.',
    labelNames: ['consumer', 'state'],
    read: () =>
      instances().flatMap(([consumer, answering, silent]) => [
        [{ consumer, state: 'answering' }, answering] as const,
        [{ consumer, state: 'silent' }, silent] as const,
      ]),
  });
  return {
    page: (consumer, result, length) => {
      pages.inc({ consumer, result });
      bytes.inc({ consumer }, length);
    },
    lost: (consumer) => lost.inc({ consumer }),
  };
}
