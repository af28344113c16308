import express, { type Express } from 'express';
import type { Metrics } from '../telemetry/index.ts';

export interface AdminOptions {
  /** Why the webhook should get no new connections; undefined when it is ready. */
  readonly unready: () => string | undefined;
  readonly metrics: Metrics;
  /** What `/estimates` shows; undefined without a cluster. */
  readonly estimates?: (() => unknown) | undefined;
}

/**
 * `/healthz` (the process answers), `/readyz` (send reviews here), `/metrics` and `/estimates` (what is measured), over
 * plain HTTP.
 */
export function adminApp({ unready, metrics, estimates }: AdminOptions): Express {
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
  app.get('/estimates', (_request, response) => {
    if (estimates === undefined)
      response.status(404).type('text/plain').send('nothing is measured: no cluster is followed\n');
    else response.type('application/json').send(`${JSON.stringify(estimates(), undefined, 2)}\n`);
  });
  app.use((_request, response) => {
    const here = '/healthz, /readyz, /metrics and /estimates';
    response.status(404).type('text/plain').send(`not found; here are ${here}\n`);
  });
  return app;
}
