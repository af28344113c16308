import { once } from 'node:events';
import http from 'node:http';
import https from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import type { Credentials } from '../../src/cluster/connection.ts';

/** Where requests are passed on to. */
export interface Upstream extends Credentials {
  readonly url: URL;
}

/** A request as the gateway saw it. */
export interface Seen {
  readonly kind: 'list' | 'watch' | 'other';
  readonly parameters: URLSearchParams;
  readonly headers: http.IncomingHttpHeaders;
  /** The client's port: tells connections apart. */
  readonly port: number;
  readonly at: number;
}

/** What a request meets instead of the server. */
export type Fault =
  | { readonly status: number; readonly headers?: Readonly<Record<string, string>>; readonly body?: string }
  /** The request, changed. */
  | { readonly parameters: Readonly<Record<string, string>> }
  /** No answer at all. */
  | 'hang';

/** Stands between a client and an API server, and does what networks and servers do on bad days. */
export class Gateway {
  readonly seen: Seen[] = [];
  /** Asked about each request; undefined: passed on. */
  fault: (seen: Seen) => Fault | undefined = () => undefined;
  /** New connections are reset. */
  refusing = false;
  readonly #upstream: Upstream;
  readonly #agent: http.Agent;
  readonly #server = http.createServer((request, response) => this.#serve(request, response));
  readonly #sockets = new Set<Socket>();
  readonly #watches = new Set<http.ServerResponse>();

  constructor(upstream: Upstream) {
    this.#upstream = upstream;
    const { ca, cert, key } = upstream;
    this.#agent = upstream.url.protocol === 'https:' ? new https.Agent({ ca, cert, key }) : new http.Agent();
    this.#server.on('connection', (socket) => {
      if (this.refusing) {
        socket.resetAndDestroy();
        return;
      }
      this.#sockets.add(socket);
      socket.on('close', () => this.#sockets.delete(socket)).on('error', () => undefined);
    });
  }

  static async start(upstream: Upstream): Promise<Gateway> {
    const gateway = new Gateway(upstream);
    gateway.#server.listen(0, '127.0.0.1');
    await once(gateway.#server, 'listening');
    return gateway;
  }

  get url(): URL {
    return new URL(`http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`);
  }

  /** Connections that clients hold. */
  get connections(): number {
    return this.#sockets.size;
  }

  get openWatches(): number {
    return this.#watches.size;
  }

  requests(kind: Seen['kind']): readonly Seen[] {
    return this.seen.filter((each) => each.kind === kind);
  }

  /** The next requests of this kind meet the faults, one each. */
  failNext(kind: Seen['kind'], ...faults: readonly Fault[]): void {
    const left = [...faults];
    // The list of one object only asks for the latest resourceVersion.
    this.fault = (seen) =>
      seen.kind === kind && seen.parameters.get('limit') !== '1' ? left.shift() : undefined;
  }

  /** A reset in the middle of whatever is under way. */
  cut(): void {
    for (const socket of this.#sockets) socket.resetAndDestroy();
  }

  /** Watches end as at their timeout. */
  endWatches(): void {
    for (const watch of this.#watches) watch.end();
  }

  /** Watches stay open and bring nothing more: their server has vanished behind a balancer. */
  silenceWatches(): void {
    for (const watch of this.#watches) watch.emit('silence');
    this.#watches.clear();
  }

  /** Watches bring this text, too. */
  inject(text: string): void {
    for (const watch of this.#watches) watch.write(text);
  }

  async close(): Promise<void> {
    this.#server.close();
    this.#server.closeAllConnections();
    this.#agent.destroy();
    await once(this.#server, 'close');
  }

  #serve(request: http.IncomingMessage, response: http.ServerResponse): void {
    const url = new URL(request.url ?? '/', this.#upstream.url);
    const seen = seenOf(request, url);
    this.seen.push(seen);
    const fault = this.fault(seen);
    if (fault === 'hang') return;
    if (fault !== undefined && 'status' in fault) {
      response.writeHead(fault.status, fault.headers).end(fault.body ?? '');
      return;
    }
    for (const [name, value] of Object.entries(fault?.parameters ?? {})) url.searchParams.set(name, value);
    this.#pass(url, request, response, seen.kind);
  }

  #pass(url: URL, request: http.IncomingMessage, response: http.ServerResponse, kind: Seen['kind']): void {
    const transport = url.protocol === 'https:' ? https : http;
    const { accept } = request.headers;
    const headers = { ...(accept === undefined ? {} : { accept }), ...this.#upstream.headers };
    const options = { agent: this.#agent, headers };
    const onward = transport.get(url, options, (answer) => {
      response.writeHead(answer.statusCode ?? 502, { 'content-type': answer.headers['content-type'] ?? '' });
      response.flushHeaders();
      let silent = false;
      response.on('silence', () => {
        silent = true;
      });
      answer.on('data', (chunk) => silent || response.write(chunk));
      answer.on('end', () => silent || response.end());
      answer.on('error', () => silent || response.destroy());
      if (kind === 'watch') this.#watches.add(response);
    });
    onward.on('error', () => response.destroy());
    response.on('close', () => {
      this.#watches.delete(response);
      onward.destroy();
    });
  }
}

function seenOf({ socket, headers }: http.IncomingMessage, { pathname, searchParams }: URL): Seen {
  const collection = !pathname.startsWith('/version');
  const kind = !collection ? 'other' : searchParams.get('watch') === 'true' ? 'watch' : 'list';
  return { kind, parameters: searchParams, headers, port: socket.remotePort ?? 0, at: performance.now() };
}
