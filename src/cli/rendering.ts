import { writeFile } from 'node:fs/promises';
import { createTwoFilesPatch, FILE_HEADERS_ONLY } from 'diff';
import { Document, type ToStringOptions, visit } from 'yaml';
import { asError, LingerError, printable } from '../core/api/index.ts';
import { type Chart, chartSvg } from '../core/timeline/index.ts';
import type { OutputFormat } from './commands.ts';
import { jsonText } from './terminal.ts';

// Apart from the terminal, which a server loads: it needs neither library.

/** A result in the format of --output. @param table the text form; `wide`: with all columns */
export function rendered(output: OutputFormat, value: object, table: (wide: boolean) => string): string {
  if (output === 'json') return jsonText(value);
  return output === 'yaml' ? yamlText(value) : table(output === 'wide');
}

/** What a terminal must not get as it is, but line breaks, which make blocks of text. */
const CONTROLS = /[\u007f-\u009f\p{Cf}\p{Zl}\p{Zp}]/gu;

/**
 * Like {@link jsonText} for YAML, which quotes strings with control characters, but not with those that change the direction
 * of text, and escapes only what JSON must. It is read by kubectl, too: YAML 1.1 takes `no` and `on` for booleans.
 */
export function yamlText(value: unknown, options: ToStringOptions = {}): string {
  const document = new Document(value, { version: '1.1' });
  visit(document, {
    Scalar: (_key, node) => {
      if (typeof node.value === 'string' && node.value.search(CONTROLS) >= 0) node.type = 'QUOTE_DOUBLE';
    },
  });
  // YAML writes no character as two halves.
  const long = (char: string) => `\\U${(char.codePointAt(0) ?? 0).toString(16).padStart(8, '0')}`;
  return document
    .toString(options)
    .replaceAll(CONTROLS, (char) => (char.length === 1 ? printable(char) : long(char)));
}

/** The file of --svg. @throws LingerError `output-unwritable` */
export async function draw(file: string, charts: Chart | readonly Chart[]): Promise<void> {
  try {
    await writeFile(file, `${chartSvg(charts)}\n`);
  } catch (cause) {
    throw new LingerError('output-unwritable', `--svg ${file}: ${asError(cause).message}`, { cause });
  }
}

/** What turns one text into another, as `diff -u` shows it; empty: nothing. @returns undefined: more lines than `most` */
export function unifiedDiff(name: string, before: string, after: string, most = Number.POSITIVE_INFINITY) {
  const options = { context: 3, headerOptions: FILE_HEADERS_ONLY, maxEditLength: most };
  return before === after ? '' : createTwoFilesPatch(name, name, before, after, '', '', options);
}
