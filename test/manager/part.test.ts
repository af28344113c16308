import fc from 'fast-check';
import { expect, it } from 'vitest';
import { Manager } from '../../src/manager/manager.ts';
import { inOrder, type PartContext, part, startParts } from '../../src/manager/part.ts';
import type { PodEvent } from '../../src/manager/runnable.ts';
import { createLogger, createMetrics } from '../../src/telemetry/index.ts';

/** A part without anything in it. */
interface Bare {
  readonly name: string;
  readonly needs: Record<string, Bare>;
}

const bare = (name: string, ...needs: readonly Bare[]): Bare => ({
  name,
  needs: Object.fromEntries(needs.map((need) => [need.name, need])),
});
const namesOf = (parts: readonly Bare[]) => inOrder(parts).map(({ name }) => name);

it('begins with what is needed, and otherwise keeps the order of the list', () => {
  const watch = bare('watch');
  const measurement = bare('measurement', watch);
  const hold = bare('hold', measurement);
  const audit = bare('audit', watch);
  expect(namesOf([audit, hold, measurement, watch])).toEqual(['watch', 'audit', 'measurement', 'hold']);
  expect(namesOf([watch, audit, measurement, hold])).toEqual(['watch', 'audit', 'measurement', 'hold']);
});

it('names a need that is not listed, and what needs it', () => {
  const measurement = bare('measurement');
  expect(() => inOrder([bare('hold', measurement)])).toThrow(
    'part hold needs measurement, which is not in the list of parts',
  );
});

it('names parts that need each other', () => {
  const a = bare('a');
  const b = bare('b', a);
  const c = bare('c', b);
  Object.assign(a.needs, { c });
  expect(() => inOrder([a, b, c])).toThrow('parts need each other: a → c → b → a');
  Object.assign(a.needs, { c: a });
  expect(() => inOrder([a])).toThrow('parts need each other: a → a');
});

it('refuses two parts of one name', () => {
  expect(() => inOrder([bare('a'), bare('a')])).toThrow('part a is listed twice');
});

it('lists every part once, after all that it needs', () => {
  const lists = fc
    .array(fc.array(fc.nat(20), { maxLength: 4 }), { minLength: 1, maxLength: 12 })
    .chain((needs) => {
      const parts: Bare[] = [];
      for (const [index, of] of needs.entries())
        parts.push(bare(String(index), ...of.flatMap((each) => parts[each] ?? [])));
      return fc.shuffledSubarray(parts, { minLength: parts.length });
    });
  fc.assert(
    fc.property(lists, (parts) => {
      const ordered = inOrder(parts);
      expect(new Set(ordered)).toEqual(new Set(parts));
      expect(ordered).toHaveLength(parts.length);
      for (const [index, each] of ordered.entries())
        for (const need of Object.values(each.needs)) expect(ordered.indexOf(need)).toBeLessThan(index);
    }),
  );
});

function contextFor<Options>(options: Options) {
  const { registry } = createMetrics('0.0.0');
  const logger = createLogger('error', { write: () => undefined });
  const { signal } = new AbortController();
  const manager = new Manager({ registry, logger, clock: () => 0, random: () => 0, signal });
  return { options, manager } as unknown as PartContext<Options>;
}

it('gives each part what its needs provide, and events to users before what they use', async () => {
  const heard: string[] = [];
  const hears = (name: string) => ({ name, onPod: () => void heard.push(name) });
  const read = Promise.withResolvers<void>();
  const watch = part({
    name: 'watch',
    needs: {},
    start: (_, { options }: PartContext<{ readonly word: string }>) => ({
      provides: options.word.length,
      runnables: [hears('watch'), undefined],
      read: read.promise,
    }),
  });
  const hold = part({
    name: 'hold',
    needs: { letters: watch },
    start: ({ letters }) => ({ provides: letters + 1, runnables: [hears('hold')] }),
  });
  const context = contextFor({ word: 'four' });
  const running = startParts([hold, watch], context);
  expect(running.of(hold)).toBe(5);
  context.manager.pod({ type: 'deleted' } as PodEvent);
  expect(heard).toEqual(['hold', 'watch']);
  const whetherRead = () => Promise.race([running.read.then(() => 'read'), Promise.resolve('reading')]);
  expect(await whetherRead()).toBe('reading');
  read.resolve();
  await running.read;
});

it('does not compile where a part needs other options, or more of a need than that provides', () => {
  const watch = part({
    name: 'watch',
    needs: {},
    start: (_, { options }: PartContext<{ readonly every: number }>) => ({ provides: options.every }),
  });
  // @ts-expect-error every is a number of seconds
  const start = () => startParts([watch], contextFor({ every: '10s' }));
  expect(start).not.toThrow();
  part({
    name: 'hold',
    needs: { watch },
    // @ts-expect-error a number has no pods
    start: ({ watch: given }) => ({ provides: given.pods }),
  });
  // @ts-expect-error what is not needed is not given
  part({ name: 'audit', needs: { watch }, start: ({ measurement }) => ({ provides: measurement }) });
});
