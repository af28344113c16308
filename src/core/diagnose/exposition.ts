/*
 * What there is of the Prometheus text format, as far as a diagnosis reads it. The client library that Linger exposes
 * its own metrics with only writes the format, and a further dependency for 60 lines is worth neither its weight nor
 * its trust. Strict where it matters: a line that is wanted and cannot be read is an error and never a missing value.
 *
 * Source: prometheus.io/docs/instrumenting/exposition_formats (0.0.4), and of OpenMetrics 1.0 what differs: exemplars,
 * fractions in time stamps, `# EOF`.
 */

/** One series at one instant. NaN and the infinities are values like others. */
export interface MetricSample {
  readonly labels: ReadonlyMap<string, string>;
  readonly value: number;
}

/** Samples by the name that stands in front of them: `workqueue_queue_duration_seconds_bucket`. */
export type Exposition = ReadonlyMap<string, readonly MetricSample[]>;

/** The text is no exposition. The message begins with `line N:`. */
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
const END_OF_LABELS = /[ \t]*\}/y;
/** A value, a time stamp and an exemplar; the last two are of no use here. */
const VALUE = /[ \t]*([^ \t#]+)(?:[ \t]+[-+0-9.eE]+)?[ \t]*(?:#.*)?$/y;
const NUMBER = /^[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?$/;

/**
 * Reads the samples of the names that are wanted. Of other lines only the name is looked at: a busy API server's
 * scrape has tens of megabytes.
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
    const samples = found.get(name);
    if (samples === undefined) found.set(name, [sample]);
    else samples.push(sample);
  }
  return found;
}

function sampleOf(line: string, from: number, number: number): MetricSample {
  const { labels, end } = labelsOf(line, from, number);
  const text = matchAt(VALUE, line, end)?.[1];
  const value = text === undefined ? undefined : numberOf(text);
  // Without braces, the value would otherwise run into the name.
  if (value === undefined || (end === from && !/[ \t]/.test(line[from] ?? ''))) {
    throw new MalformedExposition(number, 'expected a value', line);
  }
  return { labels, value };
}

function labelsOf(line: string, from: number, number: number): { labels: Map<string, string>; end: number } {
  const labels = new Map<string, string>();
  const open = /[ \t]*\{/y;
  const opening = matchAt(open, line, from);
  if (opening === null) return { labels, end: from };
  let at = from + opening[0].length;
  for (let label = matchAt(LABEL, line, at); label !== null; label = matchAt(LABEL, line, at)) {
    const [whole, name = '', value = ''] = label;
    labels.set(name, unescaped(value));
    at += whole.length;
  }
  const closing = matchAt(END_OF_LABELS, line, at);
  if (closing === null) throw new MalformedExposition(number, 'expected labels such as {name="value"}', line);
  return { labels, end: at + closing[0].length };
}

function matchAt(expression: RegExp, line: string, at: number): RegExpExecArray | null {
  expression.lastIndex = at;
  return expression.exec(line);
}

/** Any other escape is kept as it is, as Prometheus does. */
function unescaped(value: string): string {
  if (!value.includes('\\')) return value;
  return value.replace(/\\([\\"n])/g, (_, escaped: string) => (escaped === 'n' ? '\n' : escaped));
}

/** As Go reads a float, without its hexadecimal and underscored forms, which nobody writes. */
function numberOf(text: string): number | undefined {
  if (NUMBER.test(text)) return Number(text);
  const word = text.toLowerCase();
  if (/^[-+]?nan$/.test(word)) return Number.NaN;
  const infinite = /^([-+]?)inf(?:inity)?$/.exec(word);
  if (infinite === null) return undefined;
  return infinite[1] === '-' ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY;
}
