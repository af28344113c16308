import { readFile } from 'node:fs/promises';
import { buffer } from 'node:stream/consumers';
import { ApiReader, type Credentials, messageOf, type RawObject } from '../cluster/index.ts';
import { isRecord, isString, LingerError, listOf, memberAt, recordsAt, span } from '../core/api/index.ts';
import { fileText } from '../core/yaml/index.ts';
import { MalformedExposition } from '../telemetry/index.ts';
import {
  activityOf,
  type ControllerActivity,
  controllerFlags,
  givenFlags,
  isLeading,
  queuesIn,
  readControllerScrape,
  type TakenScrape,
} from './controller-metrics.ts';
import { CONTROLLER_METRICS, type LeaderFacts, type Look } from './facts.ts';

export interface Observed<T> {
  /** Undefined: nothing could be observed, for reasons that the looks give. */
  readonly facts: T | undefined;
  readonly looks: readonly Look[];
}

/**
 * Either a result that cannot change, such as that of a file; or a function that completes the observation, with a second
 * look or without.
 */
export type Observation<T> = Observed<T> | ((again: boolean) => Promise<Observed<T>>);

export const UNSEEN: Observed<never> = { facts: undefined, looks: [] };

/**
 * Reads now, and again at the end.
 * @param observed combines the first reading (undefined: there is only one) and the last; `failure`: why the second could
 * not be read
 */
export async function observeTwice<Scrape, Facts>(
  read: () => Promise<Scrape>,
  observed: (first: Scrape | undefined, last: Scrape, failure: string) => Observed<Facts>,
): Promise<Observation<Facts>> {
  const first = await read();
  return async (again) => {
    if (!again) return observed(undefined, first, '');
    try {
      return observed(first, await read(), '');
    } catch (thrown) {
      return observed(undefined, first, `, since the second failed: ${messageOf(thrown)}`);
    }
  };
}

const PODS = '/api/v1/namespaces/kube-system/pods';
const LEASE = '/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager';

/**
 * The labels of kubeadm and similar tools, and of kops. Pods are selected by label, because a large cluster has thousands in
 * kube-system.
 */
const LABELS = ['component=kube-controller-manager', 'k8s-app=kube-controller-manager'];

/** --secure-port */
const DEFAULT_PORT = 10_257;

/** @throws KubeFailure */
export async function controllerPods(api: ApiReader): Promise<readonly ControllerPod[]> {
  for (const labelSelector of LABELS) {
    const pods = await api.list({ path: PODS, query: { labelSelector }, project: projectPod });
    if (pods.length > 0) return pods;
  }
  return [];
}

/** Which instance leads, and since when. @param epochSeconds now @throws KubeFailure */
export async function controllerLeader(
  api: ApiReader,
  epochSeconds: number,
): Promise<LeaderFacts | undefined> {
  const { spec } = await api.json(LEASE);
  const { holderIdentity: holder, acquireTime, leaseTransitions = 0 } = isRecord(spec) ? spec : {};
  const acquired = Date.parse(String(acquireTime)) / 1000;
  if (!isString(holder) || Number.isNaN(acquired)) return undefined;
  const ageSeconds = Math.max(0, epochSeconds - acquired);
  return { holder, ageSeconds, transitions: Number(leaseTransitions) };
}

/**
 * Puts the leader first. Its identity consists of its host's name and a UUID (controllermanager.go), and the pod runs on
 * that host.
 */
export function leaderFirst(
  pods: readonly ControllerPod[],
  leader: LeaderFacts | undefined,
): readonly ControllerPod[] {
  const host = leader?.holder.split('_')[0];
  return pods.toSorted((a, b) => Number(b.node === host) - Number(a.node === host));
}

/** A kube-controller-manager that runs as a pod; `port`: where it serves its metrics. */
export type ControllerPod = ReturnType<typeof projectPod>;

function projectPod({ metadata: { name }, spec }: RawObject) {
  const words = recordsAt(spec, 'containers')
    .flatMap(({ command, args }) => [...listOf(command), ...listOf(args)])
    .filter(isString);
  const port = Number(givenFlags(words).get('--secure-port') ?? DEFAULT_PORT);
  return { name, node: memberAt(spec, ['nodeName']), flags: controllerFlags(words), port };
}

/** Metrics that are named on the command line: an address, or a saved scrape. */
export interface MetricsInput {
  /** A URL, a file, or `-`: standard input. */
  readonly from: string;
  /** A PEM file with authorities for verifying the server. */
  readonly caFile?: string | undefined;
  readonly tokenFile?: string | undefined;
  /** Whether to accept a certificate of an unknown CA. On this machine's own addresses it is always accepted. */
  readonly insecure?: boolean;
  /**
   * The credentials whose client certificate to present if there is no token. That reveals no secret, because the key stays
   * here; the credentials' token is never sent.
   */
  readonly identity?: () => Promise<Credentials>;
}

