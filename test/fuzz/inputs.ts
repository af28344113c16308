import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { SAMPLE_PAGES } from '../core/api/sample-pages.ts';
import { randomOf } from '../property/random.ts';
import { counted, stepsOf } from '../property/steps.ts';
import { mutated } from './mutate.ts';
import type * as targets from './targets.ts';

// Copies that count their steps.
const { TARGETS } = await counted<typeof targets>('test/fuzz/targets.ts');

export type Source = keyof typeof TARGETS;
export const SOURCES = Object.keys(TARGETS) as Source[];

const CORPUS = join(import.meta.dirname, '..', 'testdata', 'corpus');

/** The inputs that are kept for a source: real ones, and each that has found a fault. By file name. */
export function corpusOf(source: Source): ReadonlyMap<string, Uint8Array> {
  const samples = source === 'page' ? SAMPLE_PAGES : [];
  const folder = join(CORPUS, source);
  const kept = existsSync(folder) ? readdirSync(folder) : [];
  return new Map([
    ...samples.map(({ format, name, bytes }) => [`${format}/${name}`, bytes] as const),
    ...kept.map((name) => [name, readFileSync(join(folder, name))] as const),
  ]);
}

export interface Finding {
  readonly input: Uint8Array;
  readonly problem: string;
}

/** Some 2 ms. The corpus takes up to 7,000, and a List of the smallest objects 42,000. */
const STEPS_PER_KIB = 64_000;

/** The most steps that reading so many bytes may take. */
export function mostSteps(bytes: number): number {
  return STEPS_PER_KIB * (1 + bytes / 1024);
}

/** The most processor time that one input may take, however it is made: steps do not show what Node itself does. */
const MOST_CPU_MS = 250;

/** @returns what is wrong with how a source takes this input */
export function faultOf(source: Source, input: Uint8Array): string | undefined {
  try {
    // What the thread did besides, such as collecting garbage, does not repeat itself.
    if (cpuMsOf(source, input) <= MOST_CPU_MS) return undefined;
    const again = cpuMsOf(source, input);
    return again <= MOST_CPU_MS ? undefined : `took ${Math.round(again)} ms`;
  } catch (thrown) {
    return thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown);
  }
}

function cpuMsOf(source: Source, input: Uint8Array): number {
  const before = process.threadCpuUsage();
  stepsOf(() => TARGETS[source](input), mostSteps(input.length));
  const { user, system } = process.threadCpuUsage(before);
  return (user + system) / 1000;
}

/** Tries changed inputs of the corpus for as long as `goOn` says. @returns how many, and the first that has a fault */
export function fuzz(
  source: Source,
  seed: number,
  goOn: (tried: number) => boolean,
): { tried: number; finding?: Finding } {
  const random = randomOf(seed);
  const below = (bound: number) => Math.floor(random() * bound);
  const inputs = [...corpusOf(source).values()];
  const pick = () => inputs[below(inputs.length)] ?? new Uint8Array();
  let tried = 0;
  for (; goOn(tried); tried += 1) {
    const input = mutated(pick(), pick(), below);
    const problem = faultOf(source, input);
    if (problem !== undefined) return { tried, finding: { input, problem } };
  }
  return { tried };
}
