import { describe, expect, test } from 'vitest';
import { namespaceRecord } from '../../../src/core/cluster/namespaces.ts';
import type { ServiceRecord } from '../../../src/core/cluster/services.ts';
import { CLUSTER_IP, consumerOf, sendsTo } from '../../../src/core/consumers/consumer.ts';
import { quantileOf } from '../../../src/core/lag/combine.ts';
import type { DiscoveryConsumerSpec } from '../../../src/core/schema/consumer.ts';

const NAMESPACE = namespaceRecord('shop', { team: 'blue' }, {});
const LABELS = { app: 'web', tier: 'edge' };
const REPORTS: DiscoveryConsumerSpec['measure'] = { reports: {} };

const service = (labels: Record<string, string> = {}, headless = false): ServiceRecord => ({
  namespace: 'shop',
  name: 'web',
  labels,
  selector: { app: 'web' },
  headless,
  externalName: false,
});

const labelled = (labels: Record<string, string>) => ({ matchLabels: labels });

describe('a consumer sends traffic to a pod', () => {
  type Case = [string, DiscoveryConsumerSpec['appliesTo'], readonly ServiceRecord[] | 'unknown', boolean];
  test.each<Case>([
    ['one for everything, of a Service', undefined, [service()], true],
    ['one for everything, of a headless Service', {}, [service({}, true)], true],
    ['one for everything, without a Service (yet)', {}, [], true],
    ['one for everything, where Services are not known', {}, 'unknown', true],
    ['in a namespace that it selects', { namespaceSelector: labelled({ team: 'blue' }) }, [service()], true],
    ['in another namespace', { namespaceSelector: labelled({ team: 'red' }) }, [service()], false],
    [
      'in another namespace, by its labels',
      { namespaceSelector: labelled({ team: 'red' }), podSelector: {} },
      [],
      false,
    ],
    [
      'of a Service that it selects',
      { serviceSelector: labelled({ edge: 'yes' }) },
      [service({ edge: 'yes' })],
      true,
    ],
    [
      'of one such Service among others',
      { serviceSelector: labelled({ edge: 'yes' }) },
      [service(), service({ edge: 'yes' })],
      true,
    ],
    ['of another Service', { serviceSelector: labelled({ edge: 'yes' }) }, [service({ edge: 'no' })], false],
    ['by certain Services, without a Service', { serviceSelector: labelled({ edge: 'yes' }) }, [], false],
    [
      'by certain Services, where they are not known',
      { serviceSelector: labelled({ edge: 'yes' }) },
      'unknown',
      false,
    ],
    ['that it finds by its labels', { podSelector: labelled({ tier: 'edge' }) }, [], true],
    [
      'that it does not find by its labels, whatever Service selects it',
      { podSelector: labelled({ tier: 'inner' }) },
      [service()],
      false,
    ],
    ['by either', { podSelector: labelled({ tier: 'inner' }), serviceSelector: {} }, [service()], true],
  ])('%s', (_, appliesTo, services, sends) => {
    const spec = appliesTo === undefined ? { measure: REPORTS } : { appliesTo, measure: REPORTS };
    expect(sendsTo(consumerOf('gateway', spec), NAMESPACE, LABELS, services)).toBe(sends);
  });

  test.each<[string, readonly ServiceRecord[] | 'unknown', boolean]>([
    ['a Service with a ClusterIP', [service()], true],
    ['a headless Service', [service({}, true)], false],
    ['one of each', [service({}, true), service()], true],
    ['no Service yet', [], true],
    ['Services that nobody knows', 'unknown', true],
  ])('cluster-ip: %s', (_, services, sends) => {
    expect(sendsTo(CLUSTER_IP, NAMESPACE, LABELS, services)).toBe(sends);
  });
});

describe('what is declared', () => {
  const declared = (measure: DiscoveryConsumerSpec['measure']) =>
    consumerOf('gateway', { measure }).declared!;

  test('a sync interval is a lag between 0 and it, all alike', () => {
    const density = declared({ declared: { syncInterval: 10 } });
    for (const percentile of [1, 25, 50, 90, 99, 100]) {
      const exact = percentile / 10;
      expect(Math.abs(quantileOf(density, percentile) - exact)).toBeLessThanOrEqual(0.02 * exact);
    }
  });

  test('a lag is always that long', () => {
    const density = declared({ declared: { lag: 40 } });
    for (const percentile of [1, 50, 99]) {
      expect(Math.abs(quantileOf(density, percentile) - 40)).toBeLessThanOrEqual(0.02 * 40);
    }
  });

  test('what is measured is not declared', () => {
    expect(consumerOf('gateway', { measure: REPORTS }).declared).toBeUndefined();
  });
});