export function isAddress(from: string): boolean {
  return /^https?:\/\//i.test(from);
}

/** @throws LingerError `metrics-unreadable` */
export async function readMetricsFile(from: string, stdin: NodeJS.ReadableStream): Promise<string> {
  return from === '-' ? fileText(await buffer(stdin)) : fileOf(from);
}

/**
 * Reads the address once.
 * @throws LingerError `metrics-unreadable`, `settings-invalid`
 */
export async function readMetricsAddress(input: MetricsInput): Promise<string> {
  const { from } = input;
  const url = URL.parse(from);
  if (url === null) {
    const problem = `${from}: expected an address such as https://127.0.0.1:10257/metrics`;
    throw new LingerError('metrics-unreadable', problem);
  }
  const rejectUnauthorized = !isUnverified(url, input);
  const credentials = await credentialsOf(input);
  // The rest of the URL becomes the request's path, because a connection's own path is put in front of that.
  const server = new URL(url.origin);
  const given = { ...credentials, rejectUnauthorized };
  const reader = new ApiReader({ server, credentials: () => Promise.resolve(given) });
  try {
    return await reader.text(`${url.pathname}${url.search}`);
  } catch (thrown) {
    const message = explained(messageOf(thrown), credentials);
    throw new LingerError('metrics-unreadable', `${from}: ${message}`);
  } finally {
    reader.close();
  }
}

/**
 * Whether the server's certificate need not be verified. That is always so for this machine's own addresses, because the
 * controller-manager's certificate is self-signed by default.
 */
function isUnverified(url: URL, { from, caFile, tokenFile, insecure = false }: MetricsInput): boolean {
  const local = /^(localhost|\[::1\]|127(\.\d+){3})$/.test(url.hostname);
  const unverified = url.protocol === 'http:' || (caFile === undefined && (local || insecure));
  if (tokenFile !== undefined && unverified && !local) {
    throw new LingerError(
      'settings-invalid',
      `${from}: expected an https:// address and the CA of its certificate, to send a token there; give --controller-metrics-ca`,
    );
  }
  return unverified;
}

async function credentialsOf({ caFile, tokenFile, identity }: MetricsInput): Promise<Credentials> {
  const ca = caFile === undefined ? undefined : await fileOf(caFile);
  if (tokenFile !== undefined) {
    return { ca, headers: { authorization: `Bearer ${(await fileOf(tokenFile)).trim()}` } };
  }
  const { cert, key } = (await identity?.()) ?? {};
  return { ca, cert, key };
}

/** @throws LingerError `metrics-unreadable` */
async function fileOf(file: string): Promise<string> {
  try {
    return fileText(await readFile(file));
  } catch (error) {
    const why = (error as NodeJS.ErrnoException).code ?? 'unknown';
    throw new LingerError('metrics-unreadable', `${file}: cannot be read (${why})`);
  }
}

/** The server's message, and what would help. */
function explained(message: string, { headers, cert }: Credentials): string {
  if (!/^40[13]:/.test(message)) return message;
  const shown =
    headers !== undefined ? 'the token' : cert !== undefined ? 'the client certificate' : 'no credentials';
  return `${message}; asked with ${shown}. The user must be allowed to get the nonResourceURL /metrics: give a client certificate of the cluster’s CA (--kubeconfig) or a token (--controller-metrics-token-file)`;
}

/** The API in which Amazon EKS serves the controller-manager's metrics (user guide, "control plane raw metrics"). */
const EKS_PATH = '/apis/metrics.eks.amazonaws.com/v1/kcm/container/metrics';

/**
 * Looks for the metrics of the controller-manager in places that the API server can reach.
 * @param pods undefined: it could not be determined which there are
 * @returns the result of the first place that works; its looks begin with the places that were tried in vain
 */
export async function seekController(
  api: ApiReader,
  pods: readonly ControllerPod[] | undefined,
  epochSeconds: () => number,
): Promise<Observation<ControllerActivity>> {
  const looks: Look[] = [];
  for (const [path, remedyOf] of waysTo(pods)) {
    try {
      return await observeController(path, () => api.text(path), epochSeconds, looks);
    } catch (thrown) {
      const message = messageOf(thrown);
      // A problem with the text itself already names its source.
      const text = thrown instanceof LingerError ? message : `${path}: ${message}`;
      looks.push({ what: CONTROLLER_METRICS, seen: false, text, remedy: remedyOf(message) });
    }
  }
  return { facts: undefined, looks };
}

