import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import type { AtEnd } from '../webhook/connection.ts';
import { listening } from '../webhook/listening.ts';

export interface Answer {
  readonly status: number;
  readonly body: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** What is answered to a path: always the same, one after the other and then the last for ever, or by the request's body. */
export type Answers = Readonly<Record<string, Answer | readonly Answer[] | ((asked: string) => Answer)>>;

/** An API server as far as a diagnosis asks one, over a real socket; what it has no answer to is 404. */
export class AnsweringServer {
  readonly #answers: Answers;
  readonly #server = http.createServer((request, response) => void this.#answer(request, response));
  /** Paths that were asked for, and with which Authorization. */
  readonly asked: { readonly path: string; readonly authorization: string | undefined }[] = [];

  constructor(answers: Answers) {
    this.#answers = answers;
  }

  static async start(answers: Answers, atEnd: AtEnd): Promise<AnsweringServer> {
    const answering = new AnsweringServer(answers);
    await listening(answering.#server, atEnd);
    return answering;
  }

  get url(): URL {
    return new URL(`http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`);
  }

  /** As text. @param namespace of its context */
  kubeconfig(namespace?: string): string {
    return JSON.stringify({
      'current-context': 'x',
      clusters: [{ name: 'x', cluster: { server: this.url.href } }],
      users: [{ name: 'x', user: { token: 'x' } }],
      contexts: [{ name: 'x', context: { cluster: 'x', user: 'x', namespace } }],
    });
  }

  async #answer(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    const path = request.url ?? '/';
    const before = this.asked.filter((each) => each.path === path).length;
    this.asked.push({ path, authorization: request.headers.authorization });
    const known = this.#answers[path] ?? { status: 404, body: '404 page not found\n' };
    const {
      status,
      body,
      headers = {},
    } = Array.isArray(known)
      ? (known[before] ?? known.at(-1))
      : typeof known === 'function'
        ? known(await text(request))
        : known;
    response.writeHead(status, { 'content-type': 'text/plain', ...headers }).end(body);
  }
}

export const well = (body: unknown): Answer => ({
  status: 200,
  body: typeof body === 'string' ? body : JSON.stringify(body),
});

/** As the API server refuses. */
export const refused = (code: number, message: string): Answer => ({
  status: code,
  body: JSON.stringify({ kind: 'Status', status: 'Failure', code, message }),
});
