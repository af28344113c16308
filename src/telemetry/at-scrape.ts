import { Counter, Gauge, type LabelValues, type Registry } from '@prometheus-io/client';

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
