import type { OutgoingHttpHeaders } from 'node:http';
import type { V1Pod } from '@kubernetes/client-node';
import { Counter, type Registry } from '@prometheus-io/client';
import {
  callApi,
  type KubeConnection,
  newAgent,
  type ObjectEvents,
  unlessNotFound,
} from '../../cluster/index.ts';
import {
  asError,
  canonicalAddress,
  type DeregisterSpec,
  deregisterRequest,
  type Explained,
  fillTemplate,
  type Labels,
  NO_LABELS,
  objectKey,
  Shares,
  selectsNamespace,
  servicesSelecting,
  type TemplateValues,
  unseenNamespace,
} from '../../core/api/index.ts';
import type { ClusterSnapshot } from '../../core/decision/index.ts';
import type { PodMetadata } from '../../core/lag/index.ts';
import { sendsTo } from '../../core/lag/index.ts';
import { type Leadership, Listeners, type PodEvent, type Runnable } from '../../manager/index.ts';
import { type Logger, LogOnce } from '../../telemetry/index.ts';
import { Backoff } from '../../timing/index.ts';
import type { ConsumerMeasurement } from '../measurement.ts';
import { readHeaderValue, trustOf } from '../requests/gateway-client.ts';
import { askOnce, type Problem, problem, refusal, resolve } from '../requests/probe.ts';

/** How a deregistration ended: the label `result` of linger_consumer_deregistrations_total. */
export const DEREGISTRATION_RESULTS = {
  Done: {
    means: 'The registry has taken the pod out.',
  },
  NotRegistered: {
    means: 'The registry answered 404 or 410: it had no such instance.',
  },
  NoAddress: {
    means: 'The pod had ended before its address was read.',
  },
  AddressReused: {
    means:
      'The pod was gone and another had its address: the retries ended, as a request would have taken the other out.',
  },
  Failed: {
    means: 'It was not taken out before the retries ended.',
  },
} as const satisfies Readonly<Record<string, Explained>>;
export type DeregistrationResult = keyof typeof DEREGISTRATION_RESULTS;

/** Milliseconds unless noted otherwise. */
const LIMITS = {
  /** A registry usually answers within milliseconds, and a pod with a short grace needs time for more than one attempt. */
  attempt: 3_000,
  pause: { firstPauseMs: 300, longestPauseMs: 10_000 },
  /** How long retries continue after the grace, because a registry may return a dead address until its lease ends. */
  afterGrace: 30_000,
  longest: 600_000,
  /** Concurrent requests, per registry, so that one that hangs does not affect others; and to the API server. */
  atOnce: 8,
  lookUps: 4,
  lookUp: 5_000,
  /** How many terminating pods are tracked. A namespace may take no more room than it leaves for the others. */
  pods: 20_000,
  /** After this many failed attempts, or pods in a row that the registry does not know, it is no longer chance. */
  troubleAfter: 3,
};

type Settled = { readonly result: DeregistrationResult; readonly at: number };

/** A terminating pod. */
interface Leaving {
  readonly pod: Pick<PodMetadata, 'uid' | 'namespace' | 'name'>;
  readonly labels: Labels;
  readonly until: number;
  /** By consumer; undefined: a request is under way. */
  readonly outcomes: Map<string, Settled | undefined>;
  /** The values for the templates; undefined: the pod has ended. */
  values: Promise<PodValues | undefined> | undefined;
  /** The watch has shown that the pod is gone. */
  gone: boolean;
}

interface PodValues extends Omit<TemplateValues, 'port'> {
  /** The first port that a container declares. */
  readonly declaredPort: number | undefined;
}

interface Job {
  readonly leaving: Leaving;
  readonly consumer: string;
  readonly backoff: Backoff;
  /**
   * The pod may be out already, because an earlier leader removed it, or because it never registered, as no Service selects
   * it. So a registry that does not know it shows no fault in the templates.
   */
  readonly mayBeOut: boolean;
  attempts: number;
}

/**
 * The requests for one registry. The namespace with the fewest running requests comes next, so that none can hold up the
 * others.
 */
interface Queue {
  readonly waiting: Map<string, Job[]>;
  readonly running: Shares;
  /** How many pods in a row the registry did not know. */
  unknown: number;
}

