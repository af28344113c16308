import { setTimeout as sleep } from 'node:timers/promises';
import type { Cluster } from '../../testbed/cluster.ts';
import { type PodObject, pod } from './manifests.ts';
import { planOf } from './outcome.ts';

/** Has pods admitted, one after so many milliseconds, and remembers which of them got no plan: dry runs, which leave nothing behind. */
export class Admissions {
  readonly #cluster: Cluster;
  readonly #namespace: string;
  readonly #stop = new AbortController();
  readonly #ended: Promise<void>;
  readonly #startedAt = performance.now();
  /** When each without a plan was asked for, in milliseconds since the beginning. */
  readonly #missed: number[] = [];
  readonly #problems: string[] = [];
  #total = 0;

  constructor(cluster: Cluster, namespace: string, everyMs: number) {
    this.#cluster = cluster;
    this.#namespace = namespace;
    this.#ended = this.#run(everyMs);
  }

  async #run(everyMs: number): Promise<void> {
    const open = new Set<Promise<void>>();
    // Without a bound an API server that falls behind gets a new connection for each pod that it has not got to, and everybody
    // else waits behind those.
    const most = 1_000 / everyMs;
    let next = performance.now();
    while (!this.#stop.signal.aborted) {
      const made = this.#create().finally(() => open.delete(made));
      open.add(made);
      if (open.size >= most) await Promise.race(open);
      // What an API server was too slow for is not made up for.
      next = Math.max(next + everyMs, performance.now() - 1_000);
      await sleep(Math.max(0, next - performance.now()));
    }
    await Promise.all(open);
  }

  async #create(): Promise<void> {
    const at = performance.now() - this.#startedAt;
    const object = pod(this.#namespace, `pod-${this.#total++}`, {});
    try {
      const created = await this.#cluster.create<PodObject>(object, { dryRun: true });
      if (planOf(created) === undefined) this.#missed.push(at);
    } catch (error) {
      this.#problems.push(String(error));
    }
  }

  /** How many, how fast, how many without a plan and for how long, and what became of those that were not admitted at all. */
  async end() {
    this.#stop.abort();
    await this.#ended;
    const perSecond = Math.round((this.#total / (performance.now() - this.#startedAt)) * 1000);
    const missedForMs = Math.round((this.#missed.at(-1) ?? 0) - (this.#missed[0] ?? 0));
    return {
      total: this.#total,
      perSecond,
      missed: this.#missed.length,
      missedForMs,
      problems: this.#problems,
    };
  }
}
