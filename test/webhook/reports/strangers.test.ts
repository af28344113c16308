import { once } from 'node:events';
import { Agent, createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { ReviewingJudge } from '../../../src/webhook/report-access.ts';
import { Desk } from './desk.ts';

/** A leader that asks an API server which takes 5 ms for each review, and knows tokens that begin with `gw`. */
async function start() {
  const asked: string[] = [];
  const judge = new ReviewingJudge({
    reviews: {
      userOf: async (token) => {
        asked.push(token);
        await new Promise((resolve) => setTimeout(resolve, 5));
        const extra = { 'authentication.kubernetes.io/pod-uid': [token] };
        return token.startsWith('gw') ? { username: 'gw', uid: undefined, groups: [], extra } : undefined;
      },
      isAllowed: async () => true,
    },
    audience: 'reports',
    clock: () => performance.now(),
    onFailure: () => undefined,
  });
  const desk = new Desk(0, judge);
  const server = createServer(desk.app).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const agent = new Agent({ keepAlive: true, maxSockets: 300 });
  onTestFinished(() => agent.destroy());
  /** @param localAddress of loopback: another source each */
  const post = (consumer: string, token: string, localAddress = '127.0.0.1') =>
    new Promise<number>((resolve, reject) => {
      const path = `/v1/consumers/${consumer}/reports`;
      const headers = { authorization: `Bearer ${token}` };
      const options = { agent, host: '127.0.0.1', port, path, method: 'POST', headers, localAddress };
      request(options, (response) => {
        response.resume().on('end', () => resolve(response.statusCode ?? 0));
      })
        .on('error', reject)
        .end('{}');
    });
  return { post, asked };
}

it('reports with made-up tokens for consumers with names of 12 KB are not asked about', async () => {
  const { post, asked } = await start();
  expect(await post('edge', 'gw-1')).toBe(200);
  for (let round = 0; round < 5; round++) {
    const sent = Array.from({ length: 100 }, (_, each) =>
      post(`${'x'.repeat(12_000)}-${round}-${each}`, `made-up-${round}-${each}`),
    );
    expect(new Set(await Promise.all(sent))).toEqual(new Set([404]));
  }
  expect(asked).toEqual(['gw-1']);
}, 120_000);

it('under 1,000 made-up tokens at once from one address, new gateways of others are let in, and known ones of its own', async () => {
  const { post, asked } = await start();
  expect(await post('edge', 'gw-known')).toBe(200);
  const flood = Array.from({ length: 1_000 }, (_, each) => post('edge', `made-up-${each}`));
  const gateways = Array.from({ length: 20 }, (_, each) => post('edge', `gw-${each}`, `127.0.0.${2 + each}`));
  expect(await Promise.all(gateways)).toEqual(Array(20).fill(200));
  expect(await post('edge', 'gw-known')).toBe(200);
  expect(new Set(await Promise.all(flood))).toEqual(new Set([401, 503]));
  expect(asked.length).toBeLessThan(1_000);
}, 60_000);
