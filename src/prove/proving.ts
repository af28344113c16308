import { asFailure } from '../cluster/index.ts';
import { asError, LingerError } from '../core/api/index.ts';
import { NEVER, pause } from '../timing/index.ts';
import { until } from './leased-job.ts';
import type { PodLives } from './lives.ts';
import {
  chosenPods,
  type Disturbance,
  fullName,
  obstacleTo,
  type ProvableWorkload,
  type WorkloadAccess,
} from './provable-workload.ts';
import { CONNTRACK, hanging, sendTraffic, wallClock } from './traffic.ts';
import type { TrafficJob } from './traffic-job.ts';
import {
  type LossKind,
  type RequestOutcome,
  runSeconds,
  type TrafficPlan,
  type TrafficReport,
  type Way,
} from './traffic-plan.ts';
import { judge, type PodLife, type ProveVerdict } from './verdict.ts';

export interface ProveOptions {
  readonly access: WorkloadAccess;
  readonly workload: ProvableWorkload;
  readonly disturbance: Disturbance;
  /** Already running. */
  readonly lives: PodLives;
  /** Sends traffic from pods in the cluster; undefined: no pods send. */
  readonly job: TrafficJob | undefined;
  /** The ways through which this process sends requests itself. */
  readonly fromHere: readonly Way[];
  readonly traffic: Pick<TrafficPlan, 'rate' | 'timeoutMs' | 'method' | 'headers'>;
  /** Whether the pods and their Service are new, so that none has been replaced before. */
  readonly fresh: boolean;
  readonly slowMs: number;
  /**
   * In seconds: how long to send before the disturbance, how long after it nothing must be lost until the run counts as
   * quiet, and the longest time from the disturbance to the end.
   */
  readonly calm: number;
  readonly quiet: number;
  readonly longest: number;
  readonly signal: AbortSignal;
  /** Called with lines about what happens. */
  readonly note: (line: string) => void;
}

export interface ProveResult {
  readonly verdict: ProveVerdict;
  readonly pods: readonly PodLife[];
  readonly outcomes: readonly RequestOutcome[];
  /** Milliseconds since the epoch. */
  readonly startedAt: number;
  readonly disturbedAt: number;
  readonly endedAt: number;
  readonly senders: number;
  readonly nodes: readonly string[];
  readonly notes: readonly string[];
}

/** conntrack remembers a closed connection for this long (nf_conntrack_tcp_timeout_time_wait and _syn_sent). */
const CONNTRACK_MS = 120_000;
const POLL_MS = 250;
/** How long new pods and Services may take until all requests succeed: three polls of a gateway that polls every 10 s. */
const FOLLOW_MS = 30_000;
/** If more than this share of requests fails before the disturbance, the run is meaningless. */
const MOST_CALM_LOSS = 0.02;
const NOISE = 'if that goes on, it looks like a late gateway, and the advised wait is too long';
/** If the sender itself is later than this, a late request may be due to the sender rather than to what it measures. */
const LATE_MS = 250;
/**
 * A difference of clocks beyond this would change the cause to which a loss is attributed. Smaller ones may just be due to
 * late reports.
 */
const SKEW_MS = 500;
const shiftOf = (skewMs: number) => (Math.abs(skewMs) > SKEW_MS && skewMs < 1e12 ? Math.round(skewMs) : 0);
const UNDO_MS = 30_000;
const NOTE_MS = 5_000;

/**
 * Sends traffic, disturbs the workload once, waits until everything is quiet, removes what it created and reports what was
 * lost.
 * @throws LingerError `prove-refused` before anything was disturbed; KubeFailure; the signal's reason
 */
