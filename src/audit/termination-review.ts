import { Counter, Histogram, type Registry } from '@prometheus-io/client';
import {
  ask,
  type KubeConnection,
  listSome,
  newAgent,
  type ObjectEvents,
  type Resource,
  type ResourceEvent,
  readText,
} from '../cluster/index.ts';
import {
  canonicalAddress,
  leastSecondsOf,
  memberAt,
  NO_LABELS,
  Shares,
  setNewest,
} from '../core/api/index.ts';
import {
  type ClusterSnapshot,
  containerWaits,
  ownDrainOf,
  type Plan,
  type Pod,
  parsePlan,
  trafficOf,
} from '../core/decision/index.ts';
import { NO_WAIT } from '../core/judge/index.ts';
import type { PodMetadata } from '../core/lag/index.ts';
import { findsByItself, knownLags, type PodKey, type RemovalSample } from '../core/lag/index.ts';
import { MOST_USERS, type ObservedEnd, type ObservedRelease, terminationOf } from '../core/timeline/index.ts';
import type { HeldPod, Release } from '../hold/index.ts';
import { ownersOf } from '../informers/index.ts';
import { type Logger, LogOnce } from '../telemetry/index.ts';
import { pause, RateLimit } from '../timing/index.ts';
import { pathOf, WORKLOAD_KINDS } from './kinds.ts';
import {
  type JudgedEnd,
  judgeEnd,
  type SendersLag,
  sentenceOf,
  slowStopOf,
  TERMINATION_FINDINGS,
  TERMINATION_OUTCOMES,
  type TerminationFinding,
  type TerminationLog,
  type TerminationOutcome,
  UNKNOWN_WAIT,
  type WaitBounds,
} from './terminations.ts';

interface TerminationReviewOptions {
  readonly log: TerminationLog;
  readonly connection: KubeConnection;
  readonly registry: Registry;
  readonly logger: Logger;
  readonly events: ObjectEvents;
  /** Since when this replica has led, by the clock; undefined: it does not lead. Only the leader reports. */
  readonly leadsSince: () => number | undefined;
  readonly snapshot: () => ClusterSnapshot;
  /** Whether a slice or Endpoints lists the pod as ready. */
  readonly listed: (pod: PodKey) => boolean;
  /**
   * For how many seconds after SIGTERM pods of this workload continue to accept and serve requests; undefined: not known.
   */
  readonly drainOf: (workload: { readonly namespace: string; readonly owner: string }) => number | undefined;
  /** The state of a pod with hook Hold; undefined once the watch has shown that it is gone. */
  readonly held: (uid: string) => Pick<HeldPod, 'calledAt' | 'releasedAt'> | undefined;
  /** Milliseconds, monotonic. */
  readonly clock: () => number;
  readonly epochSeconds: () => number;
  readonly signal: AbortSignal;
}

/** What is remembered of a terminating pod. */
interface Stopping extends Pick<PodMetadata, 'namespace' | 'name' | 'plan' | 'controller' | 'owner'> {
  readonly senders: SendersLag;
  /** The consumers with a known lag, the slowest first. */
  readonly known: readonly { readonly name: string; readonly seconds: number }[];
  /** When its deletion was seen. */
  readonly at: number;
  grace: number | undefined;
  /** Whether a Service selects it, or a consumer finds it by itself. */
  readonly selected: boolean;
  /** Whether one of two events has happened: its removal has ended, or the pod is gone. */
  half: boolean;
  /** Whether some object listed it as ready at its deletion. */
  readonly listed: boolean;
  withdrawals: RemovalSample['withdrawals'] | undefined;
  /** How long its hook delayed SIGTERM; undefined: not known. */
  waited: number | undefined;
  released: ObservedRelease | undefined;
  goneAt: number | undefined;
}

/**
 * Characters that terminating pods may take, at most half of them for one namespace: enough for 50,000 pods with the usual
 * plan.
 */
