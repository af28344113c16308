import { type Cluster, type NewObject, waitUntil } from '../../testbed/cluster.ts';
import type { PodObject } from './manifests.ts';

/** What one container of the test application logged about its end. Milliseconds since the epoch. */
export interface LastWords {
  readonly sigtermAt: number | undefined;
  readonly exitAt: number | undefined;
  /** Its end by the kubelet, in whole seconds. */
  readonly finishedAt: number | undefined;
  /** 137 = killed. */
  readonly exitCode: number | undefined;
}

export interface Termination {
  /** Just before the DELETE was sent, on this machine's clock, which is also the node's. */
  readonly deletedAt: number;
  /** The running pod. */
  readonly pod: PodObject;
  readonly containers: Readonly<Record<string, LastWords>>;
}

interface AppEvent {
  readonly event: string;
  readonly time: string;
}

/** A pod of the test application, ready, its logs followed. */
export interface RunningPod {
  readonly pod: PodObject;
  /** Deletes it, or ends it otherwise, and follows its containers to their ends. */
  terminate(end?: () => void): Promise<Termination>;
}

/** Starts a pod and resolves when it is ready. @param foreign containers of other programs, whose logs are not read */
export async function startPod(
  cluster: Cluster,
  object: NewObject,
  foreign: readonly string[] = [],
): Promise<RunningPod> {
  await cluster.create(object);
  const pod = await cluster.waitFor<PodObject>(object, isReady);
  const containers = [...pod.spec.containers, ...(pod.spec.initContainers ?? [])];
  const names = containers.map(({ name }) => name).filter((name) => !foreign.includes(name));
  const logs = names.map((name) => followEvents(cluster, pod, name));
  await Promise.all(logs.map(({ started }) => started()));
  const ends = await watchEnds(cluster, pod);
  const terminate = async (end?: () => void) => {
    const deletedAt = Date.now();
    if (end === undefined) await cluster.delete(object, { wait: true });
    else {
      end();
      const haveEnded = () => names.every((name) => ends.of(name).finishedAt !== undefined);
      await waitUntil('all containers to end', haveEnded, { timeoutMs: 120_000 });
    }
    ends.stop();
    await Promise.all(logs.map(({ ended }) => ended()));
    const lastWords = names.map((name, index) => {
      const at = (event: string) => timeOf(logs[index]?.events ?? [], event);
      return [name, { sigtermAt: at('sigterm'), exitAt: at('exit'), ...ends.of(name) }] as const;
    });
    return { deletedAt, pod, containers: Object.fromEntries(lastWords) };
  };
  return { pod, terminate };
}

export function isReady({ status }: PodObject): boolean {
  return status?.conditions?.some(({ type, status: is }) => type === 'Ready' && is === 'True') === true;
}

function timeOf(events: readonly AppEvent[], name: string): number | undefined {
  const found = events.find(({ event }) => event === name);
  return found === undefined ? undefined : Date.parse(found.time);
}

/** A follower that has not seen its container's end by then is stopped: it has read everything there is. */
const LAST_WORDS_MS = 3_000;

/** Follows a log from before the deletion: afterwards there is none. */
function followEvents(cluster: Cluster, { metadata }: PodObject, container: string) {
  const events: AppEvent[] = [];
  const letGo = new AbortController();
  // Where the container goes while it is followed, the kubelet appends an error of its own to the log, which is no JSON.
  const take = (line: string) => {
    if (line.startsWith('{')) events.push(JSON.parse(line) as AppEvent);
  };
  const followed = cluster
    .followLogs(metadata.namespace ?? '', metadata.name, container, take, letGo.signal)
    .catch((error: unknown) => {
      if (!letGo.signal.aborted) throw error;
    });
  const started = () => waitUntil(`the log of ${container}`, () => events.length > 0, { intervalMs: 50 });
  const ended = async () => {
    const timer = setTimeout(() => letGo.abort(), LAST_WORDS_MS);
    await followed;
    clearTimeout(timer);
  };
  return { events, ended, started };
}

/** Collects how containers ended: the status shows it only in the moment before the pod is gone. */
async function watchEnds(cluster: Cluster, { metadata }: PodObject) {
  const stopping = new AbortController();
  const seen = new Map<string, { finishedAt: number; exitCode: number }>();
  const first = Promise.withResolvers<void>();
  const path = `/api/v1/namespaces/${metadata.namespace}/pods?watch=true&fieldSelector=metadata.name%3D${metadata.name}`;
  const take = ({ object }: { object: PodObject }) => {
    first.resolve();
    for (const { name, state } of object.status?.containerStatuses ?? []) {
      if (state?.terminated === undefined) continue;
      const { exitCode, finishedAt } = state.terminated;
      seen.set(name, { exitCode, finishedAt: Date.parse(finishedAt) });
    }
  };
  cluster.api.watch<PodObject>(path, take, stopping.signal).catch(first.reject);
  await first.promise;
  return {
    stop: () => stopping.abort(),
    of: (name: string) => seen.get(name) ?? { finishedAt: undefined, exitCode: undefined },
  };
}
