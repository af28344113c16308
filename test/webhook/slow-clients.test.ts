import { once } from 'node:events';
import { beforeAll, describe, expect, it } from 'vitest';
import { close } from '../../src/webhook/server.ts';
import { atEndOfFile, connect, connectSilently, requestBytes } from './connection.ts';
import { bodyOf, UID } from './reviews.ts';
import { responseOf, startWebhook, type Webhook } from './webhook.ts';

/** The longest of the server's limits is 15 s, noticed up to 1 s later; the rest is for a busy machine. */
const PATIENCE_MS = 60_000;
const EACH = 5;

/** All clients take their time at the same time. */
const atEnd = atEndOfFile();

/** A client that has begun to take its time. `over` resolves when the server has lost its patience. */
interface Slow {
  readonly over: Promise<unknown>;
}
type SlowClient = (webhook: Webhook) => Promise<Slow>;

/** Writes the text one character each half second, until the connection is closed. */
function dribbling(start: string, text: string): SlowClient {
  return async (webhook) => {
    const connection = await connect(webhook, atEnd);
    connection.write(start);
    let at = 0;
    const timer = setInterval(() => connection.write(text[at++ % text.length] ?? ' '), 500);
    atEnd(() => clearInterval(timer));
    return { over: connection.closed.finally(() => clearInterval(timer)) };
  };
}

/** A TCP connection on which this is written, and no TLS handshake comes to its end. */
function withoutHandshake(bytes: Buffer): SlowClient {
  return async (webhook) => {
    const socket = await connectSilently(webhook, atEnd);
    if (bytes.length > 0) socket.write(bytes);
    return { over: once(socket, 'close') };
  };
}

const HEAD = 'POST /mutate HTTP/1.1\r\nHost: localhost\r\n';
const SLOW_CLIENTS: readonly (readonly [what: string, client: SlowClient])[] = [
  ['never begins its TLS handshake', withoutHandshake(Buffer.alloc(0))],
  // A record header of a ClientHello, and no more.
  ['never ends its TLS handshake', withoutHandshake(Buffer.from([0x16, 0x03, 0x01, 0x02, 0x00, 0x01]))],
  ['sends no request', async (webhook) => ({ over: (await connect(webhook, atEnd)).closed })],
  ['dribbles its first line', dribbling('', 'POST /mutate'.padEnd(99, '?'))],
  ['dribbles headers', dribbling(HEAD, 'x-header: 1\r\n')],
  ['dribbles a body', dribbling(`${HEAD}Content-Length: 4000\r\n\r\n`, ' ')],
  ['dribbles chunks', dribbling(`${HEAD}Transfer-Encoding: chunked\r\n\r\n`, '1\r\n \r\n')],
  ['reads no answer and then falls silent', fallingSilent],
];

/** Asks and asks on one connection, and stops in the middle of a request. */
async function fallingSilent(webhook: Webhook): Promise<Slow> {
  const connection = await connect(webhook, atEnd);
  const whole = Array<Buffer>(50).fill(requestBytes(bodyOf()));
  connection.write(Buffer.concat([...whole, Buffer.from('POST /mut')]));
  return { over: connection.closed };
}

/** A well-behaved client, as long as `during` goes on; returns how many answers it got. */
async function servedDuring(webhook: Webhook, during: Promise<unknown>): Promise<number> {
  let over = false;
  const ended = during.finally(() => {
    over = true;
  });
  let answers = 0;
  while (!over) {
    if (responseOf(await webhook.post(bodyOf())).uid === UID) answers++;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  await ended;
  return answers;
}

/** Starts one run for each slow client, all at once; each test then waits for its own. */
function runAll<T>(run: (client: SlowClient) => Promise<T>): ReadonlyMap<string, () => Promise<T>> {
  const runs = new Map<string, Promise<T>>();
  beforeAll(() => {
    for (const [what, client] of SLOW_CLIENTS) {
      const running = run(client);
      running.catch(() => undefined);
      runs.set(what, running);
    }
  });
  return new Map(SLOW_CLIENTS.map(([what]) => [what, () => runs.get(what) as Promise<T>]));
}

describe('while one client takes its time', () => {
  const served = runAll(async (client) => {
    const webhook = await startWebhook({ logLevel: 'silent' }, atEnd);
    const slow = await Promise.all(Array.from({ length: EACH }, () => client(webhook)));
    return servedDuring(webhook, Promise.all(slow.map(({ over }) => over)));
  });
  // What is still open when the server closes must not keep the process from ending.
  const closed = runAll(async (client) => {
    const webhook = await startWebhook({ logLevel: 'silent' }, atEnd);
    const { over } = await client(webhook);
    // The server, too, must have come to see what has begun.
    await new Promise((resolve) => setTimeout(resolve, 700));
    await close(webhook.server);
    await over;
    return 'closed';
  });

  const deadline = Promise.withResolvers<string>();
  beforeAll(() => {
    setTimeout(deadline.resolve, 28_000, 'still open long after every limit').unref();
  });

  const names = SLOW_CLIENTS.map(([what]) => what);
  it.each(names)('which %s, others are served, and it is cut off', { timeout: PATIENCE_MS }, async (what) => {
    expect(await served.get(what)?.()).toBeGreaterThan(0);
  });
  it.each(names)('which %s, a server can close', { timeout: PATIENCE_MS }, async (what) => {
    expect(await Promise.race([closed.get(what)?.(), deadline.promise])).toBe('closed');
  });
});

describe('a server that closes', () => {
  it('lets go at once of a client that is idle between two requests', async () => {
    const webhook = await startWebhook();
    const connection = await connect(webhook);
    connection.write(requestBytes(bodyOf()));
    responseOf(await connection.answer());
    await close(webhook.server);
    await connection.closed;
  });

  it('first answers a client that is in the middle of a request', async () => {
    // As while draining: the answer is the last one of its connection.
    const webhook = await startWebhook({ closesConnection: () => true });
    const connection = await connect(webhook);
    const bytes = requestBytes(bodyOf());
    connection.write(bytes.subarray(0, 500));
    await new Promise((resolve) => setTimeout(resolve, 100));
    const closed = close(webhook.server);
    connection.write(bytes.subarray(500));
    expect(responseOf(await connection.answer()).uid).toBe(UID);
    await closed;
  });
});
