import {
  type ClusterEvent,
  HEARTBEAT_STREAMS,
  type Heartbeat,
  type HeartbeatStream,
  type RemovalSample,
  type StageSample,
} from '../../../src/core/lag/events.ts';
import { LagRecorder } from '../../../src/core/lag/recorder.ts';
import { ALL_CURRENT, endpoints, service, slice, terminating } from './sample-events.ts';

/** How late a stream brings what is written at an instant. Milliseconds. */
export type Delays = Readonly<Record<HeartbeatStream, number>>;

/** A replica whose streams are late; its clock differs from the true one. */
export class LateReplica {
  readonly recorder: LagRecorder;
  readonly stages: StageSample[] = [];
  readonly removals: RemovalSample[] = [];
  readonly #delays: Delays;
  readonly #skew: number;
  readonly #delivered = new Map<HeartbeatStream, number>();

  constructor(delays: Partial<Delays> = {}, { heartbeats = true, skew = 0 } = {}) {
    this.recorder = new LagRecorder({ heartbeats });
    this.#delays = { pods: 0, EndpointSlice: 0, Endpoints: 0, ...delays };
    this.#skew = skew;
    for (const event of [...ALL_CURRENT, service()]) this.apply(event);
  }

  /** When this replica gets what is written now: a stream keeps its order. */
  deliveryOf(stream: HeartbeatStream, now: number): number {
    const at = Math.max(this.#delivered.get(stream) ?? 0, now + this.#delays[stream]);
    this.#delivered.set(stream, at);
    return at;
  }

  clock(now: number): number {
    return now + this.#skew;
  }

  apply(event: ClusterEvent): void {
    const { stages, removals } = this.recorder.apply({ ...event, at: this.clock(event.at) });
    this.stages.push(...stages);
    this.removals.push(...removals);
  }
}

/** A cluster in which writes reach replicas by streams that may be late. True time, milliseconds. */
export class LateCluster {
  now = 0;
  readonly replicas: readonly LateReplica[];
  readonly #queue: { readonly at: number; readonly order: number; readonly run: () => void }[] = [];
  #order = 0;

  constructor(replicas: readonly LateReplica[]) {
    this.replicas = replicas;
  }

  at(at: number, run: () => void): void {
    this.#order += 1;
    const each = { at, order: this.#order, run };
    const index = this.#queue.findIndex((other) => other.at > at);
    this.#queue.splice(index < 0 ? this.#queue.length : index, 0, each);
  }

  write(stream: HeartbeatStream, eventAt: (at: number) => ClusterEvent): void {
    for (const replica of this.replicas) {
      const at = replica.deliveryOf(stream, this.now);
      this.at(at, () => replica.apply(eventAt(at)));
    }
  }

  /** A pod that is listed as ready, and ends at an instant; its withdrawals follow. */
  removal(uid: string, at: number, lags: { readonly slices: number; readonly endpoints: number }): void {
    const objects = { name: `slice-${uid}`, serviceName: 'web' };
    for (const replica of this.replicas) {
      replica.apply(slice(0, { [uid]: 'ready' }, objects));
      replica.apply(service({ name: `service-${uid}` }));
      replica.apply(endpoints(0, [uid], [], { name: `service-${uid}` }));
    }
    const endpointsOf = (ready: string[]) => (when: number) =>
      endpoints(when, ready, [], { name: `service-${uid}` });
    this.at(at, () => this.write('pods', (when) => terminating(when, uid)));
    this.at(at + lags.slices, () => this.write('EndpointSlice', (when) => slice(when, {}, objects)));
    this.at(at + lags.endpoints, () => this.write('Endpoints', endpointsOf([])));
  }

  heartbeat(from: HeartbeatStream, heartbeat: Heartbeat): void {
    this.write(from, (at) => ({ type: 'Heartbeat', at, from, heartbeat }));
  }

  /** Lets time pass. */
  run(until: number): void {
    for (let next = this.#queue[0]; next !== undefined && next.at <= until; next = this.#queue[0]) {
      this.#queue.shift();
      this.now = next.at;
      next.run();
    }
    this.now = until;
  }
}

interface HeartbeatOptions {
  readonly writeMs: () => number;
  readonly until: number;
  readonly life?: string;
  /** 0: the leader. */
  readonly silentMs?: number;
}

/** Heartbeats as a replica does: one stream after the other, each as long as a write takes, once a second while wanted. */
export function sendHeartbeatsFrom(
  cluster: LateCluster,
  replica: LateReplica,
  { writeMs, until, life = 'life', silentMs = 0 }: HeartbeatOptions,
): void {
  const numbers = { pods: 0, EndpointSlice: 0, Endpoints: 0 };
  const none = { number: 0, at: 0 };
  const acknowledged = { pods: none, EndpointSlice: none, Endpoints: none };
  let wantedUntil = 0;
  const wanted = () => {
    const wants = replica.recorder.wantsHeartbeat(replica.clock(cluster.now), life, silentMs);
    if (wants) wantedUntil = cluster.now + 2_000;
    return cluster.now < wantedUntil;
  };
  const round = (index: number, begunAt: number) => {
    const stream = HEARTBEAT_STREAMS[index];
    if (stream === undefined || !wanted()) {
      const next = Math.max(cluster.now + 250, stream === undefined ? begunAt + 1_000 : 0);
      if (next < until) cluster.at(next, () => round(0, cluster.now));
      return;
    }
    numbers[stream] += 1;
    const number = numbers[stream];
    const sentAt = replica.clock(cluster.now);
    const heartbeat = { life, number, sentAt, acknowledged: { ...acknowledged } };
    const took = writeMs();
    // Committed half-way.
    cluster.at(cluster.now + took / 2, () => cluster.heartbeat(stream, heartbeat));
    cluster.at(cluster.now + took, () => {
      acknowledged[stream] = { number, at: replica.clock(cluster.now) };
      replica.recorder.heartbeatWritten(life, stream, acknowledged[stream]);
      round(index + 1, begunAt);
    });
  };
  cluster.at(250, () => round(0, cluster.now));
}
