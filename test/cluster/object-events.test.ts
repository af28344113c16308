import http from 'node:http';
import { expect, it, onTestFinished } from 'vitest';
import { ObjectEvents } from '../../src/cluster/object-events.ts';
import { createLogger } from '../../src/telemetry/index.ts';

import { waitUntil } from '../testbed/waiting.ts';
import { listening } from '../webhook/listening.ts';

/** A server that takes Events, and a clock that stands still. */
async function events(written: string[] = [], names = new Set<string>()) {
  const server = http.createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const event = JSON.parse(Buffer.concat(chunks).toString());
    if (names.has(event.metadata.name)) {
      response.writeHead(409).end('{"reason":"AlreadyExists"}');
      return;
    }
    names.add(event.metadata.name);
    written.push(event.involvedObject.name);
    response.writeHead(201).end('{"metadata":{}}');
  });
  const ending = new AbortController();
  onTestFinished(() => ending.abort());
  const address = new URL(`http://127.0.0.1:${await listening(server)}`);
  const objectEvents = new ObjectEvents({
    connection: { server: address, credentials: async () => ({}) },
    identity: 'linger-1',
    logger: createLogger('silent', process.stdout),
    clock: () => 0,
    signal: ending.signal,
  });
  return {
    written,
    tell: (name: string, note = 'held') =>
      objectEvents.tell({
        object: { kind: 'Pod', namespace: 'shop', name },
        type: 'Normal',
        reason: 'Held',
        action: 'Hold',
        note,
      }),
  };
}

it('writes a burst of 25 Events, also when each comes after the one before has been written', async () => {
  const { written, tell } = await events();
  for (let count = 1; count <= 25; count += 1) {
    tell(`web-${count}`);
    await waitUntil('the Event', () => written.length === count, { intervalMs: 5, timeoutMs: 20_000 });
    // Its response has to be read as well.
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  tell('one-too-many');
  await new Promise((resolve) => setTimeout(resolve, 50));
  expect(written).toHaveLength(25);
});

it('of an Event that an earlier process has written there is one, and one of another text', async () => {
  const [written, names]: [string[], Set<string>] = [[], new Set()];
  (await events(written, names)).tell('web-1');
  await waitUntil('the Event', () => written.length === 1, { intervalMs: 5, timeoutMs: 20_000 });
  const again = await events(written, names);
  again.tell('web-1');
  again.tell('web-2', 'not held');
  await waitUntil('the other', () => written.length === 2, { intervalMs: 5, timeoutMs: 20_000 });
  expect(written).toEqual(['web-1', 'web-2']);
});
