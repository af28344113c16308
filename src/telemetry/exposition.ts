/*
 * The part of the Prometheus text format that Linger reads; a dependency would not pay off for 60 lines. It is strict where
 * it matters: a wanted line that cannot be read is an error, and never a missing value. Source:
 * prometheus.io/docs/instrumenting/exposition_formats (0.0.4), and of OpenMetrics 1.0 what differs: exemplars, fractions in
 * time stamps, `# EOF`.
 */

/** One series at one instant. NaN and the infinities are values like others. */
export interface MetricSample {
  readonly labels: ReadonlyMap<string, string>;
  readonly value: number;
}

/** Samples by the name in front of them: `workqueue_queue_duration_seconds_bucket`. */
export type Exposition = ReadonlyMap<string, readonly MetricSample[]>;

/** The text is not an exposition. The message begins with `line N:`. */
export class MalformedExposition extends Error {
  override readonly name = 'MalformedExposition';

  constructor(line: number, problem: string, text: string) {
    const shown = text.length > 80 ? `${text.slice(0, 80)}…` : text;
    super(`line ${line}: ${problem}: ${shown}`);
  }
}

const NAME = /[a-zA-Z_:][a-zA-Z0-9_:]*/y;
/** Unrolled, so that a label of many megabytes takes no stack. */
const LABEL = /[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"([^"\\]*(?:\\.[^"\\]*)*)"[ \t]*(?:,|(?=\}))/y;
const LABELS_BEGIN = /[ \t]*\{/y;
const LABELS_END = /[ \t]*\}/y;
/** A value, a time stamp and an exemplar; the last two are of no use here. */
const VALUE = /[ \t]*([^ \t#]+)(?:[ \t]+[-+0-9.eE]+)?[ \t]*(?:#.*)?$/y;
/** As Go parses a float, without its hexadecimal and underscored forms, which exporters do not write. */
const NUMBER = /^[-+]?(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?|inf(?:inity)?|nan)$/i;

/**
 * Reads the samples of the wanted names. Of other lines only the name is read: a busy API server's scrape has tens of
 * megabytes.
 * @throws MalformedExposition
 */
export function parseExposition(text: string, wanted: ReadonlySet<string>): Exposition {
  const found = new Map<string, MetricSample[]>();
  let number = 0;
  let begin = 0;
  while (begin < text.length) {
    const newline = text.indexOf('\n', begin);
    const end = newline < 0 ? text.length : newline;
    const line = text.slice(begin, end).trim();
    begin = end + 1;
    number += 1;
    // Prometheus 3 writes names outside the old alphabet in quotes, inside the braces: none of them is wanted.
    if (line === '' || line.startsWith('#') || line.startsWith('{"')) continue;
    const name = matchAt(NAME, line, 0)?.[0];
    if (name === undefined) throw new MalformedExposition(number, 'expected the name of a metric', line);
    if (!wanted.has(name)) continue;
    const sample = sampleOf(line, name.length, number);
    const samples = found.get(name) ?? [];
    samples.push(sample);
    found.set(name, samples);
  }
  return found;
}

/** @param from where the name ends @param number of the line */
function sampleOf(line: string, from: number, number: number): MetricSample {
  let at = from;
  const next = (expression: RegExp) => {
    const match = matchAt(expression, line, at);
    at += match?.[0].length ?? 0;
    return match;
  };
  const labels = new Map<string, string>();
  const bare = next(LABELS_BEGIN) === null;
  if (!bare) {
    for (let label = next(LABEL); label !== null; label = next(LABEL)) {
      const [, name = '', value = ''] = label;
      // Any other escape is kept as it is, as Prometheus does.
      labels.set(
        name,
        value.replace(/\\([\\"n])/g, (_, escaped: string) => (escaped === 'n' ? '\n' : escaped)),
      );
    }
    if (next(LABELS_END) === null)
      throw new MalformedExposition(number, 'expected labels such as {name="value"}', line);
  }
  const text = next(VALUE)?.[1] ?? '';
  // Without braces, the value would otherwise run into the name.
  if (!NUMBER.test(text) || (bare && !/[ \t]/.test(line[from] ?? '')))
    throw new MalformedExposition(number, 'expected a value', line);
  return { labels, value: Number(text.replace(/inf(inity)?/i, 'Infinity')) };
}

function matchAt(expression: RegExp, line: string, at: number): RegExpExecArray | null {
  expression.lastIndex = at;
  return expression.exec(line);
}

/** Which series are meant. */
export type SeriesChoice = (labels: MetricSample['labels']) => boolean;

/** Without NaN, which is the value of a gauge that has none, and which would turn every sum into NaN. */
export function chosen(
  exposition: Exposition,
  name: string,
  choice: SeriesChoice = () => true,
): readonly MetricSample[] {
  const samples = exposition.get(name) ?? [];
  return samples.filter(({ labels, value }) => Number.isFinite(value) && choice(labels));
}

/** @returns undefined when there is no series of this name; 0 when there are, but none that is chosen */
export function sumOfSeries(exposition: Exposition, name: string, choice: SeriesChoice): number | undefined {
  if (chosen(exposition, name).length === 0) return undefined;
  return chosen(exposition, name, choice).reduce((sum, { value }) => sum + value, 0);
}

/** How many observations were at most this many seconds, by edge in ascending order. */
export function bucketsOf(
  exposition: Exposition,
  histogram: string,
  choice: SeriesChoice,
): ReadonlyMap<number, number> {
  const within = new Map<number, number>();
  for (const { labels, value } of chosen(exposition, `${histogram}_bucket`, choice)) {
    const edge = Number((labels.get('le') ?? '').replace('Inf', 'Infinity'));
    within.set(edge, (within.get(edge) ?? 0) + value);
  }
  return new Map([...within].toSorted(([a], [b]) => a - b));
}

/**
 * By how much each series has grown. A new series was 0 before, because client-go's series start with their first value; one
 * that has shrunk was reset to 0 in between.
 */
export function growthBetween(before: Exposition, after: Exposition): Exposition {
  const labelKeyOf = ({ labels }: MetricSample) => JSON.stringify([...labels]);
  const grown = [...after].map(([name, samples]) => {
    const old = new Map(chosen(before, name).map((sample) => [labelKeyOf(sample), sample.value]));
    const since = (sample: MetricSample) => {
      const grown = sample.value - (old.get(labelKeyOf(sample)) ?? 0);
      return grown < 0 ? sample.value : grown;
    };
    return [name, samples.map((sample) => ({ ...sample, value: since(sample) }))] as const;
  });
  return new Map(grown);
}
