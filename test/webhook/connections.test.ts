import { describe, expect, it } from 'vitest';
import { pod } from '../core/decision/sample-pod.ts';
import { connect, requestBytes } from './connection.ts';
import { bodyOf } from './reviews.ts';
import { responseOf, startWebhook } from './webhook.ts';

const withUid = (uid: string) => requestBytes(bodyOf(pod(), { uid }));

describe('one connection, many requests', () => {
  it('pipelined requests are answered in their order', async () => {
    const webhook = await startWebhook();
    const connection = await connect(webhook);
    const uids = Array.from({ length: 50 }, (_, index) => `review-${index}`);
    connection.write(Buffer.concat(uids.map(withUid)));

    const answered: string[] = [];
    for (const _ of uids) answered.push(responseOf(await connection.answer()).uid);
    expect(answered).toEqual(uids);
    expect(await webhook.count('linger_decisions_total{outcome="inject",reason=""}')).toBe(50);
  });

  it('after a refusal nothing more is read from the connection', async () => {
    const webhook = await startWebhook();
    const connection = await connect(webhook);
    connection.write(Buffer.concat([withUid('first'), requestBytes('{'), withUid('never')]));

    expect(responseOf(await connection.answer()).uid).toBe('first');
    const refusal = await connection.answer();
    expect([refusal.status, refusal.headers.get('connection')]).toEqual([400, 'close']);
    await connection.closed;
    await expect(connection.answer()).rejects.toThrow('ended after ""');
  });

  it('idle connections are kept longer than the API server keeps them (90 s)', async () => {
    const webhook = await startWebhook();
    const answer = await webhook.post(bodyOf());

    expect(webhook.server.keepAliveTimeout).toBeGreaterThanOrEqual(95_000);
    expect(answer.headers.get('connection')).toBe('keep-alive');
    const [, seconds] = /^timeout=(\d+)$/.exec(answer.headers.get('keep-alive') ?? '') ?? [];
    expect(Number(seconds)).toBeGreaterThanOrEqual(95);
  });
});

describe('Connection: close', () => {
  it('never closed: one connection serves every request', async () => {
    const connection = await connect(await startWebhook({ closesConnection: () => false }));
    for (let index = 0; index < 200; index++) {
      connection.write(requestBytes(bodyOf()));
      expect((await connection.answer()).headers.get('connection')).toBe('keep-alive');
    }
  });

  it('always closed: each answer arrives whole, and is the last of its connection', async () => {
    const webhook = await startWebhook({ closesConnection: () => true });
    for (let index = 0; index < 5; index++) {
      const connection = await connect(webhook);
      connection.write(Buffer.concat([withUid('this'), withUid('not this')]));
      const answer = await connection.answer();
      expect([responseOf(answer).uid, answer.headers.get('connection')]).toEqual(['this', 'close']);
      await connection.closed;
    }
  });

  it('is asked once for each request, and follows the answer', async () => {
    const told = [false, true, false, false, true, true];
    let asked = 0;
    const webhook = await startWebhook({ closesConnection: () => told[asked++] ?? false });
    const seen: boolean[] = [];
    let connection = await connect(webhook);
    for (const _ of told) {
      if (seen.at(-1) === true) connection = await connect(webhook);
      connection.write(requestBytes(bodyOf()));
      seen.push((await connection.answer()).headers.get('connection') === 'close');
      if (seen.at(-1) === true) await connection.closed;
    }
    expect([seen, asked]).toEqual([told, told.length]);
  });

  it('half of the time: half of the answers', async () => {
    let toss = 0;
    const webhook = await startWebhook({ closesConnection: () => toss++ % 2 === 0 });
    const answers = await Promise.all(Array.from({ length: 20 }, () => webhook.post(bodyOf())));
    expect(answers.filter(({ headers }) => headers.get('connection') === 'close')).toHaveLength(10);
  });
});
