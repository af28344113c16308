import type { EventEmitter } from 'node:events';
import {
  callApi,
  type KubeConnection,
  KubeFailure,
  type LabelledPod,
  PodLabels,
  unlessNotFound,
} from '../../cluster/index.ts';
import { asError, fewOf } from '../../core/api/index.ts';
import type { Consumer } from '../../core/lag/index.ts';
import type { Leadership } from '../../manager/index.ts';
import { pause, withSignal } from '../../timing/index.ts';
import type { ClusterDns } from '../cluster-dns/dns.ts';
import { CANARY_DNS_SERVICE } from '../cluster-dns/measure.ts';
import { CLUSTER_IP_MISSES } from '../cluster-ip/measure.ts';
import { type MeasuringOf, measuredBy } from '../measures.ts';
import { NodeTimers } from '../node-timers/node-timers.ts';
import { attempt, canaryUrl, type FlipResult } from '../requests/probe.ts';
import {
  CANARY_SERVICE,
  type CanaryEndpoints,
  type ConsumerOutcome,
  FLIP_LIMITS,
  type FlipLimits,
  type FlipOutcome,
  flip,
  type TimedConsumer,
} from './flip.ts';
import type { KnownReplica, Met, SilentReplica } from './timed.ts';

/** How many of the latest flips show how long consumers take. */
const REMEMBERED = 8;

/** The shortest pause between flips, even where consumers follow at once. Milliseconds. */
const SHORTEST_REST_MS = 500;

/**
 * Chooses when flips begin. A gateway that polls every 10 s is measured without bias only if removals are spread evenly over
 * its interval. So flips must not run in step with it, nor begin when the previous flip ended, which is just after it
 * polled: spans are random, counted both from the beginning of the previous flip and from its end; the latter is on average
 * as long as consumers take to follow.
 */
export class FlipSchedule {
  readonly #random: () => number;
  #lags: readonly number[] = [];

  /** @param random in [0, 1) */
  constructor(random: () => number) {
    this.#random = random;
  }

  /** Records how long the slowest consumer of a flip took, or how long the flip waited for it. */
  followed(lagMs: number): void {
    this.#lags = [...this.#lags, lagMs].slice(-REMEMBERED);
  }

