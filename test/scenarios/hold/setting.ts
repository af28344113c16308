import { Installation } from '../../cluster-suite/support/installation.ts';
import { type Json, type PodMetadata, type PodObject, pod } from '../../cluster-suite/support/manifests.ts';
import { planOf } from '../../cluster-suite/support/outcome.ts';
import { clusterPolicy, policyFile } from '../../cluster-suite/support/policies.ts';
import { type Cluster, waitUntil } from '../../testbed/cluster.ts';

/** What the pods of a namespace wait by; `undeclared`: by Hold, which does not take all consumers for declared. */
export type Waiting = 'hold' | 'undeclared' | 'sleep' | 'alone';

export interface HoldSettingOptions {
  /** DiscoveryConsumers. */
  readonly consumers?: readonly Json[];
  /** The longest hold, in seconds. */
  readonly max: number;
  /** ClusterIPs of Services of deploy/. */
  readonly addresses?: Readonly<Record<string, string>>;
  /** For `--inspect-files`. */
  readonly files?: Readonly<Record<string, string>>;
  /** Sources of a projected volume, for the same. */
  readonly sources?: readonly object[];
  /** The address of the cluster DNS. */
  readonly dns?: string;
}

/** Few enough for a scenario to have them measured. */
const WAIT = { minSamples: 6, minHistory: '1s', initial: '30s', min: '1s' };

export interface Released {
  /** RFC 3339. */
  readonly time: string;
  readonly namespace: string;
  readonly pod: string;
  readonly reason: string;
  readonly seconds: number;
  readonly waitingFor?: readonly string[];
  /** The consumer that was waited for last. */
  readonly last?: readonly string[];
  /** From the withdrawal to the last connection. Seconds. */
  readonly lag?: number;
}

export interface Found {
  readonly namespace: string;
  readonly pod: string;
  readonly reason: string;
  readonly from?: readonly string[];
}

const ASKED_AT_ONCE = 20;

/** An installed Linger, and namespaces whose pods wait by Hold, by Sleep, or as their authors say. */
export class HoldSetting {
  readonly linger: Installation;
  readonly #cluster: Cluster;

  private constructor(cluster: Cluster, linger: Installation) {
    this.#cluster = cluster;
    this.linger = linger;
  }

  static async open(cluster: Cluster, options: HoldSettingOptions): Promise<HoldSetting> {
    const { consumers = [], max, addresses = {}, files, sources, dns } = options;
    const waiting = (name: Waiting) => ({ namespaceSelector: { matchLabels: { waiting: name } } });
    // A storm of the size of the report takes longer than what is allowed by default.
    const hold = (min: string) => ({
      hook: 'Hold',
      hold: { min, max: `${max}s` },
      grace: { max: `${max + 600}s` },
      ceiling: { wait: `${Math.max(max, 300)}s` },
    });
    const policies = policyFile(
      clusterPolicy('sleep', { ...waiting('sleep'), mode: 'Enforce', wait: WAIT }),
      clusterPolicy('hold', { ...waiting('hold'), mode: 'Enforce', wait: WAIT, ...hold('0s') }),
      clusterPolicy('undeclared', { ...waiting('undeclared'), mode: 'Enforce', wait: WAIT, ...hold('5s') }),
      ...consumers,
    );
    const flags = ['--canary-every=1s'];
    // All pods must get their hooks, and admitting hundreds at once may take a busy machine longer than two seconds.
    const timeoutSeconds = 30;
    const given = { ...(files && { files }), ...(sources && { sources }), ...(dns && { dns }) };
    const installation = { policies, flags, timeoutSeconds, addresses, ...given };
    return new HoldSetting(cluster, await Installation.create(cluster, installation));
  }

  close(): Promise<void> {
    return this.linger.remove();
  }

  /** @returns its name, once its pods get the intended hook and wait */
  async namespace(waiting: Waiting, prefix: string, labels: Readonly<Record<string, string>> = {}) {
    const own = waiting === 'alone' ? { 'linger.dev/inject': 'false' } : { waiting };
    const namespace = await this.#cluster.namespace(prefix, { ...labels, ...own });
    if (waiting === 'hold' || waiting === 'undeclared') await this.holds(namespace);
    return namespace;
  }

  /** Resolves once pods of the namespace get hook Hold: a node that has just come up may be of a kind that is not known yet. */
  async holds(namespace: string): Promise<void> {
    await untilPlanned(this.#cluster, namespace, ({ hook }) => hook === 'Hold');
  }

  /** @returns the seconds that a pod of the namespace sleeps, once measurements ask for at least `least` */
  async measured(namespace: string, app: string, least = 0): Promise<number> {
    // After a storm the measured wait is called by that name.
    const isMeasured = ({ why = '', hook, wait }: { why?: string; hook: string; wait: number }) =>
      ['measured', 'storm'].includes(why) && hook === 'Sleep' && wait >= least;
    return untilPlanned(this.#cluster, namespace, isMeasured, {
      labels: { app },
      annotations: { 'linger.dev/hook': 'Sleep' },
    });
  }

  /** The pods of a namespace that have been released, by the logs of the current replicas. */
  async releases(namespace: string): Promise<readonly Released[]> {
    return this.#said<Released>('pod released', namespace);
  }

  /** The findings about terminated pods of a namespace. */
  async findings(namespace: string): Promise<readonly Found[]> {
    return this.#said<Found>('pod termination may have lost requests', namespace);
  }

  async #said<T extends { readonly namespace: string }>(
    what: string,
    namespace: string,
  ): Promise<readonly T[]> {
    const logs = [...(await this.linger.replicas.logs()).values()];
    return logs
      .flatMap((text) => text.split('\n'))
      .filter((line) => line.includes(what))
      .map((line) => JSON.parse(line) as T)
      .filter((each) => each.namespace === namespace);
  }
}

/** A consumer of the Services of namespaces that carry a label. */
export function consumer(name: string, label: Readonly<Record<string, string>>, measure: Json): Json {
  return {
    apiVersion: 'linger.dev/v1alpha1',
    kind: 'DiscoveryConsumer',
    metadata: { name },
    spec: { appliesTo: { namespaceSelector: { matchLabels: label } }, measure },
  };
}

/** @returns the seconds that a new pod of the namespace waits, once every replica plans so for it */
export async function untilPlanned(
  cluster: Cluster,
  namespace: string,
  satisfied: (plan: { hook: string; why?: string; wait: number }) => boolean,
  metadata: PodMetadata = { labels: { app: 'newcomer' } },
): Promise<number> {
  const newcomer = pod(namespace, 'newcomer', {}, metadata);
  const look = async () => {
    const created = await cluster.create<PodObject>(newcomer, { dryRun: true });
    const plan = planOf(created);
    if (plan !== undefined && satisfied(plan)) return plan.wait;
    throw new Error(JSON.stringify(plan));
  };
  // Concurrent reviews use several connections, each of which leads to any of them.
  const lookAround = async () =>
    Math.min(...(await Promise.all(Array.from({ length: ASKED_AT_ONCE }, look))));
  // A built-in consumer needs a hundred flips to count as measured.
  const options = { timeoutMs: 600_000, intervalMs: 500 };
  return waitUntil(`a plan for the pods of ${namespace}`, lookAround, options);
}