export async function prove(options: ProveOptions): Promise<ProveResult> {
  const { access, workload, disturbance, lives, note, signal } = options;
  const begunAt = wallClock();
  const inner = new AbortController();
  signal.addEventListener('abort', () => inner.abort(signal.reason), { once: true });
  signal.throwIfAborted();
  const undo: (() => Promise<unknown>)[] = [];
  const replacedAt = Math.max(...lives.all.map(({ createdAt }) => createdAt));
  const hangingConnections = await hanging((options.job?.ways ?? []).flatMap(({ address }) => address ?? []));
  try {
    if (disturbance.type === 'scale') {
      // An autoscaler may have changed it since it was read, because the user may have taken long to confirm.
      const { replicas } = await access.read(signal);
      undo.push(() => access.scale(replicas, AbortSignal.timeout(UNDO_MS)));
      note(`scaling ${fullName(workload)} to ${disturbance.from}`);
      await access.scale(disturbance.from, signal);
      await untilSettled(options, disturbance.from, begunAt);
    }
    const traffic = new Traffic(options, inner);
    undo.push(() => traffic.stop());
    await traffic.start();
    const young = wallClock() - replacedAt - traffic.behindMs < CONNTRACK_MS;
    const replaced = young && !options.fresh;
    const afterRollout = replaced || (hangingConnections ?? 0) > 0;
    // New pods may not have reached kube-proxy and gateways yet.
    const calmBy = young ? wallClock() + FOLLOW_MS : 0;
    let startedAt = 0;
    let unrest: string | undefined;
    do {
      startedAt = wallClock();
      await pause(options.calm * 1_000, inner.signal);
      inner.signal.throwIfAborted();
      unrest = traffic.unrest(startedAt, replaced);
    } while (unrest !== undefined && wallClock() < calmBy);
    if (unrest !== undefined) throw refusal(unrest);
    // Since it was requested, pods may have gone, and another rollout may have begun.
    await refuseUnsafe({ ...options, workload: await access.read(inner.signal), signal: inner.signal });
    note(`${fullName(workload)}: ${wordsOf(disturbance)}`);
    const disturbedAt = wallClock();
    await disturb(options, disturbedAt, undo, inner.signal);
    const whole = await untilQuiet(options, traffic, disturbedAt, inner.signal);
    const endedAt = wallClock();
    await traffic.reachesBy(endedAt);
    const pods = lives.all.filter(({ deletedAt = endedAt, goneAt = deletedAt }) => goneAt >= startedAt);
    // So far by the clock of the pod's node.
    for (const life of pods)
      if (life.endedAt !== undefined) life.endedAt = endOf(life.endedAt + traffic.behindMs, life.deletedAt);
    const already = pods.filter(({ deletedAt = disturbedAt }) => deletedAt < disturbedAt).length;
    const stuck = lives.terminating(0) - lives.terminating(startedAt);
    const outcomes = traffic.outcomes.filter(({ at }) => at >= startedAt && at <= endedAt);
    const early = outcomes.filter(({ at, lost }) => lost !== undefined && at < disturbedAt).length;
    const { ways, nodes } = traffic;
    const verdict = judge({ ways, outcomes, pods, slowMs: options.slowMs, afterRollout });
    const notes = [
      ...rolloutNotes(replaced, hangingConnections),
      ...(early > 0 ? [`lost before anything was disturbed: ${early}; ${NOISE}`] : []),
      ...(already > 0
        ? [
            `pods that were terminating before anything was disturbed: ${already}; what was lost by them counts`,
          ]
        : []),
      ...(stuck > 0 ? [`pods that were terminating before and still are: ${stuck}; they are left out`] : []),
      ...(whole ? [] : [`not quiet within ${options.longest}s: later losses are not counted`]),
      ...[...lives.problems].map((problem) => `a watch was interrupted, so instants may be late: ${problem}`),
      ...traffic.notes,
    ];
    const senders = options.job?.senders ?? 0;
    return { verdict, pods, outcomes, startedAt, disturbedAt, endedAt, senders, nodes, notes };
  } finally {
    // All of them, in reverse order, even after a failure or an interruption.
    for (const each of undo.toReversed()) {
      const problem = await problemOfUndoing(each);
      if (problem !== undefined) note(`could not undo: ${problem}`);
    }
    inner.abort();
  }
}

