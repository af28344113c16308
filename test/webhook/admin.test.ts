import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import supertest from 'supertest';
import { describe, expect, it, onTestFinished } from 'vitest';
import { parseReplicaStatus } from '../../src/core/api/index.ts';
import { NO_STATUS } from '../../src/manager/index.ts';
import { createMetrics } from '../../src/telemetry/index.ts';
import { adminApp } from '../../src/webhook/admin.ts';
import { adminServer } from '../../src/webhook/server.ts';
import { listening } from './listening.ts';

const status = () => NO_STATUS;

function admin(unready: () => string | undefined = () => undefined) {
  return supertest(adminApp({ unready, metrics: createMetrics('1.2.3'), status }));
}

describe('the admin port', () => {
  it.each(['/healthz', '/livez', '/readyz'])('%s answers 200 and ok', async (path) => {
    const response = await admin().get(path);
    expect([response.status, response.text, response.type]).toEqual([200, 'ok\n', 'text/plain']);
  });

  it('/readyz answers 503 and why; /healthz stays well', async () => {
    const app = admin(() => 'draining');
    expect(await app.get('/readyz')).toMatchObject({ status: 503, text: 'draining\n' });
    expect(await app.get('/healthz')).toMatchObject({ status: 200 });
  });

  it.each(['/healthz', '/livez'])('%s answers 503 and why to restart the process', async (path) => {
    const reasons = ['watches have come to a stop: pods', undefined];
    const app = supertest(
      adminApp({
        unready: () => 'draining',
        dead: () => reasons.shift(),
        metrics: createMetrics('1.2.3'),
        status,
      }),
    );
    expect(await app.get(path)).toMatchObject({ status: 503, text: 'watches have come to a stop: pods\n' });
    expect(await app.get(path)).toMatchObject({ status: 200, text: 'ok\n' });
  });

  it('readiness is checked each time', async () => {
    const states = [undefined, 'draining', undefined];
    const app = admin(() => states.shift());
    const statuses = [await app.get('/readyz'), await app.get('/readyz'), await app.get('/readyz')];
    expect(statuses.map(({ status }) => status)).toEqual([200, 503, 200]);
  });

  it('/metrics is in the Prometheus text format, with what is running', async () => {
    const response = await admin().get('/metrics');
    expect(response.status).toBe(200);
    expect(response.headers['content-type']).toMatch(/^text\/plain; version=0\.0\.4/);
    expect(response.text).toContain(`linger_build_info{version="1.2.3",node="${process.version}"} 1`);
    expect(response.text).toMatch(/^process_resident_memory_bytes \d+$/m);
  });

  it('/status is JSON, and is read back', async () => {
    const response = await admin().get('/status');
    expect(response.headers['content-type']).toMatch(/^application\/json/);
    expect(parseReplicaStatus(response.text)).toEqual(NO_STATUS);
    expect(parseReplicaStatus('<html>')).toBeUndefined();
  });

  it('HEAD works where GET does', async () => {
    expect(await admin().head('/readyz')).toMatchObject({ status: 200 });
  });

  it.each(['/', '/mutate', '/healthz/x'])('%s is not there, and what is there is said', async (path) => {
    const response = await admin().get(path);
    expect([response.status, response.text]).toEqual([404, expect.stringContaining('/readyz')]);
  });
});

describe('the admin port, asked by too many', () => {
  it.each([
    ['/status', 'status'],
    ['/estimates', 'estimates'],
    ['/holds', 'holds'],
  ])(
    '%s is made a few times a second, however often it is asked for, and is then new again',
    async (path, page) => {
      let made = 0;
      const count = () => ({ ...NO_STATUS, made: ++made });
      const app = supertest(
        adminApp({ unready: () => undefined, metrics: createMetrics('1.2.3'), status, [page]: count }),
      );
      const began = performance.now();
      for (let times = 0; times < 200; times += 1) expect((await app.get(path)).body).toMatchObject({ made });
      const seconds = (performance.now() - began) / 1000;
      expect(made).toBeLessThanOrEqual(20 + Math.ceil(4 * seconds));

      await sleep(300);
      const before = made;
      expect((await app.get(path)).body).toMatchObject({ made: before + 1 });
    },
  );

  it('/metrics is made a few times a second, however often it is asked for', async () => {
    const metrics = createMetrics('1.2.3');
    let made = 0;
    const make = metrics.registry.metrics.bind(metrics.registry);
    metrics.registry.metrics = () => {
      made += 1;
      return make();
    };
    const app = supertest(adminApp({ unready: () => undefined, metrics, status }));
    const began = performance.now();
    for (let times = 0; times < 100; times += 1)
      expect((await app.get('/metrics')).text).toContain('linger_build_info');
    const seconds = (performance.now() - began) / 1000;
    expect(made).toBeLessThanOrEqual(20 + Math.ceil(4 * seconds));
  });

  it('by 400 connections that ask for much and read nothing: health is still answered, and 100 are kept', async () => {
    const server = adminServer(
      adminApp({ unready: () => undefined, metrics: createMetrics('1.2.3'), status }),
    );
    const port = await listening(server);
    const greedy: Socket[] = [];
    onTestFinished(() => {
      for (const socket of greedy) socket.destroy();
    });
    let cut = 0;
    for (let index = 0; index < 400; index += 1) {
      const socket = connect(port, '127.0.0.1').pause();
      socket.on('error', () => undefined).on('close', () => (cut += 1));
      greedy.push(socket);
      await once(socket, 'connect');
      socket.write('GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n'.repeat(10));
    }
    const healthy = await fetch(`http://127.0.0.1:${port}/healthz`, { signal: AbortSignal.timeout(5_000) });
    expect(await healthy.text()).toBe('ok\n');
    const kept = await new Promise<number>((resolve) => server.getConnections((_, count) => resolve(count)));
    expect(kept).toBeLessThanOrEqual(100);
    for (const socket of greedy) socket.resume();
    while (cut < 300) await sleep(20);
  });
});
