import { once } from 'node:events';
import { type Socket as TcpSocket, connect as tcpConnect } from 'node:net';
import { type ConnectionOptions, type TLSSocket, connect as tlsConnect } from 'node:tls';
import { afterAll, onTestFinished } from 'vitest';

export interface HttpAnswer {
  readonly status: number;
  /** Names in lower case. */
  readonly headers: ReadonlyMap<string, string>;
  readonly body: string;
}

/** Where a webhook answers and who vouches for it. */
export interface Address {
  /** Default: 127.0.0.1. */
  readonly host?: string | undefined;
  readonly port: number;
  readonly ca: string;
}

/** A TLS connection on which a test writes what it likes, byte by byte. */
export class Connection {
  readonly #socket: TLSSocket;
  #received = Buffer.alloc(0);
  #ended = false;
  #wake: () => void = () => undefined;
  /** Resolves when the server has closed the connection, or reset it. */
  readonly closed: Promise<void>;

  constructor(socket: TLSSocket) {
    this.#socket = socket;
    this.closed = new Promise((resolve) => {
      const end = () => {
        this.#ended = true;
        this.#wake();
        resolve();
      };
      socket.on('end', end).on('close', end);
    });
    socket.on('data', (chunk: Buffer) => {
      this.#received = Buffer.concat([this.#received, chunk]);
      this.#wake();
    });
    // A server that refuses a body closes while the client is still sending it.
    socket.on('error', () => undefined);
  }

  get peerFingerprint(): string {
    return this.#socket.getPeerCertificate().fingerprint256;
  }

  /** `DNS:localhost, IP Address:127.0.0.1` */
  get peerNames(): string {
    return this.#socket.getPeerCertificate().subjectaltname ?? '';
  }

  get isClosed(): boolean {
    return this.#ended;
  }

  write(data: string | Buffer): void {
    this.#socket.write(data);
  }

  /** Says that nothing more will be sent, and goes on listening. */
  end(): void {
    this.#socket.end();
  }

  destroy(): void {
    this.#socket.destroy();
  }

  /** The next answer. Rejects when the connection ends before it is complete. */
  async answer(method = 'POST'): Promise<HttpAnswer> {
    for (;;) {
      const parsed = parseAnswer(this.#received, method);
      if (parsed !== undefined) {
        this.#received = this.#received.subarray(parsed.length);
        return parsed.answer;
      }
      if (this.#ended) {
        throw new Error(`the connection ended after ${JSON.stringify(this.#received.toString('latin1'))}`);
      }
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }
}

/** Registers what is to be done at the end of a test; concurrent tests have one of their own. */
export type AtEnd = (clean: () => unknown) => void;

/** For files whose tests run at the same time: everything is cleaned up at the file's end. */
export function atEndOfFile(): AtEnd {
  const ends: (() => unknown)[] = [];
  afterAll(async () => {
    for (const clean of ends.toReversed()) await clean();
  });
  return (clean) => void ends.push(clean);
}

export async function connect(
  { host = '127.0.0.1', port, ca }: Address,
  atEnd: AtEnd = onTestFinished as AtEnd,
  more: ConnectionOptions = {},
): Promise<Connection> {
  const socket = tlsConnect({ host, port, ca, servername: 'localhost', ...more });
  await once(socket, 'secureConnect');
  atEnd(() => socket.destroy());
  return new Connection(socket);
}

/** A TCP connection to the same port that never begins its TLS handshake. */
export async function connectSilently({ port }: Pick<Address, 'port'>, atEnd: AtEnd): Promise<TcpSocket> {
  const socket = tcpConnect({ host: '127.0.0.1', port });
  socket.on('error', () => undefined).resume();
  await once(socket, 'connect');
  atEnd(() => socket.destroy());
  return socket;
}

export type Headers = Readonly<Record<string, string>>;

/** A request with a Content-Length, as the API server writes it. */
export function requestBytes(
  body: string | Buffer,
  headers: Headers = {},
  method = 'POST',
  path = '/mutate',
) {
  const bytes = Buffer.from(body as string);
  const all = { Host: 'localhost', 'Content-Length': String(bytes.length), ...headers };
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`);
  return Buffer.concat([Buffer.from(`${method} ${path} HTTP/1.1\r\n${lines.join('')}\r\n`), bytes]);
}

interface ParsedAnswer {
  readonly answer: HttpAnswer;
  readonly length: number;
}

function parseAnswer(bytes: Buffer, method: string): ParsedAnswer | undefined {
  const end = bytes.indexOf('\r\n\r\n');
  if (end < 0) return undefined;
  const [statusLine = '', ...lines] = bytes.subarray(0, end).toString('latin1').split('\r\n');
  const headers = new Map(
    lines.map((line) => {
      const colon = line.indexOf(':');
      return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()] as const;
    }),
  );
  const bodyStart = end + 4;
  const length = method === 'HEAD' ? 0 : Number(headers.get('content-length') ?? 0);
  if (bytes.length < bodyStart + length) return undefined;
  const body = bytes.subarray(bodyStart, bodyStart + length).toString('utf8');
  return {
    answer: { status: Number(statusLine.split(' ')[1]), headers, body },
    length: bodyStart + length,
  };
}
