import { Counter, Histogram, type Registry } from '@prometheus-io/client';
import { isRecord, memberAt, plainSleep } from '../api/index.ts';
import {
  ask,
  type KubeConnection,
  listSome,
  newAgent,
  type ObjectEvents,
  ownersOf,
  type PodMetadata,
  type Resource,
  type ResourceEvent,
  readText,
} from '../cluster/index.ts';
import { type NodeFacts, parsePlan } from '../decision/index.ts';
import type { HeldPod, Release } from '../hold/index.ts';
import { type RemovalSample, setNewest } from '../lag/index.ts';
import { canonicalAddress } from '../measurement/index.ts';
import { type Logger, LogOnce } from '../telemetry/index.ts';
import { RateLimit } from '../timing/index.ts';
import { pathOf, WORKLOAD_KINDS } from './kinds.ts';
import {
  sentenceOf,
  shortfallOf,
  slowStopOf,
  TERMINATION_FINDINGS,
  type TerminationFinding,
  type TerminationLog,
} from './terminations.ts';

interface AfterwardsOptions {
  readonly log: TerminationLog;
  readonly connection: KubeConnection;
  readonly registry: Registry;
  readonly logger: Logger;
  readonly events: ObjectEvents;
  /** Since when this replica leads, by the clock; undefined: it does not. Only the leader reports. */
  readonly leadsSince: () => number | undefined;
  readonly nodes: () => readonly NodeFacts[];
  /** A pod with hook Hold, until the watch shows that it is gone. */
  readonly held: (uid: string) => Pick<HeldPod, 'calledAt' | 'releasedAt'> | undefined;
  /** Milliseconds, monotonic. */
  readonly clock: () => number;
  readonly epochSeconds: () => number;
  readonly signal: AbortSignal;
}

/** What a terminating pod carried. */
interface Stopping extends Pick<PodMetadata, 'plan' | 'controller' | 'owner'> {
  /** When the deletion showed. */
  readonly at: number;
  grace: number | undefined;
  /** Whether one of the two has happened: its removal is over, or the pod is gone. */
  half: boolean;
}

/** Of `Unknown` pods it is not known whether they have a hook, or how long that waits. */
const OUTCOMES = ['InTime', 'TooEarly', 'Unknown'] as const;

/** As many terminating pods as the recorder follows removals. */
const MOST_STOPPING = 50_000;
/** Workloads whose own hooks are known. */
const MOST_KNOWN = 1_000;
/** Requests for workloads' hooks and for the owners of addresses: a storm of removals must not become one of requests. */
const QUESTIONS = { perSecond: 2, atOnce: 20 };
const ANSWER_MS = 5_000;
/** How many addresses that connected to a pod are named. */
const MOST_PEERS = 5;
/** Enough for a template with a thousand containers. */
const LONGEST_TEMPLATE = 3 * 1024 * 1024;

const SHORTFALL_SECONDS = [0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300, 600];

/**
 * Judges each pod's termination in retrospect, reports it by log, metrics and Events, and remembers it. Every removal is
 * compared with the wait of the pod's hook, and every end with the application's own time; for held pods, the Hold Service
 * adds who still connected.
 */
export class Afterwards {
  readonly #options: AfterwardsOptions;
  readonly #stopping = new Map<string, Stopping>();
  /** By workload: the shortest of its containers' own hooks; undefined: not known. */
  readonly #ownHooks = new Map<string, Promise<number | undefined>>();
  readonly #agent: ReturnType<typeof newAgent>;
  readonly #once: LogOnce;
  readonly #metrics: ReturnType<typeof registerTerminationMetrics>;
  readonly #questions: RateLimit;

  constructor(options: AfterwardsOptions) {
    const { connection, registry, logger, clock, signal } = options;
    this.#options = options;
    this.#agent = newAgent(connection, 1, signal);
    this.#once = new LogOnce(logger);
    this.#metrics = registerTerminationMetrics(registry);
    this.#questions = new RateLimit(QUESTIONS, clock());
  }

