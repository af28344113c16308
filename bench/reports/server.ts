import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { ConsumerReports } from '../../src/measurement/reports/reports.ts';
import { logToStandardOutput } from '../../src/telemetry/logs.ts';
import { createMetrics } from '../../src/telemetry/registry.ts';
import { admissionApp } from '../../src/webhook/admission.ts';
import { AdmissionMetrics } from '../../src/webhook/admission-metrics.ts';
import { reportsApp } from '../../src/webhook/report-endpoint.ts';
import { webhookServer } from '../../src/webhook/server.ts';
import { EMPTY_SNAPSHOT } from '../../test/core/decision/sample-snapshot.ts';

// The webhook's HTTPS server with the reports desk, as `serve` has it while it leads. What is left out is the API server:
// every token is good at once, as a token is for a minute after it has been asked about, and stands for one instance.

const [certs = ''] = process.argv.slice(2);
const clock = () => performance.now();
const { logger } = logToStandardOutput('info');
const key = randomBytes(32);
const reports = new ConsumerReports({
  keys: () => [key],
  newest: () => ({ EndpointSlice: '1000', Endpoints: '1000' }),
  clock,
  onLag: () => undefined,
});
reports.keep(new Set(['edge']));
setInterval(() => reports.states(), 1_000);
const results: Record<string, number> = {};

const app = admissionApp({
  snapshot: () => EMPTY_SNAPSHOT,
  auditWarnings: false,
  clientCertificates: false,
  closesConnection: () => false,
  reports: reportsApp({
    taker: () => reports,
    measureOf: () => 'reports',
    judge: { verdict: async (token) => ({ key: token, name: token }) },
    count: (_, result) => {
      results[result] = (results[result] ?? 0) + 1;
    },
    clock,
    logger,
  }),
  metrics: new AdmissionMetrics(createMetrics('bench').registry),
  logger,
});
const pem = (file: string) => readFileSync(join(certs, file), 'utf8');
const server = webhookServer(app, { cert: pem('tls.crt'), key: pem('tls.key') });
server.listen(0, '127.0.0.1', () => process.send?.({ port: (server.address() as AddressInfo).port }));
let used = process.cpuUsage();
/** What has happened since it was asked last; `cpu` in seconds. */
process.on('message', () => {
  const { user, system } = process.cpuUsage(used);
  process.send?.({ results: { ...results }, cpu: (user + system) / 1e6 });
  used = process.cpuUsage();
  for (const result of Object.keys(results)) delete results[result];
});
