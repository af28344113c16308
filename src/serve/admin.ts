import express, { type Express } from 'express';
import type { Metrics } from '../telemetry/metrics.ts';

export interface AdminOptions {
  /** Why the webhook should get no new connections; undefined when it is ready. */
  readonly unready: () => string | undefined;
  readonly metrics: Metrics;
}

/** `/healthz` (the process answers), `/readyz` (send reviews here) and `/metrics`, over plain HTTP. */
export function adminApp({ unready, metrics }: AdminOptions): Express {
  const app = express();
  app.disable('x-powered-by').disable('etag');
  app.get(['/healthz', '/livez'], (_request, response) => {
    response.type('text/plain').send('ok\n');
  });
  app.get('/readyz', (_request, response) => {
    const why = unready();
    response
      .status(why === undefined ? 200 : 503)
      .type('text/plain')
      .send(`${why ?? 'ok'}\n`);
  });
  app.get('/metrics', async (_request, response) => {
    const text = await metrics.registry.metrics();
    response.setHeader('Content-Type', metrics.registry.contentType).send(text);
  });
  app.use((_request, response) => {
    response.status(404).type('text/plain').send('not found; here are /healthz, /readyz and /metrics\n');
  });
  return app;
}
