import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseDocument } from '../../src/core/schema/documents.ts';
import { type Cluster, type KubernetesObject, openCluster, waitUntil } from '../cluster/cluster.ts';
import { CONSUMER_SPECS } from '../core/consumer-specs.ts';

const CRD = join(import.meta.dirname, '..', '..', 'deploy', 'crds', 'discoveryconsumers.yaml');
const PATH = '/apis/linger.dev/v1alpha1/discoveryconsumers';
const REFERENCE = {
  apiVersion: 'apiextensions.k8s.io/v1',
  kind: 'CustomResourceDefinition',
  metadata: { name: 'discoveryconsumers.linger.dev' },
};

interface Answer {
  readonly status: number;
  readonly message: string;
}

/** Requests that are under way at once. */
const PARALLEL = 10;
const SEED = 20_261_121;

describe('the CRD of DiscoveryConsumers, as a real API server applies it', () => {
  let cluster: Cluster;

  beforeAll(async () => {
    cluster = await openCluster();
    const { code, stderr } = await cluster.kubectl(['apply', '--filename', CRD], { timeoutMs: 60_000 });
    expect([code, stderr]).toEqual([0, '']);
    await waitUntil(
      'the kind to be served',
      async () => (await cluster.api.request('GET', PATH)).status === 200,
      { timeoutMs: 60_000, intervalMs: 100 },
    );
  }, 120_000);

  afterAll(async () => {
    if (cluster?.own) await cluster.delete(REFERENCE, { wait: true });
    await cluster?.close();
  }, 120_000);

  const objectOf = (spec: unknown, name = 'sample') => ({
    apiVersion: 'linger.dev/v1alpha1',
    kind: 'DiscoveryConsumer',
    metadata: { name },
    spec,
  });

  /** What the API server says to it, asked as kubectl asks. */
  async function ask(spec: unknown, name?: string): Promise<Answer> {
    const { status, body } = await cluster.api.request<{ message?: string }>(
      'POST',
      `${PATH}?dryRun=All&fieldValidation=Strict`,
      { body: objectOf(spec, name) },
    );
    return { status, message: body.message ?? '' };
  }

  /** What files are told; empty: it is taken. */
  function refusalOf(spec: unknown, name?: string): string {
    try {
      parseDocument(objectOf(spec, name), 'here');
      return '';
    } catch (error) {
      return String(error);
    }
  }

  it('it has no fault that Kubernetes knows of', async () => {
    type Crd = KubernetesObject & { status: { conditions: { type: string; status: string }[] } };
    const stored = await cluster.get<Crd>(REFERENCE);
    const conditions = Object.fromEntries(
      (stored?.status.conditions ?? []).map(({ type, status }) => [type, status]),
    );
    expect(conditions).toMatchObject({ Established: 'True', NamesAccepted: 'True' });
    // Absent, as long as the schema is structural.
    expect(conditions.NonStructuralSchema ?? 'False').toBe('False');
  });

  describe('takes and refuses what files are held to, in the same words', () => {
    it.each(CONSUMER_SPECS)('$name', async ({ spec, refused }) => {
      const { status, message } = await ask(spec);
      if (refused === undefined) expect([status, message]).toEqual([201, '']);
      else {
        expect([400, 422]).toContain(status);
        expect(message).toMatch(refused);
      }
    });

    it('the name of what is built in', async () => {
      const { status, message } = await ask({ measure: { reports: {} } }, 'cluster-ip');
      expect([status, message]).toEqual([422, expect.stringContaining('cluster-ip is built in')]);
    });

    const digits = fc.integer({ min: 0, max: 2_000 }).map(String);
    const amount = fc.oneof(
      digits,
      fc.tuple(digits, digits).map(([whole, part]) => `${whole}.${part}`),
    );
    const unit = fc.constantFrom('ns', 'us', 'µs', 'ms', 's', 'm', 'h', '', ' s', 'd');
    const duration = fc
      .array(fc.tuple(amount, unit), { minLength: 1, maxLength: 3 })
      .map((terms) => terms.flat().join(''));
    const host = fc.oneof(
      fc.domain(),
      fc.ipV4(),
      fc.ipV6().map((ip) => `[${ip}]`),
      fc.constant('a_b'),
    );
    const url = fc
      .tuple(
        fc.constantFrom('http', 'https', 'ftp', 'HTTP'),
        fc.constantFrom('', '', '', 'user@'),
        host,
        fc.constantFrom('', '', ':80', ':0', ':99999', ':x'),
        fc.constantFrom('', '/', '/a b', '/ä', '?x=1', '/#f', '/a/../b?c=%20&d'),
      )
      .map(([scheme, user, name, port, path]) => `${scheme}://${user}${name}${port}${path}`);
    const letters = fc.string({
      unit: fc.constantFrom('a', 'B', '0', '-', '_', '.', '/', 'ä'),
      maxLength: 12,
    });
    const labels = fc.dictionary(letters, letters, { maxKeys: 3 });

    it.each<[string, fc.Arbitrary<unknown>]>([
      ['durations', duration.map((lag) => ({ measure: { declared: { lag } } }))],
      ['URLs', url.map((text) => ({ measure: { probe: { url: text } } }))],
      [
        'labels',
        labels.map((matchLabels) => ({
          appliesTo: { serviceSelector: { matchLabels } },
          measure: { reports: {} },
        })),
      ],
    ])('%s, as chance has them', { timeout: 120_000 }, async (_, arbitrary) => {
      const specs = fc.sample(arbitrary, { seed: SEED, numRuns: 200 });
      const different: string[] = [];
      let taken = 0;
      for (let from = 0; from < specs.length; from += PARALLEL) {
        const some = specs.slice(from, from + PARALLEL);
        const answers = await Promise.all(some.map((spec) => ask(spec)));
        for (const [index, { status, message }] of answers.entries()) {
          const refusal = refusalOf(some[index]);
          taken += Number(status === 201);
          if ((status === 201) !== (refusal === ''))
            different.push(`${JSON.stringify(some[index])}: ${refusal} / ${status} ${message}`);
        }
      }
      console.log(`${taken} of ${specs.length} are taken`);
      expect(different).toEqual([]);
      // Otherwise this proves little.
      expect(taken).toBeGreaterThan(10);
      expect(taken).toBeLessThan(specs.length - 10);
    });
  });

  it('to the API server, a field that is null is absent', async () => {
    const spec = { appliesTo: null, measure: { declared: { lag: '1s', syncInterval: null }, probe: null } };
    expect(await ask(spec)).toEqual({ status: 201, message: '' });
    expect(refusalOf(spec)).toContain('appliesTo');
    expect((await ask({ measure: { declared: null } })).message).toMatch(/exactly one of declared/);
  });

  it('kubectl shows what is measured of them', { timeout: 60_000 }, async () => {
    const name = 'shown';
    await cluster.create(objectOf({ measure: { reports: {} } }, name));
    const status = {
      observedGeneration: 1,
      measure: 'reports',
      samples: 812,
      p50: '4.9s',
      p99: '9.8s',
      lastSample: new Date(Date.now() - 7_200_000).toISOString(),
      instances: 3,
      conditions: [
        {
          type: 'Measured',
          status: 'False',
          reason: 'Stale',
          message: 'too old',
          lastTransitionTime: new Date().toISOString(),
        },
      ],
    };
    await cluster.api.call('PATCH', `${PATH}/${name}/status`, {
      body: { status },
      contentType: 'application/merge-patch+json',
    });
    const { stdout } = await cluster.kubectl(['get', 'discoveryconsumers', '--output', 'wide'], {
      timeoutMs: 30_000,
    });
    console.log(stdout);
    expect(stdout.split('\n')[0]?.trim().split(/ {2,}/)).toEqual([
      'NAME',
      'MEASURE',
      'SAMPLES',
      'P50',
      'P99',
      'LAST SAMPLE',
      'MEASURED',
      'REASON',
      'INSTANCES',
      'MESSAGE',
      'AGE',
    ]);
    expect(stdout).toMatch(/^shown +reports +812 +4\.9s +9\.8s +120m +False +Stale +3 +too old +\d+s/m);
    const explained = await cluster.kubectl(['explain', 'discoveryconsumer.spec.measure'], {
      timeoutMs: 30_000,
    });
    expect(explained.stdout).toContain('exactly one of declared, reports and probe');
  });
});
