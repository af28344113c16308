import type { FlipResult } from '../../core/catalog/canary.ts';
import { asError } from '../../core/catalog/errors.ts';
import type { Consumer } from '../../core/consumers/consumer.ts';
import { FlipSchedule, takingPart, throwOf } from '../../core/consumers/flip-schedule.ts';
import type { KubeConnection } from '../../kube/connection.ts';
import { pause } from '../pause.ts';
import { PodLabels } from '../pod-labels.ts';
import type { CanaryEndpoints } from './endpoints.ts';
import { type FlipOutcome, flip } from './flip.ts';
import { FLIP_LIMITS, type FlipLimits } from './limits.ts';
import {
  CANARY_LABEL,
  chooseCanary,
  IN_SERVICE,
  type KnownReplica,
  knownReplicas,
  OUT_OF_SERVICE,
  putBackForgotten,
  restore,
} from './replicas.ts';
import { CANARY_SERVICE, CanaryService, type ServiceAddress } from './service.ts';
import { everyMsOf, isTimed, limitsOf, type Timed, timedConsumer } from './timed-consumers.ts';

/** One flip, as it is told. */
export interface Flipped extends FlipOutcome {
  /** The pod that was removed and added; undefined: none. */
  readonly pod: string | undefined;
  /** Those that it was for, with what each cannot see. */
  readonly asked: ReadonlyMap<string, readonly string[]>;
}

export interface CanaryContext {
  readonly connection: KubeConnection;
  /** Linger's own. */
  readonly namespace: string;
  /** Of the canary server, the same in all replicas. */
  readonly port: number;
  /** Who this replica is to the canary. */
  readonly identity: string;
  /** Told everything that the recorder is told, from before this begins. */
  readonly endpoints: CanaryEndpoints;
  /** All that there are now. */
  readonly consumers: () => readonly Consumer[];
  /** How often a ClusterIP is flipped for of itself. Milliseconds. */
  readonly everyMs: number;
  readonly onFlip: (flipped: Flipped) => void;
  /** Monotonic milliseconds: the watch's. */
  readonly clock: () => number;
  /** In [0, 1). */
  readonly random: () => number;
  readonly limits?: Partial<FlipLimits>;
}

/** A lead, as far as the canary needs one. */
export interface CanaryLead {
  readonly signal: AbortSignal;
  readonly holds: () => boolean;
}

/** Each is 40 connections a second while a flip is on. */
const MOST_CONSUMERS = 4;
const REQUEST_MS = 5_000;

/**
 * Flips one replica at a time, for as long as the lead lasts. Resolves once the last one is back in the Service, or
 * cannot be put there: within 20 s of the lead's end.
 */
export async function runCanary(context: CanaryContext, lead: CanaryLead): Promise<void> {
  const canary = new Canary(context, lead);
  try {
    await canary.run();
  } finally {
    canary.close();
  }
}

class Canary {
  readonly #context: CanaryContext;
  readonly #lead: CanaryLead;
  readonly #labels: PodLabels;
  readonly #service: CanaryService;
  readonly #schedule: FlipSchedule;
  readonly #triedAt = new Map<string, number>();
  #turn = 0;

  constructor(context: CanaryContext, lead: CanaryLead) {
    const { connection, namespace, random } = context;
    const location = { connection, namespace, requestMs: REQUEST_MS };
    this.#context = context;
    this.#lead = lead;
    this.#labels = new PodLabels(location);
    this.#service = new CanaryService(location);
    this.#schedule = new FlipSchedule(throwOf(random));
  }

