import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { askDns, clusterDns } from '../../src/measurement/cluster-dns/dns.ts';
import { emptyDirectory } from '../cli/linger.ts';
import { dnsServer, type Zone } from './dns-server.ts';

const NAME = 'linger-canary-dns.linger.svc.cluster.local';
const canary = { address: '10.0.0.2', identity: 'canary' };
const fellows = [
  { address: '10.0.0.1', identity: 'first' },
  { address: '10.0.0.3', identity: 'third' },
];

async function ask(zone: Zone, change: Partial<Parameters<typeof askDns>[1]> = {}) {
  const { server, close, asked, ports } = await dnsServer(zone);
  onTestFinished(() => void close());
  const dns = { domain: 'svc.cluster.local', servers: [server] };
  const question = () => askDns(dns, { name: NAME, canary, fellows, timeoutMs: 300, ...change });
  return { answer: await question(), again: question, asked, ports };
}

const listing =
  (addresses: readonly string[], ttl = 30): Zone =>
  (name, type) =>
    name === NAME && type === 'A' ? { addresses, ttl } : undefined;

describe('an answer of DNS', () => {
  it('that names the canary is held by a client for its TTL', async () => {
    const { answer, asked } = await ask(listing(['10.0.0.1', '10.0.0.2', '10.0.0.3']));
    expect(answer).toEqual({ identity: 'canary', heldMs: 30_000 });
    expect(asked).toEqual([NAME]);
  });

  it('that names only others meets one of them', async () => {
    const { answer } = await ask(listing(['10.0.0.3', '10.0.0.1']));
    expect(answer).toEqual({ identity: 'first' });
  });

  it('is asked for as AAAA where the canary has an IPv6 address', async () => {
    const zone: Zone = (_, type) => (type === 'AAAA' ? { addresses: ['fd00::2'], ttl: 5 } : undefined);
    const { answer } = await ask(zone, { canary: { address: 'fd00::2', identity: 'canary' } });
    expect(answer).toEqual({ identity: 'canary', heldMs: 5_000 });
  });

  it.each<[string, Zone, object]>([
    ['that there is no such name', () => undefined, { message: 'brings no address', turnedAway: true }],
    [
      'without a record',
      () => ({ addresses: [], ttl: 5 }),
      { message: 'brings no address', turnedAway: true },
    ],
    ['that names strangers', listing(['10.9.9.9']), { reason: 'NotLinger', turnedAway: false }],
    ['that does not come', () => 'silent', { reason: 'Unreachable', message: 'fails (ETIMEOUT)' }],
  ])('%s meets nobody', async (_, zone, problem) => {
    expect((await ask(zone)).answer).toMatchObject(problem);
  });

  it('is asked for from a new port each time, so that each server behind one address is met', async () => {
    const { again, ports } = await ask(listing(['10.0.0.2']));
    for (let each = 0; each < 7; each++) await again();
    expect(ports.size).toBeGreaterThan(4);
  });
});

describe('the domain of Services', () => {
  it.each([
    ['search linger.svc.example.org svc.example.org example.org\nnameserver 10.96.0.10\n', 'svc.example.org'],
    ['nameserver 10.96.0.10\nsearch\n', 'svc.cluster.local'],
    ['', 'svc.cluster.local'],
  ])('%j: %s', async (text, domain) => {
    const file = join(await emptyDirectory(), 'resolv.conf');
    await writeFile(file, text);
    expect(await clusterDns(file)).toEqual({ domain });
  });

  it('is that of most clusters where there is no such file', async () => {
    expect(await clusterDns('/nowhere/resolv.conf')).toEqual({ domain: 'svc.cluster.local' });
  });
});
