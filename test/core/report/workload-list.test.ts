import { describe, expect, it } from 'vitest';
import { type Fate, type ListQuery, listOf, type WorkloadRow } from '../../../src/core/report/index.ts';

interface Finding {
  readonly kind: string;
  readonly namespace: string;
  readonly name: string;
  readonly reason: string;
  readonly waitSeconds: number;
  readonly exposureSeconds: number;
}

const row = (
  fate: Fate,
  namespace: string,
  name: string,
  [waitSeconds, exposureSeconds]: readonly [number, number],
  ...reasons: readonly string[]
): WorkloadRow<Finding> => ({
  address: `Deployment/${namespace}/${name}`,
  fate,
  findings: reasons.map((reason) => ({
    kind: 'Deployment',
    namespace,
    name,
    reason,
    waitSeconds,
    exposureSeconds,
  })),
});

const ROWS = [
  row('fine', 'shop', 'cart', [30, 0], 'Injected'),
  row('lost', 'shop', 'web', [0, 30], 'NotInjected', 'NoOtherEndpoint'),
  row('assumed', 'infra', 'agent', [0, 30], 'NotInjected'),
  row('lost', 'infra', 'edge', [5, 25], 'HookTooShort'),
];
const names = (query: Partial<ListQuery>) =>
  listOf(ROWS, { search: '', limit: 10, ...query }).rows.map(({ findings: [own] }) => own?.name);

describe('the list of workloads', () => {
  it.each([
    ['', ['cart', 'web', 'agent', 'edge']],
    ['shop', ['cart', 'web']],
    ['web SHOP', ['web']],
    ['shop web', ['web']],
    ['wait no deployment infra', ['agent']],
    ['hook too short', ['edge']],
    ['shop edge', []],
  ])('search %j: all words, in any order', (search, expected) => {
    expect(names({ search })).toEqual(expected);
  });

  it.each([
    ['fate', ['web', 'edge', 'agent', 'cart']],
    ['name', ['agent', 'edge', 'cart', 'web']],
    ['wait', ['cart', 'edge', 'agent', 'web']],
    ['open', ['agent', 'web', 'edge', 'cart']],
  ] as const)('by %s, both ways', (sort, expected) => {
    expect(names({ sort })).toEqual(expected);
    expect(names({ sort, reverse: true })).toEqual(expected.toReversed());
    expect(names({ sort, reverse: true, limit: 1 })).toEqual(expected.slice(-1));
  });

  it.each([
    [
      'cause',
      [
        ['NotInjected', 2],
        ['HookTooShort', 1],
        ['Injected', 1],
      ],
      ['web', 'agent', 'edge', 'cart'],
    ],
    [
      'namespace',
      [
        ['infra', 2],
        ['shop', 2],
      ],
      ['edge', 'agent', 'web', 'cart'],
    ],
  ] as const)('by %s: the largest group first, each in the order of the list', (group, groups, expected) => {
    const query = { search: '', sort: 'fate', group, limit: 10 } as const;
    const found = listOf(ROWS, query);
    expect(found.groups.map(({ name, workloads }) => [name, workloads])).toEqual(groups);
    expect(names(query)).toEqual(expected);
  });

  it('has what is open, also where that does not match', () => {
    const open = 'Deployment/infra/edge';
    const { rows, opened, matching } = listOf(ROWS, { search: 'shop', limit: 1, open });
    expect([rows.length, matching, opened?.address]).toEqual([1, 2, open]);
    expect(listOf(ROWS, { search: '', limit: 1, open: 'Deployment/infra/none' }).opened).toBeNull();
  });

  it('says how many match a fate or a cause, beyond those that are shown', () => {
    expect(listOf(ROWS, { search: '', fate: 'lost', limit: 1 }).matching).toBe(2);
    expect(names({ reason: 'NoOtherEndpoint' })).toEqual(['web']);
  });
});
