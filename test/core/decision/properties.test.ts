import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { DiscoveryConsumerSpec, Mode } from '../../../src/core/api/index.ts';
import { pointer } from '../../../src/core/api/index.ts';
import { type ClusterSnapshot, newSnapshotHolder } from '../../../src/core/decision/cluster-snapshot.ts';
import { decide } from '../../../src/core/decision/decide.ts';
import { type Operation, patchFor } from '../../../src/core/decision/patch.ts';
import type { Decision } from '../../../src/core/decision/plan.ts';
import type { Pod } from '../../../src/core/decision/pod.ts';
import { podProblemOf } from '../../../src/core/decision/pod-members.ts';
import { type Consumer, consumerOf } from '../../../src/core/lag/index.ts';
import { runs } from '../../property/runs.ts';
import { pathsOf, withReplaced } from './arbitrary-json.ts';
import { arbitraryPod, generatedPods } from './arbitrary-pod.ts';
import {
  arbitraryCircumstances,
  arbitraryClusterPolicy,
  arbitraryPolicy,
  arbitrarySnapshot,
  arbitraryWishes,
} from './arbitrary-policy.ts';
import { holdToken } from './sample-hold.ts';
import { reviewOf } from './sample-pass.ts';
import {
  container,
  creationOf,
  type JsonObject,
  type PodObject,
  patched,
  planIn,
  pod,
} from './sample-pod.ts';
import { namespace, snapshotOf } from './sample-snapshot.ts';

const RUNS = runs(200);

const STRICTNESS: Readonly<Record<Mode, number>> = { Off: 0, Audit: 1, Enforce: 2 };

function operationsFor(object: PodObject, decision: Decision): readonly Operation[] {
  return patchFor(object as unknown as Pod, decision);
}

function decideAndPatch(object: PodObject, snapshot: ClusterSnapshot, token = holdToken()) {
  const decision = decide(reviewOf(object, snapshot, token), snapshot);
  const operations = operationsFor(object, decision);
  return { decision, operations, result: patched(object, operations) };
}

describe('for every pod in every snapshot', () => {
  it('the patch is valid, and applying it twice equals once', () => {
    fc.assert(
      fc.property(arbitraryPod, arbitrarySnapshot, (object, snapshot) => {
        const { result } = decideAndPatch(object, snapshot);
        expect(decideAndPatch(result, snapshot).operations).toEqual([]);
      }),
      RUNS,
    );
  });

  it('the patch removes and reorders nothing that the author wrote', () => {
    fc.assert(
      fc.property(arbitraryPod, arbitrarySnapshot, (object, snapshot) => {
        const { operations, result } = decideAndPatch(object, snapshot);
        expect(operations.map(({ op }) => op)).not.toContain('remove');
        const replaced = new Set(operations.map(({ path }) => path));
        expect(lost(object, result, '', replaced)).toEqual([]);
      }),
      RUNS,
    );
  });

  it('the patch touches the preStop of ordinary containers, the grace, what Hold needs and our annotations, and nothing else', () => {
    const ours =
      /^(\/spec\/containers\/\d+\/(lifecycle(\/preStop(\/sleep\/seconds|\/exec\/command\/[12])?)?|volumeMounts(\/-)?)|\/spec\/(terminationGracePeriodSeconds|volumes(\/-)?)|\/metadata\/annotations(\/linger\.dev~1(plan|hold-token))?)$/;
    fc.assert(
      fc.property(arbitraryPod, arbitrarySnapshot, (object, snapshot) => {
        const { operations } = decideAndPatch(object, snapshot);
        expect(operations.map(({ path }) => path).filter((path) => !ours.test(path))).toEqual([]);
      }),
      RUNS,
    );
  });

  it('the wait is whole seconds, at least one, and exceeds neither grace nor ceiling; the grace is never lowered', () => {
    fc.assert(
      fc.property(arbitraryPod, arbitrarySnapshot, (object, snapshot) => {
        const { decision, result } = decideAndPatch(object, snapshot);
        if (decision.outcome === 'skip') return;
        const { wait, grace, baseGrace, hold } = decision.plan;
        expect(Number.isInteger(wait) && Number.isInteger(grace)).toBe(true);
        expect(wait).toBeGreaterThanOrEqual(1);
        expect(wait).toBeLessThanOrEqual(grace);
        expect(wait).toBeLessThanOrEqual(decision.policy['ceiling.wait'].value);
        if (hold !== undefined) {
          expect(hold.max).toBeGreaterThanOrEqual(Math.max(wait, hold.min));
          expect(hold.max).toBeLessThanOrEqual(Math.min(grace, decision.policy['ceiling.wait'].value));
        }
        expect(grace).toBeGreaterThanOrEqual(baseGrace);
        expect(result.spec.terminationGracePeriodSeconds).toBe(grace);
      }),
      RUNS,
    );
  });

  it('a pod that is skipped stays byte for byte as it was', () => {
    fc.assert(
      fc.property(arbitraryPod, arbitrarySnapshot, (object, snapshot) => {
        const { decision, operations, result } = decideAndPatch(object, snapshot);
        if (decision.outcome === 'inject') return;
        expect(operations).toEqual([]);
        expect(JSON.stringify(result)).toBe(JSON.stringify(object));
      }),
      RUNS,
    );
  });

  it('the decision is the same each time, and changes nothing that it was given', () => {
    fc.assert(
      fc.property(arbitraryPod, arbitrarySnapshot, (object, snapshot) => {
        const before = JSON.stringify(object);
        const token = holdToken();
        const first = decideAndPatch(object, snapshot, token);
        const second = decideAndPatch(structuredClone(object), snapshot, token);
        expect(JSON.stringify(second)).toBe(JSON.stringify(first));
        expect(JSON.stringify(object)).toBe(before);
      }),
      RUNS,
    );
  });
});

