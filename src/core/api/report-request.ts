import * as z from 'zod';
import type { Curable } from './explained.ts';
import { optional } from './fields.ts';

interface ResultOfReport extends Curable {
  /** The HTTP status of the answer. */
  readonly status: number;
  /** What to do, stated after the reason of a refusal; empty if nothing is refused. */
  readonly way: string;
}

/**
 * What happens to a report: the `reason` of a refusal with what to do about it, and the value of a metric's label. 401 and
 * 403 concern the sender, 409 a report that contradicts what Linger knows, 429 and 503 ask to retry later.
 */
export const REPORT_RESULTS = {
  Asked: {
    status: 200,
    means: 'A cursor was requested and issued.',
    way: '',
    cure: 'Hold it during the next sync.',
  },
  Synced: {
    status: 200,
    means: 'A sync was reported, and counts.',
    way: '',
    cure: 'Request a cursor before the next sync, or use this one.',
  },
  InvalidReport: {
    status: 400,
    means: 'The body is not a report: the message names the field.',
    way: 'see GET /v1/openapi.json',
    cure: 'See [openapi.yaml](../openapi.yaml).',
  },
  NoToken: {
    status: 401,
    means: 'There is no bearer token.',
    way: 'send "Authorization: Bearer TOKEN" with the token of a ServiceAccount, projected for the audience of Linger’s reports',
    cure: '[Send one](../gateways.md#who-may-report).',
  },
  TokenRefused: {
    status: 401,
    means: 'The API server rejects the token for this audience.',
    way: 'project a token for the audience of Linger’s reports (--reports-audience), and read its file again each time',
    cure: 'Project it for the audience; reread its file each time.',
  },
  NotAllowed: {
    status: 403,
    means: 'The sender has no permission to report for this consumer.',
    way: 'bind a role with verb create, group linger.dev, resource discoveryconsumers/reports and this resourceName',
    cure: "[The ClusterRole](../gateways.md#who-may-report), with this consumer's name.",
  },
  NoSuchConsumer: {
    status: 404,
    means: 'There is no DiscoveryConsumer of that name.',
    way: 'create the DiscoveryConsumer, or correct the name in the URL',
    cure: 'Create it, or correct the URL. A new one counts within a few seconds.',
  },
  NotByReports: {
    status: 409,
    means: 'The consumer is measured in another way.',
    way: 'set spec.measure to {reports: {}}, or stop reporting',
    cure: '`measure: {reports: {}}`, or stop reporting.',
  },
  UsedCursor: {
    status: 409,
    means: 'This cursor, or a later one, has been sent back before.',
    way: 'ask for a cursor before each sync; a pod has one process that reports',
    cure: 'Request a cursor before each sync. If it repeats: two processes of one pod report.',
  },
  ForeignCursor: {
    status: 409,
    means: 'The cursor was never issued to this instance of this consumer.',
    way: 'continue with the cursor of this answer; send back what an answer contained, unchanged',
    cure: "Send the answer's cursor back unchanged.",
  },
  TooLarge: {
    status: 413,
    means: 'The body is longer than 4 KiB.',
    way: 'send the cursor and nothing else',
    cure: 'A report is one line.',
  },
  Compressed: {
    status: 415,
    means: 'Compressed bodies are not read.',
    way: 'send it as it is',
    cure: 'Send it uncompressed.',
  },
  TooManyReports: {
    status: 429,
    means: 'Over 3 reports a second, or several at once on one connection.',
    way: 'report before and after each sync, one request at a time',
    cure: 'Before and after each sync, one at a time.',
  },
  TooManyInstances: {
    status: 429,
    means: '1,000 instances of the consumer are live.',
    way: 'instances that fall silent make room',
    cure: 'Instances that fall silent make room.',
  },
  NotLeader: {
    status: 503,
    means: 'This replica does not lead.',
    way: 'connect again, by the Service linger-reports; after a change of leader that takes some seconds',
    cure: 'Use the Service `linger-reports`, on a new connection.',
  },
  NoVerdict: {
    status: 503,
    means: 'The API server cannot review the token, or too many reviews are pending.',
    way: 'try again with the next sync',
    cure: 'Report the next sync.',
  },
} as const satisfies Readonly<Record<string, ResultOfReport>>;

export type ReportResult = keyof typeof REPORT_RESULTS;

const REFUSALS = (Object.keys(REPORT_RESULTS) as ReportResult[]).filter(
  (name) => REPORT_RESULTS[name].status !== 200,
);

const VERSION_HINT = 'expected a resourceVersion: a decimal number as text, such as "48213"';
const resourceVersion = z
  .string({ error: VERSION_HINT })
  .regex(/^[1-9][0-9]{0,19}$/, { error: VERSION_HINT });

function textUpTo(most: number) {
  return z.string().max(most, { error: `expected at most ${most} characters` });
}

