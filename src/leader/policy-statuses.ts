import {
  type ClusterTerminationPolicy,
  fewOf,
  formatDuration,
  type PolicyStatus,
  type TerminationPolicy,
  unseenNamespace,
} from '../core/api/index.ts';
import { type ClusterSnapshot, policiesSelecting, policyView } from '../core/decision/index.ts';
import { type CustomObject, customKey, effectOf, type PodGroup } from '../informers/index.ts';
import { inPieces } from '../timing/index.ts';
import { lagText } from './consumer-statuses.ts';
import { STATUS_KINDS } from './publish-context.ts';
import type { Condition, Statement, StatusSource } from './status-publisher.ts';

type AnyPolicy = ClusterTerminationPolicy | TerminationPolicy;

interface PublishedPolicies {
  readonly snapshot: () => ClusterSnapshot;
  readonly clusterPolicies: () => readonly CustomObject<ClusterTerminationPolicy>[];
  readonly policies: () => readonly CustomObject<TerminationPolicy>[];
  /** undefined until they have been listed. */
  readonly pods: () => Iterable<PodGroup> | undefined;
  /** The origins of policies from files that are overridden by policies of the same names in the cluster. */
  readonly shadowed: () => readonly string[];
  readonly clock: () => number;
  /** Seconds since the epoch. */
  readonly epochSeconds: () => number;
}

/** How often to count again: counting 150,000 pods that all have different labels takes a second. */
const COUNT_AGAIN_MS = 15_000;

export function policyStatuses(published: PublishedPolicies): readonly StatusSource[] {
  const count = counting(published);
  const source = <T extends AnyPolicy>(
    object: 'clusterPolicyStatus' | 'policyStatus',
    objects: () => readonly CustomObject<T>[],
  ): StatusSource => ({
    object,
    statements: async () => {
      const found = objects();
      if (found.length === 0) return [];
      const counts = await count();
      const shadowed = new Set(published.shadowed());
      const each = function* () {
        const statements: Statement<PolicyStatus>[] = [];
        for (const policy of found) {
          const origin = `${STATUS_KINDS[object].kind}/${customKey(policy)}`;
          const pods = counts === undefined ? undefined : (counts.get(origin) ?? 0);
          const shadows = shadowed.has(origin);
          statements.push(statementOf(policy, published.snapshot(), pods, shadows, published.epochSeconds()));
          yield;
        }
        return statements;
      };
      return inPieces(each());
    },
  });
  return [
    source('clusterPolicyStatus', published.clusterPolicies),
    source('policyStatus', published.policies),
  ];
}

/** @returns how many pods each policy selects, by its origin; undefined until the pods have been listed */
function counting({ snapshot, pods, clock }: PublishedPolicies) {
  let counts: Promise<ReadonlyMap<string, number> | undefined> = Promise.resolve(undefined);
  let countedAt = Number.NEGATIVE_INFINITY;
  let counted: ClusterSnapshot['policies'] | undefined;
  const recount = async () => {
    const groups = pods();
    if (groups === undefined) return undefined;
    const { policies, namespaces } = snapshot();
    const steps = function* () {
      const found = new Map<string, number>();
      for (const { namespace, labels, count } of groups) {
        // Pods whose labels are unknown count for no policy; a metric reports their number.
        if (labels === undefined) continue;
        const record = namespaces.get(namespace) ?? unseenNamespace(namespace);
        for (const origin of policiesSelecting(policies, record, labels))
          found.set(origin, (found.get(origin) ?? 0) + count);
        yield;
      }
      return found;
    };
    return inPieces(steps());
  };
  return () => {
    const { policies } = snapshot();
    // Policies have changed since the last count, or it is old.
    if (policies !== counted || clock() - countedAt >= COUNT_AGAIN_MS) {
      counted = policies;
      countedAt = clock();
      counts = recount().then((found) => {
        // The pods had not been listed yet, so count again at the next call.
        if (found === undefined) countedAt = Number.NEGATIVE_INFINITY;
        return found;
      });
    }
    return counts;
  };
}

/** @param shadows whether a file declares a policy of the same name, which this one overrides */
function statementOf(
  { problem, value, good, ...target }: CustomObject<AnyPolicy>,
  snapshot: ClusterSnapshot,
  pods: number | undefined,
  shadows: boolean,
  since: number,
): Statement<PolicyStatus> {
  const view = value && policyView(value, snapshot);
  const content = {
    mode: view?.mode,
    hook: view?.hook,
    wait: view?.wait === undefined ? undefined : formatDuration(view.wait),
    why: view?.why,
    hold: view?.hold && `${formatDuration(view.hold.min)}..${formatDuration(view.hold.max)}`,
    p99: lagText(view?.p99),
    samples: view?.samples,
    pods,
    ignored: [...(view?.ignored ?? []), ...(shadows ? [SHADOWED] : [])],
  };
  const holds = view?.hold !== undefined && view.mode !== 'Off' && snapshot.hold !== undefined;
  const usable = holds ? [{ type: 'HoldUsable', ...holdUse(view.noHold), since }] : [];
  return { target, content, conditions: [{ type: 'Ready', ...readiness(), since }, ...usable] };

  function readiness(): Said {
    if (problem !== undefined) {
      const message = `${shortened(problem)}; ${effectOf({ value, good })}`;
      return { status: 'False', reason: 'Invalid', message };
    }
    if (view?.forbiddenBy !== undefined) {
      const message = `overrides.namespaces is false (${view.forbiddenBy}): none of it is in force`;
      return { status: 'False', reason: 'OverridesForbidden', message };
    }
    return { status: 'True', reason: 'InForce', message: 'This spec is in force.' };
  }
}

type Said = Pick<Condition, 'status' | 'reason' | 'message'>;

function holdUse(noHold: readonly string[]): Said {
  if (noHold.length === 0)
    return { status: 'True', reason: 'Usable', message: 'Pods that it selects can get hook Hold.' };
  const message = `Pods that may run on any node get the static wait instead of hook Hold: ${fewOf(noHold)}`;
  return { status: 'False', reason: 'HoldUnavailable', message: shortened(message) };
}

const SHADOWED =
  'the policy of the same kind and name in the files (--policies): the object of the cluster wins';

/** Limited, because an object may have any number of faults. */
function shortened(problem: string): string {
  return problem.length > 800 ? `${problem.slice(0, 797)}...` : problem;
}
