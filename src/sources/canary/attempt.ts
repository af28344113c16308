import type { ClientRequest, IncomingMessage } from 'node:http';
import https from 'node:https';
import { isIP } from 'node:net';
import type { ConditionReason } from '../../core/catalog/conditions.ts';
import { http } from '../../kube/http.ts';

/** The header by which a replica of Linger says who it is; gateways may drop it, so the body says the same. */
export const IDENTITY_HEADER = 'linger-canary';
const BODY = /^linger-canary ([0-9a-f]{32})\s*$/;
const IDENTITY = /^[0-9a-f]{32}$/;
/** Linger's own answer has 47 bytes. Whatever is longer is somebody else's, and none of our business. */
const LONGEST_BODY = 128;

/** What an attempt met: a replica, by the name that it gave itself, or what kept it from meeting one. */
export type Answer = { readonly identity: string } | Problem;

export interface Problem {
  readonly identity?: undefined;
  readonly reason: Extract<ConditionReason, 'Unreachable' | 'BadAnswer' | 'SomebodyElse'>;
  /** What happened, to follow the words `the probe`; nothing of what was answered is in it. */
  readonly message: string;
  /** It was turned away at once, as happens where there is nobody behind. */
  readonly turnedAway: boolean;
}

export interface AttemptOptions {
  readonly url: URL;
  /** The address that the URL's host was resolved to. */
  readonly address: string;
  /** For everything together. Milliseconds. */
  readonly timeoutMs: number;
}

/**
 * Asks once, over a connection of its own: resolved, redirected, authenticated and proxied by nobody. Never throws.
 * Resolves within the timeout.
 */
export function attempt(options: AttemptOptions): Promise<Answer> {
  const { timeoutMs } = options;
  return new Promise((resolve) => {
    const request = newRequest(options);
    const settle = (answer: Answer) => {
      clearTimeout(timer);
      resolve(answer);
      request.destroy();
    };
    const timer = setTimeout(() => settle(noAnswer(timeoutMs)), timeoutMs).unref();
    request.on('error', (error) => settle(problemOf(error)));
    request.on('response', (response) => read(response, settle));
    request.end();
  });
}

function newRequest({ url, address, timeoutMs }: AttemptOptions): ClientRequest {
  const hostname = url.hostname.replace(/^\[|\]$/g, '');
  const tls = url.protocol === 'https:';
  const options = {
    host: address,
    port: url.port === '' ? (tls ? 443 : 80) : Number(url.port),
    path: url.pathname + url.search,
    // A new connection, and none of an agent that reads proxies from the environment.
    agent: false as const,
    timeout: timeoutMs,
    headers: {
      host: url.host,
      'user-agent': 'linger-canary',
      accept: 'text/plain, */*;q=0.1',
      'cache-control': 'no-cache',
      connection: 'close',
    },
  };
  if (!tls) return http.request(options);
  return https.request({ ...options, ...(isIP(hostname) === 0 ? { servername: hostname } : {}) });
}

function read(response: IncomingMessage, settle: (answer: Answer) => void): void {
  const { statusCode = 0, headers } = response;
  const named = headers[IDENTITY_HEADER];
  response.on('error', (error) => settle(problemOf(error)));
  if (statusCode < 200 || statusCode > 299) settle(refusal(statusCode));
  else if (typeof named === 'string' && IDENTITY.test(named)) settle({ identity: named });
  else readBody(response, (body) => settle(answerIn(body, statusCode)));
}

/** Ends with undefined as soon as there is too much of it. */
function readBody(response: IncomingMessage, onBody: (body: string | undefined) => void): void {
  let body = '';
  response.setEncoding('latin1');
  response.on('data', (chunk: string) => {
    body += chunk;
    if (body.length > LONGEST_BODY) onBody(undefined);
  });
  response.on('end', () => onBody(body));
}

function answerIn(body: string | undefined, status: number): Answer {
  const identity = BODY.exec(body ?? '')?.[1];
  return identity === undefined ? stranger(status) : { identity };
}

function refusal(status: number): Problem {
  if (status >= 300 && status < 400) {
    const message = `is redirected (${status}), which is not followed: name the URL that it is to end at`;
    return { reason: 'BadAnswer', message, turnedAway: false };
  }
  // 5xx is what gateways say for want of an endpoint.
  return { reason: 'BadAnswer', message: `is answered with status ${status}`, turnedAway: status >= 500 };
}

function stranger(status: number): Problem {
  const message = `is answered with ${status} by something that is not Linger: the URL must lead to the Service linger-canary`;
  return { reason: 'SomebodyElse', message, turnedAway: false };
}

function noAnswer(timeoutMs: number): Problem {
  const message = `gets no answer within ${timeoutMs / 1000} s`;
  return { reason: 'Unreachable', message, turnedAway: false };
}

const KNOWN: Readonly<Record<string, Omit<Problem, 'identity' | 'reason'>>> = {
  ECONNREFUSED: { message: 'is refused a connection', turnedAway: true },
  ECONNRESET: { message: 'has its connection closed without a whole answer', turnedAway: true },
  EPIPE: { message: 'has its connection closed without a whole answer', turnedAway: true },
  EHOSTUNREACH: { message: 'finds no way to the address', turnedAway: true },
  ENETUNREACH: { message: 'finds no way to the address', turnedAway: true },
  ETIMEDOUT: { message: 'gets no connection in time', turnedAway: false },
};

/** Of node:tls, and of OpenSSL's verification: `ERR_TLS_CERT_ALTNAME_INVALID`, `DEPTH_ZERO_SELF_SIGNED_CERT`. */
const CERTIFICATE = /CERT|SELF_SIGNED|UNABLE_TO|HOSTNAME_MISMATCH/;

function problemOf(error: Error & { readonly code?: unknown }): Problem {
  const code = typeof error.code === 'string' ? error.code : error.name;
  const known = KNOWN[code];
  if (known !== undefined) return { reason: 'Unreachable', ...known };
  if (code.startsWith('HPE_')) {
    const message = `is answered with what is no HTTP, or too much of it (${code})`;
    return { reason: 'BadAnswer', message, turnedAway: false };
  }
  if (CERTIFICATE.test(code)) {
    const message = `does not trust the certificate (${code}): NODE_EXTRA_CA_CERTS names further authorities`;
    return { reason: 'Unreachable', message, turnedAway: false };
  }
  if (/SSL|TLS|EPROTO/.test(code)) {
    return { reason: 'Unreachable', message: `cannot agree on TLS (${code})`, turnedAway: false };
  }
  return { reason: 'Unreachable', message: `fails (${code})`, turnedAway: false };
}

/** Of a replica's canary server, or of what leads to one. */
export function canaryUrl(address: string, port: number): URL {
  return new URL(`http://${address.includes(':') ? `[${address}]` : address}:${port}/canary`);
}