  async run(): Promise<void> {
    const { clock, onFlip } = this.#context;
    const { signal } = this.#lead;
    // Where that fails, the first flip tries again, and says so.
    await putBackForgotten(this.#labels, signal).catch(() => undefined);
    let next = this.#next(clock(), clock());
    while (await pause(Math.max(0, next - clock()), signal)) {
      const began = clock();
      const consumers = this.#takingPart(began);
      for (const { name } of consumers) this.#triedAt.set(name, began);
      if (consumers.length > 0) onFlip(await this.#flipFor(consumers));
      next = this.#next(began, clock());
    }
  }

  close(): void {
    this.#labels.close();
    this.#service.close();
  }

  #next(began: number, ended: number): number {
    const everyMs = Math.min(...this.#turns().map((turn) => turn.everyMs), this.#context.everyMs);
    return this.#schedule.next({ began, ended, everyMs });
  }

  #takingPart(now: number): readonly Timed[] {
    const turns = this.#turns();
    const names = new Set(turns.map(({ consumer }) => consumer.name));
    for (const name of this.#triedAt.keys()) if (!names.has(name)) this.#triedAt.delete(name);
    return takingPart(turns, now, MOST_CONSUMERS).map(({ consumer }) => consumer);
  }

  #turns() {
    const timed = this.#context.consumers().filter(isTimed);
    return timed.map((consumer) => ({
      consumer,
      everyMs: everyMsOf(consumer, this.#context.everyMs),
      triedAt: this.#triedAt.get(consumer.name),
    }));
  }

  async #flipFor(consumers: readonly Timed[]): Promise<Flipped> {
    const { signal } = this.#lead;
    const asked = (alone: boolean) =>
      new Map(consumers.map((consumer) => [consumer.name, limitsOf(consumer, alone)]));
    try {
      const service = await this.#service.read(signal);
      if (service === undefined) return untried('NoService', asked(false), consumers, NO_SERVICE);
      const replicas = await this.#replicas();
      const canary = chooseCanary(replicas, this.#context.identity, this.#turn++);
      if (canary === undefined) return untried('NoReplica', asked(false), consumers, NO_REPLICA);
      const outcome = await this.#flip(canary, replicas, service, consumers);
      return { ...outcome, pod: canary.pod.name, asked: asked(replicas.length === 1) };
    } catch (error) {
      if (signal.aborted) return { ...NOTHING, result: 'Ended', asked: asked(false) };
      return { ...NOTHING, result: 'Refused', asked: asked(false), problem: asError(error).message };
    }
  }

  #replicas(): Promise<readonly KnownReplica[]> {
    const { endpoints, port, limits } = this.#context;
    const timeoutMs = limits?.attemptMs ?? FLIP_LIMITS.attemptMs;
    return knownReplicas({ labels: this.#labels, endpoints, port, timeoutMs }, this.#lead.signal);
  }

  async #flip(
    canary: KnownReplica,
    replicas: readonly KnownReplica[],
    service: ServiceAddress,
    consumers: readonly Timed[],
  ): Promise<FlipOutcome> {
    const { endpoints, clock, limits = {} } = this.#context;
    const { signal, holds } = this.#lead;
    const { pod, identity } = canary;
    const attemptMs = limits.attemptMs ?? FLIP_LIMITS.attemptMs;
    const fellows = new Set(replicas.map((each) => each.identity).filter((each) => each !== identity));
    const timed = consumers.map((each) => timedConsumer(each, service, attemptMs, signal));
    const remove = { pod, label: CANARY_LABEL, from: IN_SERVICE, to: OUT_OF_SERVICE };
    const outcome = await flip({
      uid: pod.uid,
      replicas: { canary: identity, fellows },
      consumers: await Promise.all(timed),
      endpoints,
      label: {
        remove: () => this.#labels.change(remove, signal),
        restore: () => restore(this.#labels, pod),
      },
      holds,
      time: { clock, pause },
      signal,
      limits,
    });
    const lags = [...outcome.consumers.values()].map(({ removal = 0 }) => removal * 1000);
    this.#schedule.followed(Math.max(0, ...lags));
    return outcome;
  }
}

const NOTHING = { pod: undefined, consumers: new Map(), attempts: 0 } as const;

const NO_SERVICE = `There is no Service ${CANARY_SERVICE} with a ClusterIP in Linger's namespace: apply deploy/service-canary.yaml.`;
const NO_REPLICA = `No replica of Linger is ready, bears the label ${CANARY_LABEL}, is listed by the Service ${CANARY_SERVICE} and answers on its canary port.`;

function untried(
  result: FlipResult,
  asked: Flipped['asked'],
  consumers: readonly Timed[],
  message: string,
): Flipped {
  const trouble = { reason: 'Unreachable', message } as const;
  const outcomes = new Map(consumers.map(({ name }) => [name, { trouble }]));
  return { ...NOTHING, result, asked, consumers: outcomes };
}
