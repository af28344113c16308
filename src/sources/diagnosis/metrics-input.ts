import { readFile } from 'node:fs/promises';
import { text as readAll } from 'node:stream/consumers';
import { LingerError } from '../../core/catalog/errors.ts';
import type { Credentials } from '../../kube/connection.ts';
import { ApiReader, messageOf } from './api-reader.ts';

/** Metrics that somebody has named: an address, or a saved scrape. */
export interface MetricsInput {
  /** A URL, a file, or `-`: standard input. */
  readonly from: string;
  /** PEM file of who may vouch for the server. */
  readonly caFile?: string | undefined;
  readonly tokenFile?: string | undefined;
  /** Whether a server that nobody vouches for is good enough. On this machine's own addresses it always is. */
  readonly insecure?: boolean;
  /**
   * Whose client certificate to show where there is no token. Showing it gives nothing away, as its key stays here; a
   * token of theirs is never sent.
   */
  readonly identity?: () => Promise<Credentials>;
}

export function isAddress(from: string): boolean {
  return /^https?:\/\//i.test(from);
}

/** @throws LingerError `metrics-unreadable` */
export function readMetricsFile(from: string, stdin: NodeJS.ReadableStream): Promise<string> {
  return from === '-' ? readAll(stdin) : fileOf(from);
}

/**
 * Reads the address once.
 * @throws LingerError `metrics-unreadable`, `settings-invalid`; the signal's reason once that has aborted
 */
export async function readMetricsAddress(input: MetricsInput, signal: AbortSignal): Promise<string> {
  const url = addressOf(input.from);
  const insecure = isUnverified(url, input);
  const credentials = await credentialsOf(input);
  // The rest of the address is the request's path: what asks puts it behind the server's own.
  const server = new URL(url.origin);
  const reader = new ApiReader({ server, insecure, credentials: () => Promise.resolve(credentials) }, signal);
  try {
    return await reader.text(`${url.pathname}${url.search}`);
  } catch (thrown) {
    const message = explained(messageOf(thrown, signal), credentials);
    throw new LingerError('metrics-unreadable', `${input.from}: ${message}`);
  } finally {
    reader.close();
  }
}

function addressOf(from: string): URL {
  if (URL.canParse(from)) return new URL(from);
  throw new LingerError(
    'metrics-unreadable',
    `${from}: expected an address such as https://127.0.0.1:10257/metrics`,
  );
}

/**
 * Whether the server need not prove who it is. On this machine's own addresses it never need: the controller-manager's
 * certificate is one that nobody vouches for, unless somebody has given it another.
 */
function isUnverified(url: URL, { from, caFile, tokenFile, insecure = false }: MetricsInput): boolean {
  const local = isLoopback(url.hostname);
  const unverified = url.protocol === 'http:' || (caFile === undefined && (local || insecure));
  if (tokenFile !== undefined && unverified && !local) {
    throw new LingerError(
      'settings-invalid',
      `${from}: expected an https:// address and the CA of its certificate, to send a token there; give --controller-metrics-ca`,
    );
  }
  return unverified;
}

async function credentialsOf({ caFile, tokenFile, identity }: MetricsInput): Promise<Credentials> {
  const ca = caFile === undefined ? undefined : await fileOf(caFile);
  if (tokenFile !== undefined) return { ca, token: (await fileOf(tokenFile)).trim() };
  const { certificate, key } = (await identity?.()) ?? {};
  return { ca, certificate, key };
}

/** @throws LingerError `metrics-unreadable` */
async function fileOf(file: string): Promise<string> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    const why = (error as NodeJS.ErrnoException).code ?? 'unknown';
    throw new LingerError('metrics-unreadable', `${file}: cannot be read (${why})`);
  }
}

/** What the server said, and what would help. */
function explained(message: string, { token, certificate }: Credentials): string {
  if (!/^40[13]:/.test(message)) return message;
  const shown =
    token !== undefined ? 'the token' : certificate !== undefined ? 'the client certificate' : 'nobody';
  return `${message}; it was asked as ${shown}. It takes a client certificate of the cluster’s CA, or a token, whose user may get the nonResourceURL /metrics: --kubeconfig, --controller-metrics-token-file`;
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '[::1]' || /^127(\.\d+){3}$/.test(host);
}