const MOST_STOPPING = 32 * 1024 * 1024;
const WEIGHT_OF_POD = 512;
const WEIGHT_OF_CONSUMER = 64;
/** For how long the removal of a pod that is gone may still end, because samples are verified by later heartbeats. */
const REMOVAL_WITHIN_MS = 300_000;
/** How many workloads' own hooks are cached. */
const MOST_KNOWN = 1_000;
/**
 * Limits requests for workloads' hooks and for the owners of addresses: a storm of removals must not become a storm of
 * requests.
 */
const QUESTIONS = { perSecond: 2, atOnce: 20 };
const ANSWER_MS = 5_000;
/** How many workloads may wait for their hooks to be read; pods of further ones count as `Unknown`. */
const MOST_QUEUED = 1_000;
const QUEUE_MS = 500;
/** How many undeclared senders are remembered, and the value that stands for more than one pod. */
const MOST_SENDERS = 2_000;
const SEVERAL = '';

/** How many of the addresses that connected to a pod are named. */
const MOST_PEERS = 5;
/** Enough for a template with a thousand containers. */
const LONGEST_TEMPLATE = 3 * 1024 * 1024;

const SHORTFALL_SECONDS = [0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300, 600];

/**
 * Judges each pod's termination in retrospect, reports it by log, metrics and Events, and remembers it. Each removal is
 * compared with the wait of the pod's hook, and each end with the application's own time. For held pods, the Hold Service
 * adds which senders still connected.
 */
export class TerminationReview {
  readonly #options: TerminationReviewOptions;
  /** By uid. undefined: there was no room for it, and later events must not be judged as if they were the first. */
  readonly #stopping = new Map<string, Stopping | undefined>();
  readonly #shares = new Shares();
  /** When pods went that are gone but whose removal may still end; earliest first. */
  readonly #gone = new Map<string, number>();
  #queued = 0;
  /** By undeclared sender: the pod that was the first to report it, or {@link SEVERAL}. */
  readonly #witnesses = new Map<string, string>();
  /** By workload: how long its containers' own hooks wait. */
  readonly #ownHooks = new Map<string, Promise<WaitBounds>>();
  readonly #agent: ReturnType<typeof newAgent>;
  readonly #once: LogOnce;
  readonly #metrics: ReturnType<typeof registerTerminationMetrics>;
  readonly #questions: RateLimit;

  constructor(options: TerminationReviewOptions) {
    const { connection, registry, logger, clock, signal } = options;
    this.#options = options;
    this.#agent = newAgent(connection, 1, signal);
    this.#once = new LogOnce(logger);
    this.#metrics = registerTerminationMetrics(registry);
    this.#questions = new RateLimit(QUESTIONS, clock());
  }

  /** Call this with each event of the watch of pods. */
  pod(event: ResourceEvent<PodMetadata>): void {
    this.#forgetGone(event.at);
    if (event.type === 'deleted') {
      // A pod that vanished unseen may have been gone for a long time.
      if (!event.relist) this.#ended(event.object, event.at);
      const { uid } = event.identity;
      if (!this.#stopping.has(uid)) return;
      // Pods of Jobs, for example, have no removal to wait for.
      if (this.#options.listed(event.identity) || this.#isSent(uid)) this.#gone.set(uid, event.at);
      else this.#forget(uid);
      return;
    }
    const { uid, namespace, name, plan, controller, owner, deletionGracePeriodSeconds: grace } = event.object;
    if (event.object.deletionTimestamp === undefined) return;
    if (this.#stopping.has(uid)) {
      const known = this.#stopping.get(uid);
      if (grace !== undefined && known !== undefined) shorten(known, grace, event.at);
      return;
    }
    const { selected, known, ...senders } = sendersOf(event.object, this.#options.snapshot());
    const listed = this.#options.listed(event.object);
    const stopping: Stopping = {
      namespace,
      name,
      plan,
      controller,
      owner,
      grace,
      senders,
      known,
      selected,
      listed,
      at: event.at,
      half: false,
      withdrawals: undefined,
      waited: undefined,
      released: undefined,
      goneAt: undefined,
    };
    const weight = weightOf(stopping);
    if (!this.#shares.hasRoomFor(namespace, weight, MOST_STOPPING)) {
      this.#once.warn(
        `room of ${namespace}`,
        { namespace, name },
        'too many terminating pods in one namespace; the excess is not reviewed',
      );
      this.#stopping.set(uid, undefined);
      return;
    }
    this.#shares.add(namespace, weight);
    this.#stopping.set(uid, stopping);
  }

  #forget(uid: string): void {
    const stopping = this.#stopping.get(uid);
    this.#stopping.delete(uid);
    if (stopping !== undefined) this.#shares.add(stopping.namespace, -weightOf(stopping));
  }

  #isSent(uid: string): boolean {
    return this.#stopping.get(uid)?.selected === true;
  }

