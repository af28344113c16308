import type { IncomingMessage, RequestListener } from 'node:http';
import { type KubeConnection, listSome } from '../../cluster/index.ts';
import {
  authorityOf,
  FOREIGN_LIMITS,
  fewOf,
  formatDuration,
  isRecord,
  jsonIn,
} from '../../core/api/index.ts';
import { addressedPodsResource } from '../../informers/index.ts';
import { NEVER, pause } from '../../timing/index.ts';
import { type AttemptMade, type ConsumerOutcome, FLIP_LIMITS } from '../canary/flip.ts';
import { type Answer, askOnce, type Problem, problem, readShortBody, refusal } from '../requests/probe.ts';

/** Selects the pods of node timers in Linger's own namespace. */
const NODE_TIMERS = 'app.kubernetes.io/name=linger-node-timer';
const NODE_TIMER_PORT = 8447;

/** A node timer continues to make attempts for this long after they were last fetched. Milliseconds. */
const LEASE_MS = 3_000;
/** How often the leader fetches them. Milliseconds. */
const FETCH_MS = 500;
const REQUEST_MS = 5_000;
/** Attempts older than this are from an earlier flip. Milliseconds. */
const OLDEST_MS = 60_000;
const LONGEST = FOREIGN_LIMITS.attempts.bytes;
const MOST_KEPT = FOREIGN_LIMITS.attempts.parts.most;

/** Stands in place of a replica's index if the connection was refused. */
const TURNED_AWAY = -1;
const UNCLEAR = -2;

/**
 * The server of a node timer. `GET /attempts/N` returns its attempts from number N on, each with the milliseconds since it
 * began and ended, so that no clocks need to agree; and it keeps the timer trying for a few seconds. The target of attempts
 * is fixed at its start, so that a request cannot change it.
 * @param ask makes one attempt through the kube-proxy of this node
 */
export function nodeTimerApp(ask: () => Promise<Answer>, clock: () => number): RequestListener {
  let until = Number.NEGATIVE_INFINITY;
  let isTrying = false;
  let first = 0;
  let kept: readonly AttemptMade[] = [];
  const attemptOnce = async () => {
    const began = clock();
    const answer = await ask();
    const made = [...kept, { began, ended: clock(), answer }];
    first += Math.max(0, made.length - MOST_KEPT);
    kept = made.slice(-MOST_KEPT);
  };
  const keepTrying = async () => {
    isTrying = true;
    do void attemptOnce();
    while ((await pause(FLIP_LIMITS.everyMs, NEVER)) && clock() < until);
    isTrying = false;
  };
  return ({ method, url = '' }, response) => {
    const [, from] = /^\/attempts\/(\d{0,12})$/.exec(url) ?? [];
    if (method !== 'GET' || (from === undefined && url !== '/healthz'))
      return void response.writeHead(404, { connection: 'close' }).end();
    let text = '{}';
    if (from !== undefined) {
      until = clock() + LEASE_MS;
      if (!isTrying) void keepTrying();
      const next = first + kept.length;
      text = written(from === '' ? [] : kept.slice(Math.max(0, Number(from) - first)), next, clock());
    }
    const headers = { 'content-type': 'application/json', 'cache-control': 'no-store', connection: 'close' };
    response.writeHead(200, headers).end(text);
  };
}

function written(attempts: readonly AttemptMade[], next: number, now: number): string {
  const replicas = [...new Set(attempts.flatMap(({ answer }) => answer.identity ?? []))];
  const rows = attempts.map(({ began, ended, answer }) => [
    Math.round(now - began),
    Math.round(now - ended),
    answer.identity === undefined ? codeOf(answer) : replicas.indexOf(answer.identity),
  ]);
  return JSON.stringify({ next, replicas, attempts: rows });
}

const codeOf = ({ turnedAway }: Problem) => (turnedAway ? TURNED_AWAY : UNCLEAR);

interface Fetched {
  readonly next: number;
  readonly made: readonly AttemptMade[];
}

/** @returns a function that fetches the attempts that a node timer has made since its last call; never throws */
export function attemptsOf(
  { address }: Pick<NodeTimer, 'address'>,
  { clock, timeoutMs, port }: { clock: () => number; timeoutMs: number; port: number },
): () => Promise<readonly AttemptMade[]> {
  let from: number | undefined;
  return async () => {
    const sentAt = clock();
    const url = new URL(`http://${authorityOf(address, port)}/attempts/${from ?? ''}`);
    const asked = { url, to: { host: address }, headers: { accept: 'application/json' }, timeoutMs };
    const body = await askOnce<{ readonly text: string }>(asked, 'answer', readAttempts);
    const span = { sentAt, receivedAt: clock() };
    const fetched = 'reason' in body ? body : attemptsIn(body.text, span);
    if ('reason' in fetched) {
      // No attempt was made, so this says nothing about the replica, even if there is no other that could have answered.
      const answer = { ...fetched, turnedAway: false };
      return [{ began: sentAt, ended: span.receivedAt, answer }];
    }
    from = fetched.next;
    return fetched.made;
  };
}

