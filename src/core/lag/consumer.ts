import {
  BUILT_IN_CONSUMERS,
  type DeregisterSpec,
  type DiscoveryConsumerSpec,
  type EndpointsSpec,
  EVERYTHING,
  type InspectSpec,
  type LabelSelector,
  type Labels,
  type NamespaceRecord,
  NO_LABELS,
  type ServiceRecord,
  selects,
  selectsNamespace,
  type XdsSpec,
} from '../api/index.ts';
import { type Density, exactly, type Lags, lagsOf, uniformUpTo } from './distribution.ts';
import { HeavyHitters } from './heavy-hitters.ts';
import { type HistoryPart, LagHistory, type Period } from './lag-history.ts';

/** Anything that discovers endpoints and sends traffic to them: kube-proxy, a gateway, DNS clients, another cluster. */
export interface Consumer {
  readonly name: string;
  /** Equal for consumers whose lags are known to be the same, so that results can be shared. */
  readonly lagKey: string;
  /** The lag that its DiscoveryConsumer declares; undefined: the lag is measured. */
  readonly declared: Density | undefined;
  readonly builtIn: boolean;
  readonly namespaceSelector: LabelSelector;
  /** The Services that it sends traffic to; undefined: none, it finds pods only by {@link podSelector}. */
  readonly serviceSelector: LabelSelector | undefined;
  /** Pods that it finds without a Service; undefined: none. */
  readonly podSelector: LabelSelector | undefined;
  /** Which of the selected Services: all, those with a ClusterIP, or those without. */
  readonly services: 'all' | 'clusterIp' | 'headless';
  readonly measure: Measure;
  /** Mode Observe: it is measured and reported, but no decision considers it. */
  readonly observed: boolean;
  /** How a terminating pod is removed from its registry; undefined: pods do not register themselves with it. */
  readonly deregister?: DeregisterSpec | undefined;
}

/** How the lag of a consumer is measured or declared. */
export type Measure =
  | { readonly kind: 'declared' }
  | { readonly kind: 'reports' }
  /** Seconds. */
  | { readonly kind: 'probe'; readonly url: string; readonly every: number | undefined }
  /** The spec as declared; durations in seconds. */
  | { readonly kind: 'inspect'; readonly inspect: InspectSpec }
  /** Watches the copies of endpoints in another cluster. */
  | { readonly kind: 'endpoints'; readonly endpoints: EndpointsSpec }
  /** Watches what istiod pushes. */
  | { readonly kind: 'xds'; readonly xds: XdsSpec }
  /** Measured by Linger's canary. */
  | { readonly kind: 'clusterIp' | 'clusterDns' }
  /** Measured by the consumer's target pods while they are held. */
  | { readonly kind: 'witness' };

export type MeasureKind = Measure['kind'];

/** kube-proxy, or its replacement: it programs the ClusterIP of every Service on every node. */
export const CLUSTER_IP: Consumer = builtIn(BUILT_IN_CONSUMERS.clusterIp, 'clusterIp', 'clusterIp');

/** The clients of headless Services, which cache the answers of cluster DNS for their TTL. */
export const CLUSTER_DNS: Consumer = builtIn(BUILT_IN_CONSUMERS.clusterDns, 'headless', 'clusterDns');

function builtIn(
  name: string,
  services: Consumer['services'],
  kind: 'clusterIp' | 'clusterDns' | 'witness',
): Consumer {
  return {
    name,
    lagKey: name,
    declared: undefined,
    builtIn: true,
    namespaceSelector: EVERYTHING,
    serviceSelector: EVERYTHING,
    podSelector: undefined,
    services,
    measure: { kind },
    observed: false,
  };
}

const WITNESS = `${BUILT_IN_CONSUMERS.witness}/`;

/**
 * The name of a witness: all senders to a Service, declared or not, as the Service's own pods see them while they are held:
 * `witness/shop/web`. No Kubernetes object has a slash in its name, so it cannot collide with a DiscoveryConsumer. Once
 * enough is known of the Service, its witness counts like another consumer.
 */
export function witnessName(namespace: string, service: string): string {
  return `${WITNESS}${namespace}/${service}`;
}

function isWitness(name: string): boolean {
  return name.startsWith(WITNESS);
}

