import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import { AccessReviews } from '../cluster/index.ts';
import { type PartContext, part } from '../manager/index.ts';
import { reportsPart } from '../measurement/index.ts';
import { LogOnce } from '../telemetry/index.ts';
import { ReviewingJudge } from './report-access.ts';
import type { ReportsOptions } from './report-endpoint.ts';

interface EndpointOptions {
  /** The audience of tokens with which instances of consumers report. */
  readonly reportsAudience: string;
}

/** How long a request may take: a review takes milliseconds, and the client of a gateway gives up after some seconds. */
const REVIEW_MS = 3_000;
const REVIEW_CONNECTIONS = 4;

/** Answers all requests under `/v1`. */
export const reportEndpointPart = part({
  name: 'report endpoint',
  needs: { reports: reportsPart },
  start({ reports }, context: PartContext<EndpointOptions>) {
    const { snapshot, clock, logger } = context;
    const { taken, count } = reports;
    const listener = lazily({
      taker: () => taken()?.taken,
      measureOf: (wanted) => snapshot.current().measured.find(({ name }) => name === wanted)?.measure.kind,
      judge: judge(context),
      count,
      clock,
      logger,
    });
    return { provides: listener };
  },
});

function judge({ connection, options, clock, logger, signal }: PartContext<EndpointOptions>): ReviewingJudge {
  const once = new LogOnce(logger);
  return new ReviewingJudge({
    reviews: new AccessReviews({
      connection,
      requestMs: REVIEW_MS,
      connections: REVIEW_CONNECTIONS,
      signal,
    }),
    audience: options.reportsAudience,
    clock,
    onFailure: (thrown) =>
      once.warn(
        'reports',
        { problem: String(thrown) },
        'token review failed; reports are refused until it works',
      ),
    onSuccess: () => once.over('reports', {}, 'token review recovered; reports are accepted'),
  });
}

/** Loads the endpoint with the first report, because it needs a schema library that most servers never use. */
function lazily(options: ReportsOptions): RequestListener {
  let app: Promise<RequestListener> | undefined;
  return (request: IncomingMessage, response: ServerResponse) => {
    app ??= import('./report-endpoint.ts').then(({ reportsApp }) => reportsApp(options));
    app.then(
      (answer) => answer(request, response),
      (error: unknown) => {
        options.logger.error({ err: error }, 'internal error while answering a report; answered with 500');
        response.writeHead(500, { Connection: 'close' }).end();
      },
    );
  };
}