const resourceVersions = z
  .strictObject({
    endpointSlices: optional(resourceVersion, 'The newest version of EndpointSlices that it has applied.'),
    endpoints: optional(resourceVersion, 'The newest version of Endpoints that it has applied.'),
  })
  .refine((read) => Object.values(read).some((version) => version !== undefined), {
    error: 'expected endpointSlices, endpoints or both',
  });

/** The body of `POST /v1/consumers/NAME/reports`. Strict: a misspelt field is an error, not a request for a cursor. */
export const reportRequest = z
  .strictObject({
    cursor: optional(
      textUpTo(256),
      'The cursor of an earlier answer, unchanged: a sync that began after that answer is complete. Absent or empty: a cursor is asked for.',
    ),
    resourceVersions: optional(
      resourceVersions,
      'Instead of a cursor, from an instance that reads Kubernetes itself: everything up to these has been applied. A kind that it does not read is absent.',
    ),
    instance: optional(
      textUpTo(253),
      'Not used: an instance is the pod of its token. Accepted from older clients.',
    ),
    syncSeconds: optional(
      z.number({ error: 'expected a number of seconds' }),
      'Not used: the cursor says when the sync began. Accepted from older clients.',
    ),
  })
  .refine(({ cursor = '', resourceVersions }) => cursor === '' || resourceVersions === undefined, {
    error: 'expected a cursor or resourceVersions, not both',
  })
  .describe('What an instance of a consumer reports around a sync.');
export type ReportRequest = z.output<typeof reportRequest>;

const reportAccepted = z
  .strictObject({
    cursor: z.string().describe('To be kept during the next sync, and sent back after it. Opaque.'),
  })
  .describe('The report counts.');

const reportRefused = z
  .strictObject({
    reason: z.enum(REFUSALS).describe('Why, for programs.'),
    message: z.string().describe('Why, and what to do, for people.'),
    cursor: optional(
      z.string(),
      'With 409 for a cursor: the one to continue with. The sync that was reported does not count.',
    ),
  })
  .describe('The report does not count.');

/** The header of an answer that also contains its cursor, for clients that do not parse JSON. */
export const CURSOR_HEADER = 'Linger-Cursor';

/** The reports API as an OpenAPI 3.1 document, derived from the schemas that validate requests. */
export function reportsOpenApi(): Record<string, unknown> {
  const statuses = new Set(Object.values(REPORT_RESULTS).map(({ status }) => status));
  return {
    openapi: '3.1.0',
    info: {
      title: 'Linger: reports of consumers',
      version: 'v1',
      description:
        'Served by the replica that leads, which the Service linger-reports leads to. An instance of a DiscoveryConsumer measured by reports asks for a cursor before each sync and sends it back after it; Linger learns from that how late the consumer is, and which removals it has applied.',
    },
    paths: {
      '/v1/consumers/{name}/reports': {
        parameters: [
          { name: 'name', in: 'path', required: true, description: 'The DiscoveryConsumer.', schema: TEXT },
        ],
        post: {
          operationId: 'report',
          summary: 'Ask for a cursor, or say that a sync is complete.',
          security: [{ token: [] }],
          requestBody: { required: true, content: contentOf('Report') },
          responses: Object.fromEntries(
            [...statuses].toSorted().map((status) => [status, responseOf(status)]),
          ),
        },
      },
      '/v1/openapi.json': {
        get: {
          operationId: 'openapi',
          summary: 'This document.',
          responses: { 200: { description: 'This document.', content: { 'application/json': {} } } },
        },
      },
    },
    components: {
      schemas: {
        Report: schemaOf(reportRequest),
        Accepted: schemaOf(reportAccepted),
        Refused: schemaOf(reportRefused),
      },
      securitySchemes: {
        token: {
          type: 'http',
          scheme: 'bearer',
          description:
            'The token of a ServiceAccount, projected for the audience linger.dev/reports (--reports-audience), that may create discoveryconsumers/reports of this name in the group linger.dev. The instance is the pod that the token is bound to.',
        },
      },
    },
  };
}

const TEXT = { type: 'string' };

function responseOf(status: number) {
  const results = Object.entries(REPORT_RESULTS).filter(([, result]) => result.status === status);
  const description = results.map(([name, { means }]) => `${name}: ${means}`).join(' ');
  const headers = {
    ...([200, 409].includes(status) && {
      [CURSOR_HEADER]: { description: 'The cursor of the body.', schema: TEXT },
    }),
    ...([429, 503].includes(status) && { 'Retry-After': { description: 'Seconds.', schema: TEXT } }),
  };
  return { description, headers, content: contentOf(status === 200 ? 'Accepted' : 'Refused') };
}

function contentOf(name: string) {
  return { 'application/json': { schema: { $ref: `#/components/schemas/${name}` } } };
}

function schemaOf(schema: z.ZodType) {
  // JSON Schema 2020-12 is what OpenAPI 3.1 is written in; it says so itself.
  const { $schema: _, ...rest } = z.toJSONSchema(schema);
  return rest;
}
