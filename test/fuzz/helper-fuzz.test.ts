import { afterAll, expect, it } from 'vitest';
import { FUZZ } from '../property/runs.ts';
import { helperFuzzer } from './helper.ts';

const fuzzer = helperFuzzer();
const LOOKS = 500 * FUZZ;
if ('absent' in fuzzer) it.skip(`the helper’s reader of /proc: ${fuzzer.absent}`, () => undefined);
else {
  afterAll(fuzzer.remove);
  it(`the helper’s reader of /proc takes ${LOOKS} changed tables, with sanitizers`, () => {
    const seed = Date.now() % 2 ** 31;
    expect({ seed, problem: fuzzer.run(LOOKS, seed) }).toEqual({ seed, problem: undefined });
  });
}
