import { Counter, Histogram, type Registry } from '@prometheus-io/client';
import { isRecord, memberAt, plainSleep } from '../api/index.ts';
import {
  ask,
  type KubeConnection,
  newAgent,
  type ObjectEvents,
  type PodMetadata,
  type ResourceEvent,
  readText,
} from '../cluster/index.ts';
import { parsePlan } from '../decision/index.ts';
import type { RemovalSample } from '../lag/index.ts';
import { type Logger, LogOnce } from '../telemetry/index.ts';
import { RateLimit } from '../timing/index.ts';
import { type Shortfall, ShortfallLog, shortfallOf } from './shortfalls.ts';

interface AfterwardsOptions {
  readonly connection: KubeConnection;
  readonly registry: Registry;
  readonly logger: Logger;
  readonly events: ObjectEvents;
  /** Whether this replica tells: one does. */
  readonly leads: () => boolean;
  /** Milliseconds, monotonic. */
  readonly clock: () => number;
  readonly epochSeconds: () => number;
  readonly signal: AbortSignal;
}

/** What a terminating pod carried. */
interface Stopping extends Pick<PodMetadata, 'stopping'> {
  grace: number | undefined;
}

const OUTCOMES = {
  InTime: 'Its process was stopped after the last list had withdrawn it.',
  TooEarly: 'Its process was stopped before: see the shortfall.',
  Unknown: 'How long its hook waits cannot be told, or whether it has one.',
} as const;
type Outcome = keyof typeof OUTCOMES;

/** Terminating pods whose removal is not over; more than the recorder follows would be forgotten there first. */
const MOST_STOPPING = 50_000;
/** Workloads whose own hooks are known. */
const MOST_KNOWN = 1_000;
/** Questions for a workload's own hooks: a storm must not become one of requests. */
const QUESTIONS = { perSecond: 2, atOnce: 20 };
const ANSWER_MS = 5_000;
/** A template of a thousand containers. */
const LONGEST_TEMPLATE = 3 * 1024 * 1024;

const SHORTFALL_SECONDS = [0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300, 600];

/**
 * Knows afterwards: holds every removal against what the pod's hook waited, tells of those that were stopped too early, and
 * remembers them. Pods of Hold are the Hold Service's to tell of.
 */
export class Afterwards {
  readonly log = new ShortfallLog();
  readonly #options: AfterwardsOptions;
  readonly #stopping = new Map<string, Stopping>();
  /** By workload: the shortest of its containers' own hooks; undefined: it cannot be told. */
  readonly #ownHooks = new Map<string, Promise<number | undefined>>();
  readonly #agent: ReturnType<typeof newAgent>;
  readonly #once: LogOnce;
  readonly #metrics: ReturnType<typeof registerTerminationMetrics>;
  readonly #questions: RateLimit;

