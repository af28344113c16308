import { randomBytes } from 'node:crypto';
import { callApi, type KubeConnection, KubeFailure } from '../cluster/index.ts';
import {
  type Acknowledged,
  HEARTBEAT_ANNOTATION,
  HEARTBEAT_STREAMS,
  type HeartbeatStream,
  heartbeatText,
} from '../core/lag/index.ts';
import type { OwnReplica } from '../manager/index.ts';
import { type Logger, LogOnce } from '../telemetry/index.ts';
import { Schedule } from '../timing/index.ts';

interface HeartbeatsOptions {
  readonly connection: KubeConnection;
  readonly place: OwnReplica;
  /** The streams for which to write heartbeats. Default: all. */
  readonly streams?: readonly HeartbeatStream[];
  readonly leads: () => boolean;
  /** See `LagRecorder.wantsHeartbeat`. */
  readonly wanted: (life: string, silentMs: number) => boolean;
  /** See `LagRecorder.heartbeatWritten`. */
  readonly onWritten: (life: string, stream: HeartbeatStream, acknowledged: Acknowledged) => void;
  readonly signal: AbortSignal;
  readonly logger: Logger;
  readonly clock: () => number;
  readonly random: () => number;
  /** Resolves with false once the signal has aborted. */
  readonly pause: (milliseconds: number, signal: AbortSignal) => Promise<boolean>;
}

/**
 * The name of the EndpointSlice and the Endpoints that carry heartbeats. deploy/role-publish.yaml allows writing only these.
 */
const STAMPED_OBJECT = 'linger-heartbeat';

/**
 * At most one heartbeat a second on each stream, and fewer after failures, which may be the very storm that is being
 * measured.
 */
const PACE = { everyMs: 1_000, firstPauseMs: 1_000, longestPauseMs: 60_000 };
const TICK_MS = 250;
const WRITTEN_WITHIN_MS = 5_000;

/** How long to go on afterwards: two more heartbeats, for replicas whose streams are later. */
const LONGER_MS = 2_000;

/**
 * A follower writes heartbeats if the leader has been silent for this long. If removals are open only here, the streams of
 * one of the two are late.
 */
const SILENT_MS = 2_500;

/**
 * While this replica's recorder wants them, writes heartbeats to objects of Linger's own, so that every replica sees how
 * late its streams are: to this replica's pod, an EndpointSlice and an Endpoints object without addresses, one after the
 * other.
 * @returns resolves once the signal has aborted; never rejects
 */
export async function sendHeartbeats(options: HeartbeatsOptions): Promise<void> {
  const { streams = HEARTBEAT_STREAMS, leads, wanted, onWritten } = options;
  const { signal, logger, clock, random, pause } = options;
  const once = new LogOnce(logger);
  const life = randomBytes(6).toString('base64url');
  const numbers = { pods: 0, EndpointSlice: 0, Endpoints: 0 };
  const none: Acknowledged = { number: 0, at: 0 };
  const acknowledged = { pods: none, EndpointSlice: none, Endpoints: none };
  const schedules = new Map(streams.map((stream) => [stream, new Schedule(PACE, clock(), random)]));
  let until = Number.NEGATIVE_INFINITY;
  while (await pause(TICK_MS, signal)) {
    for (const [stream, schedule] of schedules) {
      if (wanted(life, leads() ? 0 : SILENT_MS)) until = clock() + LONGER_MS;
      if (clock() >= until || !schedule.due(clock())) continue;
      numbers[stream] += 1;
      const sentAt = clock();
      const text = heartbeatText({ life, number: numbers[stream], sentAt, acknowledged });
      try {
        await write(stream, text, options);
        acknowledged[stream] = { number: numbers[stream], at: clock() };
        onWritten(life, stream, acknowledged[stream]);
        schedule.done(sentAt);
        once.over(stream, { stream }, 'writing heartbeats recovered');
      } catch (thrown) {
        if (signal.aborted) return;
        const { reason, retryAfterMs } = thrown instanceof KubeFailure ? thrown : {};
        const pauseMs = Math.round(schedule.failed(clock(), retryAfterMs));
        const members = { stream, problem: String(thrown), pauseMs, ...(reason && { reason }) };
        once.warn(stream, members, 'writing heartbeats failed; late watches go unnoticed');
      }
    }
  }
}

/** Uses server-side apply, which creates a missing object: controllers delete Endpoints that belong to no Service. */
async function write(
  stream: HeartbeatStream,
  text: string,
  { connection, place: { namespace, identity }, signal }: HeartbeatsOptions,
): Promise<unknown> {
  const call = { signal, withinMs: WRITTEN_WITHIN_MS };
  const annotations = { [HEARTBEAT_ANNOTATION]: text };
  if (stream === 'pods') {
    const patched = { name: identity, namespace, body: { metadata: { annotations } } };
    return callApi(connection, 'CoreV1Api', { ...call, patch: 'merge-patch' }, (core) =>
      core.patchNamespacedPod(patched),
    );
  }
  const target = { name: STAMPED_OBJECT, namespace, fieldManager: 'linger-heartbeat', force: true };
  const applied = { ...call, patch: 'apply-patch' } as const;
  if (stream === 'EndpointSlice') {
    // Kube-proxies exclude headless slices from their watch, so heartbeats are not sent to every node.
    const labels = {
      'endpointslice.kubernetes.io/managed-by': 'linger.dev',
      'service.kubernetes.io/headless': '',
    };
    const metadata = { name: STAMPED_OBJECT, labels, annotations };
    const body = {
      apiVersion: 'discovery.k8s.io/v1',
      kind: 'EndpointSlice',
      metadata,
      addressType: 'IPv4',
      endpoints: [],
    };
    return callApi(connection, 'DiscoveryV1Api', applied, (discovery) =>
      discovery.patchNamespacedEndpointSlice({ ...target, body }),
    );
  }
  const labels = { 'endpointslice.kubernetes.io/skip-mirror': 'true' };
  const body = {
    apiVersion: 'v1',
    kind: 'Endpoints',
    metadata: { name: STAMPED_OBJECT, labels, annotations },
  };
  return callApi(connection, 'CoreV1Api', applied, (core) =>
    core.patchNamespacedEndpoints({ ...target, body }),
  );
}
