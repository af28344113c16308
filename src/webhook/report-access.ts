import { createHash } from 'node:crypto';
import { GROUP } from '../api/index.ts';
import type { AccessReviews, TokenUser } from '../cluster/index.ts';
import type { InstanceName } from '../lag/index.ts';

/** Whether a token may report for a consumer, and as which instance. `NoVerdict`: that cannot be said at the moment. */
export type Verdict = InstanceName | 'TokenRefused' | 'NotAllowed' | 'NoVerdict';
export type Judge = Pick<ReviewingJudge, 'verdict'>;

interface ReviewingJudgeOptions {
  readonly reviews: Pick<AccessReviews, 'userOf' | 'isAllowed'>;
  /** What tokens must have been made for. */
  readonly audience: string;
  /** Monotonic milliseconds. */
  readonly clock: () => number;
  /** Called with each review that failed. */
  readonly onFailure: (thrown: unknown) => void;
  readonly onSuccess?: () => void;
}

/** A right that is taken away ends after this. Milliseconds. */
export const ALLOWED_FOR_MS = 60_000;
/** A right that is given is noticed after this. Milliseconds. */
export const REFUSED_FOR_MS = 10_000;
/** A token that was good this long ago does not queue with unknown ones. Milliseconds. */
const KNOWN_FOR_MS = 900_000;
/** As many verdicts are remembered: 1,000 instances of each of several consumers. Some 300 bytes each. */
const MOST_VERDICTS = 5_000;
/** A ServiceAccount's token takes about a kilobyte. */
const LONGEST_TOKEN = 8_192;

/**
 * Asks the API server: a TokenReview says who it is, a SubjectAccessReview whether they may `create` the subresource
 * `reports` of the consumer. Verdicts are remembered for a while, by a digest of token and consumer.
 */
export class ReviewingJudge {
  readonly #options: ReviewingJudgeOptions;
  /** Apart, so that made-up tokens displace no real one. */
  readonly #allowed = new Expiring<{ readonly instance: InstanceName; readonly until: number }>();
  readonly #refused = new Expiring<'TokenRefused' | 'NotAllowed'>();
  readonly #asking = new Map<string, Promise<Verdict>>();
  readonly #queue = new FairQueue();

  constructor(options: ReviewingJudgeOptions) {
    this.#options = options;
  }

  /** @param source the address that it comes from: sources share what goes on at a time */
  async verdict(token: string, consumer: string, source: string): Promise<Verdict> {
    if (token.length > LONGEST_TOKEN) return 'TokenRefused';
    const key = digest(`${consumer}\n${token}`);
    const now = this.#options.clock();
    const known = this.#allowed.get(key, now);
    if (known !== undefined && now < known.until) return known.instance;
    const refused = this.#refused.get(key, now);
    if (refused !== undefined) return refused;
    const asked = this.#asking.get(key);
    if (asked !== undefined) return asked;
    const review = () => this.#review(token, consumer);
    const asking = known === undefined ? this.#queue.run(source, review) : review();
    if (asking === undefined) return 'NoVerdict';
    this.#asking.set(key, asking);
    const verdict = await asking;
    this.#asking.delete(key);
    this.#remember(key, verdict);
    return verdict;
  }

  async #review(token: string, consumer: string): Promise<Verdict> {
    const { reviews, audience, onFailure, onSuccess } = this.#options;
    const reports = { group: GROUP, resource: 'discoveryconsumers', subresource: 'reports' };
    try {
      const user = await reviews.userOf(token, audience);
      const isAllowed =
        user && (await reviews.isAllowed(user, { verb: 'create', ...reports, name: consumer }));
      onSuccess?.();
      if (user === undefined) return 'TokenRefused';
      return isAllowed ? instanceOf(user) : 'NotAllowed';
    } catch (thrown) {
      onFailure(thrown);
      return 'NoVerdict';
    }
  }

  #remember(key: string, verdict: Verdict): void {
    if (verdict === 'NoVerdict') return;
    const now = this.#options.clock();
    this.#allowed.delete(key);
    if (typeof verdict === 'string') this.#refused.set(key, verdict, now + REFUSED_FOR_MS);
    else this.#allowed.set(key, { instance: verdict, until: now + ALLOWED_FOR_MS }, now + KNOWN_FOR_MS);
  }
}

const POD_NAME = 'authentication.kubernetes.io/pod-name';
const POD_UID = 'authentication.kubernetes.io/pod-uid';

/** The pod that the token is bound to; all tokens of a user that are bound to none stand for one instance. */
function instanceOf({ username, extra }: TokenUser): InstanceName {
  const [uid] = extra[POD_UID] ?? [];
  const [name] = extra[POD_NAME] ?? [];
  if (uid === undefined) return { key: digest(username), name: username.slice(0, 253) };
  return { key: uid, name: name ?? uid };
}

/** A secret, as it may be kept: the digest does not give it away. */
function digest(text: string): string {
  return createHash('sha256').update(text).digest('base64');
}

/** Values that are set for the same span each, so that those set first end first. */
class Expiring<V> {
  readonly #entries = new Map<string, { readonly value: V; readonly until: number }>();

  get(key: string, now: number): V | undefined {
    for (const [each, { until }] of this.#entries) {
      if (until > now) break;
      this.#entries.delete(each);
    }
    return this.#entries.get(key)?.value;
  }

  set(key: string, value: V, until: number): void {
    this.#entries.delete(key);
    const [oldest] = this.#entries.size >= MOST_VERDICTS ? this.#entries.keys() : [];
    if (oldest !== undefined) this.#entries.delete(oldest);
    this.#entries.set(key, { value, until });
  }

  delete(key: string): void {
    this.#entries.delete(key);
  }
}

/** So many unknown tokens are asked about at a time: made-up ones must not keep the API server busy. */
const MOST_AT_ONCE = 16;
/** A source that sends made-up tokens leaves room for others, */
const MOST_OF_A_SOURCE = 4;
/** and has no more than this waiting: a fleet of new gateways behind one address passes. */
const MOST_WAITING = 64;
const MOST_SOURCES = 256;

/** Runs tasks a few at a time; of those that wait, one of each source in turn. */
class FairQueue {
  #running = 0;
  /** By source, in the order of their turns. */
  readonly #lines = new Map<string, { running: number; readonly waiting: (() => void)[] }>();

  /** @returns undefined where too many of the source are waiting, or there are too many sources */
  run<T>(source: string, task: () => Promise<T>): Promise<T> | undefined {
    const known = this.#lines.get(source);
    if (known === undefined && this.#lines.size >= MOST_SOURCES) return undefined;
    const line = known ?? { running: 0, waiting: [] };
    if (line.waiting.length >= MOST_WAITING) return undefined;
    const { promise, resolve } = Promise.withResolvers<void>();
    line.waiting.push(resolve);
    this.#lines.set(source, line);
    this.#next();
    return promise.then(task).finally(() => {
      this.#running -= 1;
      line.running -= 1;
      if (line.running === 0 && line.waiting.length === 0) this.#lines.delete(source);
      this.#next();
    });
  }

  #next(): void {
    for (const [source, line] of this.#lines) {
      if (this.#running >= MOST_AT_ONCE) return;
      if (line.waiting.length === 0 || line.running >= MOST_OF_A_SOURCE) continue;
      this.#running += 1;
      line.running += 1;
      // Put last: its next turn comes after that of all others.
      this.#lines.delete(source);
      this.#lines.set(source, line);
      line.waiting.shift()?.();
    }
  }
}
