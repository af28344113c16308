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
  /** They run. */
  readonly lives: PodLives;
  /** Sends from pods of the cluster. */
  readonly job: TrafficJob | undefined;
  /** Through which requests are sent from this process. */
  readonly fromHere: readonly Way[];
  readonly traffic: Pick<TrafficPlan, 'rate' | 'timeoutMs' | 'method' | 'headers'>;
  /** Nothing has been replaced before: its pods and its Service are new. */
  readonly fresh: boolean;
  readonly slowMs: number;
  /** Seconds before the disturbance, without a loss after it until all counts as quiet, and at most from it to the end. */
  readonly calm: number;
  readonly quiet: number;
  readonly longest: number;
  readonly signal: AbortSignal;
  /** One line about what happens. */
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

/** A closed connection stays in conntrack for so long (nf_conntrack_tcp_timeout_time_wait and _syn_sent). */
const CONNTRACK_MS = 120_000;
const POLL_MS = 250;
/** How long what has just begun may take until all requests succeed: three polls of a gateway that does so every 10 s. */
const FOLLOW_MS = 30_000;
/** A share of failures before anything is disturbed that makes the rest meaningless. */
const MOST_CALM_LOSS = 0.02;
const NOISE = 'if that goes on, it looks like a late gateway, and the advised wait is too long';
/** Beyond this the sender and not what it measures may be why a request came late. */
const LATE_MS = 250;
/** A difference of clocks that would change what a loss is blamed on; below it, reports may just be late. */
const SKEW_MS = 500;
const shiftOf = (skewMs: number) => (Math.abs(skewMs) > SKEW_MS && skewMs < 1e12 ? Math.round(skewMs) : 0);
const UNDO_MS = 30_000;
const NOTE_MS = 5_000;

/**
 * Sends traffic, disturbs the workload once, waits until all is quiet, removes what it made and says what was lost.
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
      // Since it was read, an autoscaler may have changed it: the question may have stood for long.
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
    // New pods may not have reached kube-proxy and the gateways yet.
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
    // Since the request, pods may have gone, and another rollout may have begun.
    await refuseUnsafe({ ...options, workload: await access.read(inner.signal), signal: inner.signal });
    note(`${fullName(workload)}: ${wordsOf(disturbance)}`);
    const disturbedAt = wallClock();
    await disturb(options, disturbedAt, undo, inner.signal);
    const whole = await untilQuiet(options, traffic, disturbedAt, inner.signal);
    const endedAt = wallClock();
    await traffic.reachesBy(endedAt);
    const pods = lives.all.filter(({ deletedAt = endedAt, goneAt = deletedAt }) => goneAt >= startedAt);
    // By the clock of its node until now.
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
    // In reverse, all of them, also after a failure and an interruption.
    for (const each of undo.toReversed()) {
      const problem = await problemOfUndoing(each);
      if (problem !== undefined) note(`could not undo: ${problem}`);
    }
    inner.abort();
  }
}

/** Nodes report whole seconds: an end within the second before the deletion came with it, or after. */
export function endOf(endedAt: number, deletedAt: number | undefined): number {
  const isCut = deletedAt !== undefined && endedAt < deletedAt && endedAt > deletedAt - 1_000;
  return isCut ? deletedAt : endedAt;
}

/** Tries again for a while: an API server that is away for a moment must leave no node cordoned. */
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

/** Where requests fail without any disturbance. */
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

/** @throws LingerError `prove-refused` for what would leave no pod to serve, or what a budget forbids */
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
      // As kubectl drain does: what a budget forbids now may be allowed once a replacement is ready.
      const evicted = await until(secondsLeft(longest, now), signal, async () => {
        forbidden = await access.evict(pod, signal);
        return forbidden === undefined;
      });
      if (!evicted) throw refusal(`eviction of pod ${pod} still forbidden after ${longest}s: ${forbidden}`);
    }
  }
}

/** Evictions that a budget holds up count, too: senders do not go on for ever. */
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
 * @returns false when it is not quiet in the time that there is
 */
function untilQuiet(
  { access, disturbance, lives, quiet, longest, note }: ProveOptions,
  traffic: Traffic,
  disturbedAt: number,
  signal: AbortSignal,
): Promise<boolean> {
  let settledAt: number | undefined;
  let noted = disturbedAt;
  // A drained node is still cordoned, so that a replacement may have no place: then only the old pods matter.
  const settled = async () => {
    if (disturbance.type === 'drain') return true;
    const state = await access.read(signal).catch(() => undefined);
    // Otherwise an autoscaler may change their number.
    return state?.settled === true && (disturbance.type !== 'scale' || state.replicas === disturbance.to);
  };
  return until(secondsLeft(longest, disturbedAt), signal, async () => {
    const begun = lives.all.some(({ deletedAt = 0 }) => deletedAt >= disturbedAt);
    // One that hangs since before, such as on a dead node, may do so for ever.
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
  /** By sender: until when it has reported everything, and by how much its clock is behind ours at most. */
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

  /** Waits until every sender has reported all that began before. */
  async reachesBy(at: number): Promise<void> {
    const { signal } = this.#inner;
    const seconds = this.#options.traffic.timeoutMs / 1_000 + 20;
    const reported = () => [...this.#until.values()].every((each) => each.at >= at);
    if (await until(seconds, signal, reported, POLL_MS)) return;
    throw new LingerError('cluster-unreachable', 'the senders of traffic no longer report');
  }

  /** @returns which requests fail without any disturbance; undefined: none, or next to none */
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

  /** By how much the clocks of the nodes are behind ours, as the first sender shows. */
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
    // What happens before the first disturbance may be the start of a process.
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
