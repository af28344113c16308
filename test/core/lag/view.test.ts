import { describe, expect, it } from 'vitest';
import { CLUSTER_IP, ConsumerEstimator, consumerOf } from '../../../src/core/lag/consumer.ts';
import {
  CONDITIONS,
  type ConsumerFacts,
  consumersFromJson,
  consumersToText,
  consumerView,
  hasChanged,
  type MeasurementState,
  unreadableView,
} from '../../../src/core/lag/consumer-view.ts';

const NOW = 20_000 * 86_400;
const WELL: MeasurementState = { trouble: undefined, limits: ['It sees one node.'] };
const PROBE = consumerOf('edge', { measure: { probe: { url: 'http://edge' } } });
const SLOW_PROBE = consumerOf('slow', { measure: { probe: { url: 'http://slow', every: 3_600 } } });
const REPORTS = consumerOf('gateway', { measure: { reports: {} } });
const OWN_DISCOVERY = consumerOf('nacos', { appliesTo: { podSelector: {} }, measure: { reports: {} } });
const COPIES = consumerOf('access', { measure: { endpoints: { kubeconfigFile: 'access.kubeconfig' } } });
const DECLARED = consumerOf('eureka', { measure: { declared: { syncInterval: 10 } } });

/** What is known of a consumer with so many lags of this length, the last of them so many seconds ago. */
function measured(ago: number, count = 10, seconds = 2) {
  const estimator = new ConsumerEstimator();
  estimator.keep(new Set(['it']));
  for (let index = 0; index < count; index += 1) estimator.record('it', 'removal', seconds, NOW - ago);
  return estimator.measured('it', 'removal', NOW);
}

const facts = (more: Partial<ConsumerFacts> = {}): ConsumerFacts => ({
  consumer: PROBE,
  removals: measured(5),
  additions: undefined,
  state: WELL,
  ...more,
});
const conditionOf = (more: Partial<ConsumerFacts>) => consumerView(facts(more), NOW).condition;

describe('the condition', () => {
  const trouble = { reason: 'Unreachable', message: 'refused' } as const;
  it.each<[string, Partial<ConsumerFacts>, string]>([
    ['samples arrive', {}, 'Measured'],
    ['no sample yet', { removals: undefined }, 'Waiting'],
    ['none in a week of a probe', { removals: undefined, latestRemoval: NOW - 8 * 86_400 }, 'Stale'],
    [
      'none in a quiet week of removals that do happen',
      { consumer: COPIES, removals: undefined, latestRemoval: NOW - 8 * 86_400 },
      'Measured',
    ],
    ['nobody measures', { state: undefined }, 'NotMeasuring'],
    ['nobody measures, nor did before', { state: undefined, removals: undefined }, 'NotMeasuring'],
    ['it is declared', { consumer: DECLARED, removals: undefined, state: undefined }, 'Declared'],
    ['something is wrong', { state: { ...WELL, trouble } }, 'Unreachable'],
    ['the last sample is ten minutes old', { removals: measured(600) }, 'Measured'],
    ['the last sample is older', { removals: measured(601) }, 'Stale'],
    ['of the built-in one, likewise', { consumer: CLUSTER_IP, removals: measured(601) }, 'Stale'],
    ['of one that reports, likewise', { consumer: REPORTS, removals: measured(601) }, 'Stale'],
    ['a slow probe has missed four', { consumer: SLOW_PROBE, removals: measured(4 * 3_600) }, 'Measured'],
    ['a slow probe has missed five', { consumer: SLOW_PROBE, removals: measured(5 * 3_600 + 1) }, 'Stale'],
    ['who measures is slow', { removals: measured(3_000), state: { ...WELL, every: 600 } }, 'Measured'],
    ['trouble counts before age', { removals: measured(9e4), state: { ...WELL, trouble } }, 'Unreachable'],
    ['its spec cannot be read', { problem: 'spec.measure: unknown field' }, 'Invalid'],
    ['it applies to no Service', { services: 0 }, 'NoServices'],
    ['also where something is wrong', { services: 0, state: { ...WELL, trouble } }, 'NoServices'],
    ['also of a declared one', { services: 0, consumer: DECLARED }, 'NoServices'],
    ['it applies to one', { services: 1 }, 'Measured'],
    ['a built-in one has no Services', { services: 0, consumer: CLUSTER_IP }, 'Measured'],
    ['one that finds pods by itself needs none', { services: 0, consumer: OWN_DISCOVERY }, 'Measured'],
    ['also of a declared one', { consumer: DECLARED, problem: 'spec: no' }, 'Invalid'],
  ])('%s: %s', (_, more, reason) => {
    const condition = conditionOf(more);
    expect(condition).toMatchObject({
      reason,
      status: CONDITIONS[reason as keyof typeof CONDITIONS].status,
    });
    expect(condition.message).not.toBe('');
  });

  it('says what is wrong in words', () => {
    expect(conditionOf({ state: { ...WELL, trouble } }).message).toBe('refused');
    expect(conditionOf({ problem: 'spec.measure: unknown field' }).message).toMatch(
      /^This version of Linger cannot read its spec.* spec\.measure: unknown field$/,
    );
    expect(conditionOf({ removals: measured(1_000) }).message).toMatch(/within 10m\.$/);
  });

  it('bounds what others say', () => {
    const long = { reason: 'BadAnswer', message: 'x'.repeat(5_000) } as const;
    expect(conditionOf({ state: { ...WELL, trouble: long } }).message).toHaveLength(1_000);
  });

  it('lasts since its status has changed, whatever the reason', () => {
    const first = consumerView(facts({ state: { ...WELL, trouble } }), NOW);
    const stale = { removals: measured(2_000) };
    const second = consumerView(facts(stale), NOW + 50, first);
    expect([first.condition.since, second.condition.since]).toEqual([NOW, NOW]);
    expect(second.condition.reason).toBe('Stale');
    expect(consumerView(facts(), NOW + 60, second).condition.since).toBe(NOW + 60);
  });
});

