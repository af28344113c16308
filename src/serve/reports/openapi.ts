import { z } from 'zod';
import { REPORT_RESULTS } from '../../core/catalog/report-results.ts';
import { reportAccepted, reportRefused, reportRequest } from '../../core/schema/report.ts';
import { CURSOR_HEADER } from './refusals.ts';

const VERSION = 'v1';

/** The reports API, as an OpenAPI 3.1 document: made of the schemas that requests are held against. */
export function openApiDocument(): Record<string, unknown> {
  return {
    openapi: '3.1.0',
    info: {
      title: 'Linger: reports of consumers',
      version: VERSION,
      description:
        'Served by the replica that leads, which the Service linger-reports leads to. An instance of a DiscoveryConsumer measured by reports says after each sync that it is complete; Linger learns from that how late the consumer is.',
    },
    paths: {
      '/v1/consumers/{name}/reports': { parameters: [nameParameter()], post: reportOperation() },
      '/v1/openapi.json': { get: documentOperation() },
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
            'The token of a ServiceAccount, projected for the audience linger.dev/reports (--reports-audience), that may create discoveryconsumers/reports of this name in the group linger.dev.',
        },
      },
    },
  };
}

function nameParameter() {
  return {
    name: 'name',
    in: 'path',
    required: true,
    description: 'The DiscoveryConsumer.',
    schema: { type: 'string' },
  };
}

function reportOperation() {
  return {
    operationId: 'report',
    summary: 'Say that a sync is complete, or ask for a first cursor.',
    security: [{ token: [] }],
    requestBody: { required: true, content: json('Report') },
    responses: Object.fromEntries(statuses().map((status) => [String(status), responseOf(status)])),
  };
}

function documentOperation() {
  return {
    operationId: 'openapi',
    summary: 'This document.',
    responses: { 200: { description: 'This document.', content: { 'application/json': {} } } },
  };
}

function statuses(): readonly number[] {
  return [...new Set(Object.values(REPORT_RESULTS).map(({ status }) => status))].toSorted((a, b) => a - b);
}

function responseOf(status: number) {
  const results = Object.entries(REPORT_RESULTS).filter(([, result]) => result.status === status);
  const description = results.map(([name, { summary }]) => `${name}: ${summary}`).join(' ');
  const headers = {
    ...(status === 200 || status === 409 ? { [CURSOR_HEADER]: header('The cursor of the body.') } : {}),
    ...(status === 429 || status === 503 ? { 'Retry-After': header('Seconds.') } : {}),
  };
  return { description, headers, content: json(status === 200 ? 'Accepted' : 'Refused') };
}

function header(description: string) {
  return { description, schema: { type: 'string' } };
}

function json(name: string) {
  return { 'application/json': { schema: { $ref: `#/components/schemas/${name}` } } };
}

function schemaOf(schema: z.ZodType) {
  // JSON Schema 2020-12 is what OpenAPI 3.1 is written in; it says so itself.
  const { $schema: _, ...rest } = z.toJSONSchema(schema);
  return rest;
}
