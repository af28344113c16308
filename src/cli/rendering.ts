import { writeFile } from 'node:fs/promises';
import { createTwoFilesPatch, FILE_HEADERS_ONLY } from 'diff';
import { stringify } from 'yaml';
import { asError, LingerError, printable } from '../api/index.ts';
import { type Chart, chartSvg } from '../timeline/index.ts';
import type { OutputFormat } from './commands.ts';
import { jsonText } from './terminal.ts';

// Apart from the terminal, which a server loads: it needs neither library.

/** A result in the format of --output. @param table the text form; `wide`: with all columns */
export function rendered(output: OutputFormat, value: object, table: (wide: boolean) => string): string {
  if (output === 'json') return jsonText(value);
  return output === 'yaml' ? yamlText(value) : table(output === 'wide');
}

/** Like {@link jsonText} for YAML, which quotes strings with control characters, but escapes only those that JSON must. */
export function yamlText(value: unknown): string {
  return stringify(value).replaceAll(/[\u007f-\u009f]/g, printable);
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