describe('what is shown', () => {
  it('of a measured consumer', () => {
    const view = consumerView(
      facts({ state: { ...WELL, instances: 3 }, additions: measured(1, 4, 0.5) }),
      NOW,
    );
    expect(view).toMatchObject({ name: 'edge', measure: 'probe', instances: 3, lastSample: NOW - 1 });
    expect(view.removals?.samples).toBe(10);
    expect(view.removals?.p99).toBeCloseTo(2, 1);
    expect(view.additions?.p50).toBeCloseTo(0.5, 1);
    expect(view.limits).toEqual(WELL.limits);
  });

  it('of a declared one: its declaration, and that nothing is measured', () => {
    const view = consumerView(facts({ consumer: DECLARED, removals: undefined, state: undefined }), NOW);
    expect(view.removals?.p50).toBeCloseTo(5, 0);
    expect(view.removals?.p99).toBeCloseTo(9.9, 0);
    expect([view.removals?.samples, view.lastSample]).toEqual([0, null]);
    expect(view.limits).toHaveLength(1);
  });

  it('says after a week with twenty held pods that it may send to none, and counts on with the next leader', () => {
    const unseen = { since: NOW - 7 * 86_400, pods: 20 };
    const limitsOf = (of: typeof unseen) => consumerView(facts({ unseen: of }), NOW).limits[0];
    expect(limitsOf(unseen)).toMatch(/^It may send to no pod: /);
    expect(limitsOf({ ...unseen, pods: 19 })).toBe(WELL.limits[0]);
    expect(limitsOf({ ...unseen, since: unseen.since + 1 })).toBe(WELL.limits[0]);
    const view = consumerView(facts({ unseen }), NOW);
    const table = consumersFromJson(JSON.parse(consumersToText({ asOf: NOW, consumers: [view] })));
    expect(table?.consumers[0]?.unseen).toEqual(unseen);
  });

  it('of one that could never be read', () => {
    const view = unreadableView('odd', 'spec: expected an object', NOW);
    expect(view).toMatchObject({ name: 'odd', measure: 'unknown', removals: null });
    expect(view.condition).toMatchObject({ reason: 'Invalid', status: 'False', since: NOW });
  });
});

describe('a change to publish soon', () => {
  const published = consumerView(facts(), NOW);
  it.each<[string, Partial<ConsumerFacts>, boolean]>([
    ['nothing', {}, false],
    ['more samples of the same', { removals: measured(1, 500) }, false],
    ['a percentile that has hardly moved', { removals: measured(5, 10, 2.05) }, false],
    ['a percentile that has moved', { removals: measured(5, 10, 2.3) }, true],
    ['a first sample of additions', { additions: measured(5) }, true],
    ['another condition', { removals: measured(5_000) }, true],
    ['the first instance', { state: { ...WELL, instances: 1 } }, true],
    ['other limits', { state: { ...WELL, limits: [] } }, true],
    ['no samples any more', { removals: undefined }, true],
  ])('is %s: %s', (_, more, expected) => {
    expect(hasChanged(consumerView(facts(more), NOW, published), published)).toBe(expected);
  });

  it('is another message', () => {
    const saying = (message: string) =>
      consumerView(facts({ state: { ...WELL, trouble: { reason: 'BadAnswer', message } } }), NOW);
    expect(hasChanged(saying('404'), saying('502'))).toBe(true);
  });
});

describe('the published table of consumers', () => {
  const consumers = [consumerView(facts(), NOW), unreadableView('odd', 'spec', NOW)];
  const text = consumersToText({ asOf: NOW, consumers });

  it('is read as it was written', () => {
    expect(consumersFromJson(JSON.parse(text))).toEqual({ asOf: NOW, consumers });
  });

  const broken = (change: (json: { v: number; consumers: Record<string, unknown>[] }) => void) => {
    const json = JSON.parse(text);
    change(json);
    return json;
  };
  it.each<[string, unknown]>([
    ['nothing', undefined],
    ['another version', broken((json) => Object.assign(json, { v: 3 }))],
    ['no instant', broken((json) => Object.assign(json, { asOf: null }))],
    ['no list', broken((json) => Object.assign(json, { consumers: {} }))],
  ])('%s is refused', (_, json) => expect(consumersFromJson(json)).toBeUndefined());

  it.each<[string, unknown]>([
    ['a view without a name', broken(({ consumers: [view] }) => delete view?.name)],
    ['an unknown measure', broken(({ consumers: [view] }) => Object.assign(view ?? {}, { measure: 'x' }))],
    ['a lag that is none', broken(({ consumers: [view] }) => Object.assign(view ?? {}, { removals: 7 }))],
    [
      'an unknown reason',
      broken(({ consumers: [view] }) => Object.assign(view?.condition ?? {}, { reason: 'x' })),
    ],
    ['limits that are none', broken(({ consumers: [view] }) => Object.assign(view ?? {}, { limits: [1] }))],
  ])('%s costs itself only', (_, json) =>
    expect(consumersFromJson(json)?.consumers).toEqual(consumers.slice(1)),
  );

  it('leaves out a view with a number that JSON does not have', () => {
    const odd = { ...consumers[0]!, lastSample: Number.NaN };
    expect(
      consumersFromJson(JSON.parse(consumersToText({ asOf: NOW, consumers: [odd, consumers[1]!] }))),
    ).toEqual({
      asOf: NOW,
      consumers: consumers.slice(1),
    });
  });
});
