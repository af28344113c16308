import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { FOREIGN_LIMITS, type ForeignLimit } from '../../src/core/api/index.ts';
import { tableUnder } from './markdown.ts';

test('the threat model prints the limits of the code', () => {
  const rows = Object.entries<ForeignLimit>(FOREIGN_LIMITS).map(([source, limit]) => ({
    source: `\`${source}\``,
    'written by': limit.from,
    bytes: bytesInWords(limit.bytes),
    parts: limit.parts === undefined ? '' : `${limit.parts.most.toLocaleString('en')} ${limit.parts.what}`,
    depth: limit.depth?.toLocaleString('en') ?? '',
    steps: limit.steps?.toLocaleString('en') ?? '',
    'parsed on the event loop': bytesInWords(limit.loopBytes),
    'beyond that': limit.beyond,
  }));
  expect(tableUnder('docs/threat-model.md', 'Limits on foreign bytes')).toEqual(rows);
});

const SRC = join(import.meta.dirname, '../../src');

test('the code takes its limits from the table', () => {
  const code = readdirSync(SRC, { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.ts') && file !== 'api/limits.ts')
    .map((file) => readFileSync(join(SRC, file), 'utf8'))
    .join('\n');
  const { proc: _, ...parsed } = FOREIGN_LIMITS;
  const unused = Object.entries<ForeignLimit>(parsed).flatMap(([source, limit]) => {
    const { bytes, parts, depth, loopBytes } = limit;
    // Where all of it is parsed on the loop, one bound says both; where nothing is, there is none.
    const isSplit = loopBytes !== 0 && loopBytes !== bytes;
    const used = ['bytes', parts && 'parts.most', depth && 'depth', isSplit && 'loopBytes'];
    return (
      used
        .filter((member) => typeof member === 'string')
        .map((member) => `FOREIGN_LIMITS.${source}.${member}`)
        // A budget has all limits of its reader.
        .filter((each) => !code.includes(each) && !code.includes(`new Budget(FOREIGN_LIMITS.${source})`))
    );
  });
  expect(unused).toEqual([]);
  const helper = readFileSync(join(SRC, 'hold/helper/hold.c'), 'utf8');
  expect(helper).toContain(`static char piece[${FOREIGN_LIMITS.proc.bytes}];`);
  expect(helper).toContain(`#define MOST_REMOTES ${FOREIGN_LIMITS.proc.parts.most}\n`);
});

function bytesInWords(bytes: number): string {
  if (bytes < 1024) return bytes === 0 ? 'nothing' : `${bytes} B`;
  return bytes < 1024 ** 2 ? `${bytes / 1024} KiB` : `${bytes / 1024 ** 2} MiB`;
}
