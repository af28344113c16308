import { createHash } from 'node:crypto';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import express, { type ErrorRequestHandler, type Express, type Request, type Response } from 'express';
import { asError, UserError } from '../core/api/index.ts';
import { listOf } from '../core/report/index.ts';
import { fromThisPage, guarded, HEADERS, reject, withToken } from './access.ts';
import type { Assets } from './assets.ts';
import {
  type AllWorkloads,
  type ApiRoot,
  type ConsumersView,
  type ExplanationReport,
  type LagReport,
  type NowReport,
  type TimelineView,
  type Topic,
  type WhatIfReport,
  workloadsQuery,
} from './contract.ts';

/** The answers of the API. A view whose source is missing does not exist. */
export interface Answers {
  readonly root: ApiRoot;
  readonly workloads?: () => Promise<AllWorkloads>;
  /** @param address as in the rows @returns undefined: there is no workload of that address */
  readonly explanation?: (address: string) => Promise<ExplanationReport | undefined>;
  readonly now?: () => Promise<NowReport>;
  readonly timeline?: () => Promise<TimelineView>;
  readonly consumers?: () => Promise<ConsumersView>;
  /** @returns undefined: there is no history of that scope */
  readonly lag?: (scope: string) => Promise<LagReport | undefined>;
  /** @param fields of a policy: members of `wait`, `hook`, `hold.max` and so on. @throws LingerError `policy-invalid` */
  readonly whatIf?: (fields: Readonly<Record<string, unknown>>) => Promise<WhatIfReport>;
  /** Calls back when the data of a view have changed. @returns a function that ends this */
  readonly follow?: (changed: (topic: Topic) => void) => () => void;
}

/** The paths of the views, which all return the same page; the page itself shows the right view. */
const VIEWS = ['/', '/workloads', '/now', '/timeline', '/consumers', '/lag', '/what-if'];

/** Sent regularly, so that a lost connection is noticed, and none counts as idle. */
const ALIVE_MS = 15_000;

/**
 * Serves the page for manifests: a single file that contains its own content security policy and requests nothing from this
 * server.
 */
export function pageApp(page: Buffer): Express {
  const app = express();
  app.disable('x-powered-by');
  app.get('/', (_request, response) => {
    response.set({ ...HEADERS, 'Content-Security-Policy': "frame-ancestors 'none'" });
    response.type('text/html; charset=utf-8').send(page);
  });
  return app;
}

/** The dashboard and its API, for one user on this machine: read-only, and only with the token of this run. */
export function dashboardApp(answers: Answers, token: string, page: Assets): Express {
  const app = express();
  app.disable('x-powered-by').disable('etag');
  app.use(guarded, fromThisPage);

  const api = express.Router();
  api.use(withToken(token));
  api.get('/', (request, response) => answer(request, response, answers.root));
  for (const view of ['now', 'timeline', 'consumers'] as const) {
    const read = answers[view];
    if (read !== undefined)
      api.get(`/${view}`, async (request, response) => answer(request, response, await read()));
  }
  const { workloads } = answers;
  if (workloads !== undefined)
    api.get('/workloads', async (request, response) => {
      const { success, data, error } = workloadsQuery.safeParse(request.query);
      if (success) {
        const report = await workloads();
        await answer(request, response, { ...report, ...listOf(report.rows, data) });
      } else reject(response, 400, 'bad-request', error.message);
    });
  const { explanation, follow, lag, whatIf } = answers;
  if (whatIf !== undefined)
    api.get('/what-if', async (request, response) =>
      answer(request, response, await whatIf(fieldsIn(request.query))),
    );
  if (lag !== undefined)
    api.get('/lag', async (request, response) => {
      const { scope } = request.query;
      const found = await lag(typeof scope === 'string' ? scope : 'cluster');
      if (found === undefined)
        reject(response, 404, 'not-found', 'there is no history of that name any more');
      else await answer(request, response, found);
    });
  if (explanation !== undefined)
    api.get('/explanation', async (request, response) => {
      const { workload } = request.query;
      const found = await explanation(typeof workload === 'string' ? workload : '');
      if (found === undefined)
        reject(response, 404, 'not-found', 'there is no workload of that name any more');
      else await answer(request, response, found);
    });
  if (follow !== undefined)
    api.get('/events', (_request, response) => {
      response.type('text/event-stream').write(': \n\n');
      const alive = setInterval(() => response.write(': \n\n'), ALIVE_MS);
      const end = follow((topic) => response.write(`data: ${topic}\n\n`));
      response.on('close', () => {
        clearInterval(alive);
        end();
      });
    });
  app.use('/api/v1', api);

  app.get([...VIEWS, '/:file'], ({ path }, response, next) => {
    const file = page.get(VIEWS.includes(path) ? '/index.html' : path);
    if (file === undefined) next();
    else response.type(file.type).send(file.bytes);
  });
  app.use((_request, response) => reject(response, 404, 'not-found', 'there is nothing of that name here'));
  return app.use(failed);
}

const zip = promisify(gzip);
/** Bytes. Anything shorter fits into one packet without compression. */
const WORTH_ZIPPING = 1_400;

/** Answers with compressed JSON. What the page already has is not sent again. */
async function answer(request: Request, response: Response, body: object): Promise<void> {
  const text = JSON.stringify(body);
  const etag = `"${createHash('sha256').update(text).digest('base64url')}"`;
  response.set({ ETag: etag, Vary: 'Accept-Encoding' });
  // Not express’s own comparison: with a tag set by the script, browsers also send `Cache-Control: no-cache`, and express
  // obeys that.
  if (request.get('If-None-Match') === etag) {
    response.status(304).end();
    return;
  }
  response.type('json');
  const zips = text.length >= WORTH_ZIPPING && request.acceptsEncodings('gzip') === 'gzip';
  if (zips) response.set('Content-Encoding', 'gzip');
  response.send(zips ? await zip(text) : text);
}

/** Values that are not numbers remain text, and the policy's schema says what it expects. */
function fieldsIn(query: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  const numeric = (name: string, text: unknown) =>
    ['percentile', 'safetyFactor'].includes(name) ? Number(text) : text;
  return Object.fromEntries(Object.entries(query).map(([name, text]) => [name, numeric(name, text)]));
}

/** express itself rejects requests that it cannot read (with a `status`); any other error is Linger's own. */
const failed: ErrorRequestHandler = (thrown, _request, response, _next) => {
  const { status } = thrown as { readonly status?: unknown };
  const { message } = asError(thrown);
  if (typeof status === 'number' && status < 500) reject(response, status, 'bad-request', message);
  else if (thrown instanceof UserError)
    reject(response, thrown.code === 'policy-invalid' ? 400 : 502, thrown.code, message);
  else reject(response, 500, 'internal', 'a bug in Linger; its terminal shows more');
};