const REFUSED = problem('Unreachable', 'is refused a connection', true);
const SILENT = problem('Unreachable', 'gets no useful answer');
const STRANGE = problem('BadAnswer', 'is answered by no node timer');

const TOO_LONG = problem('BadAnswer', `is answered with more than ${LONGEST >> 10} KiB`);

function readAttempts(
  response: IncomingMessage,
  settle: (outcome: { text: string } | Problem) => void,
): void {
  const { statusCode = 0 } = response;
  if (statusCode !== 200) settle(refusal(statusCode));
  else readShortBody(response, LONGEST, (text) => settle(text === undefined ? TOO_LONG : { text }));
}

/** @param span of the request; the node timer's "now" lies within it */
export function attemptsIn(
  text: string,
  { sentAt, receivedAt }: { readonly sentAt: number; readonly receivedAt: number },
): Fetched | Problem {
  const json = jsonIn(text);
  if (!isRecord(json) || !Number.isSafeInteger(json.next)) return STRANGE;
  const { next, replicas, attempts } = json;
  if (!Array.isArray(replicas) || !Array.isArray(attempts) || attempts.length > MOST_KEPT) return STRANGE;
  const made = attempts.flatMap((row: unknown): AttemptMade[] => {
    const [began, ended, who] = Array.isArray(row) ? (row as unknown[]) : [];
    if (!isAge(began) || !isAge(ended) || typeof who !== 'number') return [];
    const identity: unknown = replicas[who];
    const answer = typeof identity === 'string' ? { identity } : who === TURNED_AWAY ? REFUSED : SILENT;
    return [{ began: sentAt - began, ended: receivedAt - ended, answer }];
  });
  return { next: next as number, made };
}

function isAge(value: unknown): value is number {
  return typeof value === 'number' && value >= 0 && value <= OLDEST_MS;
}

/** A pod of the DaemonSet linger-node-timer. */
export interface NodeTimer {
  readonly node: string;
  readonly name: string;
  readonly uid: string;
  readonly address: string;
}

/** How many nodes are timed in a flip: each costs 40 connections a second, which the replicas answer. */
const MOST_TIMED = 16;
/** How many of them are reserved for the slowest nodes, which are timed in every flip however many nodes there are. */
const SLOWEST_TIMED = 8;
/** For how many flips the lags of each node are kept. */
const REMEMBERED = 8;
const MOST_NODES = 10_000;
/** The list of pods is renewed after a minute, or after one second per node if that is longer. Milliseconds. */
const LIST = { everyMs: 60_000, eachMs: 1_000 };
/**
 * The displayed lag of a node changes only if it has moved by more than this, so that a status is not rewritten for noise.
 * Seconds.
 */
const MOVED = { share: 0.2, seconds: 0.05 };

interface NodeTimersOptions {
  readonly connection: KubeConnection;
  /** Linger's own. */
  readonly namespace: string;
  readonly clock: () => number;
  readonly signal: AbortSignal;
  /** Default: {@link NODE_TIMER_PORT}. */
  readonly port?: number | undefined;
}

/** The kube-proxies of other nodes, timed by the DaemonSet linger-node-timer, if it is installed. */
export class NodeTimers {
  readonly #options: NodeTimersOptions;
  #known: readonly NodeTimer[] = [];
  #listedAt = Number.NEGATIVE_INFINITY;
  /** Nodes in the order in which they were last timed. */
  readonly #tried = new Set<string>();
  /** Latest lags in seconds, by node. */
  readonly #lags = new Map<string, readonly number[]>();
  readonly #silent = new Map<string, string>();
  #shown: { readonly node: string; readonly lag: number } | undefined;

  constructor(options: NodeTimersOptions) {
    this.#options = options;
  }

