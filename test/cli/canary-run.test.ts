import { expect, it } from 'vitest';
import { CLUSTER_IP, type Consumer, consumerOf } from '../../src/core/lag/index.ts';
import { ConsumerMeasurement, type Flipped, flipReporter } from '../../src/measurement/index.ts';
import { createLogger } from '../../src/telemetry/index.ts';

const EDGE = consumerOf('edge', { measure: { probe: { url: 'http://edge.example/' } } });
const TROUBLE = { reason: 'Unreachable', message: 'The probe is refused a connection.' } as const;
const LIMITS = ['It sees one node.'];

function open() {
  const measurement = new ConsumerMeasurement(() => 1_000);
  const present: Consumer[] = [CLUSTER_IP, EDGE];
  measurement.keep(present);
  const lines: { readonly level: string; readonly msg: string }[] = [];
  const lead = new AbortController();
  const counted: string[] = [];
  const tell = flipReporter(
    {
      consumers: measurement,
      present: () => present,
      intervalOf: ({ name }) => (name === CLUSTER_IP.name ? 300 : 30),
      logger: createLogger('info', { write: (line) => void lines.push(JSON.parse(line)) }),
      count: ({ result }) => counted.push(result),
    },
    lead,
  );
  const samples = () =>
    [CLUSTER_IP, EDGE].map(({ name }) => [
      measurement.measured(name, 'removal')?.samples ?? 0,
      measurement.measured(name, 'addition')?.samples ?? 0,
    ]);
  const said = () => lines.map(({ level, msg }) => `${level}: ${msg}`);
  return { measurement, present, lead, counted, tell, samples, said };
}

function flipped(change: Partial<Flipped> = {}): Flipped {
  return {
    result: 'Measured',
    pod: 'linger-1',
    attempts: 80,
    consumers: new Map([
      ['cluster-ip', { removal: 0.1, addition: 0.2 }],
      ['edge', { trouble: TROUBLE }],
    ]),
    asked: new Map([
      ['cluster-ip', LIMITS],
      ['edge', LIMITS],
    ]),
    ...change,
  };
}

it('says how often each is timed, so that its numbers are not stale between two flips', () => {
  const { measurement, tell } = open();
  const intervals = () => [CLUSTER_IP, EDGE].map(({ name }) => measurement.state(name)?.every);
  expect(intervals()).toEqual([300, 30]);
  tell(flipped());
  expect(intervals()).toEqual([300, 30]);
});

it('before its first flip a consumer is measured, and its limits are known', () => {
  const { measurement } = open();
  for (const { name } of [CLUSTER_IP, EDGE]) {
    expect(measurement.state(name)).toMatchObject({ trouble: undefined });
    expect(measurement.state(name)!.limits.length).toBeGreaterThan(0);
  }
});

it('samples are recorded, troubles shown; each is logged once, and its end', () => {
  const { measurement, tell, samples, said, counted } = open();
  tell(flipped());
  tell(flipped());
  expect(samples()).toEqual([
    [2, 2],
    [0, 0],
  ]);
  expect(measurement.state('cluster-ip')).toEqual({ trouble: undefined, every: 300, limits: LIMITS });
  expect(measurement.state('edge')).toEqual({ trouble: TROUBLE, every: 30, limits: LIMITS });
  tell(flipped({ consumers: new Map([['edge', { removal: 1 }]]) }));
  expect(measurement.state('edge')).toEqual({ trouble: undefined, every: 30, limits: LIMITS });
  expect(said()).toEqual([
    'warn: canary cannot measure this consumer; its last lag stays in force',
    'info: canary measures this consumer again',
  ]);
  expect(counted).toEqual(['Measured', 'Measured', 'Measured']);
});

it.each(['Interrupted', 'ReplicaLost'] as const)('a flip that was %s leaves states as they are', (result) => {
  const { measurement, tell, samples } = open();
  tell(flipped());
  const before = samples();
  tell(flipped({ result, consumers: new Map() }));
  expect(measurement.state('edge')).toMatchObject({ trouble: TROUBLE });
  expect(measurement.state('cluster-ip')).toMatchObject({ trouble: undefined });
  expect(samples()).toEqual(before);
});

it('ten in a row that say nothing of a consumer are no chance: its condition says how they end', () => {
  const { measurement, tell } = open();
  const vain = () => tell(flipped({ result: 'Interrupted', consumers: new Map() }));
  for (let times = 1; times < 10; times += 1) vain();
  expect(measurement.state('cluster-ip')).toMatchObject({ trouble: undefined });
  vain();
  expect(measurement.state('cluster-ip')?.trouble).toEqual({
    reason: 'NotMeasuring',
    message: expect.stringContaining('the process paused'),
  });
  tell(flipped());
  expect(measurement.state('cluster-ip')).toMatchObject({ trouble: undefined });
  vain();
  expect(measurement.state('cluster-ip')).toMatchObject({ trouble: undefined });
});

it('one that the API server refused is a trouble of all, in its words', () => {
  const { measurement, tell } = open();
  tell(flipped({ result: 'Refused', consumers: new Map(), problem: '403: forbidden' }));
  for (const { name } of [CLUSTER_IP, EDGE]) {
    expect(measurement.state(name)?.trouble).toEqual({
      reason: 'NotMeasuring',
      message: expect.stringContaining('403: forbidden'),
    });
  }
});

it('a consumer that was deleted while it was measured leaves nothing behind', () => {
  const { measurement, tell, present } = open();
  present.pop();
  measurement.keep(present);
  tell(flipped({ consumers: new Map([['edge', { removal: 3 }]]) }));
  expect(measurement.state('edge')).toBeUndefined();
  present.push(EDGE);
  measurement.keep(present);
  expect(measurement.measured('edge', 'removal')).toBeUndefined();
});

it('what ends after the lead is counted, and not taken', () => {
  const { measurement, tell, lead, samples, counted } = open();
  lead.abort();
  measurement.idle();
  tell(flipped());
  expect(samples()).toEqual([
    [0, 0],
    [0, 0],
  ]);
  expect(measurement.state('edge')).toBeUndefined();
  expect(counted).toEqual(['Measured']);
});
