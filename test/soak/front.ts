import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import https from 'node:https';
import type { AddressInfo, Socket } from 'node:net';

export interface FrontInput {
  /** URL of the API server. */
  readonly server: URL;
  readonly authority: string;
  /** The certificate that it presents to clients, PEM. */
  readonly certificate: string;
  readonly key: string;
}

/** `throttling`: every request gets 429, and watches go on. `refusing`: no new connection. */
export type Mood = 'passing' | 'throttling' | 'refusing';

const TOO_MANY = JSON.stringify({
  kind: 'Status',
  apiVersion: 'v1',
  metadata: {},
  status: 'Failure',
  code: 429,
  reason: 'TooManyRequests',
  message: 'the soak throttles',
});

/** Stands between one replica and the API server, which sees the replica's own token. */
export class Front {
  mood: Mood = 'passing';
  throttled = 0;
  readonly #input: FrontInput;
  readonly #agent: https.Agent;
  readonly #server: https.Server;
  readonly #sockets = new Set<Socket>();

  private constructor(input: FrontInput) {
    this.#input = input;
    this.#agent = new https.Agent({ keepAlive: true, ca: input.authority });
    const { certificate: cert, key } = input;
    // As the API server: it must not be the one that ends an idle connection just when a request comes.
    this.#server = https.createServer({ cert, key, keepAliveTimeout: 90_000 }, (request, response) => {
      if (this.mood !== 'throttling') {
        this.#pass(request, response);
        return;
      }
      this.throttled += 1;
      request.resume();
      response.writeHead(429, { 'retry-after': '1', 'content-type': 'application/json' }).end(TOO_MANY);
    });
    this.#server.on('connection', (socket: Socket) => {
      if (this.mood === 'refusing') {
        socket.resetAndDestroy();
        return;
      }
      this.#sockets.add(socket);
      socket.on('close', () => this.#sockets.delete(socket)).on('error', () => undefined);
    });
    this.#server.on('tlsClientError', () => undefined);
  }

  static async start(input: FrontInput): Promise<Front> {
    const front = new Front(input);
    front.#server.listen(0, '127.0.0.1');
    await once(front.#server, 'listening');
    return front;
  }

  get url(): string {
    return `https://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Every connection is reset. */
  cut(): void {
    for (const socket of this.#sockets) socket.resetAndDestroy();
  }

  async close(): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.cut();
    this.#agent.destroy();
    await closed;
  }

  #pass(request: IncomingMessage, response: ServerResponse): void {
    const { hostname: host, port } = this.#input.server;
    const { method, url: path, headers } = request;
    const options = { host, port, method, path, headers, agent: this.#agent };
    const passed = https.request(options, (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(response);
      answer.on('error', () => response.destroy());
    });
    passed.on('error', () => response.destroy());
    response.on('close', () => passed.destroy());
    request.pipe(passed);
  }
}