  #forgetGone(now: number): void {
    for (const [uid, at] of this.#gone) {
      if (now - at < REMOVAL_WITHIN_MS) return;
      this.#gone.delete(uid);
      this.#keep(uid, this.#stopping.get(uid));
      this.#forget(uid);
    }
  }

  /** How many pods are remembered. */
  get size(): number {
    return this.#stopping.size;
  }

  /** Call this with each removal that has ended. Never throws. */
  async removed(sample: RemovalSample): Promise<void> {
    const { clock, epochSeconds, signal } = this.#options;
    const endedAt = epochSeconds() - Math.max(0, clock() - sample.at) / 1000;
    const pod = this.#pass(sample.uid);
    if (pod === undefined) return this.#count('Unknown');
    const { owner = '', controller, grace, senders } = pod;
    const plan = planOf(pod);
    // Pods with Hold are judged when they are released.
    if (plan?.hook === 'Hold') return this.#listsOver(sample, pod);
    const wait =
      plan === undefined
        ? await this.#ownHookOf(sample.namespace, controller, sample.pod)
        : { least: plan.least ?? plan.wait, most: plan.wait };
    if (signal.aborted) return;
    // A workload that continues to serve is not stopped by SIGTERM.
    const drain = this.#options.drainOf({ namespace: sample.namespace, owner }) ?? 0;
    const serves = { least: wait.least + drain, most: wait.most + drain };
    const { end, shortfall } = judgeEnd(sample, { owner, wait: serves, grace, senders }, endedAt);
    this.#count(end.outcome);
    this.#record(end);
    pod.waited = wait.least === wait.most ? Math.min(wait.most, grace ?? wait.most) : undefined;
    this.#listsOver(sample, pod);
    if (shortfall === undefined) return;
    this.#metrics.seconds.observe(shortfall.seconds);
    this.#tell(shortfall, plan !== undefined);
  }

  /** Call this with each pod whose Hold hooks have been released. Never throws. */
  async released(release: Release): Promise<void> {
    const { pod, reason, heldMs, open = 0, undeclared } = release;
    if (pod.deletion === undefined) return;
    const stopping = this.#stopping.get(pod.uid);
    if (stopping !== undefined) stopping.released = observedRelease(release, stopping.at);
    const { owner, senders } = stopping ?? {};
    const end = aboutEnd({ ...pod, owner }, this.#options.epochSeconds());
    const outcome = HELD_OUTCOMES[reason] ?? 'Unknown';
    const cutBy = reason === 'Max' ? 'Max' : '';
    this.#record(heldEnd(end, senders, { outcome, waited: heldMs / 1000, cutBy }));
    if (open > 0) this.#tell({ ...end, reason: 'OpenAtStop', seconds: 0, connections: open });
    if (undeclared === undefined) return;
    const { connections, seconds } = undeclared;
    const remotes = undeclared.remotes.slice(0, MOST_PEERS);
    const seen = remotes.filter((address) => this.#isWitnessed(address, pod.uid));
    // A pod may claim any address as its sender, so a sender counts only once a second pod reports it.
    const workload = `of ${end.namespace}/${end.owner}`;
    if (seen.length === 0 && (remotes.length > 0 || !this.#isWitnessed(workload, pod.uid))) return;
    const from = await Promise.all(seen.map((address) => this.#named(address)));
    if (this.#options.signal.aborted) return;
    this.#tell({ ...end, reason: 'UndeclaredConsumer', seconds, connections, from });
  }

  /** Whether another pod has reported this sender as well. */
  #isWitnessed(sender: string, uid: string): boolean {
    const first = this.#witnesses.get(sender) ?? uid;
    setNewest(this.#witnesses, sender, first === uid ? uid : SEVERAL, MOST_SENDERS);
    return first !== uid;
  }

  #ended(pod: PodMetadata, at: number): void {
    const { held: heldPod, leadsSince, clock, epochSeconds } = this.#options;
    const stopping = this.#pass(pod.uid);
    if (stopping !== undefined) stopping.goneAt = at;
    // If endpoints may still list the pod, its instants are stored once its removal from them has ended.
    const isOver = stopping?.withdrawals !== undefined || (stopping?.selected && !stopping.listed);
    if (isOver) this.#keep(pod.uid, stopping);
    const plan = stopping && planOf(stopping);
    if (stopping === undefined || plan === undefined) return;
    const epochAt = (instant: number) => epochSeconds() - (clock() - instant) / 1000;
    const held = heldPod(pod.uid);
    // Only the previous leader knows of calls from before this replica led.
    if (plan.hook === 'Hold' && held?.calledAt === undefined) {
      const since = leadsSince() ?? Number.POSITIVE_INFINITY;
      const seconds = (at - stopping.at) / 1000;
      if (held === undefined || since >= stopping.at) return;
      const end = aboutEnd(pod, epochAt(stopping.at));
      this.#record(heldEnd(end, stopping.senders, { outcome: 'Unknown', waited: undefined, cutBy: '' }));
      // If no object listed it, its containers may not have been running, so that no hook could call.
      if (stopping.listed) this.#tell({ ...end, reason: 'HoldUnreachable', seconds });
      return;
    }
    const waited = Math.min(plan.wait, stopping.grace ?? plan.wait);
    const stoppedAt = plan.hook === 'Hold' ? held?.releasedAt : stopping.at + waited * 1000;
    if (stoppedAt === undefined) return;
    const seconds = slowStopOf({
      deletedAt: stopping.at / 1000,
      stoppedAt: stoppedAt / 1000,
      goneAt: at / 1000,
      grace: stopping.grace,
      planned: plan,
    });
    if (seconds !== undefined)
      this.#tell({ ...aboutEnd(pod, epochAt(stoppedAt)), reason: 'SlowStop', seconds });
  }

  /** Records that one of the two awaited events has happened. */
  #pass(uid: string): Stopping | undefined {
    const stopping = this.#stopping.get(uid);
    if (stopping?.half) {
      this.#forget(uid);
      this.#gone.delete(uid);
    }
    if (stopping !== undefined) stopping.half = true;
    return stopping;
  }

  #listsOver({ uid, withdrawals }: RemovalSample, stopping: Stopping): void {
    stopping.withdrawals = withdrawals;
    if (stopping.goneAt !== undefined) this.#keep(uid, stopping);
  }

  /** Stores the instants of a termination, as far as they were seen. */
  #keep(uid: string, stopping: Stopping | undefined): void {
    if (!this.#leads || stopping === undefined) return;
    const { log, clock, epochSeconds } = this.#options;
    log.keep(terminationOf(observedEnd(uid, stopping, epochSeconds() - (clock() - stopping.at) / 1000)));
  }

  get #leads(): boolean {
    return this.#options.leadsSince() !== undefined;
  }

  #count(outcome: TerminationOutcome): void {
    this.#metrics.terminations.inc({ outcome });
  }

  #record(end: JudgedEnd): void {
    if (this.#leads) this.#options.log.count(end);
  }

  /** @param planned whether the pod had a wait from Linger; a shortfall of other pods is not Linger's fault */
  #tell(finding: TerminationFinding, planned = true): void {
    if (!this.#leads) return;
    const { log, logger, events } = this.#options;
    const { reason, namespace, pod, uid: _, at: __, owner, ...numbers } = finding;
    log.add(finding);
    this.#metrics.findings.inc({ reason, planned: String(planned) });
    // Clients that keep connections open are common, so that alone is not bad.
    const isBad = reason !== 'OpenAtStop';
    const members = { reason, namespace, pod, owner, ...numbers };
    if (isBad) logger.warn(members, 'pod termination may have lost requests');
    else logger.info(members, 'connections still open when the pod was stopped');
    const [kind = 'Pod', name = pod] = owner === '' ? [] : owner.split('/');
    events.tell({
      object: { kind, namespace, name },
      type: isBad ? 'Warning' : 'Normal',
      reason,
      action: 'Terminate',
      // The owners of addresses concern other namespaces, so they are only for readers of Linger's own.
      note: sentenceOf(withoutNames(finding)),
    });
  }

  /**
   * An address with its owner, if that is known: `10.0.0.7 (infra/gateway-1 of Deployment/gateway)`, `10.0.0.1 (node
   * worker-3)`.
   */
  async #named(address: string): Promise<string> {
    const [asked, nodes] = [canonicalAddress(address), this.#options.snapshot().fleet?.nodes ?? []];
    const node = nodes.find(({ addresses }) => addresses.some((each) => canonicalAddress(each) === asked));
    if (node !== undefined) return `${address} (node ${node.name})`;
    if (!this.#leads || !this.#questions.take(this.#options.clock())) return address;
    const { connection, signal } = this.#options;
    const call = { signal, answerMs: ANSWER_MS, most: 2 };
    try {
      const [pod, ...others] = await listSome(podsAt(address), connection, call);
      this.#once.over('peers', {}, 'address lookup recovered');
      // Pods in the node's network share its address, so that none of them can be named.
      return pod === undefined || others.length > 0 ? address : `${address} (${pod})`;
    } catch (error) {
      if (!signal.aborted)
        this.#once.warn(
          'peers',
          { problem: String(error) },
          'address lookup failed; findings name addresses only',
        );
      return address;
    }
  }

  /** How long the author's own hook waits, for a pod without a plan. The template is requested once per workload. */
  async #ownHookOf(namespace: string, controller: string | undefined, pod: string): Promise<WaitBounds> {
    const path = templatePath(namespace, controller ?? `Pod/${pod}`);
    if (path === undefined) return UNKNOWN_WAIT;
    const known = this.#ownHooks.get(path);
    if (known !== undefined) return known;
    if (this.#queued >= MOST_QUEUED) return UNKNOWN_WAIT;
    const asked = this.#askForHook(path);
    setNewest(this.#ownHooks, path, asked, MOST_KNOWN);
    return asked;
  }

  async #askForHook(path: string): Promise<WaitBounds> {
    const { connection, signal, clock } = this.#options;
    try {
      this.#queued += 1;
      while (!this.#questions.take(clock())) if (!(await pause(QUEUE_MS, signal))) return UNKNOWN_WAIT;
      const response = await ask(connection, { path, agent: this.#agent, signal, answerMs: ANSWER_MS });
      const object: unknown = JSON.parse(await readText(response, LONGEST_TEMPLATE, ANSWER_MS));
      this.#once.over('templates', {}, 'reading the hooks of workloads recovered');
      return ownWaitOf(memberAt(object, ['spec', 'template']) ?? object);
    } catch (error) {
      // A failed request is repeated the next time.
      this.#ownHooks.delete(path);
      const members = { path, problem: String(error) };
      this.#once.warn('templates', members, 'reading the hooks of a workload failed; its waits are unknown');
      return UNKNOWN_WAIT;
    } finally {
      this.#queued -= 1;
    }
  }
}

/**
 * The plan that counts. A plan without a wait means that Linger has removed its hook; then the author's own hook counts, as
 * for a pod without a plan.
 */
function planOf({ plan: text = '' }: Pick<Stopping, 'plan'>): Plan | undefined {
  const plan = parsePlan(text);
  return plan?.wait === 0 ? undefined : plan;
}

function weightOf({ plan = '', controller = '', owner = '', known }: Stopping): number {
  return WEIGHT_OF_POD + plan.length + controller.length + owner.length + known.length * WEIGHT_OF_CONSUMER;
}

/**
 * A second deletion can only shorten the grace. With a grace of 0, it is forced, or is the kubelet's own deletion of a pod
 * that has stopped, which cuts nothing short.
 */
function shorten(stopping: Stopping, grace: number, at: number): void {
  const least = grace > 0 ? grace : (at - stopping.at) / 1000;
  const plan = planOf(stopping);
  if (grace > 0 || (plan?.hook !== 'Hold' && least < (plan?.wait ?? 0)))
    stopping.grace = Math.min(least, stopping.grace ?? least);
}

function observedEnd(uid: string, stopping: Stopping, deletedAt: number): ObservedEnd {
  const { namespace, name: pod, owner = '', at, goneAt, listed, withdrawals, released, grace } = stopping;
  const { known, senders } = stopping;
  const plan = planOf(stopping);
  const planned = plan && plan.least === undefined ? Math.min(plan.wait, grace ?? plan.wait) : undefined;
  return {
    namespace,
    pod,
    uid,
    owner,
    deletedAt,
    listed,
    withdrawals,
    released,
    hook: plan?.hook ?? '',
    consumers: [...senders.unknown.map((name) => ({ name, seconds: undefined })), ...known],
    wait: planned ?? stopping.waited,
    gone: goneAt === undefined ? null : (goneAt - at) / 1000,
  };
}

/** @param at when the deletion was seen */
function observedRelease({ pod, reason, consumers, counted, open }: Release, at: number): ObservedRelease {
  const after = (instant: number) => Math.max(0, (instant - at) / 1000);
  return {
    reason,
    after: after(pod.releasedAt ?? at),
    consumers: consumers.map(({ name, by, at: stoppedAt }) => ({
      name,
      by,
      after: stoppedAt === undefined ? undefined : after(stoppedAt),
    })),
    witness:
      counted === undefined
        ? null
        : { last: counted.lastAt === undefined ? null : after(counted.lastAt), open: open ?? null },
  };
}

/** Keeps only the addresses: an Event in a tenant's namespace must not name pods of other namespaces. */
function withoutNames<F extends TerminationFinding>(finding: F): F {
  const from = finding.from?.map((each) => each.split(' ', 1).join());
  return from === undefined ? finding : { ...finding, from };
}

function aboutEnd(
  { uid, namespace, name, owner = '' }: Pick<PodMetadata, 'uid' | 'namespace' | 'name' | 'owner'>,
  at: number,
) {
  return { at, namespace, pod: name, uid, owner };
}

/** The end of a pod with Hold. Its wait is not compared with a lag, because the reason of its release says how it ended. */
function heldEnd(
  end: ReturnType<typeof aboutEnd>,
  senders: SendersLag | undefined,
  judged: Pick<JudgedEnd, 'outcome' | 'waited' | 'cutBy'>,
): JudgedEnd {
  const { slowest, unknown: unmeasured = [] } = senders ?? {};
  return { ...end, ...judged, lag: undefined, consumer: slowest?.name ?? '', unmeasured };
}

/** Outcomes by reason of release. For all other reasons, the outcome is unknown: see {@link Release.reason}. */
const HELD_OUTCOMES: Readonly<Partial<Record<Release['reason'], TerminationOutcome>>> = {
  Gone: 'InTime',
  NotServing: 'InTime',
  Max: 'TooEarly',
};

/** Which consumers send traffic to a pod, and how late each follows, as known now. */
function sendersOf(
  { namespace, labels = NO_LABELS }: Pick<PodMetadata, 'namespace' | 'labels'>,
  snapshot: ClusterSnapshot,
): SendersLag & Pick<Stopping, 'known' | 'selected'> {
  const { services, consumers, lag } = trafficOf({ namespace, labels, annotations: NO_LABELS }, snapshot);
  // The first part is the control plane's, which is measured for this very pod.
  const parts = lag.parts.slice(1);
  const known = parts
    .flatMap((part) => {
      const lags = knownLags(part);
      return lags ? [{ name: part.name, seconds: lags.quantile(99) }] : [];
    })
    .toSorted((a, b) => b.seconds - a.seconds);
  const selected =
    services === 'unknown' || services.length > 0 || consumers.some((each) => findsByItself(each, labels));
  return {
    slowest: known[0],
    known: known.slice(0, MOST_USERS),
    unknown: parts.flatMap((part) => (knownLags(part) === undefined ? [part.name] : [])),
    selected,
  };
}

/** Lists the pods with this address, in words. */
function podsAt(address: string): Resource<string> {
  return {
    path: '/api/v1/pods',
    query: { fieldSelector: `status.podIP=${address}` },
    metadataOnly: true,
    project: ({ metadata }) => {
      const { owner } = ownersOf(metadata);
      return `${metadata.namespace}/${metadata.name}${owner === undefined ? '' : ` of ${owner}`}`;
    },
  };
}

/** The kinds from which a pod's template is read: those of controllers, or, for a pod without one, the pod itself. */
const TEMPLATE_KINDS = WORKLOAD_KINDS.filter(({ kind }) =>
  ['Pod', 'ReplicaSet', 'StatefulSet', 'DaemonSet'].includes(kind),
);

/** @returns undefined for a kind that Linger may not read */
function templatePath(namespace: string, owner: string): string | undefined {
  const [kind, name = ''] = owner.split('/');
  const of = TEMPLATE_KINDS.find((each) => each.kind === kind);
  return of && `${pathOf(of, namespace)}/${encodeURIComponent(name)}`;
}

/**
 * Containers are stopped in parallel, so requests are lost when the first one stops. @param pod a Pod that the API server
 * has accepted
 */
function ownWaitOf(pod: unknown): WaitBounds {
  if (ownDrainOf(pod as Pod) !== undefined) return UNKNOWN_WAIT;
  const serving = containerWaits(pod as Pod, NO_WAIT).filter(({ sidecar, ends }) => !sidecar && !ends);
  if (serving.length === 0) return UNKNOWN_WAIT;
  const waits = serving.map(({ held }) => held);
  const most = waits.map((held) => (held.kind === 'exact' ? held.seconds : Number.POSITIVE_INFINITY));
  return { least: Math.min(...waits.map(leastSecondsOf)), most: Math.min(...most) };
}

export function registerTerminationMetrics(registry: Registry) {
  const terminations = new Counter({
    name: 'linger_terminations_total',
    help: 'Pods that ended, without hook Hold: stopped InTime or TooEarly, or Unknown.',
    reference:
      'Pods that ended, without hook Hold: stopped `InTime` or `TooEarly`, or `Unknown` ([termination review](commands.md#termination-review)).',
    labelNames: ['outcome'] as const,
    registers: [registry],
  });
  for (const outcome of TERMINATION_OUTCOMES) terminations.inc({ outcome }, 0);
  const seconds = new Histogram({
    name: 'linger_shortfall_seconds',
    help: 'How long pods that were stopped too early were still listed.',
    buckets: SHORTFALL_SECONDS,
    registers: [registry],
  });
  const findings = new Counter({
    name: 'linger_termination_findings_total',
    help: 'Findings about terminations that this replica has reported, by reason; planned: whether the pod had a plan.',
    reference:
      'Findings about terminated pods, by [finding](commands.md#termination-review). `planned`: `false` without a planned wait, as in mode `Audit`. Only on the leader.',
    labelNames: ['reason', 'planned'] as const,
    registers: [registry],
  });
  for (const reason of Object.keys(TERMINATION_FINDINGS)) findings.inc({ reason, planned: 'true' }, 0);
  return { terminations, seconds, findings };
}
