import { readFileSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import { eachLine } from './command.ts';

/** Where an API server is and who we are to it. */
export interface ApiConnection {
  readonly url: URL;
  readonly ca?: string;
  readonly certificate?: string;
  readonly key?: string;
}

export interface ApiAnswer<T> {
  readonly status: number;
  readonly body: T;
  /** Texts of the Warning headers: what kubectl prints as "Warning: …". */
  readonly warnings: readonly string[];
}

export interface ApiRequest {
  readonly body?: unknown;
  /** Default: application/json. */
  readonly contentType?: string;
  /** Milliseconds for the whole answer. Default 60,000, twice the API server's longest webhook timeout. */
  readonly timeoutMs?: number;
}

/** The API server's refusal: a Status object, or whatever came instead of one. */
export class ApiError extends Error {
  readonly status: number;
  /** metav1.StatusReason, for example `NotFound`, `Forbidden`, `Invalid`. */
  readonly reason: string;

  constructor(method: string, path: string, status: number, body: unknown) {
    const said = (typeof body === 'object' && body !== null ? body : {}) as {
      message?: string;
      reason?: string;
    };
    super(`${method} ${path}: ${status} ${said.message ?? String(body).slice(0, 300)}`);
    this.name = 'ApiError';
    this.status = status;
    this.reason = said.reason ?? '';
  }
}

export interface WatchEvent<T> {
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK' | 'ERROR';
  readonly object: T;
}

/** Raw JSON over keep-alive connections: an answer in milliseconds where starting kubectl takes 300. */
export class ApiClient {
  readonly #connection: ApiConnection;
  readonly #agent: http.Agent | https.Agent;
  readonly #transport: typeof http | typeof https;

  constructor(connection: ApiConnection) {
    this.#connection = connection;
    const secure = connection.url.protocol === 'https:';
    this.#transport = secure ? https : http;
    this.#agent = secure
      ? new https.Agent({
          keepAlive: true,
          ca: connection.ca,
          cert: connection.certificate,
          key: connection.key,
        })
      : new http.Agent({ keepAlive: true });
  }

  get url(): URL {
    return this.#connection.url;
  }

  /** One request. Any status is an answer; rejects only when none comes. */
  async request<T>(method: string, path: string, options: ApiRequest = {}): Promise<ApiAnswer<T>> {
    const signal = AbortSignal.timeout(options.timeoutMs ?? 60_000);
    const response = await this.#send(method, path, options, signal);
    const chunks: Buffer[] = [];
    for await (const chunk of response) chunks.push(chunk as Buffer);
    const text = Buffer.concat(chunks).toString();
    const isJson = (response.headers['content-type'] ?? '').startsWith('application/json');
    return {
      status: response.statusCode ?? 0,
      body: (isJson ? JSON.parse(text) : text) as T,
      warnings: warningTexts(response.headersDistinct.warning ?? []),
    };
  }

  /** Like {@link request}, but a status of 300 or more throws {@link ApiError}; returns the body. */
  async call<T>(method: string, path: string, options: ApiRequest = {}): Promise<T> {
    const { status, body } = await this.request<T>(method, path, options);
    if (status >= 300) throw new ApiError(method, path, status, body);
    return body;
  }

  /** Calls `line` with each line of a long answer (a watch, a followed log) until it ends or is aborted. */
  async lines(path: string, line: (text: string) => void, signal: AbortSignal): Promise<void> {
    const response = await this.#send('GET', path, {}, signal);
    if ((response.statusCode ?? 0) >= 300) {
      const chunks: Buffer[] = [];
      for await (const chunk of response) chunks.push(chunk as Buffer);
      throw new ApiError(
        'GET',
        path,
        response.statusCode ?? 0,
        parseOrText(Buffer.concat(chunks).toString()),
      );
    }
    await new Promise<void>((resolve, reject) => {
      response.on('error', reject);
      response.on('close', resolve);
      // What a listener throws would be lost, and with it the end of the stream.
      eachLine(response, (text) => {
        try {
          line(text);
        } catch (error) {
          response.destroy(error instanceof Error ? error : new Error(String(error)));
        }
      });
    });
  }

  /** Follows a collection's changes until the server ends the watch or `signal` aborts it. */
  async watch<T>(path: string, event: (event: WatchEvent<T>) => void, signal: AbortSignal): Promise<void> {
    await this.lines(
      path,
      (text) => {
        if (text !== '') event(JSON.parse(text) as WatchEvent<T>);
      },
      signal,
    );
  }

  close(): void {
    this.#agent.destroy();
  }

  #send(
    method: string,
    path: string,
    options: ApiRequest,
    signal: AbortSignal,
  ): Promise<http.IncomingMessage> {
    const body = options.body === undefined ? undefined : JSON.stringify(options.body);
    const headers = {
      accept: 'application/json',
      ...(body === undefined
        ? {}
        : {
            'content-type': options.contentType ?? 'application/json',
            'content-length': Buffer.byteLength(body),
          }),
    };
    return new Promise((resolve, reject) => {
      const target = new URL(path, this.#connection.url);
      const request = this.#transport.request(
        target,
        { method, headers, agent: this.#agent, signal },
        resolve,
      );
      request.on('error', (error) =>
        reject(new Error(`${method} ${path}: ${error.message}`, { cause: error })),
      );
      request.end(body);
    });
  }
}

function parseOrText(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** RFC 7234, 5.5: `299 - "text"`; the API server escapes quotes and backslashes inside. */
function warningTexts(headers: readonly string[]): string[] {
  return headers.map((header) => {
    const quoted = /^\d{3} \S+ "((?:[^"\\]|\\.)*)"/.exec(header)?.[1];
    return quoted === undefined ? header : quoted.replace(/\\(.)/g, '$1');
  });
}

interface KubeconfigDocument {
  readonly clusters: { cluster: { server: string; 'certificate-authority-data': string } }[];
  readonly users: { user: { 'client-certificate-data': string; 'client-key-data': string } }[];
}

/** Reads a kubeconfig that certificates.ts wrote: JSON, one cluster, one user, everything inline. */
export function ownConnection(kubeconfigFile: string): ApiConnection {
  const document = JSON.parse(readFileSync(kubeconfigFile, 'utf8')) as KubeconfigDocument;
  const cluster = document.clusters[0]?.cluster;
  const user = document.users[0]?.user;
  if (cluster === undefined || user === undefined)
    throw new Error(`${kubeconfigFile}: no cluster or user in it`);
  const text = (base64: string) => Buffer.from(base64, 'base64').toString();
  return {
    url: new URL(cluster.server),
    ca: text(cluster['certificate-authority-data']),
    certificate: text(user['client-certificate-data']),
    key: text(user['client-key-data']),
  };
}