describe('for everything that another webhook then does to the grace and the containers', () => {
  const disturbed = fc
    .tuple(arbitraryPod, arbitrarySnapshot, fc.option(fc.integer({ min: 0, max: 700 })), fc.boolean())
    .map(([object, snapshot, grace, addsContainer]) => {
      const { result } = decideAndPatch(object, snapshot);
      if (grace !== null) result.spec.terminationGracePeriodSeconds = grace;
      if (addsContainer) result.spec.containers.push(container('added-later'));
      return { object: result, snapshot };
    });

  it('the recorded wait fits the grace after the next pass', () => {
    fc.assert(
      fc.property(disturbed, ({ object, snapshot }) => {
        const { result, decision } = decideAndPatch(object, snapshot);
        if (decision.outcome === 'skip') return;
        expect(planIn(result)?.wait).toBeLessThanOrEqual(Number(result.spec.terminationGracePeriodSeconds));
      }),
      RUNS,
    );
  });

  it('the pass after the next changes nothing', () => {
    fc.assert(
      fc.property(disturbed, ({ object, snapshot }) => {
        const { result } = decideAndPatch(object, snapshot);
        expect(decideAndPatch(result, snapshot).operations).toEqual([]);
      }),
      RUNS,
    );
  });
});

describe('for every layer that namespaces and pods add', () => {
  const layers = fc.tuple(
    fc.array(arbitraryClusterPolicy, { maxLength: 3 }),
    arbitraryCircumstances,
    fc.array(arbitraryPolicy, { maxLength: 3 }),
    arbitraryWishes,
    arbitraryWishes,
  );

  it('wait and mode never exceed the ceiling of the cluster policies, nor the mode the operator’s limit', () => {
    fc.assert(
      fc.property(layers, ([cluster, circumstances, namespaced, ofNamespace, ofPod]) => {
        const bare = snapshotOf([namespace(), ...cluster], circumstances);
        const object = pod({}, { annotations: ofPod });
        const limits = decide(creationOf(pod()), bare).policy;
        const decision = decide(
          creationOf(object),
          snapshotOf([namespace(ofNamespace), ...cluster, ...namespaced], circumstances),
        );
        if (limits === undefined || decision.policy === undefined) throw new Error('no policy was asked');
        const mode = STRICTNESS[decision.policy.mode.value];
        expect(mode).toBeLessThanOrEqual(STRICTNESS[limits['ceiling.mode'].value]);
        expect(mode).toBeLessThanOrEqual(STRICTNESS[bare.modeLimit]);
        if (decision.outcome === 'inject') {
          expect(decision.plan.wait).toBeLessThanOrEqual(limits['ceiling.wait'].value);
        }
      }),
      RUNS,
    );
  });

  it('more cluster policies never loosen a ceiling that another declares', () => {
    fc.assert(
      fc.property(layers, arbitraryClusterPolicy, ([cluster, circumstances], more) => {
        const ceilingOf = (documents: readonly JsonObject[]) => {
          const decided = decide(
            creationOf(pod()),
            snapshotOf([namespace(), ...documents], circumstances),
          ).policy;
          if (decided === undefined) throw new Error('no policy was asked');
          return decided;
        };
        const before = ceilingOf(cluster);
        const after = ceilingOf([...cluster, more]);
        const { value, origin } = before['ceiling.wait'];
        if (origin !== 'built-in') expect(after['ceiling.wait'].value).toBeLessThanOrEqual(value);
        expect(STRICTNESS[after['ceiling.mode'].value]).toBeLessThanOrEqual(
          STRICTNESS[before['ceiling.mode'].value],
        );
      }),
      RUNS,
    );
  });
});

