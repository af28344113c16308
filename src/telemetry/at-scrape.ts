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
  const { name, help, labelNames, read } = metric;
  new Gauge<L>({
    name,
    help,
    labelNames: [...labelNames],
    registers: [registry],
    collect() {
      this.reset();
      for (const [labels, value] of read()) this.set(labels, value);
    },
  });
}

/** For what somebody else counts. */
export function counterAtScrape<L extends string>(registry: Registry, metric: ReadAtScrape<L>): void {
  const { name, help, labelNames, read } = metric;
  new Counter<L>({
    name,
    help,
    labelNames: [...labelNames],
    registers: [registry],
    collect() {
      this.reset();
      for (const [labels, value] of read()) this.inc(labels, value);
    },
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