  /**
   * When the next flip begins. All in milliseconds.
   * @param began the last one's beginning; @param ended its end
   * @param everyMs the average distance between beginnings
   */
  next({ began, ended, everyMs }: { began: number; ended: number; everyMs: number }): number {
    const rest = Math.max(SHORTEST_REST_MS, ...this.#lags);
    // Between 0 and 2 with mean 1, and rarely near either end.
    const factor = () => this.#random() + this.#random();
    return Math.max(began + (everyMs * (1 + factor())) / 2, ended + rest * factor());
  }
}

/** A flipped consumer, and when it was last tried. Milliseconds. */
interface FlipTurn {
  readonly everyMs: number;
  /** undefined: never. */
  readonly triedAt: number | undefined;
}

/**
 * The consumers that take part in the next flip. Flips are shared, so every consumer that has waited for half its interval
 * joins; the ones that have waited for the largest share of theirs come first.
 */
export function takingPart<T extends FlipTurn>(turns: readonly T[], now: number, most: number): readonly T[] {
  const waited = ({ triedAt, everyMs }: FlipTurn) =>
    triedAt === undefined ? Number.POSITIVE_INFINITY : (now - triedAt) / everyMs;
  return turns
    .filter((turn) => waited(turn) >= 0.5)
    .toSorted((a, b) => (waited(a) === waited(b) ? 0 : waited(b) - waited(a)))
    .slice(0, most);
}

/** A headless Service for the same pods: DNS answers with their addresses. */

/**
 * The label of replicas; the Service `linger-canary` selects the value `in`. A pod without the label takes no part. (The
 * value is not `on`, which YAML 1.1 reads as true.)
 */
export const CANARY_LABEL = 'linger.dev/canary';
const IN_SERVICE = 'in';
/** The label is changed rather than removed, so that the next leader finds the replica and puts it back. */
const OUT_OF_SERVICE = 'out';

/**
 * The replica to remove: each of the others in turn, or this one if there are no others. Others are preferred, because what
 * a pod sends to itself through a Service takes a special path through the node (hairpin).
 * @param turn the number of flips so far
 */
export function chooseCanary(
  replicas: readonly KnownReplica[],
  own: string,
  turn: number,
): KnownReplica | undefined {
  const others = replicas.filter(({ identity }) => identity !== own);
  const candidates = others.length === 0 ? replicas : others;
  const inOrder = candidates.toSorted((a, b) => (a.pod.name < b.pod.name ? -1 : 1));
  return inOrder[turn % inOrder.length];
}

/** Less than a drain takes. If it fails, the next leader tries again. */
const RESTORE_WITHIN_MS = 12_000;
const RESTORE_PAUSE_MS = 500;

/**
 * Puts a replica back into the Service, even after the term has ended.
 * @throws Error if that does not succeed in time
 */
async function restore(labels: PodLabels, pod: LabelledPod): Promise<void> {
  const signal = AbortSignal.timeout(RESTORE_WITHIN_MS);
  let failure: Error | undefined;
  do {
    try {
      return await putBack(labels, pod, signal);
    } catch (error) {
      failure = signal.aborted ? (failure ?? asError(error)) : asError(error);
    }
  } while (await pause(RESTORE_PAUSE_MS, signal));
  throw failure;
}

async function putBack(labels: PodLabels, pod: LabelledPod, signal: AbortSignal): Promise<void> {
  try {
    await labels.change({ pod, label: CANARY_LABEL, from: OUT_OF_SERVICE, to: IN_SERVICE }, signal);
  } catch (error) {
    // The pod no longer exists, or has been put back already.
    const reason = error instanceof KubeFailure ? error.reason : undefined;
    if (reason !== 'NotFound' && reason !== 'Refused') throw error;
  }
}

export function isTimed(consumer: Consumer): boolean {
  return measuredBy('canary', consumer) !== undefined;
}

/** Shown with the numbers of all consumers that the canary measures. */
const A_LABEL = 'The canary is removed by its label: what a consumer does only at a termination is not seen.';

/** @param nodes what is known of the other nodes, for consumers that are timed on each node */
export function limitsOf(consumer: Consumer, alone: boolean, nodes?: string): readonly string[] {
  const { limit, perNode } = timing(consumer);
  const limits = [perNode === true && nodes !== undefined ? nodes : limit, A_LABEL];
  if (!alone) return limits;
  return [...limits, 'One replica of Linger answers, and calls itself: another path through the node.'];
}

function timing(consumer: Consumer): MeasuringOf<'canary'> {
  const measuring = measuredBy('canary', consumer);
  if (measuring === undefined) throw new Error(`measure.${consumer.measure.kind} is not timed by the canary`);
  return measuring;
}

/**
 * After this many samples a built-in consumer is known, and flips for it become rarer: its percentile comes from a week of
 * samples, so a fifth of them show a change just as soon, and flips take most of an idle leader's processor time. Until then
 * flips for it are more frequent, because all waits and holds assume `initial` for it.
 */
const KNOWN = { after: 100, timesAsRare: 5, timesAsOftenBefore: 6 };

/**
 * Until ClusterIPs are known, nearly every Service gets `initial` for them. So there are flips for them alone, while those
 * for cluster DNS, which take as long as a cached answer lives, become rarer. A flip takes 2 to 3 s: with the default, a
 * hundred are done within ten minutes.
 */
const CLUSTER_IP_FIRST = { timesAsOften: 24, apartMs: 2_000, othersTimesAsRare: 2 };

/**
 * @param clusterEveryMs the setting --canary-every
 * @param timed how many flips have measured this consumer in the last 7 days, on any leader
 */
export function everyMsOf(consumer: Consumer, clusterEveryMs: number, timed: number): number {
  const wanted = timing(consumer).everyMs?.(consumer.measure);
  if (wanted !== undefined) return wanted;
  return timed < KNOWN.after ? clusterEveryMs / KNOWN.timesAsOftenBefore : clusterEveryMs * KNOWN.timesAsRare;
}

/** A flip, with the consumers that took part. */
export interface Flipped extends FlipOutcome {
  /** The pod that was removed and added back; undefined: none. */
  readonly pod: string | undefined;
  /** The consumers that took part, each with the limits of its measurement. */
  readonly asked: ReadonlyMap<string, readonly string[]>;
}

/** The settings of the canary, which are the same for all replicas except for the identity. */
export interface CanarySettings {
  /** The port of the canary server. */
  readonly port: number;
  readonly identity: string;
  /** Seconds between two flips for the built-in consumers. */
  readonly every: number;
  /** Whether probe URLs may lead to link-local addresses and to cloud metadata. */
  readonly allowLinkLocal: boolean;
}

export interface CanaryContext extends Omit<CanarySettings, 'every'> {
  readonly connection: KubeConnection;
  /** Linger's own. */
  readonly namespace: string;
  readonly endpoints: CanaryEndpoints;
  readonly dns: ClusterDns;
  /** The current consumers. */
  readonly consumers: () => readonly Consumer[];
  /** The setting --canary-every. Milliseconds. */
  readonly everyMs: number;
  /** How many flips have measured a consumer in the last 7 days. */
  readonly timed: (consumer: string) => number;
  readonly onFlip: (flipped: Flipped) => void;
  /** Called when a probe has connected to this address. */
  readonly onProbe: (address: string) => void;
  /** Emits an event for each removed pod of the cluster. */
  readonly removals: EventEmitter<{ removal: [] }>;
  /** Monotonic milliseconds: the clock of the watches. */
  readonly clock: () => number;
  readonly random: () => number;
  readonly limits?: Partial<FlipLimits>;
  readonly nodeTimerPort?: number;
}

type CanaryLead = Pick<Leadership, 'signal' | 'holds'>;

/**
 * A consumer that cannot be seen makes every flip that it joins 5 s longer for the others, and takes most of an idle
 * leader's processor time. So it is tried again after a minute, and then after twice as long each time.
 */
const TROUBLED = { firstMs: 60_000, longestMs: 600_000 };

/** @param times how often in a row a consumer could not be timed @returns milliseconds between flips for it */
export function troubledEveryMs(times: number): number {
  return times === 0 ? 0 : Math.min(TROUBLED.longestMs, TROUBLED.firstMs * 2 ** (times - 1));
}

/**
 * After a quiet time, kube-proxy applies the first change at once, and further ones up to its `minSyncPeriod` (1 s by
 * default) later. In a quiet cluster, flips would only measure the former, while the pods of a rollout experience the
 * latter. So there are extra flips for ClusterIPs whenever pods are removed: within `soonMs`, and at least `apartMs` apart.
 */
const AMID_REMOVALS = { soonMs: 1_000, apartMs: 5_000 };

/** How many consumers may share a flip: each costs 40 connections a second during it. */
const MOST_CONSUMERS = 4;
const REQUEST_MS = 5_000;

/**
 * Flips one replica at a time while the term lasts. Resolves once the last one is back in the Service, or cannot be put
 * back: within 20 s of the end of the term.
 */
export function runCanary(context: CanaryContext, lead: CanaryLead): Promise<void> {
  return new Canary(context, lead).run();
}

/** The flips that a consumer has taken part in. */
interface Tries {
  readonly latestAt: number;
  /** How many of the latest in a row could not measure it. */
  readonly troubled: number;
}

class Canary {
  readonly #context: CanaryContext;
  readonly #lead: CanaryLead;
  readonly #limits: FlipLimits;
  readonly #labels: PodLabels;
  readonly #schedule: FlipSchedule;
  readonly #tries = new Map<string, Tries>();
  readonly #nodes: NodeTimers;
  #turn = 0;

