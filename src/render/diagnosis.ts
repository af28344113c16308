import type { Facts, Look } from '../core/diagnose/facts.ts';
import type { Finding } from '../core/diagnose/findings.ts';

/** What `linger diagnose --output json` prints, with null for what is undefined. */
export interface Diagnosis {
  readonly findings: readonly Finding[];
  readonly looks: readonly Look[];
  /** The numbers behind it, as they were read. */
  readonly facts: Omit<Facts, 'looks'>;
}

/** Prose is wrapped here; evidence and commands are not, so that they can be copied. */
const WIDTH = 100;

/** A diagnosis for people: a block for each finding, then what was looked at. */
export function renderDiagnosis({ findings, looks }: Diagnosis): string {
  const blocks = [
    ...findings.map(findingBlock),
    looksBlock(
      'looked at',
      looks.filter(({ seen }) => seen),
    ),
    looksBlock(
      'not seen',
      looks.filter(({ seen }) => !seen),
    ),
  ];
  return `${blocks
    .filter((lines) => lines.length > 0)
    .map((lines) => lines.join('\n'))
    .join('\n\n')}\n`;
}

function findingBlock({ code, severity, text, evidence, cure }: Finding): readonly string[] {
  return [
    `${severity.toUpperCase()} ${code}`,
    ...wrapped(text, '  '),
    ...(evidence.length === 0 ? [] : ['  evidence', ...evidence.map((line) => `    ${line}`)]),
    ...(cure.length === 0 ? [] : ['  cure', ...cure.flatMap(cureLines)]),
  ];
}

function cureLines(line: string): readonly string[] {
  return /^(--|kubectl )/.test(line) ? [`    ${line}`] : wrapped(line, '    ');
}

function looksBlock(title: string, looks: readonly Look[]): readonly string[] {
  if (looks.length === 0) return [];
  const width = Math.max(...looks.map(({ what }) => what.length));
  const lines = looks.flatMap(({ what, text, remedy }) => [
    `  ${what.padEnd(width)}  ${text}`,
    ...(remedy === undefined ? [] : [`  ${' '.repeat(width)}  → ${remedy}`]),
  ]);
  return [title, ...lines];
}

function wrapped(text: string, indent: string): readonly string[] {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(' ')) {
    if (line !== '' && indent.length + line.length + 1 + word.length > WIDTH) {
      lines.push(indent + line);
      line = word;
    } else line = line === '' ? word : `${line} ${word}`;
  }
  return [...lines, indent + line];
}
