import {
  CanaryEndpoints,
  type FlipContext,
  type FlipOutcome,
  flip,
  type TimedConsumer,
} from '../../src/measurement/flip.ts';
import { Measurement } from '../../src/measurement/measurement.ts';
import type { Answer } from '../../src/measurement/probe.ts';
import { randomOf } from '../lag/simulated-consumer.ts';
import { SimulatedProcess, SimulatedTime } from '../leader/simulated-time.ts';

export const CANARY = 'c'.repeat(32);
const FELLOW = 'f'.repeat(32);
const UID = 'uid-canary';

/** What happens between a label, the slices and the consumers. Milliseconds. */
export interface ModelOptions {
  /** Replicas beside the one that is removed. Default 1. */
  readonly fellows?: number;
  /** From the label's change to the slice's. Default 40. */
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
  /** Of the label, as the API server has it. */
  on = true;
  holds = true;
  readonly patches: ('off' | 'on')[] = [];
  /** What the API server does to the next changes instead. */
  refuses: Error | undefined;
  /** Since when each side is as it is. */
  #zero = { out: Number.POSITIVE_INFINITY, in: Number.NEGATIVE_INFINITY };

  constructor(options: ModelOptions) {
    this.#options = options;
    this.process = new SimulatedProcess(this.time, { rate: 1, skew: 0 }, this.#random);
    for (const service of ['linger-canary', 'linger-canary-dns']) this.#show(service, true);
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
      label: { remove: () => this.#label(false), restore: () => this.#label(true) },
      holds: () => this.holds,
      time: { clock: this.process.clock, pause: this.#pause },
      signal: this.ending.signal,
      limits,
    }).then((ended) => {
      outcome = ended;
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
    this.on = on;
    this.patches.push(on ? 'on' : 'off');
    this.at(this.#options.controlPlaneMs ?? 40, () => {
      this.#zero = { ...this.#zero, [on ? 'in' : 'out']: this.time.now };
      this.process.after(0, () => this.#slice(on));
    });
  }

  #slice(ready: boolean): void {
    this.#show('linger-canary', ready);
    const { dnsSliceMs } = this.#options;
    if (dnsSliceMs === undefined) this.#show('linger-canary-dns', ready);
    else this.process.after(dnsSliceMs, () => this.#show('linger-canary-dns', ready));
  }

  #show(serviceName: string, ready: boolean): void {
    const endpoints = [{ targetUid: UID, ready }];
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
    const took = fault === 'hang' ? 2_000 : answerMs;
    const answer = fault === undefined ? this.#chosen(consumer, fellows) : fault;
    return new Promise((resolve) => {
      this.process.after(took, () => resolve(answer === 'hang' ? HUNG : answer));
    });
  }

  #chosen({ lagMs, addsMs = lagMs, heldMs }: ModelConsumer, fellows: readonly string[]): Answer {
    const { out, in: back } = this.#zero;
    const gone = this.time.now >= out + lagMs && !(back > out && this.time.now >= back + addsMs);
    const candidates = gone ? fellows : [CANARY, ...fellows];
    const identity = candidates[Math.floor(this.#random() * candidates.length)];
    if (identity === undefined) return REFUSED;
    return identity === CANARY && heldMs !== undefined ? { identity, heldMs } : { identity };
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
