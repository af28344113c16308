import { type Json, KubeFailure, oneLine } from '../cluster/index.ts';
import {
  count,
  isRecord,
  isString,
  listOf,
  MODES,
  type Mode,
  memberAt,
  parseReplicaStatus,
  type ReplicaStatus,
  recordsAt,
  span,
} from '../core/api/index.ts';
import { failure, type Inquiry, ok, type Seen, unknown, warning } from './checks.ts';

export const APPLY = 'kubectl apply --kustomize deploy/, or helm upgrade.';

/** The Deployment of deploy/. */
export async function deployment(inquiry: Inquiry): Promise<Json | undefined> {
  return inquiry.find(`/apis/apps/v1/namespaces/${inquiry.options.namespace}/deployments/linger`);
}

/** Returns the value of a flag of `serve`; undefined: its default. */
export type ReplicaFlags = (name: string) => string | undefined;

/** The flags in the Deployment: flags take precedence over the environment, and the last one counts. */
export function flagsOf(declared: Json | undefined): ReplicaFlags {
  const containers = recordsAt(declared, 'spec', 'template', 'spec', 'containers');
  const args = containers.flatMap((each) => listOf(each.args)).filter(isString);
  const env = containers.flatMap((each) => recordsAt(each, 'env'));
  return (name) => {
    const at = args.findLastIndex((each) => each === `--${name}` || each.startsWith(`--${name}=`));
    if (at >= 0) return args[at]?.includes('=') ? args[at].slice(name.length + 3) : (args[at + 1] ?? '');
    const variable = `LINGER_${name.replaceAll('-', '_').toUpperCase()}`;
    const value = env.find((each) => each.name === variable)?.value;
    return isString(value) ? value : undefined;
  };
}

/** The highest mode that the replicas allow. @throws KubeFailure */
export async function modeLimitOf(inquiry: Inquiry): Promise<Mode> {
  const limit = flagsOf(await deployment(inquiry))('mode-limit')?.toLowerCase();
  return MODES.find((each) => each.toLowerCase() === limit) ?? 'Enforce';
}

/** Accepts a number or a duration. */
export function isZero(value: string | undefined): boolean {
  return value !== undefined && /^0+[a-z]*$/.test(value);
}

/** The ports of the containers: their names, the flag of each, and its default. */
const PORTS = {
  webhook: ['port', 8443],
  admin: ['admin-port', 8080],
  canary: ['canary-port', 8081],
  hold: ['hold-port', 8445],
} as const;
export type PortName = keyof typeof PORTS;

/** The ports on which replicas listen, by the flags of their Deployment; 0: they do not listen. */
export async function portsOf(inquiry: Inquiry): Promise<Readonly<Record<PortName, number>>> {
  const flag = flagsOf(await deployment(inquiry));
  const ports = Object.entries(PORTS).map(
    ([name, [of, usual]]) => [name, Number(flag(of) ?? usual)] as const,
  );
  return Object.fromEntries(ports) as Record<PortName, number>;
}

/** The pods of the Deployment that are not being deleted, and why any of them is not ready. */
export async function replicaPods(inquiry: Inquiry) {
  const { namespace } = inquiry.options;
  const pods = await inquiry.items(`/api/v1/namespaces/${namespace}/pods`, 'app.kubernetes.io/name=linger');
  return pods
    .filter(({ metadata }) => metadata.deletionTimestamp === undefined)
    .map(({ metadata: { name }, spec, status }) => {
      const conditions = recordsAt(status, 'conditions');
      const ready = conditions.find(({ type }) => type === 'Ready');
      const unscheduled = conditions.find((each) => each.type === 'PodScheduled' && each.status === 'False');
      const states = recordsAt(status, 'containerStatuses');
      const waiting = states.map((each) => memberAt(each, ['state', 'waiting'])).find(isRecord);
      const { reason, message } = waiting ?? unscheduled ?? ready ?? {};
      return {
        name,
        node: String(memberAt(spec, ['nodeName']) ?? ''),
        ready: ready?.status === 'True',
        trouble: [reason, message].filter(isString).map(oneLine).join(': ') || 'not ready',
      };
    });
}

