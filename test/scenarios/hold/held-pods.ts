import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Readable } from 'node:stream';
import { HOOKS, type HoldCall, type LifecycleHandler, memberAt } from '../../../src/core/api/index.ts';
import type { PodObject } from '../../cluster-suite/support/manifests.ts';
import { helperFile, OWN_ARCHITECTURE } from '../../hold/helper.ts';
import type { Cluster, FakeNode, FakePod } from '../../testbed/cluster.ts';
import { eachLine, must } from '../../testbed/command.ts';
import { network } from '../../testbed/network.ts';

/** A pod that no kubelet runs, as the webhook has admitted it. */
export interface Hooked {
  readonly pod: FakePod;
  readonly graceSeconds: number;
  /** The arguments of its hook. */
  readonly call: HoldCall;
}

/** How its hook ended. Milliseconds since the epoch. */
export interface HookEnd {
  readonly pod: string;
  readonly startedAt: number;
  readonly endedAt: number;
}

export async function hookOf(cluster: Cluster, pod: FakePod): Promise<Hooked> {
  const metadata = { namespace: pod.namespace, name: pod.name };
  const object = await cluster.get<PodObject>({ apiVersion: 'v1', kind: 'Pod', metadata });
  const [container] = object?.spec.containers ?? [];
  const handler = memberAt(container, ['lifecycle', 'preStop']) as LifecycleHandler | undefined;
  const call = handler && HOOKS.Hold.recognise(handler)?.call;
  if (object === undefined || call === undefined)
    throw new Error(`${pod.name} has no hook of Hold: ${object?.metadata.annotations?.['linger.dev/plan']}`);
  return { pod, graceSeconds: object.spec.terminationGracePeriodSeconds, call };
}

/**
 * Runs hooks as a kubelet would: the helper itself, in a network of their own, as a helper looks at all connections of
 * its network: two hundred of them would look at those of the whole node. By a shell, and timed by it: a process of this
 * one's size takes tenths of a second to be forked, and would hear of two hundred ends one after the other.
 */
export class Hooks {
  readonly #shell: ChildProcess;
  readonly #running = new Map<string, (times: { startedAt: number; endedAt: number }) => void>();

  private constructor(shell: ChildProcess) {
    this.#shell = shell;
    eachLine(shell.stdout as Readable, (line) => {
      const [id = '', ...times] = line.split(' ');
      const [startedAt = 0, endedAt = 0] = times.map((each) => 1_000 * Number(each));
      this.#running.get(id)?.({ startedAt, endedAt });
    });
  }

  static async open(): Promise<Hooks> {
    const helper = helperFile(OWN_ARCHITECTURE);
    const hook = `s=$EPOCHREALTIME; ${helper} "$a" "$t" "$w" "$m"; echo "$id $s $EPOCHREALTIME"`;
    const script = `echo begun; while read -r id a t w m; do { ${hook}; } & done; wait`;
    const shell = spawn('unshare', ['--net', 'bash', '-c', script], { stdio: ['pipe', 'pipe', 'inherit'] });
    await once(shell.stdout, 'data');
    const { ofNode, own } = network.hooks;
    const inside = ['nsenter', `--net=/proc/${shell.pid}/ns/net`, '--'];
    await must(['ip', 'link', 'add', 'hooks0', 'type', 'veth', 'peer', 'hooks1', 'netns', `${shell.pid}`]);
    await must(['ip', 'address', 'add', `${ofNode}/30`, 'dev', 'hooks0']);
    await must(['ip', 'link', 'set', 'hooks0', 'up']);
    await must([...inside, 'ip', 'address', 'add', `${own}/30`, 'dev', 'hooks1']);
    for (const link of ['lo', 'hooks1']) await must([...inside, 'ip', 'link', 'set', link, 'up']);
    await must([...inside, 'ip', 'route', 'add', 'default', 'via', ofNode]);
    return new Hooks(shell);
  }

  /** Deletes the pod and runs its hook to its end. */
  async stop(node: FakeNode, { pod, graceSeconds, call }: Hooked): Promise<HookEnd> {
    await node.terminate(pod, graceSeconds);
    const id = `${pod.namespace}/${pod.name}`;
    const ended = new Promise<{ startedAt: number; endedAt: number }>((resolve) => {
      this.#running.set(id, resolve);
    });
    this.#shell.stdin?.write(`${id} ${call.address} ${call.token} ${call.wait} ${call.max}\n`);
    return { pod: pod.name, ...(await ended) };
  }

  close(): void {
    this.#shell.stdin?.end();
  }
}