/** Nodes report ends in whole seconds, so an end within the second before the deletion may as well have come after it. */
export function endOf(endedAt: number, deletedAt: number | undefined): number {
  const isCut = deletedAt !== undefined && endedAt < deletedAt && endedAt > deletedAt - 1_000;
  return isCut ? deletedAt : endedAt;
}

/** Tries repeatedly for a while, so that a brief outage of the API server leaves no node cordoned. */
async function problemOfUndoing(undo: () => Promise<unknown>): Promise<string | undefined> {
  let problem: string | undefined;
  await until(UNDO_MS / 1_000, NEVER, async () => {
    problem = await undo().then(
      () => undefined,
      (thrown: unknown) => asFailure(thrown).message,
    );
    return problem === undefined;
  });
  return problem;
}

/** @param hangingConnections undefined: they cannot be counted */
function rolloutNotes(replaced: boolean, hangingConnections: number | undefined): readonly string[] {
  if (hangingConnections !== undefined && hangingConnections > 0)
    return [
      `${hangingConnections} connections to this Service hang in conntrack (SYN_SENT): an earlier rollout still affects its clients, for two minutes at most`,
    ];
  if (!replaced) return [];
  const counted = hangingConnections === undefined ? ` (not counted: ${CONNTRACK} cannot be read here)` : '';
  return [
    `pods were replaced in the two minutes before: losses that no ending pod explains may be ghost losses from conntrack${counted}`,
  ];
}

/** What to check if requests fail without any disturbance. */
const TO_CHECK: Readonly<Record<LossKind, string>> = {
  '5xx': 'check --path, --method and --header',
  malformed: 'check whether this port speaks HTTP (--service NAME:PORT)',
  refused: 'check the port (--service NAME:PORT)',
  reset: 'check the port (--service NAME:PORT)',
  timeout:
    'check the port (--service NAME:PORT), and whether a NetworkPolicy keeps out pods labelled app.kubernetes.io/name=linger-prove',
  unreachable: 'check whether the name resolves and the address can be reached',
};
const STILL_FOLLOWING =
  'or wait two minutes and try again, since pods have just been replaced: a gateway or conntrack may still lead to the old ones';

/** @throws LingerError `prove-refused` if no pod would be left to serve, or if a budget forbids the disturbance */
export async function refuseUnsafe(
  options: Pick<ProveOptions, 'access' | 'workload' | 'disturbance' | 'lives' | 'signal'>,
): Promise<void> {
  const { access, workload, disturbance, lives, signal } = options;
  const obstacle = obstacleTo(disturbance, workload, lives.ready);
  if (obstacle !== undefined) throw refusal(obstacle);
  const [first] = chosenPods(disturbance, lives.ready);
  const forbidden = first && (await access.evict(first, signal, true));
  if (forbidden !== undefined) throw refusal(`the disruption of pod ${first} is forbidden: ${forbidden}`);
}

export function wordsOf(disturbance: Disturbance): string {
  if (disturbance.type === 'scale') return `scale from ${disturbance.from} to ${disturbance.to}`;
  if (disturbance.type === 'drain') return `drain node ${disturbance.node}`;
  return { rollout: 'rollout restart', deleteOne: 'delete one pod', evict: 'evict one pod' }[
    disturbance.type
  ];
}

async function disturb(
  { access, disturbance, lives, longest }: ProveOptions,
  now: number,
  undo: (() => Promise<unknown>)[],
  signal: AbortSignal,
): Promise<void> {
  if (disturbance.type === 'rollout') return access.restart(new Date(now).toISOString(), signal);
  if (disturbance.type === 'scale') return access.scale(disturbance.to, signal);
  const pods = chosenPods(disturbance, lives.ready);
  if (disturbance.type === 'drain')
    await access.cordon(disturbance.node, signal, (uncordon) => {
      undo.push(() => uncordon(AbortSignal.timeout(UNDO_MS)));
    });
  for (const pod of pods) {
    if (disturbance.type === 'deleteOne') await access.deletePod(pod, signal);
    else {
      let forbidden: string | undefined;
      // Like kubectl drain: what a budget forbids now may be allowed once a replacement is ready.
      const evicted = await until(secondsLeft(longest, now), signal, async () => {
        forbidden = await access.evict(pod, signal);
        return forbidden === undefined;
      });
      if (!evicted) throw refusal(`eviction of pod ${pod} still forbidden after ${longest}s: ${forbidden}`);
    }
  }
}

