import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';

/** What a name stands for: addresses with the TTL of their records; undefined: there is no such name. */
export type Zone = (
  name: string,
  type: 'A' | 'AAAA',
) => { readonly addresses: readonly string[]; readonly ttl: number } | undefined | 'silent';

const TYPES = { 1: 'A', 28: 'AAAA' } as const;

/** A DNS server on a port of loopback, which speaks the wire format (RFC 1035) and answers from a zone. */
export async function dnsServer(zone: Zone) {
  const socket = createSocket('udp4');
  const asked: string[] = [];
  const ports = new Set<number>();
  socket.on('message', (query, sender) => {
    const { name, type, end } = questionOf(query);
    asked.push(name);
    ports.add(sender.port);
    const found = type === undefined ? undefined : zone(name, type);
    if (found === 'silent') return;
    socket.send(answerTo(query.subarray(0, end), found), sender.port, sender.address);
  });
  socket.bind(0, '127.0.0.1');
  await once(socket, 'listening');
  return {
    server: `127.0.0.1:${(socket.address() as AddressInfo).port}`,
    asked,
    ports,
    close: () => socket.close(),
  };
}

function questionOf(query: Buffer) {
  const labels: string[] = [];
  let at = 12;
  for (let length = query[at] ?? 0; length > 0; length = query[at] ?? 0) {
    labels.push(query.toString('ascii', at + 1, at + 1 + length));
    at += 1 + length;
  }
  const type = TYPES[query.readUInt16BE(at + 1) as keyof typeof TYPES];
  return { name: labels.join('.').toLowerCase(), type, end: at + 5 };
}

function answerTo(question: Buffer, found: Exclude<ReturnType<Zone>, 'silent'>): Buffer {
  const header = Buffer.from(question.subarray(0, 12));
  // An authoritative answer, to a question that asked for recursion; NXDOMAIN where there is no such name.
  header.writeUInt16BE(0x8580 | (found === undefined ? 3 : 0), 2);
  header.writeUInt16BE(1, 4);
  header.writeUInt16BE(found?.addresses.length ?? 0, 6);
  header.writeUInt32BE(0, 8);
  const records = (found?.addresses ?? []).map((address) => recordOf(address, found?.ttl ?? 0));
  return Buffer.concat([header, question.subarray(12), ...records]);
}

function recordOf(address: string, ttl: number): Buffer {
  const bytes = address.includes(':') ? ipv6(address) : Buffer.from(address.split('.').map(Number));
  const head = Buffer.alloc(12);
  // The name of the question, by a pointer to it.
  head.writeUInt16BE(0xc00c, 0);
  head.writeUInt16BE(bytes.length === 4 ? 1 : 28, 2);
  head.writeUInt16BE(1, 4);
  head.writeUInt32BE(ttl, 6);
  head.writeUInt16BE(bytes.length, 10);
  return Buffer.concat([head, bytes]);
}

/** The bytes of an address with at most one `::`. */
function ipv6(address: string): Buffer {
  const [front = [], back = []] = address
    .split('::')
    .map((half) => half.split(':').filter((each) => each !== ''));
  const groups = [...front, ...Array(8 - front.length - back.length).fill('0'), ...back] as string[];
  const bytes = Buffer.alloc(16);
  for (const [index, group] of groups.entries()) bytes.writeUInt16BE(Number.parseInt(group, 16), 2 * index);
  return bytes;
}