  constructor(options: AfterwardsOptions) {
    const { connection, registry, logger, clock, signal } = options;
    this.#options = options;
    this.#agent = newAgent(connection, 1);
    this.#once = new LogOnce(logger);
    this.#metrics = registerTerminationMetrics(registry);
    this.#questions = new RateLimit(QUESTIONS, clock());
    signal.addEventListener('abort', () => this.#agent.destroy(), { once: true });
  }

  /** To be called with each event of the pods' watch. */
  pod(event: ResourceEvent<PodMetadata>): void {
    if (event.type === 'deleted') return;
    const { uid, stopping, deletionGracePeriodSeconds: grace } = event.object;
    if (stopping === undefined) return;
    const known = this.#stopping.get(uid);
    if (known !== undefined) {
      // A second delete can only shorten it.
      if (grace !== undefined) known.grace = Math.min(grace, known.grace ?? grace);
      return;
    }
    this.#stopping.set(uid, { stopping, grace });
    if (this.#stopping.size > MOST_STOPPING) this.#stopping.delete(this.#stopping.keys().next().value ?? '');
  }

  /** To be called with each removal that is over. Never throws. */
  async removed(sample: RemovalSample): Promise<void> {
    const { clock, epochSeconds, signal } = this.#options;
    const endedAt = epochSeconds() - Math.max(0, clock() - sample.at) / 1000;
    const pod = this.#stopping.get(sample.uid);
    this.#stopping.delete(sample.uid);
    if (pod?.stopping === undefined) return this.#count('Unknown');
    const { plan: text, owner, controller } = pod.stopping;
    const plan = parsePlan(text ?? '');
    if (plan !== undefined && plan.hook !== 'Sleep' && plan.hook !== 'Exec') return;
    const asks = plan === undefined && this.#options.leads();
    const own = asks ? this.#ownHookOf(sample.namespace, controller, sample.pod) : undefined;
    const wait = plan === undefined ? await own?.catch(() => undefined) : plan.wait;
    if (signal.aborted) return;
    const shortfall = shortfallOf(sample, { owner: owner ?? '', wait, grace: pod.grace }, endedAt);
    if (shortfall === undefined) return this.#count(wait === undefined ? 'Unknown' : 'InTime');
    this.#count('TooEarly');
    this.#metrics.seconds.observe(shortfall.seconds);
    if (this.#options.leads()) this.#tell(shortfall);
  }

  #count(outcome: Outcome): void {
    this.#metrics.terminations.inc({ outcome });
  }

  #tell(shortfall: Shortfall): void {
    const { logger, events } = this.#options;
    const { namespace, pod, owner, wait, lag, seconds, services } = shortfall;
    this.log.add(shortfall);
    const members = { namespace, pod, owner, wait, lag: rounded(lag), seconds: rounded(seconds), services };
    logger.warn(members, 'a pod was stopped before it had been withdrawn');
    const [kind = 'Pod', name = pod] = owner === '' ? [] : owner.split('/');
    events.tell({
      object: { kind, namespace, name },
      type: 'Warning',
      reason: 'StoppedTooEarly',
      action: 'Terminate',
      note: `Pod ${pod} got SIGTERM ${wait === 0 ? 'at once' : `after ${wait}s`}, and ${services.join(', ')} listed it for ${rounded(lag)}s: for ${rounded(seconds)}s requests may have been lost.`,
    });
  }

  /** A pod without a plan may have a hook of its author's. The template is asked for once for each workload. */
  #ownHookOf(namespace: string, controller: string | undefined, pod: string): Promise<number | undefined> {
    const path = templatePath(namespace, controller, pod);
    if (path === undefined) return Promise.resolve(undefined);
    const known = this.#ownHooks.get(path);
    if (known !== undefined) return known;
    if (!this.#questions.take(this.#options.clock())) return Promise.resolve(undefined);
    const asked = this.#askForHook(path);
    this.#ownHooks.set(path, asked);
    // What could not be read is asked for again.
    asked.catch((error: unknown) => {
      this.#ownHooks.delete(path);
      this.#once.warn(
        'templates',
        { path, problem: String(error) },
        'the hooks of a workload cannot be read',
      );
    });
    if (this.#ownHooks.size > MOST_KNOWN) this.#ownHooks.delete(this.#ownHooks.keys().next().value ?? '');
    return asked;
  }

  async #askForHook(path: string): Promise<number | undefined> {
    const { connection, signal } = this.#options;
    const response = await ask(connection, { path, agent: this.#agent, signal, answerMs: ANSWER_MS });
    const object: unknown = JSON.parse(await readText(response, LONGEST_TEMPLATE, ANSWER_MS));
    this.#once.over('templates', {}, 'the hooks of workloads can be read');
    const template = memberAt(object, ['spec', 'template', 'spec']) ?? memberAt(object, ['spec']);
    return shortestHookIn(template);
  }
}

/** What is asked for its pod template: what made the pod, or the pod itself. undefined: a kind that nobody has let us read. */
function templatePath(namespace: string, controller: string | undefined, pod: string): string | undefined {
  const of = (plural: string, name: string) => `/apis/apps/v1/namespaces/${namespace}/${plural}/${name}`;
  if (controller === undefined) return `/api/v1/namespaces/${namespace}/pods/${pod}`;
  const [kind, name = ''] = controller.split('/');
  if (kind === 'ReplicaSet') return of('replicasets', name);
  if (kind === 'StatefulSet') return of('statefulsets', name);
  return kind === 'DaemonSet' ? of('daemonsets', name) : undefined;
}

/** Containers are stopped side by side: the first one that stops loses requests. */
function shortestHookIn(spec: unknown): number | undefined {
  const containers: unknown = isRecord(spec) ? spec.containers : undefined;
  if (!Array.isArray(containers)) return undefined;
  const waits = containers.map((container: unknown) => {
    const handler = memberAt(container, ['lifecycle', 'preStop']);
    if (!isRecord(handler)) return 0;
    return plainSleep(handler)?.seconds;
  });
  const shortest = Math.min(...waits.map((wait) => wait ?? Number.POSITIVE_INFINITY));
  // One without a hook stops at once, whatever the others do.
  return shortest === 0 || waits.every((wait) => wait !== undefined) ? shortest : undefined;
}

function rounded(seconds: number): number {
  return Math.round(seconds * 10) / 10;
}

export function registerTerminationMetrics(registry: Registry) {
  const terminations = new Counter({
    name: 'linger_terminations_total',
    help: 'Pods whose removal this replica has seen from beginning to end, by whether they were stopped in time.',
    labelNames: ['outcome'] as const,
    registers: [registry],
  });
  for (const outcome of Object.keys(OUTCOMES)) terminations.inc({ outcome }, 0);
  const seconds = new Histogram({
    name: 'linger_shortfall_seconds',
    help: 'For how long pods that were stopped too early were still listed.',
    buckets: SHORTFALL_SECONDS,
    registers: [registry],
  });
  return { terminations, seconds };
}
