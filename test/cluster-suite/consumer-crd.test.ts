import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CONSUMER_SPECS } from '../core/api/consumer-specs.ts';
import { CrdJudge, nearlyDurations } from './support/crd-judge.ts';

describe('the CRD of DiscoveryConsumers, as a real API server applies it', () => {
  let judge: CrdJudge;

  beforeAll(async () => {
    judge = await CrdJudge.open({ kind: 'DiscoveryConsumer', plural: 'discoveryconsumers' });
  }, 120_000);

  afterAll(() => judge?.close(), 120_000);

  it('it has no fault that Kubernetes knows of', async () => {
    const conditions = await judge.conditions();
    expect(conditions).toMatchObject({ Established: 'True', NamesAccepted: 'True' });
    // Absent, as long as the schema is structural.
    expect(conditions.NonStructuralSchema ?? 'False').toBe('False');
  });

  describe('takes and refuses what files are held to, in the same words', () => {
    it.each(CONSUMER_SPECS)('$name', async ({ spec, refused }) => {
      const { status, message } = await judge.ask(spec);
      if (refused === undefined) expect([status, message]).toEqual([201, '']);
      else {
        expect([400, 422]).toContain(status);
        expect(message).toMatch(refused);
      }
    });

    it('the name of a built-in consumer', async () => {
      expect(await judge.ask({ measure: { reports: {} } }, 'cluster-ip')).toMatchObject({ status: 201 });
    });

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
      ['durations', nearlyDurations().map((lag) => ({ measure: { declared: { lag } } }))],
      ['URLs', url.map((text) => ({ measure: { probe: { url: text } } }))],
      [
        'labels',
        labels.map((matchLabels) => ({
          appliesTo: { serviceSelector: { matchLabels } },
          measure: { reports: {} },
        })),
      ],
    ])('%s, as chance has them', { timeout: 120_000 }, async (_, arbitrary) => {
      const { different, taken, asked } = await judge.differences(arbitrary);
      console.log(`${taken} of ${asked} are taken`);
      expect(different).toEqual([]);
      // Otherwise this proves little.
      expect(taken).toBeGreaterThan(10);
      expect(taken).toBeLessThan(asked - 10);
    });
  });

  it('to the API server, a field that is null is absent', async () => {
    const spec = { appliesTo: null, measure: { declared: { lag: '1s', syncInterval: null }, probe: null } };
    expect(await judge.ask(spec)).toEqual({ status: 201, message: '' });
    expect(judge.refusalOf(spec)).toContain('appliesTo');
    expect((await judge.ask({ measure: { declared: null } })).message).toMatch(/exactly one of declared/);
  });

  it('kubectl shows what is measured of them', { timeout: 60_000 }, async () => {
    const name = 'shown';
    await judge.cluster.create(judge.objectOf({ measure: { reports: {} } }, name));
    const status = {
      observedGeneration: 1,
      measure: 'reports',
      samples: 812,
      p50: '4.9s',
      p99: '9.8s',
      lastSample: new Date(Date.now() - 7_200_000).toISOString(),
      services: 2,
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
    await judge.cluster.api.call('PATCH', `${judge.path}/${name}/status`, {
      body: { status },
      contentType: 'application/merge-patch+json',
    });
    const { stdout } = await judge.cluster.kubectl(['get', 'discoveryconsumers', '--output', 'wide'], {
      timeoutMs: 30_000,
    });
    console.log(stdout);
    expect(stdout.split('\n')[0]?.trim().split(/ {2,}/)).toEqual([
      'NAME',
      'MEASURE',
      'MODE',
      'SAMPLES',
      'P50',
      'P99',
      'LAST SAMPLE',
      'SERVICES',
      'INSTANCES',
      'MEASURED',
      'REASON',
      'MESSAGE',
      'AGE',
    ]);
    expect(stdout).toMatch(/^shown +reports +812 +4\.9s +9\.8s +120m +2 +3 +False +Stale +too old +\d+s/m);
    const explained = await judge.cluster.kubectl(['explain', 'discoveryconsumer.spec.measure'], {
      timeoutMs: 30_000,
    });
    // kubectl breaks lines where it likes.
    const text = explained.stdout.replace(/\s+/g, ' ');
    expect(text).toContain('exactly one of declared, reports, probe, inspect, endpoints and xds');
  });
});
