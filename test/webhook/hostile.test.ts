import { describe, expect, it } from 'vitest';
import { MAX_BODY_BYTES } from '../../src/webhook/admission.ts';
import { SMALL_BODY_BYTES } from '../../src/webhook/body.ts';
import { atEndOfFile, connect, requestBytes } from './connection.ts';
import { HOSTILE, inContainer } from './hostile-reviews.ts';
import { longestTurn } from './longest-turn.ts';
import { bodyOf, bodyWith } from './reviews.ts';
import { responseOf, startWebhook } from './webhook.ts';

const atEnd = atEndOfFile();

/** As many bytes as the review may have, given what stands around them. */
const cut = (hostile: (bytes: number) => string, bytes: number) =>
  Buffer.from(hostile(bytes - 2_000)).subarray(0, bytes);

describe('no review holds the event loop up for more than 250 ms', async () => {
  const webhook = startWebhook({ logLevel: 'silent' }, atEnd);
  const cases = Object.entries(HOSTILE);

  describe.each([
    ['the longest that are read', MAX_BODY_BYTES],
    ['the longest that are read in the main thread', SMALL_BODY_BYTES],
  ])('%s', (_, bytes) => {
    it.each(cases)('%s', async (_what, hostile) => {
      const body = cut(hostile, bytes);
      const request = requestBytes(body);
      const connection = await connect(await webhook, atEnd);
      const longest = await longestTurn(async () => {
        connection.write(request);
        const { status } = await connection.answer();
        expect([200, 400]).toContain(status);
      });
      connection.destroy();
      expect(longest).toBeLessThan(250);
      expect(responseOf(await (await webhook).post(bodyOf())).patch).toBeDefined();
    });
  });
});

it('a review of more values than its thread has room for is TooLarge', async () => {
  const webhook = await startWebhook({ logLevel: 'silent' });
  const values = (count: number) => bodyWith(inContainer('args', `[${'{},'.repeat(count)}{}]`));
  const reasonOf = async (count: number) =>
    responseOf(await webhook.post(values(count))).auditAnnotations?.reason;
  expect([await reasonOf(100_000), await reasonOf(600_000)]).toEqual(['Injected', 'TooLarge']);
});
