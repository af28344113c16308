import { writeFile } from 'node:fs/promises';
import { createTwoFilesPatch, FILE_HEADERS_ONLY } from 'diff';
import { Document, type ToStringOptions, visit } from 'yaml';
import { asError, LingerError, printable } from '../core/api/index.ts';
import { type Chart, chartSvg } from '../core/timeline/index.ts';
import type { OutputFormat } from './commands.ts';
import { jsonText } from './terminal.ts';

// Separate from terminal.ts, which a server loads, because a server needs neither of these libraries.

/** A result in the format of --output. @param table the text form; `wide`: with all columns */
export function rendered(output: OutputFormat, value: object, table: (wide: boolean) => string): string {
  if (output === 'json') return jsonText(value);
  return output === 'yaml' ? yamlText(value) : table(output === 'wide');
}

/** Characters that must not reach a terminal, except for line breaks, which separate lines of text. */
const CONTROLS = /[\u007f-\u009f\p{Cf}\p{Zl}\p{Zp}]/gu;

/**
 * Like {@link jsonText} for YAML, which quotes strings with control characters, but not with those that change the direction
 * of text, and escapes only what JSON must. The output must also suit kubectl, which reads YAML 1.1, in which `no` and `on`
 * are booleans.
 */
export function yamlText(value: unknown, options: ToStringOptions = {}): string {
  const document = new Document(value, { version: '1.1' });
  visit(document, {
    Scalar: (_key, node) => {
      if (typeof node.value === 'string' && node.value.search(CONTROLS) >= 0) node.type = 'QUOTE_DOUBLE';
    },
  });
  // In YAML, no character is written as a surrogate pair.
  const long = (char: string) => `\\U${(char.codePointAt(0) ?? 0).toString(16).padStart(8, '0')}`;
  return document
    .toString(options)
    .replaceAll(CONTROLS, (char) => (char.length === 1 ? printable(char) : long(char)));
}

/** Writes the file of --svg. @throws LingerError `output-unwritable` */
export async function draw(file: string, charts: Chart | readonly Chart[]): Promise<void> {
  try {
    await writeFile(file, `${chartSvg(charts)}\n`);
  } catch (cause) {
    throw new LingerError('output-unwritable', `--svg ${file}: ${asError(cause).message}`, { cause });
  }
}

/**
 * The difference between two texts, like `diff -u`; empty: there is none. @returns undefined if it has more lines than
 * `most`
 */
export function unifiedDiff(name: string, before: string, after: string, most = Number.POSITIVE_INFINITY) {
  const options = { context: 3, headerOptions: FILE_HEADERS_ONLY, maxEditLength: most };
  return before === after ? '' : createTwoFilesPatch(name, name, before, after, '', '', options);
}
