import { expect, test } from 'vitest';
import { z } from 'zod';
import { discoveryConsumerStatus } from '../../src/core/api/index.ts';
import { DISCOVERY_CONSUMERS } from '../../src/informers/index.ts';
import { PUBLISH_LIMITS } from '../../src/leader/index.ts';
import { codesOf, read, tableUnder } from './markdown.ts';

const PAGE = 'docs/reference/consumers.md';

test('the table has exactly the fields of the status', () => {
  const documented = tableUnder(PAGE, 'Status of a DiscoveryConsumer').flatMap((each) => codesOf(each.field));
  expect(documented.toSorted()).toEqual(leafPaths(discoveryConsumerStatus).toSorted());
});

test('the numbers that the page names are those of the source', () => {
  const { consumersEveryMs, consumersAgainMs, statusAgainMs } = PUBLISH_LIMITS;
  const page = (read('docs/concepts.md') + read(PAGE)).replaceAll(/\s+/g, ' ');
  expect(consumersEveryMs).toBe(60_000);
  expect(page).toContain(`at most every minute, otherwise every ${consumersAgainMs / 60_000} minutes`);
  expect(page).toContain(`and every ${statusAgainMs / 60_000} minutes if only the samples have grown`);
  expect(page).toContain(`At most ${DISCOVERY_CONSUMERS.most} of the cluster's are followed`);
});

/** The paths of the fields of a status: `additions.p50`. */
function leafPaths(schema: z.ZodType, path: readonly string[] = []): readonly string[] {
  const inner = schema instanceof z.ZodOptional ? (schema.unwrap() as z.ZodType) : schema;
  if (!(inner instanceof z.ZodObject)) return [path.join('.')];
  return Object.entries(inner.shape as Record<string, z.ZodType>).flatMap(([name, member]) =>
    leafPaths(member, [...path, name]),
  );
}