  /** To be called with each event of the pods' watch. */
  pod(event: ResourceEvent<PodMetadata>): void {
    if (event.type === 'deleted') {
      // A pod that vanished unseen may have been gone for long.
      if (!event.relist) this.#gone(event.object, event.at);
      return;
    }
    const { uid, plan, controller, owner, deletionGracePeriodSeconds: grace } = event.object;
    if (event.object.deletionTimestamp === undefined) return;
    const known = this.#stopping.get(uid);
    if (known !== undefined) {
      // A second deletion can only shorten the grace.
      if (grace !== undefined) known.grace = Math.min(grace, known.grace ?? grace);
      return;
    }
    const stopping = { plan, controller, owner, grace, at: event.at, half: false };
    setNewest(this.#stopping, uid, stopping, MOST_STOPPING);
  }

  /** To be called with each removal that is over. Never throws. */
  async removed(sample: RemovalSample): Promise<void> {
    const { clock, epochSeconds, signal } = this.#options;
    const endedAt = epochSeconds() - Math.max(0, clock() - sample.at) / 1000;
    const pod = this.#pass(sample.uid);
    if (pod === undefined) return this.#count('Unknown');
    const { owner = '', controller, grace } = pod;
    const plan = parsePlan(pod.plan ?? '');
    if (plan?.hook === 'Hold') return;
    const wait = plan?.wait ?? (await this.#ownHookOf(sample.namespace, controller, sample.pod));
    if (signal.aborted) return;
    const shortfall = shortfallOf(sample, { owner, wait, grace }, endedAt);
    if (shortfall === undefined) return this.#count(wait === undefined ? 'Unknown' : 'InTime');
    this.#count('TooEarly');
    this.#metrics.seconds.observe(shortfall.seconds);
    this.#tell(shortfall);
  }

  /** To be called with each pod whose Hold hooks have been released. Never throws. */
  async released({ pod, open = 0, undeclared }: Release): Promise<void> {
    if (pod.deletion === undefined) return;
    const { owner } = this.#stopping.get(pod.uid) ?? {};
    const told = aboutEnd({ ...pod, owner }, this.#options.epochSeconds());
    if (open > 0) this.#tell({ ...told, reason: 'OpenAtStop', seconds: 0, connections: open });
    if (undeclared === undefined) return;
    const { connections, seconds, remotes } = undeclared;
    const from = await Promise.all(remotes.slice(0, MOST_PEERS).map((address) => this.#named(address)));
    if (this.#options.signal.aborted) return;
    this.#tell({ ...told, reason: 'UndeclaredConsumer', seconds, connections, from });
  }

  #gone(pod: PodMetadata, at: number): void {
    const { held: heldPod, leadsSince, clock, epochSeconds } = this.#options;
    const stopping = this.#pass(pod.uid);
    const plan = parsePlan(stopping?.plan ?? '');
    if (stopping === undefined || plan === undefined || plan.wait === 0) return;
    const epochAt = (instant: number) => epochSeconds() - (clock() - instant) / 1000;
    const held = heldPod(pod.uid);
    // Calls from before this replica led are known only to the previous leader.
    if (plan.hook === 'Hold' && held?.calledAt === undefined) {
      const since = leadsSince() ?? Number.POSITIVE_INFINITY;
      const seconds = (at - stopping.at) / 1000;
      if (held !== undefined && since < stopping.at)
        this.#tell({ ...aboutEnd(pod, epochAt(stopping.at)), reason: 'HoldUnreachable', seconds });
      return;
    }
    const waited = Math.min(plan.wait, stopping.grace ?? plan.wait);
    const stoppedAt = plan.hook === 'Hold' ? held?.releasedAt : stopping.at + waited * 1000;
    if (stoppedAt === undefined) return;
    const seconds = slowStopOf({
      ...{ deletedAt: stopping.at / 1000, stoppedAt: stoppedAt / 1000, goneAt: at / 1000 },
      ...{ grace: stopping.grace, planned: plan },
    });
    if (seconds !== undefined)
      this.#tell({ ...aboutEnd(pod, epochAt(stoppedAt)), reason: 'SlowStop', seconds });
  }

  /** One of the two awaited events has happened. */
  #pass(uid: string): Stopping | undefined {
    const stopping = this.#stopping.get(uid);
    if (stopping?.half) this.#stopping.delete(uid);
    else if (stopping !== undefined) stopping.half = true;
    return stopping;
  }

  get #leads(): boolean {
    return this.#options.leadsSince() !== undefined;
  }

  #count(outcome: (typeof OUTCOMES)[number]): void {
    this.#metrics.terminations.inc({ outcome });
  }

  #tell(finding: TerminationFinding): void {
    if (!this.#leads) return;
    const { log, logger, events } = this.#options;
    const { reason, namespace, pod, uid: _, at: __, owner, ...numbers } = finding;
    log.add(finding);
    this.#metrics.findings.inc({ reason });
    // Clients that keep connections open are common.
    const isBad = reason !== 'OpenAtStop';
    const members = { reason, namespace, pod, owner, ...numbers };
    if (isBad) logger.warn(members, 'something has gone wrong at the end of a pod');
    else logger.info(members, 'connections were open at the end of a pod');
    const [kind = 'Pod', name = pod] = owner === '' ? [] : owner.split('/');
    events.tell({
      object: { kind, namespace, name },
      type: isBad ? 'Warning' : 'Normal',
      reason,
      action: 'Terminate',
      note: sentenceOf(finding),
    });
  }

  /** An address and its owner, if known: `10.0.0.7 (infra/gateway-1 of Deployment/gateway)`, `10.0.0.1 (node worker-3)`. */
  async #named(address: string): Promise<string> {
    const [asked, nodes] = [canonicalAddress(address), this.#options.nodes()];
    const node = nodes.find(({ addresses }) => addresses.some((each) => canonicalAddress(each) === asked));
    if (node !== undefined) return `${address} (node ${node.name})`;
    if (!this.#leads || !this.#questions.take(this.#options.clock())) return address;
    const { connection, signal } = this.#options;
    const call = { signal, answerMs: ANSWER_MS, most: 2 };
    try {
      const [pod, ...others] = await listSome(podsAt(address), connection, call);
      this.#once.over('peers', {}, 'it can be asked again whose an address is');
      // Pods in the node's network share its address.
      return pod === undefined || others.length > 0 ? address : `${address} (${pod})`;
    } catch (error) {
      if (!signal.aborted)
        this.#once.warn('peers', { problem: String(error) }, 'it cannot be asked whose an address is');
      return address;
    }
  }

  /** A pod without a plan may have its author's hook. The template is requested once per workload. */
  async #ownHookOf(
    namespace: string,
    controller: string | undefined,
    pod: string,
  ): Promise<number | undefined> {
    const path = templatePath(namespace, controller ?? `Pod/${pod}`);
    if (path === undefined || !this.#leads) return undefined;
    const known = this.#ownHooks.get(path);
    if (known !== undefined) return known;
    if (!this.#questions.take(this.#options.clock())) return undefined;
    const asked = this.#askForHook(path);
    setNewest(this.#ownHooks, path, asked, MOST_KNOWN);
    return asked;
  }

  async #askForHook(path: string): Promise<number | undefined> {
    const { connection, signal } = this.#options;
    try {
      const response = await ask(connection, { path, agent: this.#agent, signal, answerMs: ANSWER_MS });
      const object: unknown = JSON.parse(await readText(response, LONGEST_TEMPLATE, ANSWER_MS));
      this.#once.over('templates', {}, 'the hooks of workloads can be read');
      return shortestHookIn(memberAt(object, ['spec', 'template', 'spec']) ?? memberAt(object, ['spec']));
    } catch (error) {
      // A failed request is repeated the next time.
      this.#ownHooks.delete(path);
      const members = { path, problem: String(error) };
      this.#once.warn('templates', members, 'the hooks of a workload cannot be read');
      return undefined;
    }
  }
}

function aboutEnd(
  { uid, namespace, name, owner = '' }: Pick<PodMetadata, 'uid' | 'namespace' | 'name' | 'owner'>,
  at: number,
) {
  return { at, namespace, pod: name, uid, owner };
}

/** The pods with this address, in words. */
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

/** What a pod's template is read from: its controller, or, where it has none, the pod itself. */
const TEMPLATE_KINDS = WORKLOAD_KINDS.filter(({ kind }) =>
  ['Pod', 'ReplicaSet', 'StatefulSet', 'DaemonSet'].includes(kind),
);

/** @returns undefined for a kind that Linger may not read */
function templatePath(namespace: string, owner: string): string | undefined {
  const [kind, name] = owner.split('/');
  const of = TEMPLATE_KINDS.find((each) => each.kind === kind);
  return of && `${pathOf(of, namespace)}/${name}`;
}

/** Containers are stopped in parallel, so the first to stop loses requests. */
function shortestHookIn(spec: unknown): number | undefined {
  const containers: unknown = isRecord(spec) ? spec.containers : undefined;
  if (!Array.isArray(containers)) return undefined;
  const waits = containers.map((container: unknown) => {
    const handler = memberAt(container, ['lifecycle', 'preStop']);
    return isRecord(handler) ? plainSleep(handler)?.seconds : 0;
  });
  const shortest = Math.min(...waits.map((wait) => wait ?? Number.POSITIVE_INFINITY));
  // A container without a hook stops at once, whatever the others do.
  return shortest === 0 || waits.every((wait) => wait !== undefined) ? shortest : undefined;
}

export function registerTerminationMetrics(registry: Registry) {
  const terminations = new Counter({
    name: 'linger_terminations_total',
    help: 'Pods whose removal this replica has seen from beginning to end, by whether they were stopped in time.',
    labelNames: ['outcome'] as const,
    registers: [registry],
  });
  for (const outcome of OUTCOMES) terminations.inc({ outcome }, 0);
  const seconds = new Histogram({
    name: 'linger_shortfall_seconds',
    help: 'For how long pods that were stopped too early were still listed.',
    buckets: SHORTFALL_SECONDS,
    registers: [registry],
  });
  const findings = new Counter({
    name: 'linger_termination_findings_total',
    help: 'Findings about terminations that this replica has reported, by reason.',
    labelNames: ['reason'] as const,
    registers: [registry],
  });
  for (const reason of Object.keys(TERMINATION_FINDINGS)) findings.inc({ reason }, 0);
  return { terminations, seconds, findings };
}
