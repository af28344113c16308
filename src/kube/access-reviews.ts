import type http from 'node:http';
import { isRecord, isString, jsonIn } from '../core/schema/shape.ts';
import type { KubeConnection } from './connection.ts';
import { failureOfStatus, WatchFailure } from './failure.ts';
import { exchange, newAgent, readText } from './request.ts';

/** Whom a token belongs to, as the API server says: what a SubjectAccessReview is asked about. */
export interface TokenUser {
  readonly username: string;
  readonly uid: string | undefined;
  readonly groups: readonly string[];
  readonly extra: Readonly<Record<string, readonly string[]>>;
}

/** What somebody wants to do. authorization.k8s.io/v1 ResourceAttributes. */
export interface Access {
  readonly verb: string;
  readonly group: string;
  readonly resource: string;
  readonly subresource: string;
  readonly name: string;
}

export interface AccessReviewsOptions {
  readonly connection: KubeConnection;
  /** Milliseconds for each request. */
  readonly requestMs: number;
  /** How many requests go on at a time; more wait for a connection, within their time. */
  readonly connections: number;
  readonly signal: AbortSignal;
}

const LONGEST_ANSWER = 256 * 1024;

/** Asks the API server who somebody is, and what they may do. */
export class AccessReviews {
  readonly #options: AccessReviewsOptions;
  readonly #agent: http.Agent;

  constructor(options: AccessReviewsOptions) {
    this.#options = options;
    this.#agent = newAgent(options.connection, options.connections);
    options.signal.addEventListener('abort', () => this.#agent.destroy(), { once: true });
  }

  /**
   * @param audience whom the token must have been made for
   * @returns undefined for a token that the API server does not vouch for
   * @throws WatchFailure when it cannot be asked
   */
  async userOf(token: string, audience: string): Promise<TokenUser | undefined> {
    const status = await this.#review('authentication.k8s.io', 'TokenReview', {
      token,
      audiences: [audience],
    });
    if (status.authenticated !== true) return undefined;
    // An authenticator that knows no audiences says nothing of them, and must not be believed. Source:
    // k8s.io/api authentication/v1 TokenReviewStatus.
    const { audiences, user } = status;
    if (!Array.isArray(audiences) || !audiences.includes(audience)) return undefined;
    return tokenUser(user);
  }

  /** @throws WatchFailure when it cannot be asked */
  async isAllowed(user: TokenUser, access: Access): Promise<boolean> {
    const { username, uid, groups, extra } = user;
    const status = await this.#review('authorization.k8s.io', 'SubjectAccessReview', {
      user: username,
      ...(uid === undefined ? {} : { uid }),
      groups,
      extra,
      resourceAttributes: access,
    });
    return status.allowed === true && status.denied !== true;
  }

  /** @returns its status */
  async #review(group: string, kind: string, spec: object): Promise<Record<string, unknown>> {
    const { connection, requestMs, signal } = this.#options;
    const apiVersion = `${group}/v1`;
    const text = JSON.stringify({ apiVersion, kind, spec });
    const giving = new AbortController();
    const giveUp = () => giving.abort();
    const timer = setTimeout(giveUp, requestMs).unref();
    signal.addEventListener('abort', giveUp, { once: true });
    try {
      signal.throwIfAborted();
      const response = await exchange(connection, {
        method: 'POST',
        path: `/apis/${apiVersion}/${kind.toLowerCase()}s`,
        body: { contentType: 'application/json', text },
        agent: this.#agent,
        signal: giving.signal,
        answerMs: requestMs,
      });
      return await statusIn(response, requestMs);
    } catch (thrown) {
      if (thrown instanceof WatchFailure) throw thrown;
      throw new WatchFailure('Unreachable', `${kind}: no whole answer within ${requestMs} ms`);
    } finally {
      clearTimeout(timer);
      signal.removeEventListener('abort', giveUp);
    }
  }
}

async function statusIn(response: http.IncomingMessage, withinMs: number): Promise<Record<string, unknown>> {
  const { statusCode = 0, headers } = response;
  const text = await readText(response, LONGEST_ANSWER, withinMs);
  if (statusCode !== 200 && statusCode !== 201)
    throw failureOfStatus(statusCode, text, headers['retry-after']);
  const said = jsonIn(text);
  if (isRecord(said) && isRecord(said.status)) return said.status;
  throw new WatchFailure('Malformed', 'expected a review with a status');
}

function tokenUser(user: unknown): TokenUser | undefined {
  if (!isRecord(user) || !isString(user.username) || user.username === '') return undefined;
  const { username, uid, groups, extra } = user;
  return {
    username,
    uid: isString(uid) && uid !== '' ? uid : undefined,
    groups: texts(groups),
    extra: Object.fromEntries(
      Object.entries(isRecord(extra) ? extra : {}).map(([key, values]) => [key, texts(values)]),
    ),
  };
}

function texts(values: unknown): readonly string[] {
  return Array.isArray(values) ? values.filter(isString) : [];
}