/** How many Services have a witness, the busiest first: each takes some kilobytes of what is published and stored. */
const WITNESSED_KEPT = 50;

/** A witness affects waits from this many terminations on; with fewer, the longest lag may have been chance. */
export const WITNESSED_ENOUGH = 50;

export const STANDARD_CONSUMERS: readonly Consumer[] = [CLUSTER_IP, CLUSTER_DNS];

export function consumerOf(name: string, spec: DiscoveryConsumerSpec): Consumer {
  const { appliesTo = {}, measure, mode, deregister } = spec;
  const { namespaceSelector = EVERYTHING, serviceSelector, podSelector } = appliesTo;
  const declared = measure.declared && declaredLag(measure.declared);
  return {
    name,
    // A changed declaration changes the lag, so the declaration is part of the key; a measured lag is looked up by name.
    lagKey: measure.declared === undefined ? name : `${name}=${JSON.stringify(measure.declared)}`,
    declared,
    builtIn: false,
    namespaceSelector,
    // A consumer that selects pods but no Services discovers them itself.
    serviceSelector: serviceSelector ?? (podSelector === undefined ? EVERYTHING : undefined),
    podSelector,
    // A consumer that replaces a built-in one applies to the same Services.
    services: STANDARD_CONSUMERS.find((each) => each.name === name)?.services ?? 'all',
    measure: measureOf(measure),
    observed: mode === 'Observe',
    ...(deregister && { deregister }),
  };
}

function declaredLag({
  syncInterval,
  lag = 0,
}: NonNullable<DiscoveryConsumerSpec['measure']['declared']>): Density {
  return syncInterval === undefined ? exactly(lag) : uniformUpTo(syncInterval);
}

function measureOf({ reports, probe, inspect, endpoints, xds }: DiscoveryConsumerSpec['measure']): Measure {
  if (probe !== undefined) return { kind: 'probe', url: probe.url, every: probe.every };
  if (inspect !== undefined) return { kind: 'inspect', inspect };
  if (endpoints !== undefined) return { kind: 'endpoints', endpoints };
  if (xds !== undefined) return { kind: 'xds', xds };
  return reports === undefined ? { kind: 'declared' } : { kind: 'reports' };
}

/**
 * Whether a consumer sends traffic to a pod with these labels. `assumed`: it may, and callers treat that as yes, since a
 * wait that is too long is the cheaper mistake.
 * @param services those that select the pod. If they are `unknown`, or there are none yet (a Deployment may be applied
 * before its Service), a consumer that uses Services is assumed to use the one that will come.
 */
export function sendsTo(
  consumer: Consumer,
  namespace: NamespaceRecord,
  labels: Labels,
  services: readonly ServiceRecord[] | 'unknown',
): boolean | 'assumed' {
  const here = selectsNamespace(consumer.namespaceSelector, namespace);
  if (here === false) return false;
  const sure = here === 'unknown' ? 'assumed' : true;
  if (findsByItself(consumer, labels)) return sure;
  const { serviceSelector, services: which } = consumer;
  if (serviceSelector === undefined) return false;
  if (services === 'unknown' || services.length === 0) {
    return sure === true && which === 'all' && selects(serviceSelector, {}) ? true : 'assumed';
  }
  const found = services.some(
    ({ headless, labels: ofService }) =>
      (which === 'all' || headless === (which === 'headless')) && selects(serviceSelector, ofService),
  );
  return found && sure;
}

/** Whether a consumer sends, or may send, traffic to pods behind this Service. */
export function sendsThrough(
  consumer: Consumer,
  namespace: NamespaceRecord,
  service: ServiceRecord | 'unknown',
): boolean {
  return sendsTo(consumer, namespace, NO_LABELS, service === 'unknown' ? service : [service]) !== false;
}

/** Whether a consumer finds the pod without any Service. */
export function findsByItself({ podSelector }: Consumer, labels: Labels): boolean {
  return podSelector !== undefined && selects(podSelector, labels);
}

const DIRECTIONS = ['removal', 'addition'] as const;
export type Direction = (typeof DIRECTIONS)[number];

type Histories = Record<Direction, LagHistory>;

/** The lag measured for one consumer in one direction over the last 7 days, for display. */
export interface ConsumerLag extends Pick<Lags, 'quantile'> {
  readonly samples: number;
  /** When the newest sample ended, in seconds since the epoch. */
  readonly latest: number;
}

