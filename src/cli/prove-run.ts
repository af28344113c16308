import { once } from 'node:events';
import { createInterface } from 'node:readline/promises';
import type { KubeConnection } from '../cluster/index.ts';
import { fewOf, LingerError } from '../core/api/index.ts';
import {
  type Disturbance,
  ENDPOINTS_RIGHTS,
  fullName,
  PORTS,
  PodLives,
  type ProveResult,
  prove,
  refuseUnsafe,
  rightsFor,
  runSeconds,
  type ServicePort,
  TrafficJob,
  type Way,
  WorkloadAccess,
  type WorkloadName,
  wordsOf,
} from '../prove/index.ts';
import type { Settings } from './commands.ts';
import { nameOf } from './connect.ts';
import { usageError } from './flags.ts';
import type { Surroundings } from './terminal.ts';

/** What all runs of a command share. */
export interface ProveSetting {
  readonly connection: KubeConnection;
  readonly settings: Settings<'prove'>;
  readonly surroundings: Surroundings;
  readonly disturbance: Disturbance;
  readonly urls: readonly NamedUrl[];
  /** Aborted by the first signal to the process. */
  readonly stopping: AbortController;
}

export interface NamedUrl {
  readonly name: string;
  readonly url: string;
}

/**
 * One run: from checking whether the rights suffice to reporting what was lost.
 * @param fresh whether the workload is a copy made for this run, after all questions have been answered
 * @throws LingerError, KubeFailure
 */
export async function proveOne(
  setting: ProveSetting,
  target: WorkloadName,
  fresh = false,
): Promise<ProveResult> {
  const { connection, settings, surroundings, disturbance, urls, stopping } = setting;
  const { namespace } = target;
  const { rate, timeout, method, slow, calm, quiet } = settings;
  const { signal } = stopping;
  const watching = new AbortController();
  const lives = new PodLives();
  try {
    const access = new WorkloadAccess(connection, target);
    const needs = needsOf(setting);
    await requireRights(setting, access, rightsFor(target, disturbance, needs), `namespace ${namespace}`);
    const workload = await access.read(signal);
    const service = needs.service
      ? serviceIn(await access.services(workload.podLabels, signal), settings)
      : undefined;
    const ways = waysOf(settings, namespace, service, urls);
    const most = Math.max(ways.fromCluster.length, ways.fromHere.length);
    const longest = Math.min(settings.for, longestAt(rate, most, calm));
    const image = needs.job ? await imageOf(setting, access) : '';
    const withEndpoints = (await access.missing(ENDPOINTS_RIGHTS, signal)).length === 0;
    const watched = { workload, service: service?.service, withEndpoints, signal: watching.signal };
    await lives.start(connection, watched);
    await refuseUnsafe({ access, workload, disturbance, lives, signal });
    const through = [...ways.fromCluster, ...ways.fromHere].map(({ name }) => name).join(', ');
    const question = `${wordsOf(disturbance)} of ${fullName(target)} in ${nameOf(connection)}, with ${rate} requests a second through each of ${through}`;
    if (!fresh) await confirmed(question, setting);
    surroundings.progress(`proving ${fullName(target)}`);
    const traffic = { rate, timeoutMs: timeout * 1_000, method, headers: headersIn(settings.header) };
    const notOn = disturbance.type === 'drain' ? disturbance.node : undefined;
    const nodes = new Set(lives.ready.map(({ node }) => node).filter((node) => node !== notOn));
    const plan = { ...traffic, ways: [...ways.fromCluster], seconds: runSeconds(calm, longest) };
    const pods = Math.max(1, Math.min(MOST_SENDERS, nodes.size));
    const from = { namespace, image, pods, notOn };
    const job = needs.job ? new TrafficJob(connection, { ...from, plan }, signal) : undefined;
    return await prove({
      access,
      workload,
      disturbance,
      lives,
      job,
      fromHere: ways.fromHere,
      traffic,
      fresh,
      slowMs: slow * 1_000,
      calm,
      quiet,
      longest,
      signal,
      note: noteTo(surroundings),
    });
  } finally {
    watching.abort();
    await lives.ended();
  }
}

export const noteTo =
  ({ warn }: Surroundings) =>
  (line: string): void =>
    warn(`linger prove: ${line}`);

export function needsOf({ settings, urls }: ProveSetting) {
  const service = !settings.urlsOnly;
  return { service, job: service || (urls.length > 0 && settings.urlFrom === 'cluster') };
}

/** @throws LingerError `cluster-denied`, which names the missing rights */
export async function requireRights(
  { connection, stopping }: ProveSetting,
  access: WorkloadAccess,
  rights: readonly string[],
  where: string,
): Promise<void> {
  const missing = await access.missing(rights, stopping.signal);
  if (missing.length > 0)
    throw new LingerError(
      'cluster-denied',
      `${nameOf(connection)}: these credentials lack permissions in ${where}: ${missing.join(', ')}`,
    );
}

/** @throws LingerError `settings-invalid` */
export async function imageOf({ settings, stopping }: ProveSetting, access: WorkloadAccess): Promise<string> {
  const { image, lingerNamespace = 'linger' } = settings;
  const found = image ?? (await access.lingerImage(lingerNamespace, stopping.signal));
  if (found === undefined)
    throw usageError('--image: expected an image of Linger to send traffic from, since none runs here');
  return found;
}