export interface DeregisterContext {
  readonly connection: KubeConnection;
  readonly snapshot: { current(): ClusterSnapshot };
  readonly measurement: Pick<ConsumerMeasurement, 'deregistering'>;
  readonly events: ObjectEvents;
  readonly registry: Registry;
  readonly logger: Logger;
  readonly clock: () => number;
  readonly random: () => number;
  readonly allowLinkLocal: boolean;
  /** The folder with the files that consumers may refer to; undefined: they may refer to none. */
  readonly files: string | undefined;
  /** Called when this replica itself has connected to the address, which is not traffic. */
  readonly onConnect: (address: string) => void;
  readonly signal: AbortSignal;
}

export function registerDeregistrationMetrics(registry: Registry) {
  return new Counter({
    name: 'linger_consumer_deregistrations_total',
    help: 'Terminating pods that were to be taken out of the registry of a consumer, by how that ended.',
    reference:
      'Terminating pods that were to be taken out of a registry, by [how that ended](consumers.md#how-a-deregistration-ends).',
    labelNames: ['consumer', 'result'] as const,
    registers: [registry],
  });
}

/**
 * While this replica leads, removes terminating pods from registries in which pods register themselves. All replicas track
 * the pods that terminate, and a new leader makes the requests for all of them again, so a request may be made more than
 * once.
 */
export class Deregistrations {
  readonly #context: DeregisterContext;
  /** By namespace and name. */
  readonly #leaving = new Map<string, Leaving>();
  readonly #shares = new Shares();
  readonly #queues = new Map<string, Queue>();
  readonly #settled: Listeners<[uid: string]>;
  readonly #once: LogOnce;
  readonly #agent: ReturnType<typeof newAgent>;
  readonly #count: ReturnType<typeof registerDeregistrationMetrics>;
  #term: Leadership | undefined;

  constructor(context: DeregisterContext) {
    this.#context = context;
    this.#settled = new Listeners();
    this.#once = new LogOnce(context.logger);
    this.#agent = newAgent(context.connection, LIMITS.lookUps, context.signal);
    this.#count = registerDeregistrationMetrics(context.registry);
  }

  /** Called when a pod has been removed from a registry, or was not in it. */
  get onSettled() {
    return this.#settled.add;
  }

  get runnable(): Runnable {
    return { name: 'deregistration', onPod: (event) => this.#pod(event), lead: (term) => this.#lead(term) };
  }

  /** When the consumer's registry no longer contained the terminating pod; undefined: it may still contain it. */
  outAt(
    consumer: string,
    pod: Leaving['pod'] & { readonly labels: Labels },
    graceSeconds: number,
  ): number | undefined {
    const leaving = this.#know(pod, pod.labels, graceSeconds);
    if (leaving?.outcomes.has(consumer) === false) this.#start(leaving);
    const settled = leaving?.outcomes.get(consumer);
    return settled === undefined || settled.result === 'Failed' ? undefined : settled.at;
  }

  #pod(event: PodEvent): void {
    const known = this.#leaving.get(objectKey(event.identity));
    const isSame = known?.pod.uid === event.identity.uid;
    if (event.type === 'deleted') {
      if (known !== undefined && isSame) this.#forget(Object.assign(known, { gone: true }));
      // A pod that is deleted without a grace is never seen terminating.
      else if (!event.relist) this.#know(event.object, event.object.labels ?? NO_LABELS, 0, true);
      return;
    }
    // A StatefulSet's pod has been replaced under the same name: a late request would remove the new one.
    if (known !== undefined && !isSame) this.#drop(known);
    const { labels = NO_LABELS, deletionTimestamp, deletionGracePeriodSeconds = 0 } = event.object;
    // A consumer may have begun to apply only now.
    if (isSame && known !== undefined) this.#start(known);
    else if (deletionTimestamp !== undefined) this.#know(event.object, labels, deletionGracePeriodSeconds);
  }

  #know(pod: Leaving['pod'], labels: Labels, graceSeconds: number, gone = false): Leaving | undefined {
    const { uid, namespace, name } = pod;
    const known = this.#leaving.get(objectKey(pod));
    if (known?.pod.uid === uid) return known;
    if (known !== undefined || !this.#shares.hasRoomFor(namespace, 1, LIMITS.pods)) return undefined;
    const spanMs = Math.min(LIMITS.longest, graceSeconds * 1000 + LIMITS.afterGrace);
    const leaving: Leaving = {
      pod: { uid, namespace, name },
      labels,
      until: this.#context.clock() + spanMs,
      outcomes: new Map(),
      values: undefined,
      gone,
    };
    this.#leaving.set(objectKey(pod), leaving);
    this.#shares.add(namespace, 1);
    this.#start(leaving, gone);
    this.#forget(leaving);
    return leaving;
  }

