import { once } from 'node:events';
import http, { type IncomingMessage, type ServerResponse } from 'node:http';
import https from 'node:https';
import type { AddressInfo } from 'node:net';
import { type RecordedAnswer, type Recording, requestKey } from '../../src/dashboard/recording.ts';
import { type ApiConnection, ApiError } from '../testbed/api.ts';
import { eachLine } from '../testbed/command.ts';

/** `at`: seconds since the epoch. */
type Lines = [at: number, line: string][];

/** Stands between a dashboard and the API server, and keeps what that answers. */
export class Recorder {
  readonly #api: ApiConnection;
  readonly #agent: https.Agent;
  readonly #answers = new Map<string, RecordedAnswer[]>();
  readonly #watches = new Map<string, Lines>();
  /** Never the first to close a connection: its client may just be using it again. */
  readonly #server = http.createServer({ keepAliveTimeout: 0 }, (request, response) =>
    this.#pass(request, response),
  );
  /** What came before it is as it was then. */
  #from = Date.now() / 1000;

  constructor(api: ApiConnection) {
    this.#api = api;
    this.#agent = new https.Agent({ keepAlive: true, ca: api.ca, cert: api.certificate, key: api.key });
  }

  /** @returns its address */
  async start(): Promise<string> {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  stop(): void {
    this.#server.close();
    this.#server.closeAllConnections();
    this.#agent.destroy();
  }

  /** The recording begins now. */
  begin(): void {
    this.#from = Date.now() / 1000;
  }

  /** What was answered since it has begun. */
  recording(of: string): Recording {
    const from = this.#from;
    const since = <T extends readonly [at: number, ...rest: unknown[]]>([at, ...rest]: T) =>
      [Math.max(0, Math.round((at - from) * 1000) / 1000), ...rest] as unknown as T;
    const answers = [...this.#answers].map(([key, all]) => {
      const before = all.findLastIndex(([at]) => at <= from);
      // The other lists follow from the first one and from the events.
      const kept = this.#watches.has(key) ? all.slice(0, 1) : all.slice(Math.max(0, before));
      return [key, kept.map(since)] as const;
    });
    const watches = [...this.#watches].map(([key, lines]) => [key, lines.map(since)] as const);
    const lasts = Math.floor(Date.now() / 1000 - from);
    return { of, from, lasts, answers: Object.fromEntries(answers), watches: Object.fromEntries(watches) };
  }

  #pass(request: IncomingMessage, response: ServerResponse): void {
    const asked = new URL(request.url ?? '', this.#api.url);
    if (asked.pathname.includes('/secrets')) throw new Error(`not to be recorded: ${asked.pathname}`);
    const isWatch = asked.searchParams.has('watch');
    // Each list in one piece: no later page has to be found again.
    asked.searchParams.delete('limit');
    const { ca, certificate: cert, key } = this.#api;
    const headers = { accept: request.headers.accept ?? 'application/json' };
    const options = { method: request.method ?? 'GET', headers, agent: this.#agent, ca, cert, key };
    const passed = https.request(asked, options, (answer) => {
      const { statusCode = 0 } = answer;
      const type = answer.headers['content-type'] ?? '';
      response.writeHead(statusCode, { 'content-type': type });
      if (isWatch && statusCode === 200) this.#watch(requestKey(request), answer, response);
      // One that is cut off, as at the end, is none.
      else void this.#answer(requestKey(request), answer, response).catch(() => response.destroy());
    });
    passed.on('error', () => response.destroy());
    response.on('close', () => passed.destroy());
    request.pipe(passed);
  }

  #watch(key: string, answer: IncomingMessage, response: ServerResponse): void {
    const lines: Lines = this.#watches.get(key) ?? [];
    this.#watches.set(key, lines);
    eachLine(answer, (line) => {
      const at = Date.now() / 1000;
      response.write(`${line}\n`);
      const { type, object } = JSON.parse(line) as { type: string; object: unknown };
      if (type === 'ERROR') throw new ApiError('watch', key, 0, object);
      lines.push([at, JSON.stringify({ type, object: withoutOwn(object) })]);
    });
    answer.on('close', () => response.end());
  }

  async #answer(key: string, answer: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of answer) chunks.push(chunk as Buffer);
    const bytes = Buffer.concat(chunks);
    response.end(bytes);
    const { statusCode = 0 } = answer;
    const type = answer.headers['content-type'] ?? '';
    const text = bytes.toString();
    const body = type.includes('json') ? JSON.stringify(withoutOwn(JSON.parse(text))) : text;
    const kept = this.#answers.get(key) ?? [];
    this.#answers.set(key, kept);
    const [, status, , last] = kept.at(-1) ?? [];
    if (statusCode !== status || body !== last) kept.push([Date.now() / 1000, statusCode, type, body]);
  }
}

/** Nothing reads the first, which take half of each object; the others are this machine's own. */
const LEFT_OUT = ['managedFields', 'machineID', 'systemUUID', 'bootID'];

function withoutOwn(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value, (name, each) => (LEFT_OUT.includes(name) ? undefined : each)));
}
