import { describe, expect, it } from 'vitest';
import { FOREIGN_LIMITS } from '../../src/core/api/index.ts';
import { FUZZ } from '../property/runs.ts';
import { corpusOf, faultOf, fuzz, SOURCES } from './inputs.ts';

/** Enough to notice a parser that fails at once; `npm run fuzz` goes on for an hour. */
const INPUTS = 300 * FUZZ;

describe('bytes from outside', () => {
  it('have a target for each source, but for the helper that reads /proc', () => {
    expect([...SOURCES, 'proc'].toSorted()).toEqual(Object.keys(FOREIGN_LIMITS).toSorted());
  });

  describe.each(SOURCES)('%s', (source) => {
    it('takes every input of the corpus', () => {
      const faults = [...corpusOf(source)].map(([name, input]) => [name, faultOf(source, input)]);
      expect(faults.filter(([, fault]) => fault !== undefined)).toEqual([]);
      expect(faults.length).toBeGreaterThan(0);
    });

    it(`takes ${INPUTS} changed ones`, () => {
      const seed = Date.now() % 2 ** 31;
      const { tried, finding } = fuzz(source, seed, (count) => count < INPUTS);
      const found = finding && {
        seed,
        problem: finding.problem,
        input: Buffer.from(finding.input).toString('base64'),
      };
      expect(found).toBeUndefined();
      expect(tried).toBe(INPUTS);
    });
  });
});
