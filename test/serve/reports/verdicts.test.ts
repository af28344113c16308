import { describe, expect, it } from 'vitest';
import type { TokenUser } from '../../../src/kube/access-reviews.ts';
import { WatchFailure } from '../../../src/kube/failure.ts';
import { Rates } from '../../../src/serve/reports/rates.ts';
import { ALLOWED_FOR_MS, REFUSED_FOR_MS, ReviewingJudge } from '../../../src/serve/reports/verdicts.ts';

/** An API server that vouches for tokens `USER@CONSUMER`, for the audience `reports`; each may report for theirs. */
class Reviews {
  readonly asked: string[] = [];
  readonly failures: unknown[] = [];
  now = 0;
  away = false;
  revoked = false;
  /** Resolves what is being asked; undefined: at once. */
  held: Promise<void> | undefined;
  readonly judge = new ReviewingJudge({
    reviews: this,
    audience: 'reports',
    clock: () => this.now,
    onFailure: (thrown) => void this.failures.push(thrown),
  });

  async userOf(token: string, audience: string): Promise<TokenUser | undefined> {
    this.asked.push(token);
    await this.held;
    if (this.away) throw new WatchFailure('Unreachable', 'nobody answers');
    const known = /^\w+@\w+$/.test(token) && audience === 'reports';
    return known ? { username: token, uid: undefined, groups: [], extra: {} } : undefined;
  }

  async isAllowed({ username }: TokenUser, access: object): Promise<boolean> {
    const { name, ...rest } = access as { name: string };
    const right = {
      verb: 'create',
      group: 'linger.dev',
      resource: 'discoveryconsumers',
      subresource: 'reports',
    };
    expect(rest).toEqual(right);
    return !this.revoked && username.endsWith(`@${name}`);
  }
}

describe('whether somebody may report', () => {
  it.each([
    ['gw@edge', 'edge', 'Allowed'],
    ['gw@edge', 'inner', 'NotAllowed'],
    ['nobody', 'edge', 'TokenRefused'],
    ['x'.repeat(10_000), 'edge', 'TokenRefused'],
  ])('%.20s for %s: %s', async (token, consumer, verdict) => {
    expect(await new Reviews().judge.verdict(token, consumer)).toBe(verdict);
  });

  it('is remembered, for each token and consumer, and asked again after its time', async () => {
    const reviews = new Reviews();
    const { judge, asked } = reviews;
    for (let each = 0; each < 3; each++) expect(await judge.verdict('gw@edge', 'edge')).toBe('Allowed');
    expect(asked).toHaveLength(1);
    await judge.verdict('gw@edge', 'inner');
    expect(asked).toHaveLength(2);
    reviews.revoked = true;
    reviews.now = ALLOWED_FOR_MS - 1;
    expect(await judge.verdict('gw@edge', 'edge')).toBe('Allowed');
    reviews.now = ALLOWED_FOR_MS;
    expect(await judge.verdict('gw@edge', 'edge')).toBe('NotAllowed');
    reviews.revoked = false;
    reviews.now += REFUSED_FOR_MS;
    expect(await judge.verdict('gw@edge', 'edge')).toBe('Allowed');
  });

  it('is asked once for many who ask at the same time', async () => {
    const { judge, asked } = new Reviews();
    await Promise.all(Array.from({ length: 100 }, () => judge.verdict('gw@edge', 'edge')));
    expect(asked).toHaveLength(1);
  });

  it('is not known while the API server is away, and that is not remembered', async () => {
    const reviews = new Reviews();
    reviews.away = true;
    expect(await reviews.judge.verdict('gw@edge', 'edge')).toBe('NoVerdict');
    expect(reviews.failures).toHaveLength(1);
    reviews.away = false;
    expect(await reviews.judge.verdict('gw@edge', 'edge')).toBe('Allowed');
  });
});

describe('made-up tokens', () => {
  it('are asked about a few at a time, and one that was good a minute ago does not queue with them', async () => {
    const reviews = new Reviews();
    const { judge, asked } = reviews;
    await judge.verdict('gw@edge', 'edge');
    reviews.now = ALLOWED_FOR_MS;
    const { promise, resolve } = Promise.withResolvers<void>();
    reviews.held = promise;
    const made = Array.from({ length: 100 }, (_, each) => judge.verdict(`made-up-${each}`, 'edge'));
    const good = judge.verdict('gw@edge', 'edge');
    expect(asked).toHaveLength(1 + 16 + 1);
    resolve();
    expect(await good).toBe('Allowed');
    const verdicts = await Promise.all(made);
    expect(verdicts.filter((verdict) => verdict === 'NoVerdict')).toHaveLength(84);
  });

  it('displace no real one, however many they are', async () => {
    const { judge, asked } = new Reviews();
    await judge.verdict('gw@edge', 'edge');
    for (let each = 0; each < 6_000; each++) await judge.verdict(`made-up-${each}`, 'edge');
    asked.length = 0;
    expect(await judge.verdict('gw@edge', 'edge')).toBe('Allowed');
    expect(asked).toEqual([]);
  });
});

describe('a rate', () => {
  it('lets a burst pass, and after it so many a second', () => {
    const rates = new Rates({ burst: 5, perSecond: 2 }, 10);
    const passed = (seconds: number) =>
      Array.from({ length: 20 }, () => rates.allows('a', seconds * 1000)).filter(Boolean).length;
    expect([passed(0), passed(0), passed(1), passed(1.5), passed(100)]).toEqual([5, 0, 2, 1, 5]);
  });

  it('is everybody’s own, and forgets whom it has not heard of for longest', () => {
    const rates = new Rates({ burst: 1, perSecond: 0.001 }, 2);
    expect(['a', 'b', 'a', 'b'].map((who) => rates.allows(who, 0))).toEqual([true, true, false, false]);
    expect(rates.allows('c', 0)).toBe(true);
    // `a` is a newcomer again, in the place of `b`.
    expect(['a', 'c'].map((who) => rates.allows(who, 0))).toEqual([true, false]);
  });
});
