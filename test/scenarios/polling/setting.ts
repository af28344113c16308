import { Installation } from '../../cluster-suite/support/installation.ts';
import { clusterPolicy, policyFile } from '../../cluster-suite/support/policies.ts';
import type { Cluster } from '../../testbed/cluster.ts';
import { Gateways, namesOf } from './gateways.ts';
import { swallowSyns } from './network.ts';
import { allowReports, forbidReports } from './report-access.ts';
import { Stand } from './stand.ts';
import type { TrueLag } from './truth.ts';
import { withdrawOneByOne } from './withdrawals.ts';

/** What the wait of the pods comes from. */
export const HOOKS = ['none', 'guessed', 'declared', 'reports', 'probe'] as const;
export type Hook = (typeof HOOKS)[number];

export interface SettingOptions {
  readonly intervalMs: number;
  readonly connectTimeoutMs: number;
  /** The wait that an author guesses. */
  readonly guessedSeconds: number;
  /** Replicas of each application. */
  readonly replicas: number;
  /** `wait` of the policy for all pods. */
  readonly wait: Readonly<Record<string, unknown>>;
}

const INSTANCES = 3;
/** Fixed ClusterIPs, unused otherwise: there is no cluster DNS to look Services up by name. */
const REPORTS_ADDRESS = '10.201.255.10';
const GATEWAYS_ADDRESS = '10.201.255.11';
const CANARY = 'linger/linger-canary';
const BY_HAND = 'by-hand';

/** Everything that S3 takes: gateways and a discovery service, Linger, and applications with this hook and that. */
export class Setting {
  readonly gateways: Gateways;
  readonly #namespaces: ReadonlyMap<Hook, string>;
  readonly #stands: ReadonlyMap<string, Stand>;
  readonly #byHand: string;
  readonly #close: () => Promise<void>;

  private constructor(
    gateways: Gateways,
    applications: Applications,
    byHand: string,
    close: () => Promise<void>,
  ) {
    this.#byHand = byHand;
    this.gateways = gateways;
    this.#namespaces = applications.namespaces;
    this.#stands = applications.stands;
    this.#close = close;
  }

  static async open(cluster: Cluster, options: SettingOptions): Promise<Setting> {
    const cleanups: (() => Promise<unknown>)[] = [];
    const close = async () => {
      for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
    };
    try {
      const applications = await prepareApplications(cluster, options);
      cleanups.push(await swallowSyns());
      const addresses = { 'linger-reports': REPORTS_ADDRESS };
      const linger = await Installation.create(cluster, { policies: policiesOf(options), addresses });
      cleanups.push(() => linger.remove());
      const own = applications.namespaces.get('reports') ?? '';
      const access = { namespace: own, consumer: consumerOf('reports'), address: REPORTS_ADDRESS };
      const reports = await allowReports({
        cluster,
        ...access,
        gateways: namesOf(INSTANCES),
        authority: linger.authority,
      });
      cleanups.push(() => forbidReports(cluster, access.consumer));
      const services = [CANARY, ...[...applications.stands.values()].map(({ service }) => service)];
      const gateways = await Gateways.start({ cluster, instances: INSTANCES, ...options, services, reports });
      cleanups.push(() => gateways.stop());
      await gateways.expose(own, CANARY, GATEWAYS_ADDRESS);
      // Not where pods are: no control plane takes part in these.
      const byHand = await cluster.namespace('s3-by-hand');
      cleanups.push(startWithdrawals(cluster, byHand));
      return new Setting(gateways, applications, byHand, close);
    } catch (error) {
      await close().catch(() => undefined);
      throw error;
    }
  }

  close(): Promise<void> {
    return this.#close();
  }

  get namespaces(): readonly string[] {
    return [...this.#namespaces.values()];
  }

  namespaceOf(hook: Hook): string {
    return this.#namespaces.get(hook) ?? '';
  }

  stand(hook: Hook, application: 'exit' | 'drain'): Stand {
    return this.#stands.get(`${hook} ${application}`) as Stand;
  }

  /** How long the gateways took to follow each removal so far, as they say themselves. */
  truth(measured: 'reports' | 'probe'): readonly TrueLag[] {
    const service = measured === 'probe' ? CANARY : `${this.#byHand}/${BY_HAND}`;
    const { truth } = this.gateways;
    const lags = truth.lags('removed', service);
    // A probe gets no reports: it looks.
    if (measured === 'probe') return lags.map((each) => ({ ...each, toldMs: each.lagMs }));
    return lags.filter(({ at }) => at >= truth.reportedSince);
  }
}

export function consumerOf(hook: Hook): string {
  return `gateways-${hook}`;
}

interface Applications {
  readonly namespaces: ReadonlyMap<Hook, string>;
  /** The applications by their hook and what they do at SIGTERM. */
  readonly stands: ReadonlyMap<string, Stand>;
}

async function prepareApplications(cluster: Cluster, options: SettingOptions): Promise<Applications> {
  const namespaces = new Map<Hook, string>();
  const stands = new Map<string, Stand>();
  for (const hook of HOOKS) {
    const unhooked = hook === 'none' || hook === 'guessed';
    const labels: Record<string, string> = unhooked ? { 'linger.dev/inject': 'false' } : { gateways: hook };
    const namespace = await cluster.namespace(`s3-${hook}`, labels);
    namespaces.set(hook, namespace);
    const sleepSeconds = hook === 'guessed' ? { sleepSeconds: options.guessedSeconds } : {};
    for (const onSigterm of ['exit', 'drain'] as const) {
      const { replicas } = options;
      const stand = new Stand({ cluster, namespace, name: onSigterm, replicas, onSigterm, ...sleepSeconds });
      stands.set(`${hook} ${onSigterm}`, stand);
    }
  }
  return { namespaces, stands };
}

/** The same gateways are a consumer three times, so that one run measures them in three ways. */
function policiesOf({ intervalMs, wait }: SettingOptions): string {
  const consumer = (hook: Hook, measure: object) => ({
    apiVersion: 'linger.dev/v1alpha1',
    kind: 'DiscoveryConsumer',
    metadata: { name: consumerOf(hook) },
    spec: { appliesTo: { namespaceSelector: { matchLabels: { gateways: hook } } }, measure },
  });
  return policyFile(
    clusterPolicy('base', { mode: 'Enforce', wait }),
    consumer('declared', { declared: { syncInterval: `${intervalMs / 1_000}s` } }),
    consumer('reports', { reports: {} }),
    consumer('probe', { probe: { url: `http://${GATEWAYS_ADDRESS}/linger`, every: '1s' } }),
  );
}

const WITHDRAWALS_EVERY_MS = 400;

function startWithdrawals(cluster: Cluster, namespace: string): () => Promise<void> {
  const stopping = new AbortController();
  const { signal } = stopping;
  const options = { cluster, namespace, name: BY_HAND, everyMs: WITHDRAWALS_EVERY_MS, signal };
  const withdrawing = withdrawOneByOne(options);
  // Closing the setting rejects with it.
  withdrawing.catch(() => undefined);
  return () => {
    stopping.abort();
    return withdrawing;
  };
}