/** Includes evictions that a budget delays, because senders do not run forever. */
const secondsLeft = (longest: number, disturbedAt: number) => longest - (wallClock() - disturbedAt) / 1_000;

async function untilSettled(
  { access, signal, longest, workload, lives }: ProveOptions,
  replicas: number,
  begunAt: number,
): Promise<void> {
  let other: number | undefined;
  const settled = await until(longest, signal, async () => {
    const now = await access.read(signal);
    other = now.replicas === replicas ? undefined : now.replicas;
    const whole = lives.terminating(begunAt) === 0 && lives.ready.length >= replicas;
    return now.settled && other === undefined && whole;
  });
  if (settled) return;
  const why = other === undefined ? '' : `: something else has scaled it to ${other}, such as an autoscaler`;
  throw refusal(`${fullName(workload)} did not reach ${replicas} ready pods within ${longest}s${why}`);
}

/**
 * Waits until the workload has settled, its old pods are gone, and nothing has been lost for a while.
 * @returns false if it has not become quiet in the time available
 */
function untilQuiet(
  { access, disturbance, lives, quiet, longest, note }: ProveOptions,
  traffic: Traffic,
  disturbedAt: number,
  signal: AbortSignal,
): Promise<boolean> {
  let settledAt: number | undefined;
  let noted = disturbedAt;
  // A drained node is still cordoned, so there may be no room for a replacement: then only the old pods matter.
  const settled = async () => {
    if (disturbance.type === 'drain') return true;
    const state = await access.read(signal).catch(() => undefined);
    // The number of pods matters only if the run has changed it; otherwise an autoscaler may do so at any time.
    return state?.settled === true && (disturbance.type !== 'scale' || state.replicas === disturbance.to);
  };
  return until(secondsLeft(longest, disturbedAt), signal, async () => {
    const begun = lives.all.some(({ deletedAt = 0 }) => deletedAt >= disturbedAt);
    // A pod that was already stuck before, such as on a dead node, may stay forever.
    const terminating = lives.terminating(disturbedAt);
    const done = begun && terminating === 0 && (await settled());
    const now = wallClock();
    settledAt = done ? (settledAt ?? now) : undefined;
    if (now - noted > NOTE_MS) {
      noted = now;
      note(`${traffic.outcomes.length} requests, ${traffic.lost} lost, ${terminating} pods terminating`);
    }
    return settledAt !== undefined && now - Math.max(settledAt, traffic.lastLossAt) >= quiet * 1_000;
  });
}

const refusal = (why: string) => new LingerError('prove-refused', why);

/** The traffic of all senders. */
class Traffic {
  readonly outcomes: RequestOutcome[] = [];
  readonly ways: readonly Way[];
  lost = 0;
  lastLossAt = 0;
  nodes: readonly string[] = [];
  readonly #options: ProveOptions;
  readonly #inner: AbortController;
  readonly #stopping = new AbortController();
  /** By sender: up to when it has reported everything, and by how much its clock is behind this process's at most. */
  readonly #until = new Map<string, { at: number; skewMs: number }>();
  #lateMs = 0;
  #here: Promise<void> = Promise.resolve();

  constructor(options: ProveOptions, inner: AbortController) {
    this.#options = options;
    this.#inner = inner;
    this.ways = [...(options.job?.ways ?? []), ...options.fromHere];
  }

