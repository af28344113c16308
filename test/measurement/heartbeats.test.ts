import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  type ClusterEvent,
  HEARTBEAT_ANNOTATION,
  type HeartbeatStream,
  heartbeatOf,
} from '../../src/core/lag/index.ts';
import { sendHeartbeats } from '../../src/measurement/heartbeats.ts';
import { Measurement } from '../../src/measurement/measurement.ts';
import { ALL_CURRENT, service, slice, terminating } from '../core/lag/sample-events.ts';

const CORE = '/api/v1/namespaces/linger';
const DISCOVERY = '/apis/discovery.k8s.io/v1/namespaces/linger';
const STREAM_OF: Readonly<Record<string, HeartbeatStream>> = {
  [`${CORE}/pods/linger-0`]: 'pods',
  [`${DISCOVERY}/endpointslices/linger-heartbeat`]: 'EndpointSlice',
  [`${CORE}/endpoints/linger-heartbeat`]: 'Endpoints',
};

interface Write {
  readonly at: number;
  readonly stream: HeartbeatStream | undefined;
  readonly method: string | undefined;
  readonly query: string;
  readonly type: string | undefined;
  readonly object: { readonly metadata: { readonly annotations: Record<string, string> } } & Record<
    string,
    unknown
  >;
}

/** A stamper and an API server over a real socket; their time passes only in pauses, 250 ms each. */
class WithHeartbeat {
  now = 0;
  readonly writes: Write[] = [];
  readonly lines: { msg: string }[] = [];
  wanted = (_life: string, _silentMs: number): boolean => true;
  answer: (write: Write) => { status: number; retryAfter?: number } = () => ({ status: 200 });
  onWrite: (stream: HeartbeatStream, text: string) => void = () => undefined;
  onPause: () => void = () => undefined;
  leads = true;
  readonly #server = http.createServer((request, response) => void this.#serve(request, response));
  readonly #ending = new AbortController();

  async start(): Promise<void> {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }

  /** Heartbeats until so many milliseconds have passed. */
  async run(until: number): Promise<void> {
    const { port } = this.#server.address() as AddressInfo;
    const write = (line: string) => this.lines.push(JSON.parse(line) as { msg: string });
    await sendHeartbeats({
      connection: {
        server: new URL(`http://127.0.0.1:${port}`),
        namespace: undefined,
        credentials: async () => ({}),
      },
      place: { namespace: 'linger', identity: 'linger-0' },
      leads: () => this.leads,
      wanted: (life, silentMs) => this.wanted(life, silentMs),
      onWritten: () => undefined,
      signal: this.#ending.signal,
      logger: pino({}, { write }),
      clock: () => this.now,
      random: () => 0,
      pause: async (milliseconds) => {
        this.now += milliseconds;
        this.onPause();
        if (this.now < until) return true;
        this.#ending.abort();
        return false;
      },
    });
  }

  async #serve(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const object = JSON.parse(Buffer.concat(chunks).toString()) as Write['object'];
    const [path = '', query = ''] = (request.url ?? '').split('?');
    const stream = STREAM_OF[path];
    const { method } = request;
    const write = { at: this.now, stream, method, query, type: request.headers['content-type'], object };
    this.writes.push(write);
    const { status, retryAfter } = this.answer(write);
    if (status === 200 && stream !== undefined)
      this.onWrite(stream, object.metadata.annotations[HEARTBEAT_ANNOTATION] ?? '');
    response.writeHead(status, retryAfter === undefined ? {} : { 'retry-after': String(retryAfter) });
    response.end(
      JSON.stringify(status === 200 ? object : { kind: 'Status', status: 'Failure', message: 'no' }),
    );
  }
}

let stamped: WithHeartbeat;
beforeEach(async () => {
  stamped = new WithHeartbeat();
  await stamped.start();
});
afterEach(() => stamped.stop());

const stampIn = ({ object }: Write) => heartbeatOf(object.metadata.annotations[HEARTBEAT_ANNOTATION]);

