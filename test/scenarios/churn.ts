import { setTimeout as sleep } from 'node:timers/promises';
import type { FakeNode, FakePod } from '../testbed/cluster.ts';

export interface ChurnOptions {
  readonly node: FakeNode;
  readonly namespace: string;
  /** Their pods carry the label `app` with their name. */
  readonly services: readonly string[];
  /** Milliseconds between two terminations. */
  readonly everyMs: number;
}

export interface Churn {
  /** Stops it, once the last terminating pod is gone. */
  stop(): Promise<void>;
}

/** A grace period plus the time that the kubelet takes to end a pod. */
const TERMINATING_MS = 8_000;

/** Pods come and go, as in an endless rollout. Errors of API servers that are down are ignored. */
export function startChurn({ node, namespace, services, everyMs }: ChurnOptions): Churn {
  const running: FakePod[] = [];
  const finishing: Promise<void>[] = [];
  let stopped = false;
  let count = 0;

  const start = async (): Promise<void> => {
    const app = services[count % services.length] ?? '';
    const pod = { namespace, name: `churn-${count}`, labels: { app } };
    count += 1;
    await node.run([pod]).then(
      () => void running.push(pod),
      () => undefined,
    );
  };
  const end = async (pod: FakePod): Promise<void> => {
    await node.terminate(pod).catch(() => undefined);
    await sleep(TERMINATING_MS);
    await node.finish([pod]).catch(() => undefined);
  };
  const go = async (): Promise<void> => {
    for (const _ of services) await start();
    while (!stopped) {
      const next = sleep(everyMs);
      await start();
      // Not the newest: that one may not be listed yet.
      const oldest = running.length > services.length ? running.shift() : undefined;
      if (oldest !== undefined) finishing.push(end(oldest));
      await next;
    }
    await Promise.all(finishing);
  };
  const gone = go();
  return {
    stop: async () => {
      stopped = true;
      await gone;
    },
  };
}
