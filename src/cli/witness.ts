import type { RequestListener } from 'node:http';
import { connect } from 'node:net';
import {
  asError,
  endpointIn,
  type PageEndpoint,
  PageFindings,
  type PageFormat,
  type PageReader,
  pageReader,
  usualPath,
} from '../core/api/index.ts';
import { MOST_WITNESSED, type PageAnswer, problem, readPage } from '../measurement/index.ts';
import { NEVER, pause } from '../timing/index.ts';
import type { Settings } from './commands.ts';
import { usageError } from './flags.ts';
import { serveLeader } from './sidecar-server.ts';
import type { Terminal } from './terminal.ts';

/** The page: a URL, or a Unix socket that accepts HTTP or HAProxy's own commands. */
type Page = { readonly url: URL } | { readonly socketPath: string };

const PAGE_MS = 4_000;
const REST_MS = 50;
const USES = '/v1/uses/';

/**
 * `linger witness`: runs beside a gateway that lists its upstreams only on its loopback address, and answers only whether
 * addresses are in use. Resolves when it is asked to stop.
 */
export async function witness(settings: Settings<'witness'>, { warn }: Terminal): Promise<number> {
  const { listen: where, page, format } = settings;
  const asked = pageOf(page, format);
  const { address = '', port } = addressOf(where);
  const answer = witnessApp(format, (reader) => readFrom(asked, format, reader));
  const about = `whether ${page} lists an address as in use is at ${USES}ADDRESS:PORT`;
  await serveLeader({ address, port, flag: '--listen' }, answer, { warn }, about);
  return 0;
}

interface UseQuestion {
  readonly endpoints: readonly PageEndpoint[];
  readonly answer: (outcome: PageAnswer['outcome']) => void;
}

/**
 * Answers `GET /v1/uses/10.0.0.1:8080,10.0.0.2:8080` with what the page shows of each. Requests that arrive while the page
 * is being read wait for the next read and share it, so frequent requests do not cost the gateway more, or delay others.
 * @param read never rejects
 */
export function witnessApp(
  format: PageFormat,
  read: (reader: PageReader) => Promise<PageAnswer>,
): RequestListener {
  let waiting: UseQuestion[] = [];
  let isReading = false;
  const readOn = async () => {
    if (isReading) return;
    isReading = true;
    while (waiting.length > 0) {
      const asked = waiting;
      waiting = [];
      const { outcome } = await read(
        pageReader(
          format,
          asked.flatMap(({ endpoints }) => endpoints),
        ),
      );
      for (const { answer } of asked) answer(outcome);
      await pause(REST_MS, NEVER);
    }
    isReading = false;
  };
  return (request, response) => {
    const say = (status: number, said: object) => {
      const text = JSON.stringify(said);
      const headers = {
        'Content-Type': 'application/json',
        'Content-Length': Buffer.byteLength(text),
        'Cache-Control': 'no-store',
        Connection: 'close',
      };
      response.writeHead(status, headers).end(text);
    };
    const { method, url = '' } = request;
    const names = url.startsWith(USES) ? url.slice(USES.length).split(',') : [];
    const endpoints = names.map(endpointOf).filter((each) => each !== undefined);
    if (method !== 'GET') return say(405, { message: 'expected GET' });
    if (!url.startsWith(USES)) return say(404, { message: `expected ${USES}ADDRESS:PORT` });
    if (endpoints.length !== names.length || names.length > MOST_WITNESSED)
      return say(400, { message: `expected 1 to ${MOST_WITNESSED} of ADDRESS:PORT, separated by commas` });
    const answer: UseQuestion['answer'] = (outcome) => {
      if (!(outcome instanceof PageFindings)) return say(503, { message: `The page ${outcome.message}.` });
      return say(200, Object.fromEntries(endpoints.map((each, at) => [names[at], outcome.of(each)])));
    };
    waiting.push({ endpoints, answer });
    void readOn();
  };
}

function endpointOf(name: string): PageEndpoint | undefined {
  const { address, port } = endpointIn(name) ?? {};
  return address === undefined || port === undefined ? undefined : { address, ports: [port] };
}

/** @throws LingerError `settings-invalid` */
function pageOf(page: string | undefined, format: PageFormat): Page {
  const expected = (what: string) => usageError(`--page: expected ${what}, got "${page ?? ''}"`);
  if (format === 'Witness')
    throw usageError('--format: expected the format of a page; a witness cannot read another witness');
  const [, socketPath] = /^unix:(\/.+)$/.exec(page ?? '') ?? [];
  if (socketPath !== undefined) return { socketPath };
  if (page === undefined || !URL.canParse(page)) throw expected('a URL, or unix:/path/of/a.sock');
  const url = new URL(page);
  // The message omits the URL, which contains a secret.
  if (url.username !== '' || url.password !== '')
    throw usageError('--page: expected a URL without user and password, which are never sent');
  if (url.protocol !== 'http:' && url.protocol !== 'https:') throw expected('http:// or https://');
  return { url };
}

/** @throws LingerError `settings-invalid` */
function addressOf(listening: string) {
  const [, address, port] = /^(?:\[?([^[\]]*)\]?):(\d{1,5})$/.exec(listening) ?? [];
  if (port === undefined || Number(port) > 65_535)
    throw usageError(`--listen: expected ADDRESS:PORT or :PORT, got "${listening}"`);
  // Without an address: all addresses, of both IPv6 and IPv4 if the host has both.
  return { address, port: Number(port) };
}

function readFrom(page: Page, format: PageFormat, reader: PageReader): Promise<PageAnswer> {
  if ('url' in page) {
    const host = page.url.hostname.replace(/^\[|\]$/g, '');
    return readPage({ url: page.url, to: { host }, reader, timeoutMs: PAGE_MS });
  }
  if (format === 'HAProxy') return readCommand(page.socketPath, 'show servers state', reader);
  const url = new URL(`http://localhost${usualPath(format)}`);
  return readPage({ url, to: page, reader, timeoutMs: PAGE_MS });
}

/** The answer of HAProxy's socket, which is complete only if it ends with an empty line. Never rejects. */
export function readCommand(socketPath: string, command: string, reader: PageReader): Promise<PageAnswer> {
  let bytes = 0;
  let last = '';
  return new Promise((resolve) => {
    const socket = connect(socketPath);
    const settle = (outcome: PageAnswer['outcome']) => {
      clearTimeout(timer);
      resolve({ outcome, bytes });
      socket.destroy();
    };
    const timer = setTimeout(() => settle(problem('Unreachable', 'gets no full answer in time')), PAGE_MS);
    socket.on('error', (error) =>
      settle(problem('Unreachable', `cannot be asked for (${asError(error).message})`)),
    );
    socket.on('data', (chunk) => {
      bytes += chunk.length;
      const text = chunk.toString('latin1');
      last = (last + text).slice(-2);
      reader.write(text);
    });
    socket.on('end', () => {
      const found = last === '\n\n' ? reader.end() : 'is truncated';
      settle(typeof found === 'string' ? problem('BadAnswer', found) : found);
    });
    socket.write(`${command}\n`);
  });
}