describe('heartbeats', () => {
  it('are an annotation of the own pod, and an EndpointSlice and an Endpoints that belong to no Service', async () => {
    await stamped.run(1_000);
    const [pod, endpointSlice, endpoints] = stamped.writes;
    expect(stamped.writes.map(({ stream, method }) => `${method} ${stream}`)).toEqual([
      'PATCH pods',
      'PATCH EndpointSlice',
      'PATCH Endpoints',
    ]);
    expect(pod).toMatchObject({ type: 'application/merge-patch+json', query: '' });
    expect(Object.keys(pod!.object)).toEqual(['metadata']);
    expect(Object.keys(pod!.object.metadata)).toEqual(['annotations']);
    const applied = {
      type: 'application/apply-patch+yaml',
      query: 'fieldManager=linger-heartbeat&force=true',
    };
    expect(endpointSlice).toMatchObject({ ...applied, object: { kind: 'EndpointSlice', endpoints: [] } });
    expect(endpointSlice!.object.metadata).toMatchObject({
      labels: { 'service.kubernetes.io/headless': '' },
    });
    expect(endpoints).toMatchObject({ ...applied, object: { kind: 'Endpoints' } });
    const labels = { 'endpointslice.kubernetes.io/skip-mirror': 'true' };
    expect(endpoints!.object.metadata).toMatchObject({ labels });
    expect(stampIn(endpoints!)).toMatchObject({
      number: 1,
      acknowledged: { pods: { number: 1 }, EndpointSlice: { number: 1 }, Endpoints: { number: 0 } },
    });
  });

  it('come once a second while they are wanted, and two seconds longer', async () => {
    stamped.wanted = () => stamped.now >= 2_000 && stamped.now < 5_000;
    await stamped.run(20_000);
    const pods = stamped.writes.filter(({ stream }) => stream === 'pods');
    expect(pods.map(({ at }) => at)).toEqual([2_000, 3_000, 4_000, 5_000, 6_000]);
    expect(pods.map((write) => stampIn(write)?.number)).toEqual([1, 2, 3, 4, 5]);
  });

  it('are left to the leader, unless it writes none', async () => {
    const asked: number[] = [];
    stamped.leads = false;
    stamped.wanted = (_, silentMs) => {
      asked.push(silentMs);
      return false;
    };
    await stamped.run(2_000);
    expect([stamped.writes, new Set(asked)]).toEqual([[], new Set([2_500])]);
  });

  it('wait as long as the server asks, stream by stream, and say so once', async () => {
    stamped.answer = ({ stream, at }) =>
      stream === 'Endpoints' && at < 20_000 ? { status: 429, retryAfter: 4 } : { status: 200 };
    await stamped.run(40_000);
    const of = (stream: HeartbeatStream) => stamped.writes.filter((write) => write.stream === stream);
    expect(of('pods').length).toBeGreaterThan(35);
    expect(of('Endpoints').filter(({ at }) => at < 20_000).length).toBeLessThanOrEqual(5);
    expect(stamped.lines.map(({ msg }) => msg)).toEqual([
      'writing heartbeats failed; late watches go unnoticed',
      'writing heartbeats recovered',
    ]);
  });
});

describe('with the measurement of two replicas', () => {
  /** The heartbeats and the removals reach each by streams that are late. */
  class Replica {
    readonly lags: number[] = [];
    readonly measurement: Measurement;
    readonly #delays: Partial<Record<HeartbeatStream, number>>;
    readonly #queue: ClusterEvent[] = [];

    constructor(delays: Partial<Record<HeartbeatStream, number>>) {
      this.#delays = delays;
      this.measurement = new Measurement(
        { clock: () => stamped.now, epochSeconds: () => 1e9 },
        { heartbeats: true },
      );
      this.measurement.onRemoval(({ lag }) => void this.lags.push(lag));
      for (const event of [...ALL_CURRENT, service(), slice(0, { a: 'ready' })])
        this.measurement.apply(event);
    }

    write(stream: HeartbeatStream, eventAt: (at: number) => ClusterEvent): void {
      this.#queue.push(eventAt(stamped.now + (this.#delays[stream] ?? 0)));
      this.#queue.sort((a, b) => a.at - b.at);
    }

    deliver(): void {
      while (this.#queue[0] !== undefined && this.#queue[0].at <= stamped.now)
        this.measurement.apply(this.#queue.shift() as ClusterEvent);
    }
  }

  it.each([
    ['slices 15 s late: no lag of 15 s', { EndpointSlice: 15_000 }, 250],
    ['pods 1.75 s late: no lag of 3.25 s instead of 5 s', { pods: 1_750 }, 5_000],
  ])('%s', async (_, delays, lagMs) => {
    const [leader, follower] = [new Replica({}), new Replica(delays)];
    const both = [leader, follower];
    stamped.wanted = (life, silentMs) =>
      both.some(({ measurement }, index) => measurement.wantsHeartbeat(life, index === 0 ? silentMs : 2_500));
    stamped.onWrite = (from, text) => {
      const heartbeat = heartbeatOf(text)!;
      for (const replica of both) replica.write(from, (at) => ({ type: 'Heartbeat', at, from, heartbeat }));
    };
    stamped.onPause = () => {
      for (const replica of both) {
        if (stamped.now === 10_000) replica.write('pods', (at) => terminating(at, 'a'));
        if (stamped.now === 10_000 + lagMs) replica.write('EndpointSlice', (at) => slice(at, {}));
        replica.deliver();
      }
    };
    await stamped.run(45_000);
    expect([leader.lags, follower.lags]).toEqual([[lagMs / 1000], []]);
    expect(follower.measurement.discarded.Late).toBe(1);
  });
});