  /**
   * Forgets a pod that is gone, but only after its requests have ended, because the registry may still return its address.
   */
  #forget(leaving: Leaving): void {
    if (leaving.gone && ![...leaving.outcomes.values()].includes(undefined)) this.#drop(leaving);
  }

  #drop({ pod }: Leaving): void {
    if (this.#leaving.delete(objectKey(pod))) this.#shares.add(pod.namespace, -1);
  }

  #lead(term: Leadership): void {
    this.#term = term;
    const over = () => {
      if (this.#term === term) this.#term = undefined;
      this.#queues.clear();
      for (const leaving of this.#leaving.values()) {
        leaving.outcomes.clear();
        this.#forget(leaving);
      }
    };
    term.signal.addEventListener('abort', over, { once: true });
    for (const leaving of this.#leaving.values()) this.#start(leaving, true);
  }

  #start(leaving: Leaving, mayBeOut = false): void {
    if (this.#term === undefined) return;
    for (const [consumer, sends] of this.#consumersOf(leaving)) {
      // For a pod that is gone already, a mere possibility is not enough: the end of a Job's pod, which no Service selects,
      // concerns no registry.
      const isConcerned = leaving.gone ? sends === true : sends !== false;
      if (!isConcerned || leaving.outcomes.has(consumer)) continue;
      leaving.outcomes.set(consumer, undefined);
      const backoff = new Backoff(LIMITS.pause, this.#context.random);
      this.#queue({ leaving, consumer, backoff, mayBeOut: mayBeOut || sends === 'assumed', attempts: 0 });
    }
  }

  #consumersOf({
    pod: { namespace },
    labels,
  }: {
    readonly pod: { readonly namespace: string };
    readonly labels: Labels;
  }): ReadonlyMap<string, ReturnType<typeof sendsTo>> {
    const { consumers, namespaces, services } = this.#context.snapshot.current();
    const registering = consumers.filter(({ deregister }) => deregister !== undefined);
    if (registering.length === 0) return new Map();
    const within = namespaces.get(namespace) ?? unseenNamespace(namespace);
    const selecting = servicesSelecting(services, namespace, labels);
    // Waits may guess about a Namespace that has not been seen, but a request might remove another pod of the same name.
    const here = registering.filter((each) => selectsNamespace(each.namespaceSelector, within) === true);
    return new Map(here.map((each) => [each.name, sendsTo(each, within, labels, selecting)]));
  }

  #queue(job: Job): void {
    const queue = this.#queues.get(job.consumer) ?? { waiting: new Map(), running: new Shares(), unknown: 0 };
    this.#queues.set(job.consumer, queue);
    const { namespace } = job.leaving.pod;
    const jobs = queue.waiting.get(namespace) ?? [];
    queue.waiting.set(namespace, jobs);
    jobs.push(job);
    this.#next(queue);
  }

  #next(queue: Queue): void {
    const { waiting, running } = queue;
    while (running.total < LIMITS.atOnce && waiting.size > 0) {
      const least = [...waiting.keys()].reduce((best, each) =>
        running.of(each) < running.of(best) ? each : best,
      );
      const jobs = waiting.get(least) ?? [];
      const job = jobs.shift();
      // Put it last, so that namespaces with equally many running requests take turns.
      waiting.delete(least);
      if (jobs.length > 0) waiting.set(least, jobs);
      if (job === undefined) continue;
      running.add(least, 1);
      void this.#attempt(job, queue).finally(() => {
        running.add(least, -1);
        this.#next(queue);
      });
    }
  }

  /** Never rejects. */
  async #attempt(job: Job, queue: Queue): Promise<void> {
    const { leaving, consumer } = job;
    const { clock, snapshot } = this.#context;
    const term = this.#term;
    const isOver = () => this.#term !== term || this.#leaving.get(objectKey(leaving.pod)) !== leaving;
    const again = (ms: number) => void setTimeout(() => isOver() || this.#queue(job), ms).unref();
    if (term === undefined || isOver()) return;
    // The Lease may have expired unnoticed, and another replica may be about to lead.
    if (!term.holds()) return again(LIMITS.pause.firstPauseMs);
    const { deregister } = snapshot.current().consumers.find(({ name }) => name === consumer) ?? {};
    const outcome = deregister && (await this.#ask(job, deregister, term.signal));
    if (isOver()) return;
    if (outcome === undefined) {
      leaving.outcomes.delete(consumer);
      this.#forget(leaving);
    } else if (typeof outcome === 'string') this.#settle(job, queue, outcome);
    else {
      job.attempts += 1;
      const pauseMs = job.backoff.next();
      const isLast = clock() + pauseMs >= leaving.until;
      if (isLast || job.attempts === LIMITS.troubleAfter) this.#failed(job, outcome);
      if (isLast) this.#settle(job, queue, 'Failed');
      else again(pauseMs);
    }
  }

  #settle({ leaving, consumer, mayBeOut, attempts }: Job, queue: Queue, result: DeregistrationResult): void {
    const { measurement, clock } = this.#context;
    leaving.outcomes.set(consumer, { result, at: clock() });
    this.#count.inc({ consumer, result });
    if (result !== 'NotRegistered') queue.unknown = 0;
    // After an earlier request, the pod may have been removed by that, whatever its answer was.
    else if (!mayBeOut && attempts === 0) queue.unknown += 1;
    if (result === 'Done') {
      measurement.deregistering(consumer, undefined);
      this.#once.over(consumer, { consumer }, 'deregistering pods recovered');
    } else if (queue.unknown >= LIMITS.troubleAfter) {
      const why = 'It answers 404 for every pod: it does not know them by what the templates say.';
      measurement.deregistering(consumer, why);
      this.#once.warn(
        consumer,
        { consumer, reason: result },
        'registry knows none of the pods; check the templates',
      );
    }
    this.#settled.call(leaving.pod.uid);
    this.#forget(leaving);
  }

  #failed({ leaving: { pod }, consumer }: Job, { message }: Problem): void {
    const { measurement, events } = this.#context;
    const { namespace, name, uid } = pod;
    measurement.deregistering(consumer, `The request ${message}.`);
    const members = { consumer, namespace, pod: name, reason: message };
    this.#once.warn(consumer, members, 'deregistering a terminating pod failed; retrying');
    events.tell({
      object: { kind: 'Pod', namespace, name, uid },
      type: 'Warning',
      reason: 'NotDeregistered',
      action: 'Deregister',
      note: `The registry of consumer ${consumer} has not taken this pod out: the request ${message}. Until it does, its clients go on sending to the pod.`,
    });
  }

  /** Never rejects. */
  async #ask(job: Job, deregister: DeregisterSpec, signal: AbortSignal): Promise<Answer | Problem> {
    const { leaving } = job;
    try {
      leaving.values ??= this.#lookUp(leaving, signal);
      const values = await leaving.values;
      if (values === undefined) return 'NoAddress';
      const request = deregisterRequest(deregister);
      const port = deregister.port ?? values.declaredPort;
      const unknown = port === undefined ? /\{(address|port)\}/ : /\{address\}/;
      const text = JSON.stringify(request);
      if (values.address === undefined && unknown.test(text)) return 'NoAddress';
      if (leaving.gone && values.address !== undefined && text.includes('{address}')) {
        const other = await this.#ownerOf(values.address, job, signal);
        if (other !== undefined) {
          this.#reused(job, other);
          return 'AddressReused';
        }
      }
      return await this.#send(request, { ...values, port }, job.attempts, signal);
    } catch (thrown) {
      return problem('Unreachable', asError(thrown).message);
    }
  }

  /** @returns another pod that has this address now; undefined: there is none */
  async #ownerOf(
    address: string,
    { leaving, consumer }: Job,
    signal: AbortSignal,
  ): Promise<string | undefined> {
    const call = { signal, withinMs: LIMITS.lookUp, agent: this.#agent };
    // Read from the API server's cache: there are many pods, and addresses are not indexed.
    const query = { fieldSelector: `status.podIP=${address}`, resourceVersion: '0' };
    try {
      const { items } = await callApi(this.#context.connection, 'CoreV1Api', call, (core) =>
        core.listPodForAllNamespaces(query),
      );
      const other = items.find(({ metadata, spec, status }) => {
        if (metadata?.uid === leaving.pod.uid || hasEnded(status?.phase)) return false;
        // Pods on a node's network share its address, so only one in the same registry can have taken this pod's entry.
        const pod = { namespace: metadata?.namespace ?? '' };
        const applying = this.#consumersOf({ pod, labels: metadata?.labels ?? NO_LABELS });
        return spec?.hostNetwork !== true || applying.get(consumer) === true;
      });
      return other?.metadata && `${other.metadata.namespace}/${other.metadata.name}`;
    } catch (thrown) {
      throw new Error(
        `cannot be made: the API server does not say which pod has the address now (${asError(thrown).message})`,
      );
    }
  }

  #reused({ leaving: { pod }, consumer }: Job, other: string): void {
    const { logger, events } = this.#context;
    const { namespace, name, uid } = pod;
    logger.warn(
      { consumer, namespace, pod: name, other },
      'deregistering ended: the pod is gone and another has its address',
    );
    events.tell({
      object: { kind: 'Pod', namespace, name, uid },
      type: 'Warning',
      reason: 'NotDeregistered',
      action: 'Deregister',
      note: `The registry of consumer ${consumer} has not taken this pod out while it was there. Pod ${other} has its address now, so no more requests are made: they would take that one out. If the registry still lists this pod, its clients reach the other one.`,
    });
  }

  async #lookUp(leaving: Leaving, signal: AbortSignal): Promise<PodValues | undefined> {
    const { name, namespace, uid } = leaving.pod;
    const gone = {
      address: undefined,
      declaredPort: undefined,
      namespace,
      pod: name,
      labels: leaving.labels,
    };
    const call = { signal, withinMs: LIMITS.lookUp, agent: this.#agent };
    try {
      const pod = await unlessNotFound(
        callApi(this.#context.connection, 'CoreV1Api', call, (core) =>
          core.readNamespacedPod({ name, namespace }),
        ),
      );
      if (pod === undefined) return gone;
      return pod.metadata?.uid === uid ? valuesOf(pod, namespace, name) : undefined;
    } catch (thrown) {
      leaving.values = undefined;
      throw new Error(
        `cannot be made: the API server does not say the pod's address (${asError(thrown).message})`,
      );
    }
  }

  async #send(
    { method, url: template, headers = [], body: text, tls = {} }: ReturnType<typeof deregisterRequest>,
    values: TemplateValues,
    attempts: number,
    signal: AbortSignal,
  ): Promise<Answer | Problem> {
    const { files, allowLinkLocal, onConnect } = this.#context;
    const url = new URL(fillTemplate(template, values));
    const body = text === undefined ? undefined : fillTemplate(text, values);
    const named: OutgoingHttpHeaders = { 'user-agent': 'linger-deregister', 'accept-encoding': 'identity' };
    // Servers expect a length of 0 if there is no body.
    named['content-length'] = Buffer.byteLength(body ?? '');
    if (body !== undefined) named['content-type'] = 'application/json';
    for (const { name, value, valueFile = '' } of headers)
      named[name.toLowerCase()] =
        value === undefined ? await readHeaderValue(files, valueFile) : fillTemplate(value, values);
    const trust = await trustOf(files, tls);
    const found = await resolve(url, { signal, allowLinkLocal, refuseLocal: true });
    if (!('addresses' in found)) return found;
    const host = found.addresses[attempts % found.addresses.length] ?? '';
    return askOnce<Answer>(
      {
        url,
        method,
        body,
        headers: named,
        trust,
        signal,
        timeoutMs: LIMITS.attempt,
        to: { host },
        onConnect: () => onConnect(host),
      },
      'answer',
      // Only the status matters: the body is not read, however long it is.
      ({ statusCode = 0 }, settle) => settle(answerOf(statusCode)),
    );
  }
}

type Answer = Exclude<DeregistrationResult, 'Failed'>;

function answerOf(status: number): Answer | Problem {
  if (status >= 200 && status < 300) return 'Done';
  return status === 404 || status === 410 ? 'NotRegistered' : refusal(status);
}

function hasEnded(phase: string | undefined): boolean {
  return phase === 'Succeeded' || phase === 'Failed';
}

function valuesOf({ metadata, spec, status }: V1Pod, namespace: string, pod: string): PodValues | undefined {
  const address = canonicalAddress(status?.podIP ?? '');
  if (address === undefined || hasEnded(status?.phase)) return undefined;
  const ports = spec?.containers.flatMap(({ ports = [] }) => ports.map(({ containerPort }) => containerPort));
  return { address, declaredPort: ports?.[0], namespace, pod, labels: metadata?.labels ?? NO_LABELS };
}
