import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { hanging, sendTraffic } from '../../src/prove/traffic.ts';
import {
  lineOf,
  type RequestOutcome,
  readLine,
  type TrafficReport,
  trafficPlan,
} from '../../src/prove/traffic-plan.ts';
import { emptyDirectory } from '../cli/linger.ts';

let server: Server;
let port = 0;
const ports: number[] = [];
const sockets = new Set<Socket>();

beforeAll(async () => {
  server = createServer((request, response) => {
    const { url = '' } = request;
    ports.push(request.socket.remotePort ?? 0);
    if (url === '/reset') request.socket.resetAndDestroy();
    else if (url === '/silent') return;
    else response.writeHead(url === '/broken' ? 503 : 404).end('text');
  });
  server.on('connection', (socket) => sockets.add(socket));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  port = (server.address() as AddressInfo).port;
});

afterAll(() => {
  for (const each of sockets) each.destroy();
  server.close();
});

const way = (path: string, keepAlive = false, to = port) => ({
  name: path,
  url: `http://web.shop.svc:${to}${path}`,
  address: '127.0.0.1',
  keepAlive,
  verify: false,
});

/** Runs do not share ports. */
let first = 0;

async function outcomesOf(ways: readonly ReturnType<typeof way>[], seconds: number, rate = 20) {
  const reports: TrafficReport[] = [];
  const plan = trafficPlan.parse({
    ways,
    rate,
    seconds,
    timeoutMs: 1_500,
    method: 'GET',
    headers: { a: 'b' },
  });
  await sendTraffic(plan, (each) => reports.push(each), {
    signal: new AbortController().signal,
    random: () => first++ / 5,
  });
  return { reports, outcomes: reports.flatMap((each) => each.outcomes) };
}

it('says how each request was lost', async () => {
  const ways = [way('/'), way('/broken'), way('/reset'), way('/silent'), way('/', false, 1)];
  const { outcomes, reports } = await outcomesOf(ways, 0.5);
  const kinds = ways.map((_, index) => [
    ...new Set(outcomes.filter((each) => each.way === index).map(({ lost = 'answered' }) => lost)),
  ]);
  expect(kinds).toEqual([['answered'], ['5xx'], ['reset'], ['timeout'], ['refused']]);
  expect(reports.map(({ sequence }) => sequence)).toEqual([...reports.keys()]);
  const last = reports.at(-1)?.until ?? 0;
  expect(outcomes.every(({ at }) => at <= last)).toBe(true);
});

/** Answers a tenth of a second after it has reported a request. */
const ANSWERS_LATER = `
  const { parentPort } = require('node:worker_threads');
  const server = require('node:http').createServer((request, response) => {
    parentPort.postMessage('asked');
    setTimeout(() => response.end('text'), 100);
  });
  server.listen(0, '127.0.0.1', () => parentPort.postMessage(server.address().port));
`;

it('does not take a stall of its own process for a silence of the pod', async () => {
  const worker = new Worker(ANSWERS_LATER, { eval: true });
  const [to] = await once(worker, 'message');
  worker.once('message', () => {
    const end = performance.now() + 2_000;
    while (performance.now() < end);
  });
  const { outcomes } = await outcomesOf([way('/', false, Number(to))], 0.7, 2);
  await worker.terminate();
  expect(outcomes[0]?.tookMs).toBeGreaterThan(1_500);
  expect(new Set(outcomes.map(({ lost }) => lost))).toEqual(new Set([undefined]));
});

it('uses each source port once, except on connections that stay open', async () => {
  ports.length = 0;
  await outcomesOf([way('/')], 1, 50);
  expect(ports.length).toBeGreaterThan(30);
  expect(new Set(ports).size).toBe(ports.length);
  ports.length = 0;
  await outcomesOf([way('/', true)], 1, 50);
  expect(new Set(ports).size).toBeLessThan(ports.length / 2);
});

it('reports on one line what it reads back', () => {
  const outcomes: readonly RequestOutcome[] = [
    { way: 0, at: 1_764_000_000_000, tookMs: 3, lost: undefined },
    { way: 1, at: 1_764_000_000_250, tookMs: 3_000, lost: 'timeout', address: '10.0.0.1' },
  ];
  const report = { sequence: 3, until: 1_764_000_000_500, lateMs: 2, outcomes };
  expect(readLine(lineOf(report))).toEqual(report);
});

it('takes a loss of a kind that it does not know for one', () => {
  const line = '{"sequence":1,"until":9,"late":0,"base":5,"rows":[[0,1,2],[0,1,2,99]]}';
  expect(readLine(line)?.outcomes.map(({ lost }) => lost)).toEqual([undefined, 'malformed']);
});

it.each(['', 'Warning: something', '{}', '[]', '{"sequence":1,"until":"x","late":0,"base":0,"rows":[]}'])(
  'takes %j for no report',
  (line) => expect(readLine(line)).toBeUndefined(),
);

it('counts the connections through a Service that hang in conntrack, and knows where it cannot', async () => {
  const file = join(await emptyDirectory(), 'nf_conntrack');
  const entry = (state: string, to: string) =>
    `ipv4 2 tcp 6 99 ${state} src=10.1.0.5 dst=${to} sport=40709 dport=80 [UNREPLIED] src=10.1.0.8 dst=10.1.0.5 sport=8080 dport=40709 mark=0 zone=0 use=2\n`;
  const entries = [
    entry('SYN_SENT', '10.2.0.1'),
    entry('SYN_SENT', '10.2.0.10'),
    entry('TIME_WAIT', '10.2.0.1'),
  ];
  writeFileSync(file, entries.join(''));
  expect(await hanging(['10.2.0.1'], file)).toBe(1);
  expect(await hanging([], file)).toBe(0);
  expect(await hanging(['10.2.0.1'], `${file}.missing`)).toBeUndefined();
});
