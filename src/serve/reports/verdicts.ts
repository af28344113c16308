import { createHash } from 'node:crypto';
import type { AccessReviews, TokenUser } from '../../kube/access-reviews.ts';

/** Whether somebody may report for a consumer. `NoVerdict`: nobody can say at the moment. */
export type Verdict = 'Allowed' | 'TokenRefused' | 'NotAllowed' | 'NoVerdict';

/** Decides it. */
export interface Judge {
  verdict(token: string, consumer: string): Promise<Verdict>;
}

export interface ReviewingJudgeOptions {
  readonly reviews: Pick<AccessReviews, 'userOf' | 'isAllowed'>;
  /** Whom tokens must have been made for. */
  readonly audience: string;
  /** Monotonic milliseconds. */
  readonly clock: () => number;
  /** Called with each review that could not be had. */
  readonly onFailure: (thrown: unknown) => void;
}

/** A right that is taken away ends after so long. Milliseconds. */
export const ALLOWED_FOR_MS = 60_000;
/** A right that is given is noticed after so long. Milliseconds. */
export const REFUSED_FOR_MS = 10_000;
/** As many tokens are remembered. 1,000 instances each of several consumers, and what is guessed meanwhile. */
const MOST_VERDICTS = 5_000;
/** So many that are not known are asked about at a time: made-up ones must not keep the API server busy. */
const MOST_REVIEWS = 16;
/** A ServiceAccount's token takes about a kilobyte. */
const LONGEST_TOKEN = 8_192;

/**
 * Asks the API server: a TokenReview says who it is, a SubjectAccessReview whether they may `create` the subresource
 * `reports` of the consumer. Answers are remembered for a while, by a hash of the token.
 */
export class ReviewingJudge implements Judge {
  readonly #options: ReviewingJudgeOptions;
  /** Until when each counts. Apart, so that tokens that are made up displace no real one. */
  readonly #allowed = new Map<string, number>();
  readonly #refused = new Map<
    string,
    { readonly verdict: 'TokenRefused' | 'NotAllowed'; readonly until: number }
  >();
  readonly #asking = new Map<string, Promise<Verdict>>();

  constructor(options: ReviewingJudgeOptions) {
    this.#options = options;
  }

  async verdict(token: string, consumer: string): Promise<Verdict> {
    if (token.length > LONGEST_TOKEN) return 'TokenRefused';
    const key = `${consumer}\n${fingerprint(token)}`;
    const now = this.#options.clock();
    const allowedUntil = this.#allowed.get(key);
    if (allowedUntil !== undefined && now < allowedUntil) return 'Allowed';
    const refused = this.#refused.get(key);
    if (refused !== undefined && now < refused.until) return refused.verdict;
    const asked = this.#asking.get(key);
    if (asked !== undefined) return asked;
    // One that was good a minute ago need not queue with those that nobody knows.
    if (allowedUntil === undefined && this.#asking.size >= MOST_REVIEWS) return 'NoVerdict';
    return this.#ask(key, token, consumer);
  }

  async #ask(key: string, token: string, consumer: string): Promise<Verdict> {
    const asked = this.#review(token, consumer);
    this.#asking.set(key, asked);
    const verdict = await asked;
    this.#asking.delete(key);
    this.#remember(key, verdict);
    return verdict;
  }

  async #review(token: string, consumer: string): Promise<Verdict> {
    const { reviews, audience, onFailure } = this.#options;
    try {
      const user = await reviews.userOf(token, audience);
      if (user === undefined) return 'TokenRefused';
      return (await this.#mayReport(user, consumer)) ? 'Allowed' : 'NotAllowed';
    } catch (thrown) {
      onFailure(thrown);
      return 'NoVerdict';
    }
  }

  #mayReport(user: TokenUser, consumer: string): Promise<boolean> {
    return this.#options.reviews.isAllowed(user, {
      verb: 'create',
      group: 'linger.dev',
      resource: 'discoveryconsumers',
      subresource: 'reports',
      name: consumer,
    });
  }

  #remember(key: string, verdict: Verdict): void {
    if (verdict === 'NoVerdict') return;
    const now = this.#options.clock();
    this.#allowed.delete(key);
    this.#refused.delete(key);
    if (verdict === 'Allowed') put(this.#allowed, key, now + ALLOWED_FOR_MS);
    else put(this.#refused, key, { verdict, until: now + REFUSED_FOR_MS });
  }
}

/** A token, as it may be kept: nobody who gets to see it learns the token. */
export function fingerprint(token: string): string {
  return createHash('sha256').update(token).digest('base64');
}

/** What was put first goes first. */
function put<V>(known: Map<string, V>, key: string, value: V): void {
  const [oldest] = known.size >= MOST_VERDICTS ? known.keys() : [];
  if (oldest !== undefined) known.delete(oldest);
  known.set(key, value);
}
