import { Counter, collectDefaultMetrics, Gauge, Registry } from '@prometheus-io/client';
import { AdmissionMetrics } from './admission-metrics.ts';

/** Every metric that Linger exports. Names, labels and meaning are documented in docs/metrics.md. */
export interface Metrics {
  readonly registry: Registry;
  readonly admission: AdmissionMetrics;
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
  return { registry, admission: new AdmissionMetrics(registry), ...stateMetrics(registers) };
}

function stateMetrics(registers: Registry[]) {
  return {
    draining: new Gauge({
      name: 'linger_draining',
      help: '1 while shutting down: not ready, still answering.',
      registers,
    }),
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
