import fastJsonPatch from 'fast-json-patch';
import {
  type ClusterSnapshot,
  containerWaits,
  type Decision,
  decide,
  type NoteCode,
  type Operation,
  type Plan,
  type Pod,
  type PodRequest,
  planNotes,
  screen,
  undoFor,
} from '../decision/index.ts';
import { withAdded } from './added-sidecars.ts';

/** How a pod is judged. A pod that carries Linger’s plan is treated as its author’s pod with that plan applied. */
export interface Judged {
  /** The request for the pod as its author wrote it. */
  readonly request: PodRequest;
  /** The decision for the pod; if it carries a plan already, that plan. */
  readonly decision: Decision;
  /** What a pod without a plan would get. */
  readonly fresh: Decision;
  /** The plan that the pod carries, with its hooks. */
  readonly stands?: Plan;
}

/** The notes that {@link planNotes} creates, or that concern limits of a new plan. */
const OF_THE_PLAN: ReadonlySet<NoteCode> = new Set<NoteCode>([
  ...(['SidecarHook', 'HookExtended', 'ExistingHookKept', 'GraceEaten', 'ProbeGraceShort'] as const),
  ...(['PartialWait', 'ShutdownShortened', 'HoldUnwitnessed', 'WaitShrunk'] as const),
]);

export function judgedOf(given: PodRequest, snapshot: ClusterSnapshot): Judged {
  const namespace = snapshot.namespaces.get(given.namespace);
  const asAdmitted = (object: unknown): PodRequest => ({ ...given, object: withAdded(object, namespace) });
  const now = decide(given, snapshot);
  const plan = now.outcome === 'skip' ? now.standing : undefined;
  if (plan === undefined) {
    const request = screen(given) === undefined ? asAdmitted(given.object) : given;
    const decision = request.object === given.object ? now : decide(request, snapshot);
    return { request, decision, fresh: decision };
  }
  const authors = asAdmitted(patched(given.object, undoFor(given.object)));
  const fresh = decide(authors, snapshot);
  const policy = fresh.policy ?? now.policy;
  if (policy === undefined) return { request: given, decision: now, fresh: now };
  const stands = { outcome: 'inject', plan, policy, notes: [] } as const;
  const table = containerWaits(authors.object as Pod, stands);
  const others = fresh.notes.filter(({ code }) => !OF_THE_PLAN.has(code));
  const isSame = fresh.outcome === 'inject' && sameTimes(fresh.plan, plan);
  const notes = isSame ? fresh.notes : [...others, ...planNotes(plan, table)];
  return { request: authors, decision: { ...stands, notes }, fresh, stands: plan };
}

function sameTimes(a: Plan, b: Plan): boolean {
  const timesOf = ({ wait, grace, containers }: Plan) => JSON.stringify([wait, grace, containers]);
  return timesOf(a) === timesOf(b);
}

/** A copy of a pod with operations applied; the pod itself if there are none. */
export function patched(pod: unknown, operations: readonly Operation[]): unknown {
  if (operations.length === 0) return pod;
  // Operations are copied too, because one of them may change what an earlier one has inserted. Copies share no YAML
  // aliases.
  const patch = fastJsonPatch.deepClone(operations) as fastJsonPatch.Operation[];
  return fastJsonPatch.applyPatch(fastJsonPatch.deepClone(pod), patch).newDocument as unknown;
}
