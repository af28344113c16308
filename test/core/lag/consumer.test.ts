import { describe, expect, test } from 'vitest';
import {
  type DiscoveryConsumerSpec,
  namespaceRecord,
  type ServiceRecord,
  unseenNamespace,
} from '../../../src/core/api/index.ts';
import { CLUSTER_DNS, CLUSTER_IP, consumerOf, sendsTo } from '../../../src/core/lag/consumer.ts';
import { quantileOf } from '../../../src/core/lag/distribution.ts';

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
  type Case = [
    string,
    DiscoveryConsumerSpec['appliesTo'],
    readonly ServiceRecord[] | 'unknown',
    boolean | 'assumed',
  ];
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
    [
      'by certain Services, without a Service (yet)',
      { serviceSelector: labelled({ edge: 'yes' }) },
      [],
      'assumed',
    ],
    [
      'by certain Services, where they are not known',
      { serviceSelector: labelled({ edge: 'yes' }) },
      'unknown',
      'assumed',
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

  test.each<[string, readonly ServiceRecord[] | 'unknown', boolean | 'assumed', boolean | 'assumed']>([
    ['a Service with a ClusterIP', [service()], true, false],
    ['a headless Service', [service({}, true)], false, true],
    ['one of each', [service({}, true), service()], true, true],
    ['no Service yet', [], 'assumed', 'assumed'],
    ['Services that are not known', 'unknown', 'assumed', 'assumed'],
  ])('cluster-ip and cluster-dns: %s', (_, services, ip, dns) => {
    expect(sendsTo(CLUSTER_IP, NAMESPACE, LABELS, services)).toBe(ip);
    expect(sendsTo(CLUSTER_DNS, NAMESPACE, LABELS, services)).toBe(dns);
  });

  test('a namespace that has not been seen may have the labels that a consumer selects', () => {
    const spec = { appliesTo: { namespaceSelector: labelled({ team: 'blue' }) }, measure: REPORTS };
    const gateway = consumerOf('gateway', spec);
    expect(sendsTo(gateway, unseenNamespace('shop'), LABELS, [service()])).toBe('assumed');
    const elsewhere = { 'kubernetes.io/metadata.name': 'other' };
    const other = consumerOf('gateway', { ...spec, appliesTo: { namespaceSelector: labelled(elsewhere) } });
    expect(sendsTo(other, unseenNamespace('shop'), LABELS, [service()])).toBe(false);
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
