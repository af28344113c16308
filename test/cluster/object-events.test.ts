import http from 'node:http';
import { expect, it, onTestFinished } from 'vitest';
import { ObjectEvents } from '../../src/cluster/object-events.ts';
import { createLogger } from '../../src/telemetry/index.ts';

import { waitUntil } from '../testbed/waiting.ts';
import { listening } from '../webhook/listening.ts';

/** A server that takes Events, and a clock that stands still. */
async function events() {
  const written: string[] = [];
  const server = http.createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    written.push(JSON.parse(Buffer.concat(chunks).toString()).involvedObject.name);
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
    tell: (name: string) =>
      objectEvents.tell({
        object: { kind: 'Pod', namespace: 'shop', name },
        type: 'Normal',
        reason: 'Held',
        action: 'Hold',
        note: 'held',
      }),
  };
}

it('writes a burst of 25 Events, also when each comes after the one before has been written', async () => {
  const { written, tell } = await events();
  for (let count = 1; count <= 25; count += 1) {
    tell(`web-${count}`);
    await waitUntil('the Event', () => written.length === count, { intervalMs: 5, timeoutMs: 2_000 });
    // Its response has to be read as well.
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  tell('one-too-many');
  await new Promise((resolve) => setTimeout(resolve, 50));
  expect(written).toHaveLength(25);
});