  async start(): Promise<void> {
    const { job, fromHere, traffic, calm, longest, note } = this.#options;
    if (job !== undefined) {
      note(`starting ${job.senders === 1 ? 'a pod' : `${job.senders} pods`} to send traffic`);
      const expected = Array.from({ length: job.senders }, (_, sender) => `pod ${sender}`);
      for (const each of expected) this.#until.set(each, { at: 0, skewMs: Number.POSITIVE_INFINITY });
      this.nodes = await job.start(
        (sender, each) => this.#take(`pod ${sender}`, each, 0),
        (why) => this.#inner.abort(new LingerError('cluster-unreachable', why)),
      );
    }
    if (fromHere.length > 0) {
      const firstWay = job?.ways.length ?? 0;
      const plan = { ...traffic, ways: [...fromHere], seconds: runSeconds(calm, longest) };
      const { signal } = this.#stopping;
      this.#until.set('here', { at: 0, skewMs: 0 });
      this.#here = sendTraffic(plan, (each) => this.#take('here', each, firstWay), { signal });
    }
    await this.reachesBy(wallClock());
  }

  /** Waits until every sender has reported all requests that began before this instant. */
  async reachesBy(at: number): Promise<void> {
    const { signal } = this.#inner;
    const seconds = this.#options.traffic.timeoutMs / 1_000 + 20;
    const reported = () => [...this.#until.values()].every((each) => each.at >= at);
    if (await until(seconds, signal, reported, POLL_MS)) return;
    throw new LingerError('cluster-unreachable', 'the senders of traffic no longer report');
  }

  /** @returns which requests fail without any disturbance; undefined: none, or hardly any */
  unrest(since: number, replaced: boolean): string | undefined {
    for (const [index, { name }] of this.ways.entries()) {
      const own = this.outcomes.filter(({ way, at }) => way === index && at >= since);
      const lost = own.filter((each) => each.lost !== undefined);
      if (own.length > 0 && lost.length <= MOST_CALM_LOSS * own.length) continue;
      const kinds = new Set(lost.flatMap((each) => each.lost ?? []));
      const what =
        own.length === 0
          ? `no request through ${name} has ended`
          : `${lost.length} of ${own.length} requests through ${name} failed (${[...kinds].join(', ')})`;
      const why = [...new Set([...kinds].map((kind) => TO_CHECK[kind])), ...this.notes];
      if (replaced) why.push(STILL_FOLLOWING);
      return `${what} before anything was disturbed: ${why.join('; ')}`;
    }
    return undefined;
  }

  get notes(): readonly string[] {
    return [
      ...(this.#lateMs > LATE_MS
        ? [`a sender was busy: requests started up to ${this.#lateMs} ms late`]
        : []),
      ...[...this.#until].flatMap(([sender, { skewMs }]) => {
        const shift = shiftOf(skewMs);
        if (shift === 0) return [];
        const side = shift < 0 ? 'ahead of this one' : 'behind this one, or its reports are late';
        return `the clock of ${sender} is ${Math.abs(shift)} ms ${side}: its instants are shifted by that`;
      }),
    ];
  }

  /** By how much the clocks of nodes are behind this process's, as the first sender shows. */
  get behindMs(): number {
    const [first] = this.#until.values();
    return shiftOf(first?.skewMs ?? 0);
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    const removed = await this.#options.job?.remove();
    await this.#here.catch((thrown: unknown) => this.#options.note(asError(thrown).message));
    if (removed === false) this.#options.note('pods that sent traffic are still terminating');
  }

  #take(sender: string, { until, lateMs, outcomes }: TrafficReport, firstWay: number): void {
    const skewMs = Math.min(this.#until.get(sender)?.skewMs ?? Number.POSITIVE_INFINITY, wallClock() - until);
    const shift = shiftOf(skewMs);
    this.#until.set(sender, { at: until + shift, skewMs });
    // Delays before the first disturbance may be due to the start of a process.
    if (this.#options.lives.all.some(({ deletedAt }) => deletedAt !== undefined))
      this.#lateMs = Math.max(this.#lateMs, lateMs);
    for (const each of outcomes) {
      const at = each.at + shift;
      this.outcomes.push({ ...each, at, way: each.way + firstWay });
      if (each.lost === undefined) continue;
      this.lost += 1;
      this.lastLossAt = Math.max(this.lastLossAt, at + each.tookMs);
    }
  }
}