export async function replicas(inquiry: Inquiry): Promise<Seen> {
  const { namespace } = inquiry.options;
  const declared = await deployment(inquiry);
  if (declared === undefined)
    return failure(
      `there is no Deployment linger in namespace ${namespace}`,
      `${APPLY} For another namespace: --linger-namespace.`,
    );
  const pods = await replicaPods(inquiry);
  const wanted = Number(memberAt(declared, ['spec', 'replicas']) ?? 1);
  const ready = pods.filter((pod) => pod.ready);
  const nodes = [...new Set(ready.map(({ node }) => node))];
  const text = `${ready.length} of ${wanted} ready${ready.length === 0 ? '' : `, on ${nodes.join(', ')}`}`;
  // If pods cannot be created, such as by a webhook that fails closed, only the Deployment shows why.
  const refused = recordsAt(declared, 'status', 'conditions').filter(
    ({ type, status }) => type === 'ReplicaFailure' && status === 'True',
  );
  const troubles = refused.map(({ message }) => oneLine(String(message)));
  for (const { name, trouble } of pods.filter((pod) => !pod.ready))
    troubles.push([`${name}: ${trouble}`, await mountFailure(name, inquiry)].flat().join(': '));
  const why = troubles.length === 0 ? '' : `; ${troubles.join('; ')}`;
  const log = `kubectl --namespace ${namespace} describe pods; kubectl --namespace ${namespace} logs deployment/linger`;
  if (wanted === 0)
    return failure(
      'the Deployment linger is scaled to 0 replicas',
      `kubectl --namespace ${namespace} scale deployment/linger --replicas=2`,
    );
  if (ready.length === 0) return failure(`${text}${why}`, log);
  if (ready.length < wanted) return warning(`${text}${why}`, log);
  // If an update is stuck, the earlier replicas keep running.
  if (troubles.length > 0) return warning(`${text}, but an update is stuck${why}`, log);
  if (wanted === 1)
    return warning(`${text}: while it restarts, pods are created without Linger`, 'Run two replicas.');
  // If nodes may not be listed, only the nodes of the replicas are known.
  const page = await inquiry.json('/api/v1/nodes?limit=2').catch(() => undefined);
  if (nodes.length === 1 && recordsAt(page, 'items').length > 1)
    return warning(
      `${text} alone: when that node fails, no replica is left`,
      'Make room on another node, then delete one of the pods.',
    );
  return ok(text);
}

/** Why a pod's volumes cannot be mounted; its status does not tell. */
async function mountFailure(pod: string, inquiry: Inquiry): Promise<string[]> {
  const query = encodeURIComponent(`involvedObject.name=${pod},reason=FailedMount`);
  const path = `/api/v1/namespaces/${inquiry.options.namespace}/events?fieldSelector=${query}`;
  const events = recordsAt(await inquiry.find(path).catch(() => undefined), 'items');
  return events.slice(-1).map(({ message }) => oneLine(String(message)));
}

/** A leader renews every two seconds; the rest allows for different clocks. */
const LEASE_SECONDS = 60;
/** Synchronised clocks differ by less. */
const AHEAD_SECONDS = 10;

/** The holder of the Lease, and how many seconds ago it was renewed (NaN: unknown); undefined: no replica holds it. */
export async function leaseOf(inquiry: Inquiry) {
  const { namespace, now } = inquiry.options;
  const lease = await inquiry.find(`/apis/coordination.k8s.io/v1/namespaces/${namespace}/leases/linger`);
  const name = memberAt(lease, ['spec', 'holderIdentity']);
  if (!isString(name) || name === '') return undefined;
  const renewedSeconds = now - Date.parse(String(memberAt(lease, ['spec', 'renewTime']))) / 1000;
  return { name, renewedSeconds };
}

/** The holder of the Lease is identified by its pod's name and a suffix that changes with each restart. */
export function isHolder(holder: string, pod: string): boolean {
  return holder.startsWith(`${pod}_`);
}

export async function leader(inquiry: Inquiry): Promise<Seen> {
  const cure =
    'Normal for half a minute after a start. Otherwise see the log of the replicas; deploy/role-publish.yaml has the permissions that the leader needs.';
  const lease = await leaseOf(inquiry);
  if (lease === undefined) return warning('no replica leads: measurements are not published', cure);
  const { name: holder, renewedSeconds: age } = lease;
  const renewed = Number.isNaN(age)
    ? 'with no renewal time'
    : `renewed ${span(Math.max(0, age))} ago by its clock`;
  if (age < -AHEAD_SECONDS)
    return warning(
      `${holder} leads, and its clock is ${span(-age)} ahead of this machine’s: hold times and Lease ages are off by that much`,
      'Check NTP on its node, and on this machine.',
    );
  if (!(age < LEASE_SECONDS)) return warning(`${holder} holds the Lease, ${renewed}`, cure);
  const known = (await replicaPods(inquiry)).some(({ name }) => isHolder(holder, name));
  if (!known)
    return warning(
      `${holder} leads, ${renewed}, but is not a pod of this installation`,
      'Another process follows this cluster and publishes waits: stop it, or give it its own --namespace. After a pod was deleted by force, wait a minute.',
    );
  return ok(`${holder}, ${renewed}`);
}

