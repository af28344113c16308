import { once } from 'node:events';
import http from 'node:http';
import net, { type AddressInfo } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { sendRequest } from '../../testbed/load/request.ts';
import { insideNamespace } from '../../testbed/network.ts';
import { clusterSettings } from '../../testbed/settings.ts';
import type { GatewayConnection } from './messages.ts';
import { createProxy } from './proxy.ts';

const LOOPBACK = '127.0.0.1';
const CONNECT_MS = 300;

async function listening(server: net.Server): Promise<number> {
  server.listen(0, LOOPBACK);
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  return (server.address() as AddressInfo).port;
}

/** An application that answers as the test application does. */
function application(name: string): Promise<number> {
  const server = http.createServer((_, response) => {
    response.writeHead(200, { 'x-pod': name });
    response.end(`${name}\n`);
  });
  onTestFinished(() => server.closeAllConnections());
  return listening(server);
}

async function proxyTo(endpoints: readonly string[], onAccept: () => void = () => undefined) {
  const sent: GatewayConnection[] = [];
  const proxy = createProxy({
    connectTimeoutMs: CONNECT_MS,
    endpoints: () => {
      onAccept();
      return endpoints;
    },
    sent: (connection) => void sent.push(connection),
  });
  const port = await listening(proxy);
  const limits = { connectTimeoutMs: 2_000, answerTimeoutMs: 5_000 };
  const request = (agent?: http.Agent) =>
    sendRequest({ target: { address: LOOPBACK, port }, agent, path: '/', ...limits });
  return { request, sent };
}

it('sends each connection to the next endpoint', async () => {
  const ports = [await application('one'), await application('other')];
  const { request, sent } = await proxyTo(ports.map((port) => `${LOOPBACK}:${port}`));
  const answers = [await request(), await request(), await request()];
  expect(answers.map((answer) => answer.result === 'answered' && answer.pod)).toEqual([
    'one',
    'other',
    'one',
  ]);
  expect(sent.map(({ lost }) => lost)).toEqual([undefined, undefined, undefined]);
});

it('leaves a connection where it is', async () => {
  const ports = [await application('one'), await application('other')];
  const { request, sent } = await proxyTo(ports.map((port) => `${LOOPBACK}:${port}`));
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  onTestFinished(() => agent.destroy());
  const answers = [await request(agent), await request(agent), await request(agent)];
  expect(answers.map((answer) => answer.result === 'answered' && answer.pod)).toEqual(['one', 'one', 'one']);
  expect(sent).toHaveLength(1);
});

it('says how a connection was lost, and resets it', async () => {
  const free = net.createServer();
  const port = await listening(free);
  await new Promise((resolve) => free.close(resolve));
  const { request, sent } = await proxyTo([`${LOOPBACK}:${port}`]);
  expect(await request()).toMatchObject({ result: 'lost', kind: 'reset' });
  expect(sent).toMatchObject([{ backend: `${LOOPBACK}:${port}`, lost: 'refused' }]);
});

it('does not take a stall of its own process for a silence of the endpoint', async () => {
  const stall = () => {
    const end = performance.now() + 2 * CONNECT_MS;
    while (performance.now() < end);
  };
  // Node sends the SYN in the tick between these two.
  const afterSyn = () => process.nextTick(() => process.nextTick(stall));
  const { request, sent } = await proxyTo([`${LOOPBACK}:${await application('one')}`], afterSyn);
  expect(await request()).toMatchObject({ result: 'answered', pod: 'one' });
  expect(sent.map(({ lost }) => lost)).toEqual([undefined]);
});

// Other networks have a router that says so, or a host that answers.
it.runIf(insideNamespace(clusterSettings().name))('gives up an address that swallows SYNs', async () => {
  // 192.0.2.0/24 is for documentation (RFC 5737); our own cluster's network has no way to it.
  const { request, sent } = await proxyTo(['192.0.2.1:80']);
  expect(await request()).toMatchObject({ result: 'lost', kind: 'reset' });
  expect(sent).toMatchObject([{ backend: '192.0.2.1:80', lost: 'timeout' }]);
});

it('knows when there is nowhere to send to', async () => {
  const { request, sent } = await proxyTo([]);
  expect(await request()).toMatchObject({ result: 'lost', kind: 'reset' });
  expect(sent).toMatchObject([{ backend: undefined, lost: 'noEndpoint' }]);
});
