import type { HoldCall } from '../../../src/api/hold.ts';
import { callOf } from '../../../src/decision/hold-delivery.ts';
import type { PodObject } from '../../cluster-suite/support/manifests.ts';
import { helperFile, OWN_ARCHITECTURE, runHelper } from '../../hold/helper.ts';
import type { Cluster, FakeNode, FakePod } from '../../testbed/cluster.ts';

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
  readonly deletedAt: number;
  readonly startedAt: number;
  readonly endedAt: number;
}

export async function hookOf(cluster: Cluster, pod: FakePod): Promise<Hooked> {
  const metadata = { namespace: pod.namespace, name: pod.name };
  const object = await cluster.get<PodObject>({ apiVersion: 'v1', kind: 'Pod', metadata });
  const [container] = object?.spec.containers ?? [];
  const call = container && callOf(container as Parameters<typeof callOf>[0]);
  if (object === undefined || call === undefined) throw new Error(`${pod.name} has no hook of Hold`);
  return { pod, graceSeconds: object.spec.terminationGracePeriodSeconds, call };
}

/** Deletes the pod and runs its hook as a kubelet would: the helper itself, in the node's network, to its end. */
export async function stopPod(node: FakeNode, { pod, graceSeconds, call }: Hooked): Promise<HookEnd> {
  await node.terminate(pod, graceSeconds);
  const deletedAt = Date.now();
  const args = [call.address, call.token, String(call.wait), String(call.max)];
  const { ended } = runHelper([helperFile(OWN_ARCHITECTURE)], args);
  const startedAt = Date.now();
  await ended;
  return { pod: pod.name, deletedAt, startedAt, endedAt: Date.now() };
}
