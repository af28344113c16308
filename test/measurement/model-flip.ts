import { KubeFailure } from '../../src/cluster/index.ts';
import {
  CanaryEndpoints,
  type FlipContext,
  type FlipOutcome,
  flip,
  type TimedConsumer,
} from '../../src/measurement/canary/flip.ts';
import { Measurement } from '../../src/measurement/measurement.ts';
import type { Answer } from '../../src/measurement/requests/probe.ts';
import { SimulatedProcess, SimulatedTime } from '../leader/simulated-time.ts';
import { randomOf } from '../property/random.ts';

export const CANARY = 'c'.repeat(32);
const FELLOW = 'f'.repeat(32);
const UID = 'uid-canary';

/** What happens between a label, the slices and the consumers. Milliseconds. */
export interface ModelOptions {
  /** Replicas beside the one that is removed. Default 1. */
  readonly fellows?: number;
  /** From the change of the label to that of the slice. Default 40. */
  readonly controlPlaneMs?: number;
  /** How much later than that of linger-canary the slice of linger-canary-dns changes. Default 0. */
  readonly dnsSliceMs?: number;
  readonly consumers: readonly ModelConsumer[];
  /** Called with the model, and then at its instants. */
  readonly faults?: (model: FlipModel) => void;
}

export interface ModelConsumer {
  readonly name: string;
  /** Default `linger-canary`. */
  readonly service?: string;
  /** How long a client may keep an answer. */
  readonly heldMs?: number;
  /** From the slice's change until it follows: out, and in. */
  readonly lagMs: number;
  readonly addsMs?: number;
  readonly answerMs?: number;
  readonly leastMisses?: number;
  /** What it answers instead of leading to a replica, as long as it is not undefined; `hang` never answers. */
  readonly fault?: (model: FlipModel) => Answer | 'hang' | undefined;
}

/** One flip in simulated time, to its end. */
export class FlipModel {
  readonly time = new SimulatedTime();
  readonly process: SimulatedProcess;
  readonly measurement = new Measurement({
    clock: () => this.time.now,
    epochSeconds: () => this.time.now / 1000,
  });
  readonly endpoints = new CanaryEndpoints(this.measurement, 'linger');
  readonly ending = new AbortController();
  readonly #options: ModelOptions;
  readonly #random = randomOf(5);
  /** Whether the API server's pod has the label. */
  on = true;
  holds = true;
  /** Whether the control plane takes the pod for ready. */
  #ready = true;
  /** Whether the API server has the pod. */
  #there = true;
  /** What the pod answers, once its process no longer stands still. */
  #canary: Answer = { identity: CANARY };
  #frozenUntil = 0;
  /** Replicas that come into the Service during the flip. */
  readonly newcomers: string[] = [];
  readonly #others: { readonly targetUid: string; readonly ready: boolean }[] = [];
  endedAt = 0;
  readonly patches: ('off' | 'on')[] = [];
  /** The error with which the API server refuses changes of the label. */
  refuses: Error | undefined;
  /** Whether linger-canary lists it as ready, and since when: the latest last. */
  readonly #listings = [{ listed: true, at: Number.NEGATIVE_INFINITY }];

