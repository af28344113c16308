import { describe, expect, it } from 'vitest';
import { KubeFailure, type TokenUser } from '../../../src/cluster/index.ts';
import { ALLOWED_FOR_MS, REFUSED_FOR_MS, ReviewingJudge } from '../../../src/webhook/report-access.ts';

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
    if (this.away) throw new KubeFailure('Unreachable', 'nobody answers');
    const known = /^\w+@\w+$/.test(token) && audience === 'reports';
    const extra = {
      'authentication.kubernetes.io/pod-name': [token.split('@')[0]!],
      'authentication.kubernetes.io/pod-uid': [`uid-of-${token.split('@')[0]}`],
    };
    const bound = !token.startsWith('unbound');
    return known ? { username: token, uid: undefined, groups: [], extra: bound ? extra : {} } : undefined;
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

const SOURCE = '10.0.0.1';
const GATEWAY = { key: 'uid-of-gw', name: 'gw' };

describe('the verdict', () => {
  it.each([
    ['gw@edge', 'edge', GATEWAY],
    ['gw@edge', 'inner', 'NotAllowed'],
    ['nobody', 'edge', 'TokenRefused'],
    ['x'.repeat(10_000), 'edge', 'TokenRefused'],
  ])('of %.20s for %s is %j', async (token, consumer, verdict) => {
    expect(await new Reviews().judge.verdict(token, consumer, SOURCE)).toEqual(verdict);
  });

  it('names one instance for all tokens of a user that are bound to no pod', async () => {
    const { judge } = new Reviews();
    const instance = await judge.verdict('unbound@edge', 'edge', SOURCE);
    expect(instance).toMatchObject({ name: 'unbound@edge' });
  });

  it('is remembered, for each token and consumer, and asked again after its time', async () => {
    const reviews = new Reviews();
    const { judge, asked } = reviews;
    for (let each = 0; each < 3; each++)
      expect(await judge.verdict('gw@edge', 'edge', SOURCE)).toEqual(GATEWAY);
    expect(asked).toHaveLength(1);
    await judge.verdict('gw@edge', 'inner', SOURCE);
    expect(asked).toHaveLength(2);
    reviews.revoked = true;
    reviews.now = ALLOWED_FOR_MS - 1;
    expect(await judge.verdict('gw@edge', 'edge', SOURCE)).toEqual(GATEWAY);
    reviews.now = ALLOWED_FOR_MS;
    expect(await judge.verdict('gw@edge', 'edge', SOURCE)).toBe('NotAllowed');
    reviews.revoked = false;
    reviews.now += REFUSED_FOR_MS;
    expect(await judge.verdict('gw@edge', 'edge', SOURCE)).toEqual(GATEWAY);
  });

  it('is asked for once by many requests at the same time', async () => {
    const { judge, asked } = new Reviews();
    await Promise.all(Array.from({ length: 100 }, () => judge.verdict('gw@edge', 'edge', SOURCE)));
    expect(asked).toHaveLength(1);
  });

  it('is not known while the API server is away, and that is not remembered', async () => {
    const reviews = new Reviews();
    reviews.away = true;
    expect(await reviews.judge.verdict('gw@edge', 'edge', SOURCE)).toBe('NoVerdict');
    expect(reviews.failures).toHaveLength(1);
    reviews.away = false;
    expect(await reviews.judge.verdict('gw@edge', 'edge', SOURCE)).toEqual(GATEWAY);
  });
});

describe('made-up tokens', () => {
  /** Reviews that take as long as it takes to answer all of what is being asked. */
  async function answering<T>(reviews: Reviews, ask: () => T): Promise<T> {
    const { promise, resolve } = Promise.withResolvers<void>();
    reviews.held = promise;
    const asking = ask();
    reviews.held = undefined;
    resolve();
    return asking;
  }

  it('are asked about a few at a time, and one that was good a minute ago does not queue with them', async () => {
    const reviews = new Reviews();
    const { judge, asked } = reviews;
    await judge.verdict('gw@edge', 'edge', SOURCE);
    reviews.now = ALLOWED_FOR_MS;
    asked.length = 0;
    const { promise, resolve } = Promise.withResolvers<void>();
    reviews.held = promise;
    const made = Array.from({ length: 400 }, (_, each) =>
      judge.verdict(`made-up-${each}`, 'edge', `10.0.1.${each % 8}`),
    );
    const good = judge.verdict('gw@edge', 'edge', '10.0.1.0');
    await new Promise((resolve) => setImmediate(resolve));
    expect(asked).toHaveLength(16 + 1);
    resolve();
    expect(await good).toEqual(GATEWAY);
    expect(new Set(await Promise.all(made))).toEqual(new Set(['TokenRefused']));
  });

  it('of one source, a thousand at once, keep no new gateway of another from its verdict', async () => {
    const reviews = new Reviews();
    const { judge, asked } = reviews;
    const [made, gateways] = await answering(reviews, () => [
      Array.from({ length: 1_000 }, (_, each) => judge.verdict(`made-up-${each}`, 'edge', '10.9.9.9')),
      Array.from({ length: 20 }, (_, each) => judge.verdict(`gw${each}@edge`, 'edge', `10.0.0.${each}`)),
    ]);
    for (const verdict of await Promise.all(gateways!)) expect(verdict).toHaveProperty('key');
    const refused = (await Promise.all(made!)).filter((verdict) => verdict === 'NoVerdict');
    expect(refused).toHaveLength(1_000 - 64 - 4);
    expect(asked.length).toBeLessThan(100);
  });

  it('displace no real one, however many they are, and are not kept', async () => {
    const reviews = new Reviews();
    const { judge, asked } = reviews;
    await judge.verdict('gw@edge', 'edge', SOURCE);
    for (let each = 0; each < 6_000; each++) await judge.verdict(`made-up-${each}`, 'edge', SOURCE);
    asked.length = 0;
    expect(await judge.verdict('gw@edge', 'edge', SOURCE)).toEqual(GATEWAY);
    expect(asked).toEqual([]);
  });
});
