import { once } from 'node:events';
import net, { type AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/** A port of this machine from which answers come no faster than so many Mbit/s, all connections together. */
export async function slowWay(
  target: URL,
  mbit: number,
): Promise<{ readonly port: number; readonly close: () => void }> {
  const bytesPerMs = mbit * 125;
  let freeAt = 0;
  const sockets = new Set<net.Socket>();
  const server = net.createServer((client) => {
    const upstream = net.connect(Number(target.port), target.hostname);
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on('error', () => undefined).on('close', () => sockets.delete(socket));
    }
    client.pipe(upstream);
    client.on('close', () => upstream.destroy());
    void (async () => {
      for await (const chunk of upstream as AsyncIterable<Buffer>) {
        freeAt = Math.max(freeAt, performance.now()) + chunk.length / bytesPerMs;
        const wait = freeAt - performance.now();
        if (wait > 1) await sleep(wait);
        client.write(chunk);
      }
      client.end();
    })().catch(() => client.destroy());
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const close = () => {
    for (const socket of sockets) socket.destroy();
    server.close();
  };
  return { port: (server.address() as AddressInfo).port, close };
}