  /** The nodes to time in this flip: the slowest ones, and of the others those that were timed least recently. */
  async chosen(): Promise<readonly NodeTimer[]> {
    await this.#list();
    const slowest = this.#bySlowness().slice(0, SLOWEST_TIMED);
    const turns = new Map([...this.#tried].map((node, turn) => [node, turn]));
    const turnOf = ({ node }: NodeTimer) => turns.get(node) ?? -1;
    const others = this.#known
      .filter(({ node }) => !slowest.includes(node))
      .toSorted((a, b) => turnOf(a) - turnOf(b));
    const first = this.#known.filter(({ node }) => slowest.includes(node));
    const chosen = [...first, ...others].slice(0, MOST_TIMED);
    for (const { node } of chosen) {
      this.#tried.delete(node);
      this.#tried.add(node);
    }
    return chosen;
  }

  /** How to make attempts through the kube-proxy of a node. */
  timed(timer: NodeTimer, timeoutMs: number) {
    const { clock, port = NODE_TIMER_PORT } = this.#options;
    const name = `cluster-ip on ${timer.node}`;
    const subject = `From node ${timer.node}, a connection to the ClusterIP of linger-canary`;
    return { name, subject, ask: attemptsOf(timer, { clock, timeoutMs, port }), fetchMs: FETCH_MS };
  }

  /**
   * The outcome for the slowest node.
   * @param own the outcome for the leader's node
   * @param timers the outcomes for the other nodes; undefined: the flip has none for it
   */
  async slowest(
    own: ConsumerOutcome,
    timers: readonly (readonly [NodeTimer, ConsumerOutcome | undefined])[],
  ): Promise<ConsumerOutcome> {
    let slowest = own;
    const order = (outcome: ConsumerOutcome | undefined) =>
      outcome?.trouble?.reason === 'Implausible' ? Number.POSITIVE_INFINITY : (outcome?.removal ?? -1);
    for (const [timer, outcome] of timers.toSorted(([, a], [, b]) => order(b) - order(a))) {
      if (outcome?.removal === undefined && outcome?.trouble === undefined) continue;
      const isSlower = order(outcome) > order(slowest);
      // Another pod may have got the address in the meantime; its answers must not make the lag longer.
      const gone = isSlower ? await this.#whyGone(timer) : undefined;
      if (gone !== undefined) {
        this.#silent.set(timer.node, gone);
        continue;
      }
      this.#remember(timer.node, outcome);
      if (isSlower) slowest = outcome;
    }
    const additions = [own, ...timers.map(([, outcome]) => outcome)].flatMap((each) => each?.addition ?? []);
    if (slowest.removal === undefined) return slowest;
    return {
      removal: slowest.removal,
      addition: additions.length === 0 ? undefined : Math.max(...additions),
    };
  }

  /** What the numbers cover, as a sentence; undefined: only the leader's node. */
  get limit(): string | undefined {
    if (this.#known.length === 0) return undefined;
    const of = `${this.#lags.size} of ${this.#known.length} nodes`;
    const said = [`It sees the kube-proxies of ${of}, which the DaemonSet linger-node-timer times.`];
    if (this.#shown !== undefined) {
      const { node, lag } = this.#shown;
      said.push(`The slowest is ${node}: up to ${formatDuration(Math.round(lag * 100) / 100)}.`);
    }
    const silent = [...this.#silent].toSorted().map(([each, why]) => `${each} (${why})`);
    if (silent.length > 0) said.push(`Not timed, and possibly slower: ${fewOf(silent)}.`);
    return said.join(' ');
  }

  #remember(node: string, { removal, trouble }: ConsumerOutcome): void {
    const lags = this.#lags.get(node) ?? [];
    this.#lags.delete(node);
    if (removal === undefined) this.#silent.set(node, trouble?.message ?? 'not seen');
    else {
      this.#silent.delete(node);
      this.#lags.set(node, [...lags, removal].slice(-REMEMBERED));
    }
    // Without sorting, because there may be thousands of nodes, and this is called for each that was timed.
    let slowest: string | undefined;
    for (const each of this.#lags.keys())
      if (slowest === undefined || this.#slownessOf(each) > this.#slownessOf(slowest)) slowest = each;
    const lag = slowest === undefined ? 0 : this.#slownessOf(slowest);
    const isAsShown = (seconds: number) => {
      const shown = this.#shown?.lag ?? Number.NaN;
      return Math.abs(seconds - shown) <= Math.max(MOVED.seconds, MOVED.share * shown);
    };
    if (isAsShown(lag) && isAsShown(this.#slownessOf(this.#shown?.node ?? ''))) return;
    this.#shown = slowest === undefined ? undefined : { node: slowest, lag };
  }

  #slownessOf(node: string): number {
    return Math.max(0, ...(this.#lags.get(node) ?? []));
  }

  #bySlowness(): readonly string[] {
    return [...this.#lags.keys()].toSorted((a, b) => this.#slownessOf(b) - this.#slownessOf(a));
  }

  /** If listing fails, the known pods are kept. */
  async #list(): Promise<void> {
    const { clock } = this.#options;
    if (clock() - this.#listedAt < Math.max(LIST.everyMs, LIST.eachMs * this.#known.length)) return;
    this.#listedAt = clock();
    this.#known = (await this.#pods({ labelSelector: NODE_TIMERS })) ?? this.#known;
    const nodes = new Set(this.#known.map(({ node }) => node));
    for (const known of [this.#lags, this.#silent, this.#tried])
      for (const node of known.keys()) if (!nodes.has(node)) known.delete(node);
  }

  /** Why the address may no longer belong to the node timer; undefined: it still does. */
  async #whyGone({ name, uid, address }: NodeTimer): Promise<string | undefined> {
    const pods = await this.#pods({ fieldSelector: `metadata.name=${name}` });
    if (pods === undefined) return 'its pod may have been replaced: the API server does not answer';
    const isStill = pods.some((each) => each.uid === uid && each.address === address);
    return isStill ? undefined : 'its pod was replaced';
  }

  /** @returns undefined if the API server does not answer */
  async #pods(query: { labelSelector?: string; fieldSelector?: string }) {
    const { connection, namespace, signal } = this.#options;
    const resource = addressedPodsResource(`/api/v1/namespaces/${namespace}/pods`, query);
    const pods = listSome(resource, connection, { signal, answerMs: REQUEST_MS, most: MOST_NODES });
    const known = await pods.catch(() => undefined);
    return known?.flatMap(({ node, address, ...pod }) =>
      node && address ? [{ ...pod, node, address }] : [],
    );
  }
}