/**
 * The status that each ready replica reports, by pod name. Read through the API server, which requires the right to get
 * pods/proxy.
 * @throws KubeFailure
 */
export async function replicaStatuses(inquiry: Inquiry): Promise<ReadonlyMap<string, ReplicaStatus>> {
  const { admin } = await portsOf(inquiry);
  const statuses = new Map<string, ReplicaStatus>();
  for (const { name, ready } of await replicaPods(inquiry)) {
    if (!ready) continue;
    const path = `/api/v1/namespaces/${inquiry.options.namespace}/pods/${name}:${admin}/proxy/status`;
    const text = await inquiry.text(path);
    const status = parseReplicaStatus(text);
    if (status === undefined)
      throw new KubeFailure(
        'Malformed',
        `${name} did not answer with the status of a replica, but with ${text.slice(0, 100)}`,
      );
    statuses.set(name, status);
  }
  return statuses;
}

/** A check that judges the statuses of all ready replicas, by pod name. */
function byStatus(judge: (statuses: ReadonlyMap<string, ReplicaStatus>) => Seen) {
  return async (inquiry: Inquiry): Promise<Seen> => {
    try {
      const statuses = await replicaStatuses(inquiry);
      return statuses.size === 0 ? unknown('no replica is ready, so none can be asked') : judge(statuses);
    } catch (thrown) {
      if (!(thrown instanceof KubeFailure)) throw thrown;
      const denied = thrown.reason === 'Forbidden';
      const { admin } = await portsOf(inquiry);
      return unknown(
        `a replica cannot be asked through the API server: ${oneLine(thrown.message)}`,
        denied
          ? `Get the permission to get pods/proxy in namespace ${inquiry.options.namespace}.`
          : `Open port ${admin} to API servers (deploy/networkpolicy.yaml), or query your Prometheus.`,
      );
    }
  };
}

export const watches = byStatus((replicas) => {
  const behind = [...replicas].flatMap(([name, { synced, watches }]) => {
    if (synced === null) return [`${name} follows no cluster`];
    const resources = Object.entries(watches).flatMap(([resource, current]) => (current ? [] : [resource]));
    const problems = [
      ...(synced ? [] : ['initial sync not finished']),
      ...(resources.length > 0 ? [`watch not current: ${resources.join(', ')}`] : []),
    ];
    return problems.length === 0 ? [] : [`${name}: ${problems.join(', ')}`];
  });
  if (behind.length === 0) return ok(`current on ${count(replicas.size, 'replica')}`);
  return warning(
    behind.join('; '),
    'Normal for some seconds after a start. Otherwise see linger_watch_restarts_total and the log.',
  );
});

export const canary = byStatus((replicas) => {
  const flips = sumOf([...replicas.values()].map((each) => each.flips ?? {}));
  const results = Object.entries(flips).toSorted(([, a], [, b]) => b - a);
  const text = results.map(([result, times]) => `${times} ${result}`).join(', ');
  if (results.length === 0) return ok('no flip has ended yet, or the canary is off (--canary-every=0)');
  if ((flips.Measured ?? 0) > 0) return ok(`flips: ${text}`);
  return warning(
    `no flip has measured anything: ${text}`,
    'docs/reference/consumers.md, “How a flip ends”, has the remedy for each.',
  );
});

type Counts = Readonly<Record<string, number>>;

/** The sum without entries of zero. */
export function sumOf(all: readonly Counts[]): Counts {
  const sums: Record<string, number> = {};
  for (const [key, times] of all.flatMap(Object.entries<number>))
    if (times > 0) sums[key] = (sums[key] ?? 0) + times;
  return sums;
}

/**
 * How many running pods call an address that the Hold Service does not have; undefined: all replicas are of earlier
 * versions, which do not report it.
 */
export function unreachedIn(statuses: readonly ReplicaStatus[]): number | undefined {
  // Without a Hold Service there are no such pods.
  const known = statuses.flatMap(({ held, unreached }) =>
    unreached === undefined && held !== null ? [] : [unreached ?? 0],
  );
  // All replicas see the same pods.
  return known.length === 0 ? undefined : Math.max(...known);
}

export const UNREACHED_UNKNOWN =
  'whether running pods call an address that the Hold Service no longer has is not known: replicas of an earlier version do not say';

/** The sentence in which `status` and `check` report pods that call an address that the Hold Service does not have. */
export function unreachedInWords(pods: number): string {
  return `${count(pods, 'running pod')} with hook Hold ${pods === 1 ? 'calls' : 'call'} an address that the Hold Service no longer has, and ${pods === 1 ? 'waits for its' : 'wait for their'} static time`;
}
