import { once } from 'node:events';
import net, { type AddressInfo } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { Balancer } from './balancer.ts';
import { waitUntil } from './waiting.ts';

/** Answers with its name whatever it is sent. */
async function startServer(name: string) {
  const server = net.createServer((socket) =>
    socket.on('error', () => undefined).on('data', () => socket.write(name)),
  );
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  return { name, host: '127.0.0.1', port: (server.address() as AddressInfo).port, server };
}

async function startBalancer(...names: readonly string[]) {
  const servers = await Promise.all(names.map(startServer));
  const balancer = await Balancer.start('127.0.0.1', servers);
  onTestFinished(() => balancer.close());
  return { servers, balancer };
}

function connect({ address }: Balancer): net.Socket {
  const socket = net.connect(address).on('error', () => undefined);
  onTestFinished(() => void socket.destroy());
  return socket;
}

async function connected(balancer: Balancer): Promise<net.Socket> {
  const socket = connect(balancer);
  await once(socket, 'connect');
  return socket;
}

async function asked(socket: net.Socket): Promise<string> {
  socket.write('?');
  const [answer] = (await once(socket, 'data', { signal: AbortSignal.timeout(5_000) })) as [Buffer];
  return answer.toString();
}

it('gives each new connection to the server that has the fewest', async () => {
  const { balancer } = await startBalancer('a', 'b', 'c');
  const answers: string[] = [];
  for (let count = 0; count < 6; count++) answers.push(await asked(await connected(balancer)));
  expect(answers.toSorted()).toEqual(['a', 'a', 'b', 'b', 'c', 'c']);
  expect(balancer.open).toEqual({ a: 2, b: 2, c: 2 });
});

it('leaves connections where they are, and passes over a server that refuses', async () => {
  const { balancer, servers } = await startBalancer('a', 'b');
  const first = await connected(balancer);
  expect(await asked(first)).toBe('a');
  servers[1]?.server.close();
  expect(await asked(await connected(balancer))).toBe('a');
  expect(await asked(first)).toBe('a');
  expect(balancer.given).toEqual({ a: 2, b: 0 });
});

it('forgets connections that either side has closed', async () => {
  const { balancer } = await startBalancer('a');
  const socket = await connected(balancer);
  await asked(socket);
  socket.end();
  await waitUntil('the connection to be forgotten', () => balancer.open.a === 0, { intervalMs: 5 });
});

it('loses what comes after a freeze, without a word', async () => {
  const { balancer } = await startBalancer('a');
  const socket = await connected(balancer);
  await asked(socket);
  balancer.freeze();
  let heard = false;
  socket.on('data', () => {
    heard = true;
  });
  socket.write('?');
  // A connection of later is not concerned, and is as far behind the first one as its answer takes.
  expect(await asked(await connected(balancer))).toBe('a');
  expect(heard).toBe(false);
  expect(socket.readyState).toBe('open');
});

it('resets connections on request, and new ones while it refuses', async () => {
  const { balancer } = await startBalancer('a');
  const socket = await connected(balancer);
  await asked(socket);
  balancer.refusing = true;
  balancer.cut();
  await waitUntil('the reset', () => socket.closed, { intervalMs: 5 });
  const refused = connect(balancer);
  await waitUntil('the other reset', () => refused.closed, { intervalMs: 5 });
  expect(balancer.given).toEqual({ a: 1 });
  expect(balancer.open).toEqual({ a: 0 });
});