  constructor(context: CanaryContext, lead: CanaryLead) {
    const { connection, namespace, random, clock, nodeTimerPort: port } = context;
    this.#context = context;
    this.#lead = lead;
    this.#limits = { ...FLIP_LIMITS, ...context.limits };
    this.#labels = new PodLabels({ connection, namespace, requestMs: REQUEST_MS });
    this.#schedule = new FlipSchedule(random);
    this.#nodes = new NodeTimers({ connection, namespace, clock, port, signal: lead.signal });
  }

  async run(): Promise<void> {
    const { clock } = this.#context;
    // Put back replicas that a vanished leader has left out. If this fails, the first flip tries again and reports it.
    await this.#putAllBack(`${CANARY_LABEL}=${OUT_OF_SERVICE}`).catch(() => undefined);
    let next = this.#next(clock(), clock());
    let [ended, rested] = [clock(), clock()];
    for (;;) {
      const why = await this.#rest(next, rested, ended);
      if (why === undefined) return;
      const began = clock();
      const consumers = why === 'due' ? this.#takingPart(began) : this.#paced();
      if (consumers.length > 0) await this.#flipNow(consumers, began);
      if (why === 'due') next = this.#next(began, clock());
      ended = clock();
      rested = ended + Math.min(AMID_REMOVALS.apartMs, this.#aloneMs());
    }
  }

  /**
   * Waits until the next flip is due. Ends earlier, but not before `rested`, if a pod is removed or if ClusterIPs have
   * waited long enough to become known.
   * @returns undefined once the term is over
   */
  async #rest(next: number, rested: number, ended: number): Promise<'due' | 'paced' | undefined> {
    const { clock, random, removals } = this.#context;
    const { signal } = this.#lead;
    if (!(await pause(Math.min(next, rested) - clock(), signal))) return undefined;
    if (next <= rested) return 'due';
    const until = Math.min(next, ended + this.#aloneMs());
    const untilRemoval = (waking: AbortSignal, wake: () => void) => {
      removals.once('removal', wake);
      return pause(until - clock(), waking).finally(() => removals.off('removal', wake));
    };
    if ((await withSignal({ signal }, untilRemoval)) && until === next) return 'due';
    return (await pause(AMID_REMOVALS.soonMs * random(), signal)) ? 'paced' : undefined;
  }

  /** How long after a flip the next one for ClusterIPs alone begins; infinite once they are known. */
  #aloneMs(): number {
    const { everyMs, timed } = this.#context;
    if (this.#paced().every(({ name }) => timed(name) >= KNOWN.after)) return Number.POSITIVE_INFINITY;
    return Math.max(CLUSTER_IP_FIRST.apartMs, everyMs / CLUSTER_IP_FIRST.timesAsOften);
  }

  /** The consumers whose lag depends on when they applied the previous change. */
  #paced(): readonly Consumer[] {
    const timed = this.#context.consumers().filter(isTimed);
    return timed.filter((each) => timing(each).perNode === true && !this.#tries.get(each.name)?.troubled);
  }

  async #flipNow(consumers: readonly Consumer[], latestAt: number): Promise<void> {
    const flipped = await this.#flipFor(consumers);
    for (const { name } of consumers) {
      const { trouble } = flipped.consumers.get(name) ?? {};
      const again = flipped.attempts === 0 ? 1 : (this.#tries.get(name)?.troubled ?? 0) + 1;
      this.#tries.set(name, { latestAt, troubled: trouble === undefined ? 0 : again });
    }
    this.#context.onFlip(flipped);
  }

  #next(began: number, ended: number): number {
    const everyMs = Math.min(...this.#turns().map((turn) => turn.everyMs), this.#context.everyMs);
    return this.#schedule.next({ began, ended, everyMs });
  }

  #takingPart(now: number): readonly Consumer[] {
    const turns = this.#turns();
    const names = new Set(turns.map(({ consumer }) => consumer.name));
    for (const name of this.#tries.keys()) if (!names.has(name)) this.#tries.delete(name);
    return takingPart(turns, now, MOST_CONSUMERS).map(({ consumer }) => consumer);
  }

  #turns() {
    const { consumers, everyMs: clusterEveryMs, timed } = this.#context;
    const isFirst = Number.isFinite(this.#aloneMs());
    const waits = (each: Consumer) =>
      isFirst && timing(each).everyMs === undefined && timing(each).perNode !== true;
    return consumers()
      .filter(isTimed)
      .map((consumer) => {
        const { latestAt: triedAt, troubled = 0 } = this.#tries.get(consumer.name) ?? {};
        const wantedMs = waits(consumer)
          ? clusterEveryMs * CLUSTER_IP_FIRST.othersTimesAsRare
          : everyMsOf(consumer, clusterEveryMs, timed(consumer.name));
        const everyMs = Math.max(wantedMs, troubledEveryMs(troubled));
        return { consumer, everyMs, triedAt };
      });
  }

  async #flipFor(consumers: readonly Consumer[]): Promise<Flipped> {
    const { signal } = this.#lead;
    const asked = (alone = false) =>
      new Map(consumers.map((each) => [each.name, limitsOf(each, alone, this.#nodes.limit)]));
    try {
      const service = await this.#service();
      if (service === undefined) return untried('NoService', asked(), NO_SERVICE);
      const { replicas, silent } = await this.#replicas();
      const canary = chooseCanary(replicas, this.#context.identity, this.#turn++);
      const unheard = silent.map(({ pod }) => pod.name).toSorted();
      const also = unheard.length === 0 ? '' : ` ${SILENT}: ${fewOf(unheard)}.`;
      if (canary === undefined) return untried('NoReplica', asked(), NO_REPLICA + also);
      const fellows = replicas.filter((each) => each !== canary);
      const outcome = await this.#flip({ service, canary, fellows, silent }, consumers);
      const found = [...outcome.consumers].map(([name, each]) => [name, withMore(each, also)] as const);
      const of = { pod: canary.pod.name, asked: asked(fellows.length === 0) };
      return { ...outcome, ...of, consumers: new Map(found) };
    } catch (error) {
      if (signal.aborted) return { ...NOTHING, result: 'Ended', asked: asked() };
      return { ...NOTHING, result: 'Refused', asked: asked(), problem: asError(error).message };
    }
  }

  /**
   * @returns undefined if there is no such Service, or none with a ClusterIP and a port
   * @throws KubeFailure; the signal's reason once that has aborted
   */
  async #service(): Promise<Met['service'] | undefined> {
    const { connection, namespace } = this.#context;
    const call = { signal: this.#lead.signal, withinMs: REQUEST_MS };
    const read = callApi(connection, 'CoreV1Api', call, (core) =>
      core.readNamespacedService({ name: CANARY_SERVICE, namespace }),
    );
    const { clusterIP: address, ports } = (await unlessNotFound(read))?.spec ?? {};
    const port = ports?.[0]?.port;
    return address === undefined || address === 'None' || port === undefined ? undefined : { address, port };
  }

  /**
   * The replicas in the Service; those that do not answer separately. Replicas that are out are put back, and take part the
   * next time.
   * @throws KubeFailure
   */
  async #replicas() {
    const { endpoints, port } = this.#context;
    const pods = await this.#putAllBack(CANARY_LABEL);
    const silent: SilentReplica[] = [];
    const known = pods.map(async (pod): Promise<KnownReplica | undefined> => {
      const { address, ready, uid } = pod;
      if (!ready || address === undefined || !endpoints.isReady(uid, CANARY_SERVICE)) return undefined;
      const url = canaryUrl(address, port);
      const { identity } = await attempt({ url, address, timeoutMs: this.#limits.attemptMs });
      if (identity !== undefined) return { pod, address, identity };
      silent.push({ pod, address });
      return undefined;
    });
    return { replicas: (await Promise.all(known)).filter((each) => each !== undefined), silent };
  }

  /** Puts back all replicas that are out. @returns all that are selected @throws KubeFailure */
  async #putAllBack(selector: string): Promise<readonly LabelledPod[]> {
    const { signal } = this.#lead;
    const pods = await this.#labels.list(selector, signal);
    for (const pod of pods)
      if (pod.labels[CANARY_LABEL] === OUT_OF_SERVICE) await putBack(this.#labels, pod, signal);
    return pods;
  }

  async #flip(met: Met, consumers: readonly Consumer[]): Promise<FlipOutcome> {
    const { endpoints, clock, port } = this.#context;
    const { signal } = this.#lead;
    const { pod, identity, address } = met.canary;
    const timed = await Promise.all(consumers.map((each) => this.#timed(each, met)));
    const listed = timed.filter(({ service }) => endpoints.isReady(pod.uid, service));
    const clusterIp = consumers.find((each) => timing(each).perNode === true)?.name;
    const nodes = clusterIp === undefined ? [] : await this.#nodes.chosen();
    const of = { service: CANARY_SERVICE, leastMisses: CLUSTER_IP_MISSES };
    const elsewhere = nodes.map((node) => ({
      node,
      consumer: { ...of, ...this.#nodes.timed(node, this.#limits.attemptMs) },
    }));
    const remove = { pod, label: CANARY_LABEL, from: IN_SERVICE, to: OUT_OF_SERVICE };
    const outcome = await flip({
      uid: pod.uid,
      replicas: { canary: identity, fellows: new Set(met.fellows.map((each) => each.identity)) },
      consumers: [...listed, ...elsewhere.map(({ consumer }) => consumer)],
      endpoints,
      askCanary: () => attempt({ url: canaryUrl(address, port), address, timeoutMs: this.#limits.attemptMs }),
      label: {
        remove: () => this.#labels.change(remove, signal),
        restore: () => restore(this.#labels, pod),
      },
      holds: () => this.#lead.holds(),
      time: { clock, pause },
      signal,
      limits: this.#limits,
    });
    const lags = [...outcome.consumers.values()].map(({ removal = 0 }) => removal * 1000);
    this.#schedule.followed(Math.max(0, ...lags));
    if (outcome.result === 'ReplicaLost') return outcome;
    const unlisted = timed.filter((each) => !listed.includes(each)).map(({ name }) => name);
    const found = new Map([...outcome.consumers, ...troubleOf(unlisted, NO_DNS_SERVICE)]);
    if (clusterIp !== undefined) {
      const others = elsewhere.map(({ node, consumer }) => [node, found.get(consumer.name)] as const);
      for (const { consumer } of elsewhere) found.delete(consumer.name);
      found.set(clusterIp, await this.#nodes.slowest(found.get(clusterIp) ?? {}, others));
    }
    return { ...outcome, consumers: found };
  }

  /** How to make attempts through a consumer. */
  async #timed(consumer: Consumer, met: Met): Promise<TimedConsumer> {
    const { signal } = this.#lead;
    const { attemptMs: timeoutMs } = this.#limits;
    const { attempts } = timing(consumer);
    const context = { ...this.#context, timeoutMs, signal };
    return { name: consumer.name, ...(await attempts(consumer.measure, met, context)) };
  }
}

const NOTHING = { pod: undefined, consumers: new Map(), attempts: 0 } as const;

const NO_SERVICE = `There is no Service ${CANARY_SERVICE} with a ClusterIP in Linger's namespace: apply deploy/service-canary.yaml.`;
const NO_DNS_SERVICE = `No headless Service ${CANARY_DNS_SERVICE} in Linger's namespace lists the replica: apply deploy/service-canary.yaml.`;
const NO_REPLICA = `No replica of Linger is ready, has the label ${CANARY_LABEL}, is listed by the Service ${CANARY_SERVICE} and answers on its canary port.`;
const SILENT = `The Service ${CANARY_SERVICE} also lists replicas that do not answer on the canary port`;

function withMore({ trouble, ...outcome }: ConsumerOutcome, more: string): ConsumerOutcome {
  return trouble ? { trouble: { ...trouble, message: trouble.message + more } } : outcome;
}

function troubleOf(names: Iterable<string>, message: string): Map<string, ConsumerOutcome> {
  return new Map([...names].map((name) => [name, { trouble: { reason: 'Unreachable', message } }]));
}

function untried(result: FlipResult, asked: Flipped['asked'], message: string): Flipped {
  return { ...NOTHING, result, asked, consumers: troubleOf(asked.keys(), message) };
}
