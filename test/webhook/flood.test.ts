import { readFile } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { containerRuntime } from '../../bench/containerfile.ts';
import { MAX_BODY_BYTES } from '../../src/webhook/admission.ts';
import { LargeBodies, SMALL_BODY_BYTES } from '../../src/webhook/body.ts';
import { sharedCertificates } from '../cli/certificates.ts';
import { ROOT, serving } from '../cli/linger.ts';
import { pod } from '../core/decision/sample-pod.ts';
import {
  type Address,
  atEndOfFile,
  type Connection,
  connect,
  connectSilently,
  requestBytes,
} from './connection.ts';
import { bodyOf, UID } from './reviews.ts';
import { responseOf, startWebhook } from './webhook.ts';

const certs = sharedCertificates();
const atEnd = atEndOfFile();
const MIB = 1024 * 1024;

/** A server with the flags of the image. */
async function server() {
  const { nodeFlags, environment } = containerRuntime(ROOT);
  const NODE_OPTIONS = `${environment.NODE_OPTIONS} --max-old-space-size=256`;
  const env = { ...environment, NODE_OPTIONS, NODE_COMPILE_CACHE: '', LINGER_LOG_LEVEL: 'info' };
  return serving(certs(), ['--cluster', 'off'], { atEnd, env, nodeFlags });
}

async function residentMiB(pid: number): Promise<number> {
  const [, kib] = /^VmHWM:\s+(\d+) kB$/m.exec(await readFile(`/proc/${pid}/status`, 'utf8')) ?? [];
  return Number(kib) / 1024;
}

/**
 * Reviews of ordinary pods, one after the other, until the promise is done. On a machine that is busy with other things a
 * handshake may take longer than the 5 s that it has.
 */
async function reviewOnce(address: Address): Promise<string> {
  const connection = await connect(address, atEnd);
  connection.write(requestBytes(bodyOf()));
  const { uid } = responseOf(await connection.answer());
  connection.destroy();
  return uid;
}

async function reviewsDuring(address: Address, during: Promise<unknown>) {
  let over = false;
  const ended = during.finally(() => {
    over = true;
  });
  const outcomes = { answered: 0, failed: 0 };
  while (!over) {
    const uid = await reviewOnce(address).catch(() => undefined);
    outcomes[uid === UID ? 'answered' : 'failed']++;
  }
  await ended;
  return outcomes;
}

describe('bodies that never end', () => {
  it('90 connections that send 7 MiB less a byte: under 400 MB, and reviews are answered', {
    timeout: 120_000,
  }, async () => {
    const { pid, ...webhook } = await server();
    const large = Buffer.alloc(MAX_BODY_BYTES - 1, ' ');
    const head = `POST /mutate HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${MAX_BODY_BYTES}\r\n\r\n`;
    const attack = async () => {
      const connections = await Promise.all(Array.from({ length: 90 }, () => connect(webhook, atEnd)));
      for (const connection of connections) {
        connection.write(head);
        connection.write(large);
      }
      // Those that are not refused for the memory are cut off for the time.
      await Promise.all(connections.map(({ closed }) => closed));
    };
    const { answered, failed } = await reviewsDuring(webhook, attack());
    expect(answered).toBeGreaterThan(5 * failed);
    const resident = await residentMiB(pid);
    console.log(`at most ${Math.round(resident)} MiB resident with 90 bodies of 7 MiB less a byte`);
    expect(resident).toBeLessThan(400);
    expect(await webhook.count('linger_http_responses_total{code="503"}')).toBeGreaterThan(50);
  });

  it('a large review gets room from those that have been arriving for longest', async () => {
    const webhook = await startWebhook({ logLevel: 'silent' }, atEnd);
    const slow: Connection[] = [];
    for (let index = 0; index < 6; index++) {
      const connection = await connect(webhook, atEnd);
      connection.write(requestBytes(Buffer.alloc(6 * MIB), { 'Content-Length': String(MAX_BODY_BYTES) }));
      slow.push(connection);
    }
    const honest = await webhook.post(bodyOf(pod({}, { annotations: { note: 'x'.repeat(200_000) } })));
    expect(responseOf(honest).auditAnnotations).toEqual({ reason: 'Injected' });
    const [first] = slow;
    expect((await first?.answer())?.status).toBe(503);
    for (const connection of slow) connection.destroy();
  });
});

describe('the memory for large bodies', () => {
  const reading = (given: string[], name: string) => ({ held: 0, giveUp: () => void given.push(name) });

  it('is taken from the oldest that is still arriving, not from those that have arrived', () => {
    const bodies = new LargeBodies();
    const given: string[] = [];
    const [a, b, c] = ['a', 'b', 'c'].map((name) => reading(given, name)) as [
      ReturnType<typeof reading>,
      ReturnType<typeof reading>,
      ReturnType<typeof reading>,
    ];
    const giving = {
      ...b,
      giveUp: () => {
        given.push('b');
        bodies.release(giving);
      },
    };
    expect(bodies.hold(a, 20 * MIB)).toBe(true);
    bodies.arrived(a);
    expect(bodies.hold(giving, 20 * MIB)).toBe(true);
    expect(bodies.hold(c, 10 * MIB)).toBe(true);
    expect(given).toEqual(['b']);
    expect(bodies.hold(c, 30 * MIB)).toBe(false);
    bodies.release(a);
    bodies.release(c);
    expect(bodies.hold(a, 40 * MIB)).toBe(true);
  });

  it('is not asked for by small ones', () => {
    expect(SMALL_BODY_BYTES).toBeGreaterThanOrEqual(20_000);
  });
});

describe('connections', () => {
  it('beyond the limit the one that has been idle for longest is closed; those in use stay', async () => {
    const webhook = await startWebhook({ logLevel: 'silent', maxConnections: 10 }, atEnd);
    const ask = async (connection: Connection) => {
      connection.write(requestBytes(bodyOf()));
      expect(responseOf(await connection.answer()).uid).toBe(UID);
    };
    const used = await connect(webhook, atEnd);
    const others: Connection[] = [];
    for (let index = 0; index < 30; index++) {
      const other = await connect(webhook, atEnd);
      others.push(other);
      await ask(other);
      await ask(used);
    }
    await Promise.all(others.slice(0, 21).map(({ closed }) => closed));
    expect(others.slice(21).filter(({ isClosed }) => isClosed)).toEqual([]);
    await ask(used);
  });

  it('beyond the limit, where all have begun a request, the one that began first is closed', async () => {
    const webhook = await startWebhook({ logLevel: 'silent', maxConnections: 10 }, atEnd);
    const stalled: Connection[] = [];
    for (let index = 0; index < 10; index++) {
      const connection = await connect(webhook, atEnd);
      connection.write(requestBytes(bodyOf()).subarray(0, 300));
      stalled.push(connection);
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(responseOf(await webhook.post(bodyOf())).uid).toBe(UID);
    await stalled[0]?.closed;
  });

  it('that never end their handshake make room for others', async () => {
    const webhook = await startWebhook({ logLevel: 'silent' }, atEnd);
    const silent = await Promise.all(Array.from({ length: 300 }, () => connectSilently(webhook, atEnd)));
    expect(responseOf(await webhook.post(bodyOf())).uid).toBe(UID);
    expect(silent.filter(({ closed }) => closed).length).toBeGreaterThan(0);
  });
});
