import { createHash } from 'node:crypto';
import type { AccessReviews, TokenUser } from '../cluster/index.ts';
import { GROUP, setNewest } from '../core/api/index.ts';
import type { InstanceName } from '../core/lag/index.ts';

/**
 * Whether a token may be used to report for a consumer, and as which instance. `NoVerdict`: the API server cannot be asked
 * now.
 */
export type AccessVerdict = InstanceName | 'TokenRefused' | 'NotAllowed' | 'NoVerdict';
export type Judge = Pick<ReviewingJudge, 'verdict'>;

interface ReviewingJudgeOptions {
  readonly reviews: Pick<AccessReviews, 'userOf' | 'isAllowed'>;
  readonly audience: string;
  /** Monotonic milliseconds. */
  readonly clock: () => number;
  readonly onFailure: (thrown: unknown) => void;
  readonly onSuccess?: () => void;
}

/** How long a positive verdict is cached, and so how late the end of a right takes effect. Milliseconds. */
export const ALLOWED_FOR_MS = 60_000;
/** How long a refusal is cached, and so how late a new right takes effect. Milliseconds. */
export const REFUSED_FOR_MS = 10_000;
/** For how long a token that was once accepted does not have to queue with unknown ones. Milliseconds. */
const KNOWN_FOR_MS = 900_000;
/** How many verdicts are cached: for 1,000 instances of each of several consumers, at some 300 bytes each. */
const MOST_VERDICTS = 5_000;
/** A ServiceAccount’s token takes about a kilobyte. */
const LONGEST_TOKEN = 8_192;

/**
 * Asks the API server: a TokenReview returns the user, and a SubjectAccessReview whether the user may `create` the
 * subresource `reports` of the consumer. Verdicts are cached for a while, by a digest of token and consumer.
 */
export class ReviewingJudge {
  readonly #options: ReviewingJudgeOptions;
  /** Kept apart from refusals, so that made-up tokens cannot displace real ones. */
  readonly #allowed = new Expiring<{ readonly instance: InstanceName; readonly until: number }>();
  readonly #refused = new Expiring<'TokenRefused' | 'NotAllowed'>();
  readonly #asking = new Map<string, Promise<AccessVerdict>>();
  readonly #queue = new FairQueue();

  constructor(options: ReviewingJudgeOptions) {
    this.#options = options;
  }

  /** @param source the client's address; concurrent reviews are shared fairly among sources */
  async verdict(token: string, consumer: string, source: string): Promise<AccessVerdict> {
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

  async #review(token: string, consumer: string): Promise<AccessVerdict> {
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

  #remember(key: string, verdict: AccessVerdict): void {
    if (verdict === 'NoVerdict') return;
    const now = this.#options.clock();
    this.#allowed.delete(key);
    if (typeof verdict === 'string') this.#refused.set(key, verdict, now + REFUSED_FOR_MS);
    else this.#allowed.set(key, { instance: verdict, until: now + ALLOWED_FOR_MS }, now + KNOWN_FOR_MS);
  }
}

const POD_NAME = 'authentication.kubernetes.io/pod-name';
const POD_UID = 'authentication.kubernetes.io/pod-uid';

/** The pod to which the token is bound. All unbound tokens of one user count as one instance. */
function instanceOf({ username, extra }: TokenUser): InstanceName {
  const [uid] = extra[POD_UID] ?? [];
  const [name] = extra[POD_NAME] ?? [];
  if (uid === undefined) return { key: digest(username), name: username.slice(0, 253) };
  return { key: uid, name: name ?? uid };
}

/** Verdicts are keyed by digest, so that no token is kept in memory. */
function digest(text: string): string {
  return createHash('sha256').update(text).digest('base64');
}

/** A cache whose values all live equally long, so that those set first expire first. */
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
    setNewest(this.#entries, key, { value, until }, MOST_VERDICTS);
  }

  delete(key: string): void {
    this.#entries.delete(key);
  }
}

/** Concurrent reviews of unknown tokens; few, so that made-up tokens cannot keep the API server busy. */
const MOST_AT_ONCE = 16;
/** Concurrent reviews for one source; fewer, so that others have room. */
const MOST_OF_A_SOURCE = 4;
/** Queued reviews for one source: enough for many new gateways behind one address. */
const MOST_WAITING = 64;
const MOST_SOURCES = 256;

/** Runs a few tasks at a time, taking the waiting ones from each source in turn. */
class FairQueue {
  #running = 0;
  /** By source, in the order of turns. */
  readonly #lines = new Map<string, { running: number; readonly waiting: (() => void)[] }>();

  /** @returns undefined if too many tasks of the source are waiting, or if there are too many sources */
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
      // Move it to the end, so that all other sources come first.
      this.#lines.delete(source);
      this.#lines.set(source, line);
      line.waiting.shift()?.();
    }
  }
}
