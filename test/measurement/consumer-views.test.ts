import { expect, it } from 'vitest';
import { serviceIndex } from '../../src/core/api/index.ts';
import { type Consumer, consumerOf, STANDARD_CONSUMERS } from '../../src/core/lag/index.ts';
import { ConsumerViews, serviceCounts } from '../../src/measurement/consumer-views.ts';
import { ConsumerMeasurement } from '../../src/measurement/measurement.ts';

const service = (namespace: string, name: string, tier: string, headless = false) => {
  return {
    namespace,
    name,
    labels: { tier },
    selector: { app: name },
    headless,
    publishNotReadyAddresses: false,
    externalName: false,
  };
};
const SERVICES = [
  service('shop', 'web', 'front'),
  service('shop', 'db', 'back', true),
  service('bank', 'web', 'front'),
];
const measure = { reports: {} };
const front = { serviceSelector: { matchLabels: { tier: 'front' } } };
const CONSUMERS = [
  ...STANDARD_CONSUMERS,
  consumerOf('all', { measure }),
  consumerOf('edge', { measure, appliesTo: front }),
  consumerOf('typo', { measure, appliesTo: { serviceSelector: { matchLabels: { tier: 'fornt' } } } }),
];

it('counts the Services that each consumer applies to', () => {
  const snapshot = { measured: CONSUMERS, services: serviceIndex(SERVICES, true), namespaces: new Map() };
  const counts = serviceCounts();
  expect(Object.fromEntries(counts(snapshot))).toEqual({
    'cluster-ip': 2,
    'cluster-dns': 1,
    all: 3,
    edge: 2,
    typo: 0,
  });
  expect(counts(snapshot)).toBe(counts(snapshot));
  const views = new ConsumerViews(new ConsumerMeasurement(() => 1e9));
  views.look(CONSUMERS, new Map(), counts(snapshot), 1e9);
  const shown = views.all.map(({ name, services, condition }) => [name, services, condition.reason]);
  expect(shown).toEqual([
    ['cluster-ip', 2, 'NotMeasuring'],
    ['cluster-dns', 1, 'NotMeasuring'],
    ['all', 3, 'NotMeasuring'],
    ['edge', 2, 'NotMeasuring'],
    ['typo', 0, 'NoServices'],
  ]);
});

it('counts the held pods without a connection from a consumer, across leaders, until one has one', () => {
  let now = 1e9;
  const measurement = new ConsumerMeasurement(() => now);
  const views = new ConsumerViews(measurement);
  const look = () => views.look([consumerOf('edge', { measure })], new Map(), new Map(), now);
  measurement.held('edge', false);
  now += 5;
  measurement.held('edge', false);
  look();
  const [first] = views.all;
  expect(first?.unseen).toEqual({ since: 1e9, pods: 2 });
  const next = new ConsumerMeasurement(() => now);
  const successor = new ConsumerViews(next);
  successor.since(first === undefined ? [] : [first]);
  next.held('edge', false);
  expect(next.unseen('edge')).toEqual({ since: 1e9, pods: 3 });
  next.held('edge', true);
  expect(next.unseen('edge')).toBeUndefined();
});

it('does not count Services before all of them are known', () => {
  const snapshot = { measured: CONSUMERS, services: serviceIndex(SERVICES, false), namespaces: new Map() };
  expect(serviceCounts()(snapshot).size).toBe(0);
});

it('says no longer that its registry fails once it has none', () => {
  const measurement = new ConsumerMeasurement(() => 1e9);
  const views = new ConsumerViews(measurement);
  const spec = { measure: { declared: { lag: 5 } } };
  const http = { method: 'DELETE' as const, url: 'http://registry.example/{address}' };
  const reasonFor = (consumer: Consumer) => {
    views.look([consumer], new Map(), new Map([['legacy', 3]]), 1e9);
    return views.all[0]?.condition.reason;
  };
  measurement.deregistering('legacy', 'The request is answered with status 500.');
  expect(reasonFor(consumerOf('legacy', { ...spec, deregister: { http } }))).toBe('NotDeregistered');
  expect(reasonFor(consumerOf('legacy', spec))).toBe('Declared');
});
