import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CLUSTER_POLICY_SPECS, POLICY_SPECS } from '../core/api/policy-specs.ts';
import { CrdJudge, nearlyDurations } from './support/crd-judge.ts';

describe.each([
  {
    kind: { kind: 'ClusterTerminationPolicy', plural: 'clusterterminationpolicies' },
    shortName: 'ctp',
    specs: [...POLICY_SPECS, ...CLUSTER_POLICY_SPECS],
  },
  {
    kind: { kind: 'TerminationPolicy', plural: 'terminationpolicies', namespace: 'default' },
    shortName: 'tp',
    specs: POLICY_SPECS,
  },
])('the CRD of $kind.kind, as a real API server applies it', ({ kind, shortName, specs }) => {
  let judge: CrdJudge;

  beforeAll(async () => {
    judge = await CrdJudge.open(kind);
  }, 120_000);

  afterAll(() => judge?.close(), 120_000);

  it('has no fault that Kubernetes knows of', async () => {
    const conditions = await judge.conditions();
    expect(conditions).toMatchObject({ Established: 'True', NamesAccepted: 'True' });
    // Absent, as long as the schema is structural.
    expect(conditions.NonStructuralSchema ?? 'False').toBe('False');
  });

  describe('takes and refuses what files are held to, in the same words', () => {
    it.each(specs)('$name', async ({ spec, refused }) => {
      const { status, message } = await judge.ask(spec);
      if (refused === undefined) expect([status, message]).toEqual([201, '']);
      else {
        expect([400, 422]).toContain(status);
        expect(message).toMatch(refused);
      }
    });

    it('durations, as chance has them', { timeout: 120_000 }, async () => {
      const specs = fc
        .record(
          { min: nearlyDurations(), max: nearlyDurations(), margin: nearlyDurations() },
          { requiredKeys: [] },
        )
        .map((wait) => ({ wait }));
      const { different, taken, asked } = await judge.differences(specs);
      console.log(`${taken} of ${asked} are taken`);
      expect(different).toEqual([]);
      expect(taken).toBeGreaterThan(10);
      expect(taken).toBeLessThan(asked - 10);
    });
  });

  it('sets no field that its author left out: a default would count as set in every later layer', async () => {
    const { name } = (await judge.cluster.create(judge.objectOf({ wait: {} }, 'bare'))).metadata;
    const stored = await judge.cluster.api.call<{ spec: unknown }>('GET', `${judge.path}/${name}`);
    expect(stored.spec).toEqual({ wait: {} });
  });

  it('is listed by its short name and with all of Linger', { timeout: 60_000 }, async () => {
    const namespace = kind.namespace === undefined ? [] : ['--namespace', kind.namespace];
    for (const words of [shortName, 'linger']) {
      // Kinds that kubectl has looked up before are kept for minutes.
      const fresh = ['--cache-dir', join(tmpdir(), `linger-kubectl-${process.pid}-${kind.plural}-${words}`)];
      const { stdout } = await judge.cluster.kubectl(['get', words, ...namespace, ...fresh], {
        timeoutMs: 30_000,
      });
      expect(stdout).toContain('bare');
    }
  });
});
