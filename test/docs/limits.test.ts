import { expect, test } from 'vitest';
import { FOREIGN_LIMITS, type ForeignLimit } from '../../src/api/index.ts';
import { tableUnder } from './markdown.ts';

test('the threat model prints the limits of the code', () => {
  const rows = Object.entries<ForeignLimit>(FOREIGN_LIMITS).map(([source, limit]) => ({
    source: `\`${source}\``,
    'written by': limit.from,
    bytes: bytesInWords(limit.bytes),
    parts: limit.parts === undefined ? '' : `${limit.parts.most.toLocaleString('en')} ${limit.parts.what}`,
    depth: limit.depth?.toLocaleString('en') ?? '',
    'parsed on the event loop': bytesInWords(limit.loopBytes),
    'beyond that': limit.beyond,
  }));
  expect(tableUnder('docs/threat-model.md', 'Limits on foreign bytes')).toEqual(rows);
});

function bytesInWords(bytes: number): string {
  if (bytes < 1024) return bytes === 0 ? 'nothing' : `${bytes} B`;
  return bytes < 1024 ** 2 ? `${bytes / 1024} KiB` : `${bytes / 1024 ** 2} MiB`;
}