/** @throws LingerError `settings-invalid`, also for values that HTTP cannot transmit */
export function headersIn(texts: readonly string[] = []): Record<string, string> {
  const pairs = texts.map((text) => {
    const [, name = '', value] = /^([\w-]+):([\t\u0020-\u007e\u0080-\u00ff]*)$/.exec(text) ?? [];
    if (value === undefined) throw usageError(`--header: expected NAME:VALUE, got "${text}"`);
    return [name.toLowerCase(), value.trimStart()] as const;
  });
  return Object.fromEntries(pairs);
}

/** @throws LingerError `settings-invalid` if there is none, or more than one */
function serviceIn(ports: readonly ServicePort[], { service }: Settings<'prove'>): ServicePort {
  const [name, port] = service?.split(':') ?? [];
  const matching = ports.filter(
    (each) =>
      (name === undefined || each.service === name) &&
      (port === undefined || String(each.port) === port || each.portName === port),
  );
  // A headless Service beside it is only for discovery.
  const withAddress = matching.filter((each) => each.clusterIp !== undefined);
  const choice = withAddress.length > 0 ? withAddress : matching;
  const services = new Set(choice.map((each) => each.service));
  const [first] = choice;
  if (ports.length === 0)
    throw usageError(
      'no Service of this namespace selects these pods; --url names a gateway and --urls-only leaves the Service out',
    );
  if (first === undefined)
    throw usageError(
      `--service: expected one of ${fewOf(ports.map((each) => `${each.service}:${each.port}`))}, which select these pods, got "${service}"`,
    );
  if (services.size > 1) throw usageError(`--service: expected one of ${[...services].join(', ')}`);
  return first;
}

function waysOf(
  settings: Settings<'prove'>,
  namespace: string,
  service: ServicePort | undefined,
  urls: readonly NamedUrl[],
) {
  const { path, keepAlive, urlFrom, insecure } = settings;
  const both = (way: Omit<Way, 'keepAlive'>): readonly Way[] => [
    { ...way, keepAlive: false },
    ...(keepAlive ? [{ ...way, name: `${way.name} (keep-alive)`, keepAlive: true }] : []),
  ];
  const ofService = service === undefined ? [] : both(serviceWay(service, namespace, path));
  const ofUrls = urls.flatMap(({ name, url }) => both({ name, url: at(url, path), verify: !insecure }));
  return urlFrom === 'cluster'
    ? { fromCluster: [...ofService, ...ofUrls], fromHere: [] }
    : { fromCluster: ofService, fromHere: ofUrls };
}

function serviceWay(
  { service, target, clusterIp, https }: ServicePort,
  namespace: string,
  path: string,
): Omit<Way, 'keepAlive'> {
  const host = `${service}.${namespace}.svc`;
  const url = `${https ? 'https' : 'http'}://${host}:${target}${path}`;
  // Not verified: the certificate is the application's own, and is not what is being proved.
  return {
    name: `Service ${service}`,
    url,
    ...(clusterIp !== undefined && { address: clusterIp }),
    verify: false,
  };
}

/** Adds the path of --path if the URL has none. */
function at(url: string, path: string): string {
  const target = new URL(url);
  return target.pathname === '/' && target.search === '' ? new URL(path, target).href : target.href;
}

/** For how many seconds each request can have a source port of its own. @throws LingerError `settings-invalid` */
function longestAt(rate: number, ways: number, calm: number): number {
  const outside = calm + OUTSIDE_SECONDS;
  const longest = Math.floor(PORTS / (rate * ways)) - outside;
  if (longest >= SHORTEST_SECONDS) return longest;
  throw usageError(
    `--rate: expected a lower rate, since ${rate} a second through ${ways} ways would use up all source ports within ${longest + outside}s`,
  );
}

const MOST_SENDERS = 3;
/** Time for senders to start, and until requests through new pods succeed. */
const OUTSIDE_SECONDS = 55;
const SHORTEST_SECONDS = 30;

/** @throws LingerError `settings-invalid` if there is no terminal to ask on, `prove-refused` unless the answer is yes */
export async function confirmed(
  question: string,
  { settings: { yes }, surroundings, stopping }: ProveSetting,
): Promise<void> {
  if (yes) return;
  const { stdin, interactive, warn } = surroundings;
  warn(`linger prove: ${question}`);
  if (!interactive) throw usageError('--yes: required, since there is no terminal to confirm on');
  const lines = createInterface({ input: stdin, output: process.stderr });
  lines.once('SIGINT', () =>
    stopping.abort(new LingerError('prove-refused', 'interrupted; nothing was done')),
  );
  // If its input ends, as by Ctrl-D, a question would never be answered.
  const ended = once(lines, 'close').then(() => 'n');
  const asked = lines.question('Proceed? [y/N] ', { signal: stopping.signal }).catch(() => 'n');
  const answer = await Promise.race([asked, ended]);
  lines.close();
  if (!/^y(es)?$/i.test(answer.trim()))
    throw new LingerError('prove-refused', 'not confirmed; nothing was done');
}
