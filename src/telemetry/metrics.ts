import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from '@prometheus-io/client';

/**
 * Finer than the API server's own apiserver_admission_webhook_admission_duration_seconds, whose first bucket ends
 * at 5 ms: an answer of ours takes a tenth of that.
 */
const ADMISSION_SECONDS = [
  0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2,
];
const WAIT_SECONDS = [1, 5, 10, 15, 20, 25, 30, 45, 60, 90, 120, 180, 300];

/** Every metric that Linger exports. Names, labels and meaning are documented in docs/metrics.md. */
export interface Metrics {
  readonly registry: Registry;
  readonly decisions: Counter<'outcome' | 'reason'>;
  readonly notes: Counter<'code'>;
  readonly invalidAnnotations: Counter<'annotation'>;
  readonly plannedWait: Histogram<'outcome'>;
  readonly admissionDuration: Histogram;
  readonly responses: Counter<'code'>;
  readonly draining: Gauge;
  readonly policyReloads: Counter<'result'>;
  readonly policyLastSuccess: Gauge;
  readonly policyReloadSuccessful: Gauge;
  readonly policyDocuments: Gauge<'kind'>;
  readonly certificateExpiry: Gauge;
  readonly certificateReloads: Counter<'result'>;
}

export function createMetrics(version: string): Metrics {
  const registry = new Registry();
  const registers = [registry];
  collectDefaultMetrics({ register: registry });
  new Gauge({
    name: 'linger_build_info',
    help: 'Always 1; the labels say what is running.',
    labelNames: ['version', 'node'],
    registers,
  }).set({ version, node: process.version }, 1);
  return { registry, ...admissionMetrics(registers), ...stateMetrics(registers) };
}

function admissionMetrics(registers: Registry[]) {
  return {
    decisions: new Counter({
      name: 'linger_decisions_total',
      help: 'Pods decided on, dry runs left out. outcome: inject, audit or skip; reason: why skipped, else empty.',
      labelNames: ['outcome', 'reason'] as const,
      registers,
    }),
    notes: new Counter({
      name: 'linger_notes_total',
      help: 'Remarks on decisions, by code.',
      labelNames: ['code'] as const,
      registers,
    }),
    invalidAnnotations: new Counter({
      name: 'linger_invalid_annotations_total',
      help: 'linger.dev annotations that did not parse and were ignored.',
      labelNames: ['annotation'] as const,
      registers,
    }),
    plannedWait: new Histogram({
      name: 'linger_planned_wait_seconds',
      help: 'Waits planned for pods. outcome: inject or audit.',
      labelNames: ['outcome'] as const,
      buckets: WAIT_SECONDS,
      registers,
    }),
    admissionDuration: new Histogram({
      name: 'linger_admission_duration_seconds',
      help: 'From a review’s last byte read to its answer handed to the socket.',
      buckets: ADMISSION_SECONDS,
      registers,
    }),
    responses: new Counter({
      name: 'linger_http_responses_total',
      help: 'Answers of the webhook server by HTTP status.',
      labelNames: ['code'] as const,
      registers,
    }),
    draining: new Gauge({
      name: 'linger_draining',
      help: '1 while shutting down: not ready, still answering.',
      registers,
    }),
  };
}

function stateMetrics(registers: Registry[]) {
  return {
    policyReloads: new Counter({
      name: 'linger_policy_reloads_total',
      help: 'Changes of the policy files, by result: success, or failure (the last good set stays in force).',
      labelNames: ['result'] as const,
      registers,
    }),
    policyLastSuccess: new Gauge({
      name: 'linger_policy_last_success_timestamp_seconds',
      help: 'When the policies in force were taken.',
      registers,
    }),
    policyReloadSuccessful: new Gauge({
      name: 'linger_policy_last_reload_successful',
      help: '1 when the policy files on the disk are the ones in force, 0 while they cannot be used.',
      registers,
    }),
    policyDocuments: new Gauge({
      name: 'linger_policy_documents',
      help: 'Documents in force by kind.',
      labelNames: ['kind'] as const,
      registers,
    }),
    certificateExpiry: new Gauge({
      name: 'linger_certificate_expiry_timestamp_seconds',
      help: 'When the serving certificate expires.',
      registers,
    }),
    certificateReloads: new Counter({
      name: 'linger_certificate_reloads_total',
      help: 'Changes of the serving certificate, by result: success, or failure (the last good one keeps serving).',
      labelNames: ['result'] as const,
      registers,
    }),
  };
}
