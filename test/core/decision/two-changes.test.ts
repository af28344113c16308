import { expect, test } from 'vitest';
import { readHook, runsHelper } from '../../../src/core/api/index.ts';
import type { ClusterSnapshot } from '../../../src/core/decision/index.ts';
import { randomOf } from '../../property/random.ts';
import { FUZZ } from '../../property/runs.ts';
import { HOLD_MOUNTS, heldSnapshot } from './sample-hold.ts';
import { pass } from './sample-pass.ts';
import {
  annotationsOf,
  type ContainerObject,
  container,
  exec,
  type JsonObject,
  type PodObject,
  preStop,
  server,
  sleep,
} from './sample-pod.ts';
import { clusterPolicy, snapshotOf } from './sample-snapshot.ts';

/** The seed repeats a failure. */
function generator(seed: number): (below: number) => number {
  const random = randomOf(seed);
  return (below) => (random() * 2 ** 32) % below;
}

const LONGEST_WAIT = 100;
const SPECS: readonly JsonObject[] = [
  {},
  { existingHook: 'Extend' },
  { wait: { from: 'Fixed', fixed: '45s' }, existingHook: 'Extend' },
  { wait: { from: 'Fixed', fixed: `${LONGEST_WAIT}s` } },
  { wait: { from: 'Fixed', fixed: `${LONGEST_WAIT}s` }, ceiling: { wait: '50s' } },
  { wait: { from: 'Fixed', fixed: `${LONGEST_WAIT}s` }, ceiling: { wait: '10s' }, existingHook: 'Extend' },
  { ceiling: { wait: '0s' } },
  { grace: { max: '40s' }, existingHook: 'Extend' },
  { grace: { max: '90s' }, hook: 'Exec' },
  { containers: ['a', 'b'] },
];
const SNAPSHOTS: readonly ClusterSnapshot[] = [
  ...SPECS.map((spec) => snapshotOf([clusterPolicy(spec)])),
  heldSnapshot([clusterPolicy({ hook: 'Hold', hold: { max: `${LONGEST_WAIT}s` } })]),
];

const EXECS = SNAPSHOTS[SPECS.findIndex(({ hook }) => hook === 'Exec')];

const HOOKS: readonly (JsonObject | undefined)[] = [
  ...[undefined, undefined, undefined],
  ...[sleep(0), sleep(5), sleep(20), exec('sleep', '7'), exec('sh', '-c', 'sleep 20')],
  ...[exec('/bin/sh', '-c', 'sleep 40s'), exec('/drain'), { httpGet: { path: '/', port: 80 } }],
];
const NAMES = ['a', 'b', 'c', 'd', 'e'];
const GRACES = [0, 1, 2, 10, 20, 29, 30, 31, 45, 60, 75, 120, 130, 180, 400, 600, 700];

interface Case {
  pod: PodObject;
  snapshot: ClusterSnapshot;
  /** The longest grace that anything but Linger has asked for. */
  asked: number;
  /** The hooks that others wrote. */
  readonly foreign: Set<string>;
  /** Whether a policy was in force under which Linger's own hooks are commands. */
  writesExec: boolean;
}

const graceOf = ({ spec }: PodObject) => Number(spec.terminationGracePeriodSeconds ?? 30);
const hookOf = ({ lifecycle }: ContainerObject) =>
  (lifecycle as { preStop?: JsonObject } | undefined)?.preStop;
const textOf = (each: ContainerObject) => JSON.stringify(hookOf(each) ?? null);

type Random = ReturnType<typeof generator>;
const one = <T>(random: Random, list: readonly T[]): T => list[random(list.length)] as T;

function hooked(random: Random, name: string, { foreign }: Case): ContainerObject {
  const handler = one(random, HOOKS);
  const made = server(name, handler && preStop(structuredClone(handler)));
  foreign.add(textOf(made));
  return made;
}

