import fc, { type Arbitrary } from 'fast-check';
import { describe, expect, it } from 'vitest';
import { HOLD_HELPER, HOLD_MOUNT, HOLD_VOLUME } from '../../../src/core/api/index.ts';
import { fitGrace, longestWait } from '../../../src/core/decision/plan.ts';
import { runs } from '../../property/runs.ts';
import { arbitraryPod } from './arbitrary-pod.ts';
import { arbitraryHeldSnapshot, arbitrarySnapshot } from './arbitrary-policy.ts';
import { sha256 } from './sample-hold.ts';
import { pass } from './sample-pass.ts';
import { samplePlan } from './sample-plan.ts';
import {
  annotationsOf,
  type ContainerObject,
  container,
  exec,
  type JsonObject,
  type PodObject,
  planIn,
  preStop,
} from './sample-pod.ts';

const PLAN = 'linger.dev/plan';

/** What the author of the pod, or another webhook, is answerable for. Everything else is Linger's. */
interface Model {
  pod: PodObject;
  /** The longest grace that the author or another webhook has asked for. */
  grace: number;
  /** Hooks of the author or of another webhook, as they wrote them. */
  readonly foreign: Map<ContainerObject, string>;
}

/** A change by another webhook. */
interface Change {
  readonly what: string;
  apply(model: Model): void;
}

const graceOf = ({ spec }: PodObject) => Number(spec.terminationGracePeriodSeconds ?? 30);
const hookOf = (each: ContainerObject) => (each.lifecycle as { preStop?: JsonObject } | undefined)?.preStop;
const textOf = (each: ContainerObject) => JSON.stringify(hookOf(each) ?? null);

/** A webhook that writes or removes the annotation takes over what the pod has then. */
function takeOver(model: Model): void {
  model.grace = Math.max(model.grace, graceOf(model.pod));
  for (const each of model.pod.spec.containers) model.foreign.set(each, textOf(each));
}

const at = <T>(list: readonly T[], index: number): T | undefined => list[index % Math.max(1, list.length)];

const HANDLERS = fc.constantFrom(exec('/drain'), exec('sleep', '7'), { httpGet: { path: '/', port: 80 } });
const INDEX = fc.nat(5);

const CHANGES: Arbitrary<Change> = fc.oneof(
  fc.integer({ min: 0, max: 700 }).map((grace) => ({
    what: `grace ${grace}`,
    apply: (model: Model) => {
      // A clamp is no wish for more time; a raise is.
      if (grace > graceOf(model.pod)) model.grace = Math.max(model.grace, grace);
      model.pod.spec.terminationGracePeriodSeconds = grace;
    },
  })),
  INDEX.map((index) => ({
    what: `strip ${index}`,
    apply: ({ pod, foreign }: Model) => {
      const target = at(pod.spec.containers, index);
      if (target === undefined) return;
      delete target.lifecycle;
      foreign.set(target, textOf(target));
    },
  })),
  fc.tuple(INDEX, HANDLERS).map(([index, handler]) => ({
    what: `replace ${index}`,
    apply: ({ pod, foreign }: Model) => {
      const target = at(pod.spec.containers, index);
      if (target === undefined) return;
      Object.assign(target, preStop(handler));
      foreign.set(target, textOf(target));
    },
  })),
  fc.tuple(INDEX, fc.boolean()).map(([index, hooked]) => ({
    what: `add ${index}`,
    apply: ({ pod, foreign }: Model) => {
      const taken = new Set(pod.spec.containers.map(({ name }) => name));
      const name = `added-${index}`;
      if (taken.has(name)) return;
      const added = container(name, hooked ? preStop(exec('/drain')) : {});
      pod.spec.containers.splice(index % (pod.spec.containers.length + 1), 0, added);
      foreign.set(added, textOf(added));
    },
  })),
  INDEX.map((index) => ({
    what: `remove ${index}`,
    apply: ({ pod }: Model) => {
      if (pod.spec.containers.length > 1) pod.spec.containers.splice(index % pod.spec.containers.length, 1);
    },
  })),
  INDEX.map((index) => ({
    what: `rename ${index}`,
    apply: ({ pod }: Model) => {
      const target = at(pod.spec.containers, index);
      const name = `renamed-${index}`;
      if (target !== undefined && pod.spec.containers.every((each) => each.name !== name)) target.name = name;
    },
  })),
  INDEX.map((index) => ({
    what: `unmount ${index}`,
    apply: ({ pod }: Model) => {
      delete at(pod.spec.containers, index)?.volumeMounts;
    },
  })),
  INDEX.map((index) => ({
    what: `mount ${index}`,
    apply: ({ pod }: Model) => {
      const target = at(pod.spec.containers, index);
      if (target === undefined) return;
      const mounts = (target.volumeMounts ?? []) as JsonObject[];
      // Two mounts at one place would be refused.
      if (mounts.every(({ mountPath }) => mountPath !== HOLD_MOUNT))
        target.volumeMounts = [...mounts, { name: 'scratch', mountPath: HOLD_MOUNT }];
    },
  })),
  fc.constant({
    what: 'delete the volumes',
    apply: ({ pod }: Model) => {
      delete pod.spec.volumes;
    },
  }),
  fc.constant({
    what: 'move it to a runtime class',
    apply: ({ pod }: Model) => {
      pod.spec.runtimeClassName = 'kata';
    },
  }),
  fc.constant({
    what: 'delete the annotation',
    apply: (model: Model) => {
      takeOver(model);
      delete annotationsOf(model.pod)[PLAN];
    },
  }),
  fc
    .record({
      wait: fc.integer({ min: 0, max: 400 }),
      grace: fc.integer({ min: 0, max: 700 }),
      baseGrace: fc.integer({ min: 0, max: 700 }),
      containers: fc.subarray(['app', 'proxy', 'log', 'renamed-1', 'nowhere']),
      hold: fc.option(fc.record({ min: fc.nat(60), max: fc.nat(400) }), { nil: undefined }),
    })
    .map(({ hold, ...rest }) => ({
      ...rest,
      ...(hold && { v: 2, hook: 'Hold', hold: { ...hold, percentile: 99, initial: 30, probes: 0 } }),
    }))
    .map((forged) => ({
      what: `forge ${JSON.stringify(forged)}`,
      apply: (model: Model) => {
        takeOver(model);
        model.grace = Math.max(model.grace, forged.baseGrace);
        model.pod.metadata.annotations = { ...annotationsOf(model.pod), [PLAN]: samplePlan(forged) };
      },
    })),
);

