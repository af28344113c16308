import { describe, expect, it } from 'vitest';
import { discoveryConsumerSpec } from '../../src/core/api/discovery-consumer.ts';
import { CLUSTER_DNS, CLUSTER_IP, type Measure, STANDARD_CONSUMERS } from '../../src/core/lag/index.ts';
import { consumerInstances } from '../../src/measurement/instances.ts';
import type { Instances } from '../../src/measurement/measure.ts';
import { MEASURES, measuredBy, measuringOf } from '../../src/measurement/measures.ts';

/** What consumers may declare, and what the built-in ones have. */
const KINDS = [
  ...Object.keys(discoveryConsumerSpec.shape.measure.shape),
  ...STANDARD_CONSUMERS.map(({ measure }) => measure.kind),
  'witness',
];

/** A consumer with a measure of this kind. */
const consumerWith = (kind: string) => ({ ...CLUSTER_IP, name: kind, measure: { kind } as Measure });

describe('the list of measures', () => {
  it('has each kind that there is, once', () => {
    expect(new Set(KINDS).size).toBe(KINDS.length);
    expect(Object.keys(MEASURES).toSorted()).toEqual(KINDS.toSorted());
  });

  it('finds how a consumer is measured by its own measure', () => {
    expect(measuringOf(CLUSTER_DNS)).toBe(MEASURES.clusterDns);
    expect(measuredBy('canary', CLUSTER_DNS)).toBe(MEASURES.clusterDns);
    expect(measuredBy('inspection', CLUSTER_DNS)).toBeUndefined();
  });
});

describe('the instances of consumers', () => {
  const done: string[] = [];
  const saying = (still: string): Instances => ({
    wordOf: (consumer) => (consumer === 'xds' ? undefined : { still: [still], completeAt: 5 }),
  });
  const instances = consumerInstances({
    reports: saying('reporter'),
    inspection: {
      ...saying('gateway'),
      done: (uid) => void done.push(uid),
      skipped: (consumer) => [`slow ${consumer}`],
    },
  });
  const held = { uid: 'u', withdrawn: [], initial: 10 };
  const REPORTED = { still: ['reporter'], completeAt: 5 };
  const ASKED = { still: ['gateway'], completeAt: 5 };

  it.each([
    ['reports', REPORTED],
    ['inspect', ASKED],
    ['endpoints', ASKED],
    // They would speak, and are not known.
    ['xds', 'unknown'],
    ['declared', undefined],
    ['probe', undefined],
    ['clusterIp', undefined],
    ['clusterDns', undefined],
    ['witness', undefined],
  ])('of one measured by %s say %j', (kind, word) => {
    expect(KINDS).toContain(kind);
    expect(instances.wordOf(consumerWith(kind), held)).toEqual(word);
  });

  it('are told of a pod by whatever asks them, and skipped by nothing else', () => {
    instances.done('u');
    expect(done).toEqual(['u']);
    expect(instances.skipped(consumerWith('inspect'))).toEqual(['slow inspect']);
    expect(instances.skipped(consumerWith('reports'))).toEqual([]);
    expect(instances.skipped(consumerWith('probe'))).toEqual([]);
  });
});
