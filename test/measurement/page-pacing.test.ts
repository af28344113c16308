import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { expect, it, onTestFinished } from 'vitest';
import { type PageFindings, pageReader } from '../../src/core/api/index.ts';
import { readPage } from '../../src/measurement/requests/gateway-client.ts';

const MB = 1 << 20;
const fill = (text: string, bytes: number) => text.repeat(bytes / text.length);
const wanted = [...Array(50).keys()].map((at) => ({ address: `10.0.0.${at}`, ports: [80] }));
wanted.push({ address: 'fd00::1', ports: [80] });

it('a page that takes too long is given up, and leaves the event loop and other pages their time', async () => {
  const pages = [fill('a:b:c:fd00::1:1 ', 15 * MB), `10.0.0.1:80 ${fill('x ', 100_000)}`];
  const server = createServer((request, response) => response.end(pages[Number(request.url?.slice(1))]));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const delay = monitorEventLoopDelay({ resolution: 5 });
  delay.enable();
  const outcomes = await Promise.all(
    pages.map((_, index) =>
      readPage({
        url: new URL(`http://127.0.0.1:${port}/${index}`),
        to: { host: '127.0.0.1' },
        reader: pageReader('Text', wanted),
        timeoutMs: index === 0 ? 3_000 : 30_000,
      }),
    ),
  );
  delay.disable();
  const [hostile, good] = outcomes.map(({ outcome }) => outcome);
  expect(hostile).toMatchObject({ message: 'gets no full answer within 3 s' });
  expect((good as PageFindings).of({ address: '10.0.0.1', ports: [80] })).toBe('using');
  expect(delay.max / 1e6).toBeLessThan(1_000);
});