const SEQUENCES = fc.array(fc.array(CHANGES, { minLength: 1, maxLength: 3 }), { minLength: 1, maxLength: 4 });

/** Pods without forged annotations: those are among the changes. */
const PODS = arbitraryPod.map((object) => {
  delete annotationsOf(object)[PLAN];
  return object;
});

/** Linger's pass over the model's pod; what is foreign stays with its container. */
function admitted(model: Model, snapshot: Parameters<typeof pass>[1]): ReturnType<typeof pass> {
  const before = model.pod;
  const outcome = pass(before, snapshot);
  outcome.result.spec.containers.forEach((each, index) => {
    const foreign = model.foreign.get(before.spec.containers[index] as ContainerObject);
    if (foreign !== undefined) model.foreign.set(each, foreign);
  });
  model.pod = outcome.result;
  return outcome;
}

/** The seconds of a native sleep that Linger wrote. */
function lingersSleep(model: Model, each: ContainerObject): number {
  if (model.foreign.get(each) === textOf(each)) return 0;
  const handler = hookOf(each);
  return Number((handler?.sleep as { seconds?: number } | undefined)?.seconds ?? 0);
}

/** The arguments of the helper in a hook that Linger wrote. */
function lingersCall(model: Model, each: ContainerObject): readonly string[] | undefined {
  if (model.foreign.get(each) === textOf(each)) return undefined;
  const command = (hookOf(each)?.exec as { command?: string[] } | undefined)?.command;
  return command?.[0] === HOLD_HELPER ? command.slice(1) : undefined;
}

/** Holds the pod's hooks of Hold against what they need. */
function checkHold(model: Model, grace: number): void {
  const { pod } = model;
  const volumes = new Set(((pod.spec.volumes ?? []) as JsonObject[]).map(({ name }) => name));
  const tokens = new Set<string>();
  for (const each of pod.spec.containers) {
    const mounts = (each.volumeMounts ?? []) as JsonObject[];
    if (mounts.some(({ name }) => name === HOLD_VOLUME)) expect(volumes).toContain(HOLD_VOLUME);
    const [, token = '', wait, max] = lingersCall(model, each) ?? [];
    if (max === undefined) continue;
    tokens.add(token);
    expect(Number(wait)).toBeLessThanOrEqual(Number(max));
    expect(Number(max)).toBeLessThanOrEqual(grace);
    expect(mounts).toContainEqual({ name: HOLD_VOLUME, mountPath: HOLD_MOUNT, readOnly: true });
  }
  expect(tokens.size).toBeLessThanOrEqual(1);
  for (const token of tokens) expect(annotationsOf(pod)['linger.dev/hold-token']).toBe(sha256(token));
}

describe.each([
  ['in any snapshot', arbitrarySnapshot],
  ['where pods are held', arbitraryHeldSnapshot],
])('whatever other webhooks do between the passes, %s', (_, snapshots) => {
  it('no wait of Linger’s is longer than the grace, the grace is raised once, what is held has its helper, and a second pass changes nothing', () => {
    fc.assert(
      fc.property(PODS, snapshots, SEQUENCES, (object, snapshot, sequence) => {
        const pod = structuredClone(object);
        const model: Model = {
          pod,
          grace: Math.max(1, graceOf(pod)),
          foreign: new Map(pod.spec.containers.map((each) => [each, textOf(each)])),
        };
        for (const changes of [[], ...sequence]) {
          for (const change of changes) change.apply(model);
          const before = graceOf(model.pod);
          const { decision } = admitted(model, snapshot);
          const after = graceOf(model.pod);

          const sleeps = model.pod.spec.containers.map((each) => lingersSleep(model, each));
          expect(Math.max(0, ...sleeps)).toBeLessThanOrEqual(after);
          const isLeftAlone = decision.outcome === 'skip' && decision.reason !== 'AlreadyInjected';
          if (!isLeftAlone) checkHold(model, after);
          if (after !== before) {
            if (decision.policy === undefined) throw new Error('no policy was asked');
            const plan = planIn(model.pod);
            // An author's sleep that is longer than the grace takes what the waits beside it then lack.
            const over = Math.max(0, ...Object.values(plan?.extended ?? {}).map((own) => own - model.grace));
            const fit = fitGrace(
              plan ? longestWait(plan) + over : 0,
              model.grace,
              decision.policy['grace.max'].value,
            );
            expect(after).toBeLessThanOrEqual(Math.max(model.grace, fit.grace));
          }
          expect(pass(model.pod, snapshot).operations).toEqual([]);
        }
      }),
      runs(400),
    );
  });
});
