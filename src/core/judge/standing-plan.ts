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

/** A pod as it is judged: one that carries Linger’s plan is its author’s pod with that plan. */
export interface Judged {
  /** Asks about the pod as its author wrote it. */
  readonly request: PodRequest;
  /** What the pod gets, or has: with a plan that is there already, that one. */
  readonly decision: Decision;
  /** What a pod without a plan would get. */
  readonly fresh: Decision;
  /** The plan that the pod carries, with its hooks. */
  readonly stands?: Plan;
}

/** The notes that {@link planNotes} makes, or that are about what limited a new plan. */
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

/** A pod with operations applied to it; itself where there are none. */
export function patched(pod: unknown, operations: readonly Operation[]): unknown {
  if (operations.length === 0) return pod;
  // Operations are copied, too, as one may change what an earlier one has put in. Copies share no YAML aliases.
  const patch = fastJsonPatch.deepClone(operations) as fastJsonPatch.Operation[];
  return fastJsonPatch.applyPatch(fastJsonPatch.deepClone(pod), patch).newDocument as unknown;
}
