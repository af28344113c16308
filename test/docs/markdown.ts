import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';

/** The checkout; every path below is relative to it. */
export const ROOT = join(import.meta.dirname, '..', '..');

export function read(path: string): string {
  return readFileSync(join(ROOT, path), 'utf8');
}

/** Every page that people read, sorted. */
export const PAGES: readonly string[] = [
  'README.md',
  'README.zh-CN.md',
  'CHANGELOG.md',
  'CONTRIBUTING.md',
  'SECURITY.md',
  'certs/README.md',
  'deploy/chart/README.md',
  ...filesUnder('docs').filter((path) => path.endsWith('.md')),
];

export function filesUnder(folder: string): readonly string[] {
  return readdirSync(join(ROOT, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(ROOT, join(entry.parentPath, entry.name)))
    .toSorted();
}

/** A row of a table, by the column's heading. */
export type Row = Readonly<Record<string, string>>;

/** A table below a heading, up to the next heading of whatever level; `index` counts from 0. */
export function tableUnder(page: string, heading: string, index = 0): readonly Row[] {
  const tables = linesUnder(page, heading)
    .join('\n')
    .split(/^(?!\|).*\n?/m)
    .filter((part) => part.startsWith('|'));
  const [head, , ...body] = tables[index]?.trimEnd().split('\n') ?? [];
  if (head === undefined) throw new Error(`${page}: no table ${index} under "${heading}"`);
  const columns = cells(head);
  return body.map((line) => {
    const values = cells(line);
    if (values.length !== columns.length)
      throw new Error(`${page}: expected ${columns.length} cells: ${line}`);
    return Object.fromEntries(columns.map((column, index) => [column, values[index] ?? '']));
  });
}

/** The one item that a cell names, or links: `--port` of "`--port`". Any other text in the cell is an error. */
export function codeOf(cell: string | undefined): string {
  const match = /^`([^`]+)`$/.exec(cell?.replace(/^\[(.+)\]\(\S+\)$/, '$1') ?? '');
  if (match?.[1] === undefined) throw new Error(`expected one item in backticks, got ${cell}`);
  return match[1];
}

/** Every item in backticks of a cell. */
export function codesOf(cell: string | undefined): readonly string[] {
  return [...(cell ?? '').matchAll(/`([^`]+)`/g)].map(([, code]) => code ?? '');
}

export interface Block {
  readonly page: string;
  /** Line number of the opening fence, from 1. */
  readonly line: number;
  readonly language: string;
  readonly text: string;
}

/** The fenced blocks of a page, in order. */
export function blocksOf(page: string): readonly Block[] {
  const blocks: Block[] = [];
  let open: { line: number; language: string; lines: string[] } | undefined;
  for (const [index, line] of read(page).split('\n').entries()) {
    if (open === undefined) {
      const fence = /^```(\w*)$/.exec(line);
      if (fence) open = { line: index + 1, language: fence[1] ?? '', lines: [] };
    } else if (line === '```') {
      blocks.push({ page, line: open.line, language: open.language, text: `${open.lines.join('\n')}\n` });
      open = undefined;
    } else open.lines.push(line);
  }
  if (open !== undefined) throw new Error(`${page}:${open.line}: the block is never closed`);
  return blocks;
}

/** The page without its fenced blocks. */
export function proseOf(page: string): string {
  return read(page).replace(/^```[\s\S]*?^```$/gm, '');
}

/** A page's headings, those of one level where its `#` are given. */
export function headingsOf(page: string, level = '#{1,6}'): readonly string[] {
  return [...proseOf(page).matchAll(new RegExp(`^${level} (.+)$`, 'gm'))].map(([, text]) => text ?? '');
}

/** The anchors of headings, as GitHub makes them of headings that differ. */
export function anchorsOf(headings: readonly string[]): readonly string[] {
  return headings.map((text) =>
    text
      .toLowerCase()
      .replace(/[^\p{L}\p{N}\s_-]/gu, '')
      .trim()
      .replaceAll(' ', '-'),
  );
}

function linesUnder(page: string, heading: string): readonly string[] {
  const lines = read(page).split('\n');
  const start = lines.findIndex((line) => /^#+ /.test(line) && line.replace(/^#+ /, '') === heading);
  if (start < 0) throw new Error(`${page}: no heading "${heading}"`);
  const rest = lines.slice(start + 1);
  const end = rest.findIndex((line) => /^#+ /.test(line));
  return rest.slice(0, end < 0 ? undefined : end);
}

function cells(line: string): readonly string[] {
  return line
    .replace(/^\|/, '')
    .replace(/\|\s*$/, '')
    .split(/(?<!\\)\|/)
    .map((cell) => cell.trim());
}
