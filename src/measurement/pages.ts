import type { IncomingMessage, RequestOptions } from 'node:http';
import https from 'node:https';
import { isIP } from 'node:net';
import { http } from '../cluster/index.ts';
import { LONGEST_PAGE, type PageFindings, type PageReader } from './page-formats.ts';
import { hostOf, type Problem, problem, problemOf, refusal } from './probe.ts';

/** How a page's certificate is verified. */
export interface PageTrust {
  readonly ca?: Buffer | undefined;
  readonly serverName?: string | undefined;
  readonly insecureSkipVerify?: boolean | undefined;
}

export interface PageRequest {
  readonly url: URL;
  /** Where to connect: the address that the URL's host stands for, or a Unix socket. */
  readonly to: { readonly address: string } | { readonly socketPath: string };
  readonly trust?: PageTrust | undefined;
  readonly token?: string | undefined;
  readonly reader: PageReader;
  /** The timeout of the whole request. Milliseconds. */
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
}

export interface PageAnswer {
  /** What the page shows, or why it could not be read whole. */
  readonly outcome: PageFindings | Problem;
  readonly bytes: number;
}

/**
 * Reads a page over its own connection to exactly this address: no name is resolved, no redirect followed, no proxy used.
 * Only a complete answer with status 200 counts: in a truncated one, addresses would seem to be gone. Never throws, and
 * resolves within the timeout.
 */
export function readPage(asked: PageRequest): Promise<PageAnswer> {
  const { timeoutMs, reader, signal } = asked;
  let bytes = 0;
  return new Promise((resolve) => {
    const request = newRequest(asked);
    const settle = (outcome: PageAnswer['outcome']) => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', abort);
      resolve({ outcome, bytes });
      request.destroy();
    };
    const late = problem('Unreachable', `gets no whole answer within ${timeoutMs / 1000} s`);
    const timer = setTimeout(() => settle(late), timeoutMs).unref();
    const abort = () => settle(problem('Unreachable', 'is no longer asked'));
    signal?.addEventListener('abort', abort, { once: true });
    request.on('error', (error) => settle(problemOf(error)));
    request.on('response', (response) => {
      const refused = whyUnusable(response);
      if (refused !== undefined) return settle(refused);
      response.on('data', (chunk: Buffer) => {
        bytes += chunk.length;
        if (bytes > LONGEST_PAGE) settle(problem('BadAnswer', `is longer than ${LONGEST_PAGE >> 20} MiB`));
        else reader.write(chunk);
      });
      response.on('error', (error) => settle(problemOf(error)));
      response.on('end', () => {
        if (!response.complete) return settle(problem('BadAnswer', 'breaks off'));
        const found = reader.end();
        settle(typeof found === 'string' ? problem('BadAnswer', found) : found);
      });
    });
    request.end();
    if (signal?.aborted) abort();
  });
}

function newRequest({ url, to, trust = {}, token }: PageRequest) {
  const options: RequestOptions = {
    ...('address' in to ? { host: to.address } : { socketPath: to.socketPath }),
    port: url.port === '' ? (url.protocol === 'https:' ? 443 : 80) : Number(url.port),
    path: url.pathname + url.search,
    // A new connection, without an agent, which might use a proxy from the environment.
    agent: false,
    headers: {
      host: url.host,
      'user-agent': 'linger-inspect',
      'accept-encoding': 'identity',
      connection: 'close',
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    },
  };
  if (url.protocol !== 'https:') return http.request(options);
  const host = trust.serverName ?? hostOf(url);
  return https.request({
    ...options,
    ca: trust.ca,
    rejectUnauthorized: trust.insecureSkipVerify !== true,
    ...(isIP(host) === 0 ? { servername: host } : {}),
  });
}

/** Why the body of an answer is not read, if it is not. */
function whyUnusable({ statusCode = 0, headers }: IncomingMessage): Problem | undefined {
  if (statusCode !== 200) return refusal(statusCode);
  const { 'content-encoding': encoding = 'identity', 'x-next-page': next = '' } = headers;
  if (encoding !== 'identity') return problem('BadAnswer', `is encoded as ${encoding.slice(0, 20)}, unasked`);
  // Traefik paginates its lists, and names page 1 where there is no next page.
  if (next !== '' && next !== '1')
    return problem('BadAnswer', 'is only a part: the path must ask for all at once (per_page)');
  const isMeasured = headers['content-length'] !== undefined || headers['transfer-encoding'] === 'chunked';
  if (isMeasured) return undefined;
  return problem('BadAnswer', 'does not say how long it is, so that a part of it would look like the whole');
}
