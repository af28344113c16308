import supertest from 'supertest';
import { describe, expect, it } from 'vitest';
import { createMetrics } from '../../src/telemetry/registry.ts';
import { adminApp } from '../../src/webhook/admin.ts';

function admin(unready: () => string | undefined = () => undefined) {
  return supertest(adminApp({ unready, metrics: createMetrics('1.2.3') }));
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
      adminApp({ unready: () => 'draining', dead: () => reasons.shift(), metrics: createMetrics('1.2.3') }),
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

  it('HEAD works where GET does', async () => {
    expect(await admin().head('/readyz')).toMatchObject({ status: 200 });
  });

  it.each(['/', '/mutate', '/healthz/x'])('%s is not there, and what is there is said', async (path) => {
    const response = await admin().get(path);
    expect([response.status, response.text]).toEqual([404, expect.stringContaining('/readyz')]);
  });
});
