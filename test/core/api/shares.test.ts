import { describe, expect, it } from 'vitest';
import { FairLog } from '../../../src/core/api/shares.ts';

interface Entry {
  readonly namespace: string;
  readonly owner: string;
  readonly at: number;
}

const many = (namespace: string, owner: string, count: number): readonly Entry[] =>
  Array.from({ length: count }, (_, at) => ({ namespace, owner, at }));
const keyOf = ({ namespace, owner, at }: Entry) => `${namespace} ${owner} ${at}`;

describe('a log that is fair to namespaces', () => {
  const logOf = (...entries: readonly Entry[]) => {
    const log = new FairLog<Entry>({ characters: 10_000, longest: 1_000 }, ({ at }) => at);
    const dropped = entries.flatMap((each) => log.put(keyOf(each), each));
    return { log, dropped };
  };

  it('makes room in the namespace with the most: the oldest of its busiest workload first', () => {
    const { log, dropped } = logOf(
      ...many('quiet', 'Deployment/web', 3),
      ...many('busy', 'Deployment/once', 1),
      ...many('busy', 'Deployment/loop', 2_000),
    );
    const of = (name: string) => log.all.filter(({ namespace, owner }) => `${namespace} ${owner}` === name);
    expect(of('quiet Deployment/web')).toHaveLength(3);
    expect(of('busy Deployment/once')).toHaveLength(1);
    const instants = of('busy Deployment/loop').map(({ at }) => at);
    expect(instants).toEqual(instants.map((_, index) => 2_000 - instants.length + index));
    expect(dropped.map(({ at }) => at)).toEqual(
      Array.from({ length: 2_000 - instants.length }, (_, at) => at),
    );
    expect(JSON.stringify(log.all).length).toBeLessThan(10_000 + log.all.length + 2);
    expect(JSON.stringify(log.all).length).toBeGreaterThan(9_800);
  });

  it('of workloads with one entry each, drops the oldest', () => {
    const each = Array.from({ length: 300 }, (_, at) => ({ namespace: 'a', owner: `Deployment/${at}`, at }));
    const { dropped } = logOf(...each);
    expect(dropped.length).toBeGreaterThan(50);
    expect(dropped.map(({ at }) => at)).toEqual(dropped.map((_, index) => index));
  });

  it('replaces what a key had, which makes it the latest', () => {
    const { log } = logOf(...many('a', 'b', 2));
    log.put('a b 0', { namespace: 'a', owner: 'b', at: 9 });
    expect(log.all.map(({ at }) => at)).toEqual([1, 9]);
    expect(log.get('a b 0')?.at).toBe(9);
  });

  it('does not take what is too long', () => {
    const long = { namespace: 'a', owner: 'x'.repeat(1_000), at: 0 };
    const { log, dropped } = logOf(long);
    expect(dropped).toEqual([long]);
    expect(log.all).toEqual([]);
  });
});
