import { callApi } from './client.ts';
import type { KubeConnection } from './connection.ts';
import { KubeFailure } from './failure.ts';
import { newAgent } from './request.ts';

/** The user whom a token authenticates, as the API server reports it: the subject of a SubjectAccessReview. */
export interface TokenUser {
  readonly username: string;
  readonly uid: string | undefined;
  readonly groups: readonly string[];
  readonly extra: Readonly<Record<string, readonly string[]>>;
}

interface Access {
  readonly verb: string;
  readonly group: string;
  readonly resource: string;
  readonly subresource: string;
  readonly name: string;
}

interface AccessReviewsOptions {
  readonly connection: KubeConnection;
  readonly requestMs: number;
  /** The number of connections. Further requests wait for one, which counts towards their timeout. */
  readonly connections: number;
  readonly signal: AbortSignal;
}

/** Asks the API server which user a token authenticates, and what that user may do. */
export class AccessReviews {
  readonly #options: AccessReviewsOptions;
  /** Not the shared connections, because a flood of reports must not delay the renewal of the leader's Lease. */
  readonly #agent: ReturnType<typeof newAgent>;

  constructor(options: AccessReviewsOptions) {
    this.#options = options;
    this.#agent = newAgent(options.connection, options.connections, options.signal);
  }

  /**
   * @param audience the audience that the token must have been issued for
   * @returns undefined for a token that the API server does not authenticate
   * @throws KubeFailure if it cannot be asked
   */
  async userOf(token: string, audience: string): Promise<TokenUser | undefined> {
    const body = {
      apiVersion: 'authentication.k8s.io/v1',
      kind: 'TokenReview',
      spec: { token, audiences: [audience] },
    };
    const { status } = await callApi(this.#options.connection, 'AuthenticationV1Api', this.#call, (api) =>
      api.createTokenReview({ body }),
    );
    if (status === undefined) throw withoutStatus();
    // An authenticator that ignores audiences returns none, so its answer must not be trusted. Source: k8s.io/api
    // authentication/v1 TokenReviewStatus.
    if (status.authenticated !== true || status.audiences?.includes(audience) !== true) return undefined;
    const { username, uid, groups = [], extra = {} } = status.user ?? {};
    return username ? { username, uid: uid || undefined, groups, extra } : undefined;
  }

  /** @throws KubeFailure when it cannot be asked */
  async isAllowed({ username: user, uid, groups, extra }: TokenUser, access: Access): Promise<boolean> {
    const body = {
      apiVersion: 'authorization.k8s.io/v1',
      kind: 'SubjectAccessReview',
      spec: {
        user,
        ...(uid === undefined ? {} : { uid }),
        groups: [...groups],
        extra: Object.fromEntries(Object.entries(extra).map(([key, values]) => [key, [...values]])),
        resourceAttributes: access,
      },
    };
    const { status } = await callApi(this.#options.connection, 'AuthorizationV1Api', this.#call, (api) =>
      api.createSubjectAccessReview({ body }),
    );
    if (status === undefined) throw withoutStatus();
    return status.allowed === true && status.denied !== true;
  }

  get #call() {
    const { signal, requestMs: withinMs } = this.#options;
    return { signal, withinMs, agent: this.#agent };
  }
}

function withoutStatus(): KubeFailure {
  return new KubeFailure('Malformed', 'expected a review with a status');
}
