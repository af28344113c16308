// npm run fuzz -- [--minutes N] [--seed N] [SOURCE…]: an hour, in turn over all sources of foreign bytes, and the helper's reader of
// /proc with sanitizers where there is a C compiler; each input that finds a
// fault goes into the corpus, and so into the tests.
import { createHash } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { helperFuzzer } from './helper.ts';
import { fuzz, SOURCES, type Source } from './inputs.ts';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    minutes: { type: 'string', default: '60' },
    seed: { type: 'string', default: String(Date.now() % 2 ** 31) },
  },
});
const sources = positionals.length === 0 ? SOURCES : (positionals as Source[]);
const unknown = sources.filter((each) => !SOURCES.includes(each));
if (unknown.length > 0)
  throw new Error(`expected sources among ${SOURCES.join(', ')}, got ${unknown.join(', ')}`);

const end = Date.now() + Number(values.minutes) * 60_000;
const tried = new Map<Source, number>();
/** Some seconds of it. */
const LOOKS = 2_000;
const helper = positionals.length === 0 ? helperFuzzer() : { absent: 'not asked for' };
if ('absent' in helper) console.log(`proc: left out: ${helper.absent}`);
let looks = 0;
let seed = Number(values.seed);
let faults = 0;
while (Date.now() < end) {
  for (const source of sources) {
    const turn = Math.min(Date.now() + 10_000, end);
    const result = fuzz(source, seed, () => Date.now() < turn);
    tried.set(source, (tried.get(source) ?? 0) + result.tried);
    if (result.finding === undefined) continue;
    const { input, problem } = result.finding;
    const name = createHash('sha256').update(input).digest('hex').slice(0, 16);
    const folder = join(import.meta.dirname, '..', 'testdata', 'corpus', source);
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, name), input);
    console.log(`${source}: fault with corpus/${source}/${name} (seed ${seed}): ${problem}`);
    faults += 1;
  }
  if ('run' in helper) {
    const problem = helper.run(LOOKS, seed);
    looks += LOOKS;
    if (problem !== undefined) {
      console.log(`proc: fault (seed ${seed}): ${problem}`);
      faults += 1;
    }
  }
  seed += 1;
}
if ('remove' in helper) helper.remove();
console.log(`proc: ${looks} looks`);
for (const [source, count] of tried) console.log(`${source}: ${count} inputs`);
process.exitCode = faults === 0 ? 0 : 1;
