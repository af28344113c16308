import http from 'node:http';
import type { Endpoint } from './conntrack.ts';
import type { Source } from './ports.ts';

/** How a request was lost. */
export type LossKind =
  /** Connection refused: a RST in answer to the SYN. */
  | 'refused'
  /** No answer to the SYN, or none to the request, in time. */
  | 'timeout'
  /** An established connection was cut. */
  | 'reset'
  /** The network said that there is no such host. */
  | 'unreachable'
  /** An answer that is not the application's, or not all of it. */
  | 'badAnswer'
  /** An HTTP status other than 2xx. */
  | 'status'
  /** A gateway that knows of no endpoint to send it to. */
  | 'noEndpoint';

export type Outcome =
  | { readonly result: 'answered'; readonly pod: string }
  | { readonly result: 'lost'; readonly kind: LossKind; readonly detail: string }
  /** The source could not be used (somebody listens on that port): nothing was sent. */
  | { readonly result: 'notSent'; readonly detail: string };

export interface RequestOptions {
  readonly target: Endpoint;
  /** Where the connection comes from; undefined: the kernel chooses. */
  readonly source?: Source | undefined;
  /** Whose connections are used again; undefined: a connection of its own, closed afterwards. */
  readonly agent?: http.Agent | undefined;
  readonly path: string;
  /** Milliseconds from the first SYN. */
  readonly connectTimeoutMs: number;
  /** Milliseconds from the established connection to the last byte of the answer. */
  readonly answerTimeoutMs: number;
  /** Called with the source of the request's connection, once there is one. */
  readonly connected?: (source: Source) => void;
}

const kinds: Readonly<Record<string, LossKind>> = {
  ECONNREFUSED: 'refused',
  ECONNRESET: 'reset',
  EPIPE: 'reset',
  ETIMEDOUT: 'timeout',
  EHOSTUNREACH: 'unreachable',
  ENETUNREACH: 'unreachable',
};

/** Local refusals to bind or connect from a source: the request never left. */
const notSent = new Set(['EADDRINUSE', 'EADDRNOTAVAIL', 'EACCES']);

/** One HTTP/1.1 GET. Never rejects. */
export function sendRequest(options: RequestOptions): Promise<Outcome> {
  return new Promise((resolve) => {
    let phase: 'connect' | 'answer' | 'over' = 'connect';
    let timedOut = false;
    const request = openRequest(options);
    const limit = (milliseconds: number, limited: typeof phase) =>
      setTimeout(() => {
        // After a stall of this process the answer may be there, unread: it comes first, then the verdict.
        setImmediate(() => {
          timedOut = phase === limited;
          if (timedOut) request.destroy();
        });
      }, milliseconds);
    let timer = limit(options.connectTimeoutMs, 'connect');
    const enter = (next: typeof phase) => {
      clearTimeout(timer);
      phase = next;
    };
    const end = (outcome: Outcome) => {
      enter('over');
      resolve(outcome);
    };
    const fail = (error: NodeJS.ErrnoException) =>
      end(failure(timedOut ? 'ETIMEDOUT' : error.code, error, phase));
    request.on('socket', (socket) => {
      const connected = () => {
        enter('answer');
        timer = limit(options.answerTimeoutMs, 'answer');
        options.connected?.({ address: socket.localAddress ?? '', port: socket.localPort ?? 0 });
      };
      if (socket.connecting) socket.once('connect', connected);
      else connected();
    });
    request.on('error', fail);
    request.on('response', (response) => readAnswer(response).then(end, fail));
  });
}

function openRequest({ target, source, agent, path }: RequestOptions): http.ClientRequest {
  return http.get({
    host: target.address,
    port: target.port,
    path,
    ...(source === undefined ? {} : { localAddress: source.address, localPort: source.port }),
    ...(agent === undefined ? { agent: false, headers: { connection: 'close' } } : { agent }),
  });
}

function failure(code: string | undefined, error: Error, phase: string): Outcome {
  if (code !== undefined && notSent.has(code)) return { result: 'notSent', detail: code };
  // What is no error of the network is one of the HTTP parser: an answer that is none.
  return {
    result: 'lost',
    kind: kinds[code ?? ''] ?? 'badAnswer',
    detail: `${phase}: ${code ?? error.message}`,
  };
}

/** The application answers with its pod's name, in a header and as the body. */
async function readAnswer(response: http.IncomingMessage): Promise<Outcome> {
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk as Buffer);
  const body = Buffer.concat(chunks).toString().trim();
  const status = response.statusCode ?? 0;
  if (status < 200 || status > 299) return { result: 'lost', kind: 'status', detail: String(status) };
  const pod = response.headers['x-pod'];
  if (typeof pod !== 'string' || pod !== body) {
    return { result: 'lost', kind: 'badAnswer', detail: `x-pod ${pod}, body ${body.slice(0, 60)}` };
  }
  return { result: 'answered', pod };
}