function waysTo(
  pods: readonly ControllerPod[] | undefined,
): readonly (readonly [path: string, remedyOf: (message: string) => string])[] {
  if (pods === undefined) return [[EKS_PATH, () => UNLISTED_REMEDY]];
  if (pods.length === 0) return [[EKS_PATH, managedRemedy]];
  return pods.map((pod) => [
    `${PODS}/https:${pod.name}:${pod.port}/proxy/metrics`,
    (message) => podRemedy(pod, message),
  ]);
}

/**
 * What to do if a proxied request fails, judged by Kubernetes' message: the API server drops the caller's credentials from
 * proxied requests (WithAuthentication), and with kubeadm, the controller-manager listens only on 127.0.0.1.
 */
function podRemedy({ name, port }: ControllerPod, message: string): string {
  const why = message.includes('system:anonymous')
    ? 'The API server’s proxy passes no credentials on, so the request reached the controller-manager as anonymous. '
    : /refused|unreachable|timed? ?out/i.test(message)
      ? 'It listens only on 127.0.0.1 of its node (--bind-address), as kubeadm sets it up. '
      : message.startsWith('403')
        ? 'This needs the right to get pods/proxy in kube-system. '
        : '';
  return `${why}Forward its port and use that address: kubectl --namespace kube-system port-forward pod/${name} ${port} and linger diagnose --controller-metrics https://127.0.0.1:${port}/metrics`;
}

function managedRemedy(message: string): string {
  const why = message.startsWith('403')
    ? 'On Amazon EKS this needs the right to get kcm/metrics of metrics.eks.amazonaws.com. '
    : '';
  return `${why}No pod in kube-system is labelled component=kube-controller-manager: the provider runs it, or it is a process on a node. Give its metrics with --controller-metrics: its address on that node, or a file from your Prometheus or provider`;
}

const UNLISTED_REMEDY =
  'Finding the controller-manager needs the right to list pods in kube-system; or give its metrics with --controller-metrics';

/**
 * Observes one or two saved scrapes, older first.
 * @throws LingerError `metrics-unreadable`, `metrics-invalid`
 */
export async function observeSaved(
  files: readonly string[],
  stdin: NodeJS.ReadableStream,
  apartSeconds: number,
): Promise<Observed<ControllerActivity>> {
  const reading = files.map(async (from, index) => ({
    scrape: scrapeOf(await readMetricsFile(from, stdin), from),
    at: index * apartSeconds,
  }));
  const taken = await Promise.all(reading);
  const first = taken.length > 1 ? taken[0] : undefined;
  const last = taken.at(-1);
  if (last === undefined) return UNSEEN;
  const rates = first === undefined ? ': one scrape, no rates' : `, said to be ${span(apartSeconds)} apart`;
  const look = { what: CONTROLLER_METRICS, seen: true, text: files.join(' and ') + rates };
  return { facts: activityOf(first, last), looks: [look] };
}

/**
 * Observes a controller-manager that can be reached.
 * @param looks the places that were tried before, in vain
 * @throws what `read` throws; LingerError `metrics-invalid`
 */
export function observeController(
  from: string,
  read: () => Promise<string>,
  epochSeconds: () => number,
  looks: readonly Look[] = [],
): Promise<Observation<ControllerActivity>> {
  const take = async (): Promise<TakenScrape> => ({
    scrape: scrapeOf(await read(), from),
    at: performance.now() / 1000,
    epochSeconds: epochSeconds(),
  });
  return observeTwice(take, (first, last, failure) => {
    const how =
      first === undefined ? `: one scrape, no rates${failure}` : `, twice in ${span(last.at - first.at)}`;
    const look = { what: CONTROLLER_METRICS, seen: true, text: `${from}${how}` };
    return { facts: activityOf(first, last), looks: [...looks, look] };
  });
}

function scrapeOf(text: string, from: string): TakenScrape['scrape'] {
  const expected = 'a kube-controller-manager, with workqueue_depth{name="endpoint_slice"}';
  return metricsIn(text, from, expected, (exposition) => {
    const scrape = readControllerScrape(exposition);
    // An instance on standby has not created its controllers, and so has no queues.
    return queuesIn(scrape).length > 0 || isLeading(scrape) === false ? scrape : undefined;
  });
}

/**
 * Reads metrics from a named source.
 * @param expected which program's metrics they should be @param read returns undefined for those of another program
 * @throws LingerError `metrics-invalid`
 */
export function metricsIn<T>(
  text: string,
  from: string,
  expected: string,
  read: (text: string) => T | undefined,
): T {
  try {
    const metrics = read(text);
    if (metrics !== undefined) return metrics;
  } catch (error) {
    if (!(error instanceof MalformedExposition)) throw error;
    throw new LingerError('metrics-invalid', `${from}: ${error.message}`);
  }
  throw new LingerError('metrics-invalid', `${from}: expected the metrics of ${expected}, got others`);
}