describe('for every JSON value', () => {
  it('decide answers, and what cannot be read passes unchanged', () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 4 }), arbitrarySnapshot, (object, snapshot) => {
        expect(decide(creationOf(object), snapshot)).toMatchObject({ outcome: 'skip', reason: 'InvalidPod' });
      }),
      RUNS,
    );
  });

  it('decide answers for a pod with one member replaced by junk, and its patch can be applied', () => {
    const damaged = arbitraryPod.chain((object) =>
      fc
        .tuple(fc.constantFrom(...pathsOf(object)), fc.jsonValue({ maxDepth: 2 }))
        .map(([path, junk]) => withReplaced(object, path, junk)),
    );
    fc.assert(
      fc.property(damaged, arbitrarySnapshot, (object, snapshot) => {
        const decision = decide(reviewOf(object, snapshot), snapshot);
        const readable = podProblemOf(object) === undefined ? (object as Pod) : undefined;
        if (readable === undefined) {
          expect(decision).toMatchObject({ outcome: 'skip', reason: 'InvalidPod' });
          return;
        }
        const result = patched(object, patchFor(readable, decision));
        expect(decide(reviewOf(result, snapshot), snapshot).outcome).toBe('skip');
      }),
      runs(300),
    );
  });
});

it('the generated pods are the same for the same seed, and of many kinds', () => {
  const pods = generatedPods(7, 200);
  expect(generatedPods(7, 200)).toEqual(pods);
  expect(new Set(pods.map(({ metadata }) => metadata.name)).size).toBe(200);
  const outcomes = new Set(
    pods.map((each) => {
      const decision = decide(creationOf(each), snapshotOf([]));
      return decision.outcome === 'skip' ? decision.reason : decision.outcome;
    }),
  );
  const expected = [
    'inject',
    'OptedOut',
    'ModeOff',
    'Job',
    'RestartPolicy',
    'DaemonSet',
    'ZeroGrace',
    'ExistingHook',
  ];
  expect([...outcomes]).toEqual(expect.arrayContaining(expected));
});

it('a consumer that is only observed changes no decision', () => {
  const declared = fc.tuple(
    fc.constantFrom('edge', 'gateway', 'cluster-ip', 'cluster-dns'),
    fc.constantFrom<DiscoveryConsumerSpec['appliesTo']>(
      undefined,
      { serviceSelector: {} },
      { namespaceSelector: {}, podSelector: {} },
      { namespaceSelector: { matchLabels: { absent: 'x' } } },
    ),
    fc.constantFrom<DiscoveryConsumerSpec['measure']>({ declared: { lag: 300 } }, { reports: {} }),
  );
  const consumersOf =
    (all: readonly (typeof declared extends fc.Arbitrary<infer T> ? T : never)[]) =>
    (mode: 'Enforce' | 'Observe') =>
      all.map(([name, appliesTo, measure]) =>
        consumerOf(name, { ...(appliesTo && { appliesTo }), measure, mode }),
      );
  const lists = fc.array(declared, { maxLength: 3 });
  let changedByEnforcing = 0;
  fc.assert(
    fc.property(arbitraryPod, lists, lists, (object, inForce, more) => {
      const decided = (consumers: readonly Consumer[]) => {
        const holder = newSnapshotHolder('Enforce');
        holder.apply({ kind: 'consumers', consumers });
        return JSON.stringify(decide(creationOf(object), holder.current()));
      };
      const before = consumersOf(inForce)('Enforce');
      expect(decided([...before, ...consumersOf(more)('Observe')])).toBe(decided(before));
      if (decided([...before, ...consumersOf(more)('Enforce')]) !== decided(before)) changedByEnforcing += 1;
    }),
    RUNS,
  );
  // The same consumers in force do change decisions.
  expect(changedByEnforcing).toBeGreaterThan(0);
});

/** The paths of what is in `before` and no longer the same in `after`, but for the scalars that are replaced. */
function lost(
  before: unknown,
  after: unknown,
  path: string,
  replaced: ReadonlySet<string>,
): readonly string[] {
  if (typeof before !== 'object' || before === null) {
    return before === after || replaced.has(path) ? [] : [path];
  }
  if (typeof after !== 'object' || after === null) return [path];
  // Volumes and mounts may be added behind the author's.
  const mayGrow = /\/volume(s|Mounts)$/.test(path);
  if (Array.isArray(before) && !(Array.isArray(after) && (mayGrow || after.length === before.length)))
    return [path];
  return Object.entries(before).flatMap(([key, value]) => {
    const inner = pointer(path, key);
    return Object.hasOwn(after, key) ? lost(value, (after as JsonObject)[key], inner, replaced) : [inner];
  });
}
