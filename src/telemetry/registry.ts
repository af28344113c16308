import {
  Counter,
  collectDefaultMetrics,
  Gauge,
  Histogram,
  type LabelValues,
  Registry,
} from '@prometheus-io/client';
import { LOOP_WORK } from './loop-time.ts';

declare module '@prometheus-io/client' {
  // The class stores all members of its configuration.
  interface MetricConfiguration<T extends string> {
    /** Replaces the help in the reference, if more is to be said there: Markdown, with links relative to docs/reference. */
    reference?: string | undefined;
  }
}

/** A metric whose samples are read at each scrape, so they are never stale. */
export interface ReadAtScrape<L extends string> {
  readonly name: string;
  readonly help: string;
  /** Replaces the help in the reference: Markdown, with links relative to docs/reference. */
  readonly reference?: string;
  readonly labelNames: readonly L[];
  /** All current samples; series without a sample are not exposed. */
  readonly read: () => Iterable<readonly [labels: LabelValues<L>, value: number]>;
}

export function gaugeAtScrape<L extends string>(registry: Registry, metric: ReadAtScrape<L>): void {
  const { read, ...described } = metric;
  new Gauge<L>({
    ...described,
    registers: [registry],
    collect() {
      this.reset();
      // Without labels, a reset leaves a sample of 0.
      this.remove({} as LabelValues<L>);
      for (const [labels, value] of read()) this.set(labels, value);
    },
  });
}

/** A counter whose value is kept elsewhere. */
export function counterAtScrape<L extends string>(registry: Registry, metric: ReadAtScrape<L>): void {
  const { read, ...described } = metric;
  new Counter<L>({
    ...described,
    registers: [registry],
    collect() {
      this.reset();
      for (const [labels, value] of read()) this.inc(labels, value);
    },
  });
}

/** The samples of a metric with one label, by the value of the label; an undefined number gives no sample. */
export function samplesBy<L extends string, T>(
  label: L,
  all: Readonly<Record<string, T>>,
  numberOf: (each: T) => number | undefined,
): (readonly [LabelValues<L>, number])[] {
  return Object.entries(all).flatMap(([key, each]) => {
    const number = numberOf(each);
    return number === undefined ? [] : [[{ [label]: key } as LabelValues<L>, number] as const];
  });
}

/** A gauge without labels, which always has a value. */
export function numberAtScrape(
  registry: Registry,
  {
    read,
    ...named
  }: Pick<ReadAtScrape<string>, 'name' | 'help' | 'reference'> & { readonly read: () => number },
): void {
  gaugeAtScrape<string>(registry, { ...named, labelNames: [], read: () => [[{}, read()]] });
}

/** Milliseconds between samples of the event loop. The default of 110 a second takes 8 of an idle server's 9 mCPU. */
const RARELY = { eventLoopMonitoringPrecision: 2_000, eventLoopUtilizationTimeout: 5_000 };

/** The registry, and the metrics of the server itself; the rooms register their own. */
export type Metrics = ReturnType<typeof createMetrics>;

export function createMetrics(version: string) {
  const registry = new Registry();
  const registers = [registry];
  const gauge = <L extends string = never>(
    name: string,
    help: string,
    labelNames: readonly L[] = [],
    reference?: string,
  ) => new Gauge<L>({ name, help, reference, labelNames, registers });
  const reloads = (name: string, help: string, reference: string) => {
    const counter = new Counter({ name, help, reference, labelNames: ['result'] as const, registers });
    // Prometheus sees no increase in a series that begins with 1, and the first failure must be an increase.
    for (const result of ['success', 'failure']) counter.inc({ result }, 0);
    return counter;
  };
  collectDefaultMetrics({ register: registry, ...RARELY });
  gauge('linger_build_info', 'Always 1; the labels say what is running.', ['version', 'node']).set(
    { version, node: process.version },
    1,
  );
  const metrics = {
    registry,
    draining: gauge('linger_draining', '1 while shutting down: not ready, still answering.'),
    policyReloads: reloads(
      'linger_policy_reloads_total',
      'Changes of the policy files, by result: success, or failure (some documents cannot be used).',
      'Changes of the policy files: `success`, or `failure` (some documents [cannot be used](operations.md#reload-of-policies)).',
    ),
    policyLastSuccess: gauge(
      'linger_policy_last_success_timestamp_seconds',
      'When all policy files were last valid.',
    ),
    policyReloadSuccessful: gauge(
      'linger_policy_last_reload_successful',
      '1 when all policy files are in force, 0 while some documents cannot be used.',
    ),
    policyProblems: gauge(
      'linger_policy_problems',
      'Policy documents and files on disk that cannot be used.',
      [],
      'Policy documents and files that cannot be used as they are on disk. The log and `/estimates` name them.',
    ),
    policyDocuments: gauge('linger_policy_documents', 'Documents in force.', ['kind']),
    certificateExpiry: gauge(
      'linger_certificate_expiry_timestamp_seconds',
      'When the serving certificate expires.',
    ),
    certificateIssued: gauge(
      'linger_certificate_issued_timestamp_seconds',
      'When the serving certificate says that it was issued (Linger’s certificates begin an hour earlier).',
    ),
    certificateTrusted: gauge(
      'linger_certificate_trusted',
      '1 while the webhook configuration trusts the certificate that this replica serves. Only with --certs-secret.',
      [],
      "1 while the webhook configuration trusts this replica's serving certificate, or does not exist (`linger_webhook_configured`). Only with `--certs-secret`.",
    ),
    certificateWrites: new Counter({
      name: 'linger_certificate_writes_total',
      help: 'Writes of the certificates that replicas share, by object (Secret, caBundle) and reason. Only with --certs-secret.',
      reference:
        'Writes of the [certificates](operations.md#certificates): `object` is `Secret` or `caBundle`. Only with `--certs-secret`.',
      labelNames: ['object', 'reason'] as const,
      registers,
    }),
    certificateReloads: reloads(
      'linger_certificate_reloads_total',
      'Changes of the serving certificate, and failed attempts, by result; the last good one keeps serving.',
      '`success`: the serving certificate was replaced. `failure`: its files, the Secret or the caBundle cannot be used: the last valid one stays, and each attempt counts, at most 8 s apart.',
    ),
    loopBlocked: new Histogram({
      name: 'linger_loop_blocked_seconds',
      help: 'How long one piece of work kept the event loop from everything else, by work; 10 ms and more.',
      reference:
        'How long one piece of work blocked the event loop; only pieces of 10 ms and more count. `work`: `watch`, `list`, `review`, `policies`, `hold`, `push` (of istiod), `curves`, `audit`, or `other`: anything else, counted from 250 ms on.',
      labelNames: ['work'] as const,
      buckets: [0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5],
      registers,
    }),
  };
  // A gauge begins with 0, which would raise an alarm where it does not apply.
  metrics.certificateTrusted.remove();
  for (const work of LOOP_WORK) metrics.loopBlocked.zero({ work });
  return metrics;
}