  constructor(options: ModelOptions) {
    this.#options = options;
    this.process = new SimulatedProcess(this.time, { rate: 1, skew: 0 }, this.#random);
    for (const service of ['linger', 'linger-canary', 'linger-canary-dns']) this.#show(service, true);
    options.faults?.(this);
  }

  async run(limits: FlipContext['limits'] = {}): Promise<FlipOutcome> {
    const { fellows = 1 } = this.#options;
    const names = Array.from({ length: fellows }, (_, each) => FELLOW.slice(0, 31) + each);
    let outcome: FlipOutcome | undefined;
    void flip({
      uid: UID,
      replicas: { canary: CANARY, fellows: new Set(names) },
      consumers: this.#options.consumers.map((consumer) => this.#timed(consumer, names)),
      endpoints: this.endpoints,
      askCanary: () => this.#answersItself(),
      label: {
        remove: () => this.#label(false),
        restore: () => (this.#there ? this.#label(true) : Promise.resolve()),
      },
      holds: () => this.holds,
      time: { clock: this.process.clock, pause: this.#pause },
      signal: this.ending.signal,
      limits,
    }).then((ended) => {
      outcome = ended;
      this.endedAt = this.time.now;
    });
    for (let until = 1_000; outcome === undefined && until < 3_600_000; until += 1_000) {
      await this.time.run(until, () => undefined);
    }
    if (outcome === undefined) throw new Error('the flip has not ended within an hour');
    return outcome;
  }

  at(milliseconds: number, happen: () => void): void {
    this.time.after(milliseconds, happen);
  }

  /** As the real one, it leaves nothing behind on a signal that lives for long. */
  readonly #pause = (milliseconds: number, signal: AbortSignal): Promise<boolean> =>
    new Promise((resolve) => {
      const settle = (passed: boolean) => {
        signal.removeEventListener('abort', end);
        resolve(passed);
      };
      const end = () => settle(false);
      if (signal.aborted) end();
      else {
        signal.addEventListener('abort', end, { once: true });
        this.process.after(milliseconds, () => settle(true));
      }
    });

  async #label(on: boolean): Promise<void> {
    await this.#pause(5, new AbortController().signal);
    if (this.refuses !== undefined) throw this.refuses;
    if (!this.#there) throw new KubeFailure('NotFound', '404: not found');
    this.on = on;
    this.patches.push(on ? 'on' : 'off');
    this.at(this.#options.controlPlaneMs ?? 40, () => this.#follow());
  }

  /** What the control plane makes of the label and the pod. */
  #follow(): void {
    const listed = this.on && this.#ready;
    if (listed === this.#listings.at(-1)?.listed) return;
    this.#listings.push({ listed, at: this.time.now });
    this.process.after(0, () => this.#slice(listed));
  }

  /** The pod becomes ready or unready. */
  readiness(ready: boolean): void {
    this.#ready = ready;
    this.at(this.#options.controlPlaneMs ?? 40, () => {
      this.process.after(0, () => this.#show('linger', ready));
      this.#follow();
    });
  }

  /** The pod is deleted: it answers as long as it drains. */
  deletePod(drainMs = 15_000): void {
    this.readiness(false);
    this.at(drainMs, () => {
      this.#canary = REFUSED;
      this.#there = false;
    });
  }

  /** Its process dies, and the container is started again in the same pod; the new process has a name of its own. */
  kill(): void {
    this.#canary = REFUSED;
    this.at(1_000, () => this.readiness(false));
    this.at(3_000, () => {
      this.#canary = { identity: 'b'.repeat(32) };
    });
    this.at(8_000, () => this.readiness(true));
  }

  /** Its node is gone, which shows after a grace period. */
  loseNode(): void {
    this.freeze(Number.POSITIVE_INFINITY);
    this.at(40_000, () => this.readiness(false));
  }

  /** Its process stands still, which no probe sees. */
  freeze(forMs: number): void {
    this.#frozenUntil = this.time.now + forMs;
  }

  #slice(ready: boolean): void {
    this.#show('linger-canary', ready);
    const { dnsSliceMs } = this.#options;
    if (dnsSliceMs === undefined) this.#show('linger-canary-dns', ready);
    else this.process.after(dnsSliceMs, () => this.#show('linger-canary-dns', ready));
  }

  /** The Service comes to list another pod. */
  listAnother(): void {
    this.#others.push({ targetUid: 'uid-newcomer', ready: true });
    this.#show('linger-canary', this.#listings.at(-1)?.listed === true);
  }

  #show(serviceName: string, ready: boolean): void {
    const endpoints = [{ targetUid: UID, ready }, ...this.#others];
    const slice = { namespace: 'linger', name: serviceName, serviceName, addressType: 'IPv4', endpoints };
    this.measurement.apply({ type: 'Slice', at: this.time.now, slice });
  }

  #timed(consumer: ModelConsumer, fellows: readonly string[]): TimedConsumer {
    const { name, service = 'linger-canary', leastMisses = 40, answerMs = 2 } = consumer;
    return {
      name,
      service,
      subject: 'The probe',
      leastMisses,
      ask: () => this.#ask(consumer, fellows, answerMs),
    };
  }

  #ask(consumer: ModelConsumer, fellows: readonly string[], answerMs: number): Promise<Answer> {
    const fault = consumer.fault?.(this);
    if (fault !== undefined) return this.#after(fault === 'hang' ? 2_000 : answerMs, fault);
    const identity = this.#chosen(consumer, fellows);
    const { heldMs } = consumer;
    if (identity === undefined) return this.#after(answerMs, REFUSED);
    // DNS answers without asking the replica.
    if (identity === CANARY && heldMs !== undefined) return this.#after(answerMs, { identity, heldMs });
    return identity === CANARY ? this.#answersItself(answerMs) : this.#after(answerMs, { identity });
  }

  #answersItself(answerMs = 2): Promise<Answer> {
    const frozenMs = this.#frozenUntil - this.time.now;
    if (frozenMs >= 2_000) return this.#after(2_000, 'hang');
    return this.#after(Math.max(0, frozenMs) + answerMs, this.#canary);
  }

  #after(milliseconds: number, answer: Answer | 'hang'): Promise<Answer> {
    return new Promise((resolve) => {
      this.process.after(milliseconds, () => resolve(answer === 'hang' ? HUNG : answer));
    });
  }

  #chosen({ lagMs, addsMs = lagMs }: ModelConsumer, fellows: readonly string[]): string | undefined {
    const followed = ({ listed, at }: { listed: boolean; at: number }) =>
      this.time.now >= at + (listed ? addsMs : lagMs);
    const others = [...fellows, ...this.newcomers];
    const candidates = this.#listings.findLast(followed)?.listed ? [CANARY, ...others] : others;
    return candidates[Math.floor(this.#random() * candidates.length)];
  }
}

export const HUNG: Answer = {
  reason: 'Unreachable',
  message: 'gets no answer within 2 s',
  turnedAway: false,
};
export const REFUSED: Answer = {
  reason: 'Unreachable',
  message: 'is refused a connection',
  turnedAway: true,
};
