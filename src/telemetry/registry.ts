import { Counter, collectDefaultMetrics, Gauge, type LabelValues, Registry } from '@prometheus-io/client';

/** A metric whose samples are read when somebody asks for them, and so are never older than that. */
export interface ReadAtScrape<L extends string> {
  readonly name: string;
  readonly help: string;
  readonly labelNames: readonly L[];
  /** All samples that there are; what is not among them is not shown. */
  readonly read: () => Iterable<readonly [labels: LabelValues<L>, value: number]>;
}

export function gaugeAtScrape<L extends string>(registry: Registry, metric: ReadAtScrape<L>): void {
  new Gauge<L>({
    ...described(registry, metric),
    collect() {
      this.reset();
      for (const [labels, value] of metric.read()) this.set(labels, value);
    },
  });
}

/** For what somebody else counts. */
export function counterAtScrape<L extends string>(registry: Registry, metric: ReadAtScrape<L>): void {
  new Counter<L>({
    ...described(registry, metric),
    collect() {
      this.reset();
      for (const [labels, value] of metric.read()) this.inc(labels, value);
    },
  });
}

function described<L extends string>(registry: Registry, { name, help, labelNames }: ReadAtScrape<L>) {
  return { name, help, labelNames: [...labelNames], registers: [registry] };
}

/** The samples of a metric with one label, from what there is by its value; where there is no number, no sample. */
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
  { name, help, read }: Pick<ReadAtScrape<string>, 'name' | 'help'> & { readonly read: () => number },
): void {
  new Gauge({
    name,
    help,
    registers: [registry],
    collect() {
      this.set(read());
    },
  });
}

/** The registry, and the metrics of the server itself; the rooms register their own. */
export interface Metrics {
  readonly registry: Registry;
  readonly draining: Gauge;
  readonly policyReloads: Counter<'result'>;
  readonly policyLastSuccess: Gauge;
  readonly policyReloadSuccessful: Gauge;
  readonly policyProblems: Gauge;
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
  return { registry, ...stateMetrics(registers) };
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
      help: 'Changes of the policy files, by result: success, or failure (some documents cannot be used).',
      labelNames: ['result'] as const,
      registers,
    }),
    policyLastSuccess: new Gauge({
      name: 'linger_policy_last_success_timestamp_seconds',
      help: 'When all policy files could last be used.',
      registers,
    }),
    policyReloadSuccessful: new Gauge({
      name: 'linger_policy_last_reload_successful',
      help: '1 when all that the policy files say is in force, 0 while some documents cannot be used.',
      registers,
    }),
    policyProblems: new Gauge({
      name: 'linger_policy_problems',
      help: 'Policy documents and files that cannot be used as they stand on the disk.',
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