/**
 * The histories of how long each consumer takes to follow a change after the control plane has published it. It has no
 * clock: `epochSeconds` is the caller's wall clock.
 */
export class ConsumerEstimator {
  readonly #consumers = new Map<string, Histories>();
  /** Witnesses need no declaration: the busiest ones are kept. */
  readonly #witnesses = new HeavyHitters(WITNESSED_KEPT, newHistories);
  #complete = false;

  /**
   * Sets the consumers that are measured.
   * @param all whether the list is complete: then the samples of all others are forgotten
   */
  keep(names: ReadonlySet<string>, all = true): void {
    this.#complete ||= all;
    if (all) for (const name of this.#consumers.keys()) if (!names.has(name)) this.#consumers.delete(name);
    for (const name of names) if (!this.#consumers.has(name)) this.#consumers.set(name, newHistories());
  }

  /** Ignores samples of consumers that are not measured. @throws RangeError for a negative lag or NaN */
  record(name: string, direction: Direction, lagSeconds: number, epochSeconds: number): void {
    if (isWitness(name)) this.#witnesses.count(name, epochSeconds);
    this.#historiesOf(name)?.[direction].record(lagSeconds, epochSeconds);
  }

  /** The histories that published waits are based on. @returns undefined until the consumers are known */
  get removals(): ReadonlyMap<string, LagHistory> | undefined {
    if (!this.#complete) return undefined;
    const known = [...this.#witnesses.kept].filter(([, { removal }]) => removal.samples >= WITNESSED_ENOUGH);
    return new Map([...known, ...this.#consumers].map(([name, { removal }]) => [name, removal]));
  }

  get witnesses(): readonly Consumer[] {
    return [...this.#witnesses.kept.keys()].map((name) => builtIn(name, 'all', 'witness'));
  }

  #historiesOf(name: string): Histories | undefined {
    return this.#consumers.get(name) ?? this.#witnesses.kept.get(name);
  }

  /** @returns undefined without samples */
  measured(name: string, direction: Direction, epochSeconds: number): ConsumerLag | undefined {
    const history = this.#historiesOf(name)?.[direction];
    const week = history?.window(epochSeconds, 0);
    if (history === undefined || week === undefined) return undefined;
    return { samples: week.samples, latest: history.latest, quantile: lagsOf(week.counts).quantile };
  }

  /** When a removal was last measured, however long ago; undefined: never. */
  latestRemoval(name: string): number | undefined {
    const latest = this.#historiesOf(name)?.removal.latest;
    return Number.isFinite(latest) ? latest : undefined;
  }

  *parts(now: number): Generator<HistoryPart> {
    for (const [name, histories] of [...this.#consumers, ...this.#witnesses.kept])
      for (const direction of DIRECTIONS)
        yield* histories[direction].parts(`consumer/${name}/${direction}`, now);
  }

  /** Merges a part, unless its consumer is known not to exist. @returns false for anything but a consumer's part */
  restorePart(json: unknown, now: number): boolean {
    const part = LagHistory.readPart(json);
    const [, name, direction] = PART_KEY.exec(part?.key ?? '') ?? [];
    if (part === undefined || name === undefined) return false;
    if (direction !== 'removal' && direction !== 'addition') return false;
    const kept = this.#historiesOf(name)?.[direction];
    // Counted by what was merged, as for namespaces: see {@link LagEstimator.restorePart}.
    const counted = kept?.merge(part.history, now) ?? part.history.samples;
    if (isWitness(name)) this.#witnesses.count(name, now, counted);
    else if (kept === undefined && !this.#complete) this.#consumers.set(name, newHistories());
    if (kept === undefined) this.#historiesOf(name)?.[direction].merge(part.history, now);
    return true;
  }

  forget(name: string, { from, to }: Period): number {
    const histories = this.#historiesOf(name);
    return histories === undefined
      ? 0
      : histories.removal.forget(from, to) + histories.addition.forget(from, to);
  }
}

const PART_KEY = /^consumer\/(.+)\/(removal|addition)$/;

function newHistories(): Histories {
  return { removal: new LagHistory(), addition: new LagHistory() };
}
