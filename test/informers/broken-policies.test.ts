import { describe, expect, it, onTestFinished } from 'vitest';
import type { ClusterTerminationPolicy, TerminationPolicy } from '../../src/core/api/index.ts';
import {
  CLUSTER_TERMINATION_POLICIES,
  type CustomObjects,
  followCustomResources,
  TERMINATION_POLICIES,
} from '../../src/informers/custom-resources.ts';
import { QUICK } from '../cluster/arena.ts';
import { ModelCluster } from '../cluster/model-cluster.ts';
import { waitUntil } from '../testbed/waiting.ts';
import type { AtEnd } from '../webhook/connection.ts';

const BAD = { wait: { max: 'long' } };
type Policy = ClusterTerminationPolicy | TerminationPolicy;

interface Given {
  readonly kind?: typeof CLUSTER_TERMINATION_POLICIES | typeof TERMINATION_POLICIES;
  readonly most?: number;
  readonly mostOfNamespace?: number;
}

/** A replica that starts with these objects in the cluster. */
async function starting(objects: readonly object[], { kind = TERMINATION_POLICIES, ...limits }: Given = {}) {
  const model = await ModelCluster.start(onTestFinished as AtEnd);
  model.refuse = () => undefined;
  const plural = kind.path.slice(kind.path.lastIndexOf('/') + 1) as 'terminationpolicies';
  for (const object of objects) model.put(plural, object as never);
  const stopping = new AbortController();
  let values: readonly Policy[] | undefined;
  const said: string[] = [];
  const source: CustomObjects<Policy> = followCustomResources<Policy>(
    { ...(kind as typeof TERMINATION_POLICIES), ...limits },
    { server: model.url, credentials: async () => ({}) },
    {
      onValues: (found) => {
        values = found;
      },
      onProblem: (name, problem) => void said.push(`${name}: ${problem ?? 'well'}`),
      onServed: () => undefined,
      onFailure: () => undefined,
      onCurrent: () => undefined,
      onHandlerError: (error) => void said.push(error.message),
    },
    { signal: stopping.signal, clock: () => performance.now(), random: Math.random, limits: QUICK },
  );
  onTestFinished(() => {
    stopping.abort();
    return source.ended;
  });
  const inForce = () => waitUntil('the objects', () => values, { intervalMs: 5 });
  return { model, source, said, plural, inForce };
}

const own = (spec: object, more: object = {}) => ({
  metadata: { name: 'own', namespace: 'shop', uid: 'u1', ...more },
  spec,
});

describe('a replica that starts while a policy is broken', () => {
  it.each<[string, object, boolean]>([
    ['was another before', own(BAD, { generation: 2 }), true],
    ['never was another', own(BAD, { generation: 1 }), false],
    ['never was another, but says Off', own({ ...BAD, mode: 'Off' }, { generation: 1 }), true],
    ['never was another, but its mode cannot be read', own({ mode: 'audit-only' }, { generation: 1 }), true],
    ['never was another, and says Enforce', own({ ...BAD, mode: 'Enforce' }, { generation: 1 }), false],
  ])('that %s: held in Audit: %3$s', async (_, object, held) => {
    const { inForce, source } = await starting([object]);
    const values = await inForce();
    expect(values.map(({ spec }) => spec.mode)).toEqual(held ? ['Audit'] : []);
    expect(source.objects()[0]?.good).toBeUndefined();
  });

  it('holds in Audit what it may select, as far as that can be read, and keeps its other restraints', async () => {
    const spec = {
      namespaceSelector: { matchLabels: { team: 'a' } },
      podSelector: { matchLabels: 'web' },
      ceiling: { wait: '20s', mode: 'off' },
      overrides: { namespaces: false },
    };
    const { inForce } = await starting([{ metadata: { name: 'base', uid: 'u1' }, spec }], {
      kind: CLUSTER_TERMINATION_POLICIES,
    });
    expect((await inForce()).map((each) => each.spec)).toEqual([
      {
        namespaceSelector: { matchLabels: { team: 'a' } },
        ceiling: { mode: 'Audit', wait: 20 },
        overrides: { namespaces: false },
      },
    ]);
  });
});

describe('more policies than are followed', () => {
  const many = (namespace: string, count: number, from = 0, spec: object = {}) =>
    Array.from({ length: count }, (_, index) => ({
      metadata: {
        name: `p${index + from}`,
        namespace,
        uid: `${namespace} ${index + from}`,
        creationTimestamp: `2026-11-22T10:00:${String(index + from).padStart(2, '0')}Z`,
      },
      spec,
    }));
  const namesIn = (values: readonly Policy[], namespace: string) =>
    values.filter(({ metadata }) => metadata.namespace === namespace).map(({ metadata }) => metadata.name);

  it('of one namespace leave room for those of the others', async () => {
    // Lists go by namespace: the greedy one is read first.
    const { inForce, said } = await starting([...many('a-greedy', 12), ...many('b', 3), ...many('c', 2)], {
      most: 20,
    });
    const values = await inForce();
    expect(namesIn(values, 'b')).toHaveLength(3);
    expect(namesIn(values, 'c')).toHaveLength(2);
    expect(namesIn(values, 'a-greedy')).toHaveLength(10);
    expect(said).toContain(
      'a-greedy/p10: only 20 objects of kind TerminationPolicy are followed; it is left out',
    );
  });

  it('of one namespace are no more than its reviews can try', async () => {
    const { inForce, said } = await starting([...many('a-greedy', 12), ...many('b', 3)], {
      most: 100,
      mostOfNamespace: 5,
    });
    const values = await inForce();
    expect(namesIn(values, 'a-greedy')).toHaveLength(5);
    expect(namesIn(values, 'b')).toHaveLength(3);
    expect(said).toContain(
      'a-greedy/p5: only 100 objects of kind TerminationPolicy are followed, 5 of a namespace; it is left out',
    );
  });

  it('count by what they weigh', async () => {
    const matchLabels = Object.fromEntries(
      Array.from({ length: 30 }, (_, each) => [`k${each}`, 'v'.repeat(60)]),
    );
    const long = {
      podSelector: {
        matchLabels,
        matchExpressions: [
          {
            key: 'x',
            operator: 'In',
            values: Array.from({ length: 60 }, (_, each) => `${each}${'v'.repeat(60)}`),
          },
        ],
      },
    };
    const { inForce } = await starting([...many('a-greedy', 6, 0, long), ...many('b', 2)], { most: 8 });
    const values = await inForce();
    expect(namesIn(values, 'b')).toHaveLength(2);
    expect(namesIn(values, 'a-greedy')).toHaveLength(2);
  });
});
