import { setTimeout as sleep } from 'node:timers/promises';
import type { PodObject } from '../cluster-suite/support/manifests.ts';
import { planOf } from '../cluster-suite/support/outcome.ts';
import { type HookEnd, type Hooks, hookOf } from '../scenarios/hold/held-pods.ts';
import type { Cluster, FakeNode, FakePod } from '../testbed/cluster.ts';

export interface SoakChurnInput {
  readonly cluster: Cluster;
  readonly node: FakeNode;
  readonly hooks: Hooks;
  readonly namespace: string;
  readonly services: readonly string[];
  readonly perSecond: number;
  /** Whether the API server is not to be expected to answer. */
  readonly isDown: () => boolean;
}

/** A pod whose hook was the helper of Hold. */
export interface HeldPod extends HookEnd {
  readonly address: string;
}

/** A pod is Ready for so long: that its Service lists it, and the gateway shows it. */
const LIFE_MS = 15_000;
/** What a kubelet takes to end a pod that sleeps. */
const ENDS_AFTER_MS = 5_000;
const AGAIN_MS = 500;

/** Pods come, and go as soon: half of them wait by Hold, with the helper itself, half sleep. */
export class SoakChurn {
  readonly held: HeldPod[] = [];
  /** Created, but not changed by Linger. `at`: milliseconds since the epoch. */
  readonly unchanged: { readonly pod: string; readonly at: number }[] = [];
  /** Requests that failed while the API server was there. */
  readonly failures: string[] = [];
  created = 0;
  /** Meant to wait by Hold, but given a sleep: a replica that has just started does not know yet where the helper runs. */
  asleep = 0;
  /** Requests that were made again because the API server was away. */
  repeated = 0;
  readonly #input: SoakChurnInput;
  readonly #lives: Promise<void>[] = [];
  readonly #begun = performance.now();
  #stopped = false;
  #running: Promise<void>;
  #lastedMs = 0;

  constructor(input: SoakChurnInput) {
    this.#input = input;
    this.#running = this.#go();
  }

  /** Pods a second that were really created. */
  get rate(): number {
    return (1_000 * this.created) / this.#lastedMs;
  }

  /** Resolves when the last of its pods has ended. */
  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#running;
    this.#lastedMs = performance.now() - this.#begun;
    await Promise.all(this.#lives);
  }

  async #go(): Promise<void> {
    for (let count = 0; !this.#stopped; count += 1) {
      const due = this.#begun + (count * 1_000) / this.#input.perSecond;
      await sleep(Math.max(0, due - performance.now()));
      this.#lives.push(this.#live(count));
    }
  }

  async #live(count: number): Promise<void> {
    const { cluster, node, hooks, namespace, services } = this.#input;
    const held = count % 2 === 0;
    const app = services[Math.floor(count / 2) % services.length] ?? '';
    const labels = { app, waits: held ? 'hold' : 'sleep' };
    const pod = await this.#again(async (attempt) => {
      const made: FakePod = { namespace, name: `${app}-${count}-${attempt}`, labels };
      await node.run([made]);
      return made;
    });
    if (pod === undefined) return;
    this.created += 1;
    const at = Date.now();
    const reference = { apiVersion: 'v1', kind: 'Pod', metadata: { namespace, name: pod.name } };
    const object = await this.#again(() => cluster.get<PodObject & { status: { podIP: string } }>(reference));
    if (object === undefined) return;
    const plan = planOf(object);
    if (plan === undefined) this.unchanged.push({ pod: pod.name, at });
    else if (held && plan.hook !== 'Hold') this.asleep += 1;
    await sleep(LIFE_MS);
    if (held && plan?.hook === 'Hold') {
      const hooked = await this.#again(() => hookOf(cluster, pod));
      const end = hooked && (await this.#again(() => hooks.stop(node, hooked)));
      if (end !== undefined) this.held.push({ ...end, address: object.status.podIP });
    } else {
      await this.#again(() => node.terminate(pod));
      await sleep(ENDS_AFTER_MS);
    }
    await this.#again(() => node.finish([pod]));
  }

  /** Until it succeeds, while the API server is away. @returns undefined: it failed otherwise, which is noted */
  async #again<T>(work: (attempt: number) => Promise<T>): Promise<T | undefined> {
    for (let attempt = 0; ; attempt += 1) {
      const wasDown = this.#input.isDown();
      try {
        return await work(attempt);
      } catch (error) {
        if (!wasDown && !this.#input.isDown()) {
          this.failures.push((error as Error).message.split('\n')[0] ?? '');
          return undefined;
        }
        this.repeated += 1;
        await sleep(AGAIN_MS);
      }
    }
  }
}
