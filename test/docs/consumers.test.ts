import { expect, test } from 'vitest';
import { DISCOVERY_CONSUMERS } from '../../src/informers/index.ts';
import { PUBLISH_LIMITS } from '../../src/leader/index.ts';
import { read } from './markdown.ts';

const PAGE = 'docs/reference/consumers.md';

test('the numbers that the page names are those of the source', () => {
  const { consumersEveryMs, consumersAgainMs, statusAgainMs } = PUBLISH_LIMITS;
  const page = read(PAGE).replaceAll(/\s+/g, ' ');
  const operations = read('docs/reference/operations.md').replaceAll(/\s+/g, ' ');
  expect(consumersEveryMs).toBe(60_000);
  expect(page).toContain(`at most every minute, otherwise every ${consumersAgainMs / 60_000} minutes`);
  expect(page).toContain(`and every ${statusAgainMs / 60_000} minutes if only the samples have grown`);
  expect(operations).toContain(
    `policies of each kind and ${DISCOVERY_CONSUMERS.most} DiscoveryConsumers are followed`,
  );
});