const CHANGES: readonly ((random: Random, of: Case) => void)[] = [
  (random, of) => {
    const grace = one(random, GRACES);
    if (grace > graceOf(of.pod)) of.asked = Math.max(of.asked, grace);
    of.pod.spec.terminationGracePeriodSeconds = grace;
  },
  (random, { pod: { spec } }) => {
    const [x, y] = [one(random, spec.containers), one(random, spec.containers)];
    [x.name, y.name] = [y.name, x.name];
  },
  (_, { pod: { spec } }) => spec.containers.reverse(),
  (random, { pod: { spec } }) => {
    const name = `${one(random, NAMES)}2`;
    if (spec.containers.every((each) => each.name !== name)) one(random, spec.containers).name = name;
  },
  (random, of) => {
    const name = one(random, NAMES);
    if (of.pod.spec.containers.every((each) => each.name !== name))
      of.pod.spec.containers.push(hooked(random, name, of));
  },
  (random, { pod: { spec } }) => {
    if (spec.containers.length > 1) spec.containers.splice(random(spec.containers.length), 1);
  },
  (random, { pod: { spec } }) => {
    delete one(random, spec.containers).lifecycle;
  },
  (random, of) => {
    const target = one(random, of.pod.spec.containers);
    Object.assign(target, { lifecycle: hooked(random, 'x', of).lifecycle ?? {} });
  },
  (random, of) => {
    of.snapshot = one(random, SNAPSHOTS);
    of.writesExec ||= of.snapshot === EXECS;
  },
  (_, of) => {
    of.asked = Math.max(of.asked, graceOf(of.pod));
    for (const each of of.pod.spec.containers) of.foreign.add(textOf(each));
    delete annotationsOf(of.pod)['linger.dev/plan'];
  },
];

/** A command without its number; undefined for a hook of a form in which Linger writes hooks of its own. */
const formOf = (text: string, writesExec: boolean) =>
  text.includes('"-c"') || (text.includes('"exec"') && !writesExec) ? text.replace(/\d+/, 'N') : undefined;
const secondsIn = (text: string) => Number(/\d+/.exec(text)?.[0]);

/**
 * Whether another wrote a hook of this form that waits as long or longer: when it waits exactly as long as one that Linger had
 * lengthened there, Linger shortens it again, and what is too long for the grace was so before.
 */
function isShortened(text: string, { foreign, writesExec }: Case): boolean {
  const form = formOf(text, writesExec);
  return (
    form !== undefined &&
    [...foreign].some((each) => formOf(each, writesExec) === form && secondsIn(each) >= secondsIn(text))
  );
}

/** What is wrong with the pod after Linger's last pass. */
function violationIn(of: Case): string | undefined {
  const { pod, snapshot, asked, foreign } = of;
  const grace = graceOf(pod);
  for (const each of pod.spec.containers) {
    const handler = hookOf(each);
    const text = textOf(each);
    if (handler === undefined || foreign.has(text) || isShortened(text, of)) continue;
    const reading = readHook(handler);
    const longest = runsHelper(handler)
      ? Number((handler.exec as { command: string[] }).command[4])
      : reading.kind === 'exact'
        ? reading.seconds
        : 0;
    if (longest > Math.max(1, grace)) return `${each.name} waits ${longest}s in a grace of ${grace}s`;
    if (runsHelper(handler) && JSON.stringify(each.volumeMounts) !== JSON.stringify(HOLD_MOUNTS))
      return `${each.name} has no helper`;
  }
  const most = Math.max(asked, Math.min(asked + LONGEST_WAIT, 600));
  if (grace > most) return `the grace is ${grace}s, and ${asked}s were asked for`;
  const again = pass(pod, snapshot).operations;
  return again.length === 0 ? undefined : `another pass changes ${JSON.stringify(again)}`;
}

function tried(seed: number): string | undefined {
  const random = generator(seed);
  const snapshot = one(random, SNAPSHOTS);
  const grace = one(random, GRACES);
  const pod: PodObject = {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: 'web', labels: { app: 'web' } },
    spec: { containers: [], terminationGracePeriodSeconds: grace },
  };
  const of: Case = {
    pod,
    snapshot,
    asked: Math.max(1, grace),
    foreign: new Set(),
    writesExec: snapshot === EXECS,
  };
  const count = 1 + random(4);
  for (const name of NAMES.slice(0, count)) pod.spec.containers.push(hooked(random, name, of));
  if (random(8) === 0) pod.spec.containers.push(container('log'));
  of.pod = pass(pod, of.snapshot).result;
  for (let change = 0; change < 2; change += 1) one(random, CHANGES)(random, of);
  of.pod = pass(of.pod, of.snapshot).result;
  return violationIn(of);
}

test('two changes by others, whatever they are, leave no sleep beyond the grace and no grace raised twice', () => {
  const start = Number(process.env.FUZZ_SEED ?? '1');
  const violations: string[] = [];
  for (let seed = start; seed < start + 2_000 * FUZZ && violations.length < 10; seed += 1) {
    const violation = tried(seed);
    if (violation !== undefined) violations.push(`seed ${seed}: ${violation}`);
  }
  expect(violations).toEqual([]);
});
