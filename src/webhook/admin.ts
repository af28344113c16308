import express, { type Express, type Response } from 'express';
import type { OwnStatus } from '../core/api/index.ts';
import type { Metrics } from '../telemetry/index.ts';
import { RateLimit } from '../timing/index.ts';

/** How often each page is computed. One takes some milliseconds, in which no review is answered. */
const MADE = { perSecond: 4, atOnce: 20 };

/**
 * @returns a function that computes a page, or returns the latest one if it is requested more often than {@link MADE} allows
 */
function sharing<T>(make: () => T): () => T {
  const limit = new RateLimit(MADE, performance.now());
  let latest: { readonly page: T } | undefined;
  return () => {
    if (latest === undefined || limit.take(performance.now())) latest = { page: make() };
    return latest.page;
  };
}

interface AdminOptions {
  /** Why the webhook should get no connections; undefined if it is ready. */
  readonly unready: () => string | undefined;
  /** Why this process should be restarted; undefined if it is healthy. */
  readonly dead?: (() => string | undefined) | undefined;
  readonly metrics: Metrics;
  /** What `/status` shows. */
  readonly status: () => OwnStatus;
  /** What `/estimates` shows; undefined without a cluster. */
  readonly estimates?: (() => unknown) | undefined;
  /** What `/holds` shows: the pods that are held. It returns undefined if another replica leads. */
  readonly holds?: (() => unknown) | undefined;
}

/**
 * Serves `/healthz` (whether the process works), `/readyz` (whether to send reviews here), `/metrics`, `/status` (of this
 * replica), `/estimates` (what is measured) and `/holds` (which pods are held), over plain HTTP.
 */
export function adminApp({ unready, dead, metrics, status, estimates, holds }: AdminOptions): Express {
  const app = express();
  app.disable('x-powered-by').disable('etag');
  const say = (response: Response, status: number, text: string) =>
    response.status(status).type('text/plain').send(`${text}\n`);
  const judge = (whyNot?: () => string | undefined) => (_request: unknown, response: Response) => {
    const why = whyNot?.();
    say(response, why === undefined ? 200 : 503, why ?? 'ok');
  };
  app.get(['/healthz', '/livez'], judge(dead));
  app.get('/readyz', judge(unready));
  const samples = sharing(() => metrics.registry.metrics());
  app.get('/metrics', async (_request, response) => {
    response.setHeader('Content-Type', metrics.registry.contentType).send(await samples());
  });
  const seen = sharing(() => JSON.stringify(status()));
  app.get('/status', (_request, response) => {
    response.type('application/json').send(`${seen()}\n`);
  });
  const estimated = sharing(() => JSON.stringify(estimates?.(), undefined, 2));
  app.get('/estimates', (_request, response) => {
    if (estimates === undefined) say(response, 404, 'nothing is measured: no cluster is followed');
    else response.type('application/json').send(`${estimated()}\n`);
  });
  const held = sharing(() => JSON.stringify(holds?.()) as string | undefined);
  app.get('/holds', (_request, response) => {
    const text = held();
    if (holds === undefined) say(response, 404, 'nothing is held: there is no Hold Service');
    else if (text === undefined) say(response, 503, 'another replica leads, or this one has just begun to');
    else response.type('application/json').send(`${text}\n`);
  });
  const here = 'not found; here are /healthz, /readyz, /metrics, /status, /estimates and /holds';
  return app.use((_request, response) => void say(response, 404, here));
}
