import {
  ANNOTATION,
  ANNOTATION_PREFIX,
  fewOf,
  GROUP,
  isRecord,
  type Labels,
  leastSecondsOf,
  memberAt,
  plainSleep,
} from '../api/index.ts';
import {
  type Container,
  containerWaits,
  type Decision,
  decide,
  type Exposure,
  exposureOf,
  graceOf,
  isAudit,
  longestWait,
  type Plan,
  type Pod,
  type PodRequest,
  parsePlan,
  preStopOf,
  requestOf,
  SKIP_REASONS,
  type SkipReason,
  type Workload,
  type World,
} from '../decision/index.ts';
import { isAsked, type RelatedObjects, serviceKey, workloadKey } from './related-objects.ts';

/** An audit's verdict on a workload's pods: they lose no request, lose some, need no wait, or it is not known. */
export const VERDICTS = ['protected', 'unprotected', 'skipped', 'unknown'] as const;
export type Verdict = (typeof VERDICTS)[number];

/**
 * The findings beside the reasons of decisions, each with the verdict that it gives to an otherwise protected workload
 * (none: protected). In the order in which they are reported.
 */
export const AUDIT_FINDINGS = {
  AuditOnly: 'unprotected',
  PatchRefused: 'unprotected',
  HookTooShort: 'unprotected',
  GraceEaten: 'unprotected',
  PartialWait: 'unprotected',
  NeverWithdrawn: 'unprotected',
  NoOtherEndpoint: undefined,
  NotInjected: 'unprotected',
  StampedTooShort: 'unprotected',
  LagNotCovered: 'unprotected',
  UndeclaredConsumer: undefined,
  DaemonSetServing: undefined,
  AnnotationMisplaced: undefined,
  StormNotCovered: undefined,
  Episode: undefined,
} as const satisfies Readonly<Record<string, Verdict | undefined>>;
export type FindingCode = keyof typeof AUDIT_FINDINGS;

/** The reasons of workloads without findings. */
export const GOOD_REASONS = ['Injected', 'OwnHook', 'AlreadyInjected', 'NotAsked'] as const;
export type AuditReason = FindingCode | SkipReason | (typeof GOOD_REASONS)[number];

/** A line of an audit. Times in whole seconds; null: not known. */
export interface AuditFinding {
  readonly kind: string;
  readonly namespace: string;
  readonly name: string;
  readonly verdict: Verdict;
  readonly reason: AuditReason;
  /** The wait that the pods have, or would have. */
  readonly waitSeconds: number | null;
  readonly graceSeconds: number | null;
  /** For how long a pod may still get requests after it has stopped: 0 where the wait suffices. */
  readonly exposureSeconds: number | null;
  readonly file?: string;
  readonly line?: number;
  /** One or two full sentences about this workload, with the way out where there is one. */
  readonly text: string;
}

/** `Deployment shop/web` */
export function subjectOf(of: Pick<AuditFinding, 'kind' | 'namespace' | 'name'>): string {
  return `${of.kind} ${of.namespace}/${of.name}`;
}

/** A pod of a workload as it runs. */
export interface RunningPod {
  readonly annotations: Labels;
}

/** A workload to be audited. */
export interface AuditSubject {
  readonly workload: Workload;
  readonly namespace: string;
  /** The whole object, unchecked. */
  readonly object: unknown;
  readonly file?: string;
  readonly line?: number;
  /** Why the API server refuses its pods with a wait and accepts them without; absent: it does not, or was not asked. */
  readonly refusal?: string;
  /** undefined: not known, as in a manifest. */
  readonly running?: readonly RunningPod[];
}

type Decided = AuditSubject & { readonly request: PodRequest; readonly decision: Decision };

/** What all of a workload's lines have in common, and what is reported once per workload. */
export interface Audited {
  /** The workload's main finding, then one for each further finding. Never empty. */
  readonly findings: readonly AuditFinding[];
  /** How many seconds longer a rollout takes, and at most the drain of a node, whose pods wait in parallel. */
  readonly cost: { readonly rollout: number; readonly drain: number };
}

/** A problem of a workload, or something good to know. */
interface Said {
  readonly reason: FindingCode;
  readonly text: string;
  /** The verdict in this case, where it differs from the finding's usual one. */
  readonly verdict?: Verdict;
  /** The shortest wait of the affected pods, where new pods get another. Seconds. */
  readonly wait?: number;
}

/** The wait that its pods have today, or would get. */
interface Standing {
  readonly verdict: Verdict;
  readonly reason: AuditReason;
  readonly wait: number | null;
  readonly grace: number | null;
  readonly text: string;
}

/** Skip reasons that leave traffic unprotected, or leave that open; with all others there is nothing to protect. */
const SKIP_VERDICTS: Readonly<Partial<Record<SkipReason, Verdict>>> = {
  InvalidPod: 'unknown',
  TooLarge: 'unknown',
  InternalError: 'unknown',
  ZeroGrace: 'unprotected',
  NoRoom: 'unprotected',
  NoWait: 'unprotected',
  NoHook: 'unprotected',
  NoContainer: 'unprotected',
};

/** The verdict on one workload, and all of its findings. */
export function auditWorkload(audited: AuditSubject, world: World, related: RelatedObjects): Audited {
  const { workload, namespace, file, line } = audited;
  const request = requestOf(audited);
  const subject: Decided = { ...audited, request, decision: decide(request, world) };
  const exposure = exposureOf(request, world);
  const asked = isAsked(related, namespace, world.namespaces.get(namespace)?.labels);
  const standing = asked ? standingOf(subject, exposure) : unasked(standingOf(subject, exposure));
  const said = exposure === undefined || !asked ? [] : furtherFindings(subject, exposure, related, standing);
  const sooner = said.find((each) => verdictOf(each) !== undefined);
  const decisive = standing.verdict === 'protected' || standing.verdict === 'unknown' ? sooner : undefined;
  const verdict = (decisive && verdictOf(decisive)) ?? standing.verdict;
  const common = {
    ...{ kind: workload.kind, namespace, name: workload.name, verdict },
    ...{ waitSeconds: standing.wait, graceSeconds: standing.grace },
    exposureSeconds: openFor(exposure, verdict, decisive?.wait ?? standing.wait),
  };
  const where = { ...(file !== undefined && { file }), ...(line !== undefined && { line }) };
  const all = [decisive ?? standing, ...said.filter((each) => each !== decisive)].filter(
    (each, index, these) => these.findIndex(({ reason }) => reason === each.reason) === index,
  );
  return {
    findings: all.map(({ reason, text }) => ({ ...common, reason, ...where, text })),
    cost: asked ? costOf(subject, related) : { rollout: 0, drain: 0 },
  };
}

function verdictOf({ reason, verdict }: Said): Verdict | undefined {
  return verdict ?? AUDIT_FINDINGS[reason];
}

/** How long requests may still come after the pod has stopped, as far as the lag is known. */
function openFor(exposure: Exposure | undefined, verdict: Verdict, wait: number | null): number | null {
  if (verdict === 'protected') return 0;
  if (verdict === 'skipped' || exposure === undefined) return null;
  return Math.max(0, Math.ceil(neededOf(exposure) - (wait ?? 0)));
}

/** The lag that a hook must cover: the known lag without the safety factor, or else the policy's wait. */
function neededOf({ policy, choice, lag }: Exposure): number {
  if (choice.why === 'fixed' || lag.known === undefined) return choice.seconds;
  return lag.known.quantile(policy['wait.percentile'].value);
}

function standingOf(subject: Decided, exposure: Exposure | undefined): Standing {
  const { decision } = subject;
  if (decision.outcome === 'inject') {
    const { wait, grace, hook, why } = decision.plan;
    if (isAudit(decision)) {
      const text = `pods would wait ${wait}s (${hook}), but the mode is Audit (${decision.policy.mode.origin}): they are left as they are`;
      return { verdict: 'unprotected', reason: 'AuditOnly', wait: 0, grace, text };
    }
    const unknown = unknownHook(subject);
    if (unknown !== undefined) {
      const text = `container "${unknown}" keeps a hook of its own, of which is not known how long it waits; the others get a wait of ${wait}s`;
      return { verdict: 'unknown', reason: 'ExistingHook', wait, grace, text };
    }
    const text = `pods get a wait of ${wait}s (${hook}, ${why}) and a grace of ${grace}s when they are created`;
    return { verdict: 'protected', reason: 'Injected', wait, grace, text };
  }
  const { reason, standing: plan } = decision;
  if (reason === 'AlreadyInjected' && plan !== undefined) return standingPlan(plan, exposure);
  if (reason === 'ExistingHook' && exposure !== undefined) return standingHook(subject, exposure);
  const verdict = SKIP_VERDICTS[reason] ?? 'skipped';
  return { verdict, reason, wait: null, grace: null, text: SKIP_REASONS[reason] };
}

/** The container that may stop before the others have waited: its own hook is no plain sleep. */
function unknownHook({ request, decision }: Decided): string | undefined {
  if (decision.outcome !== 'inject') return undefined;
  const { wait } = decision.plan;
  const found = containerWaits(request.object as Pod, decision).find(
    ({ sidecar, ends, held }) => !sidecar && !ends && held.kind !== 'exact' && leastSecondsOf(held) < wait,
  );
  return found?.container.name;
}

/** A verdict that needs no dry run: a skip for another reason, or a wait that is there already. */
function unasked(standing: Standing): Standing {
  if (standing.verdict === 'skipped' || standing.reason === 'AlreadyInjected') return standing;
  const text =
    'Linger’s webhook is not asked about the pods of this namespace (its namespaceSelector): they are left as they are';
  return { verdict: 'skipped', reason: 'NotAsked', wait: null, grace: null, text };
}

/**
 * Whether the lag asks for a longer wait today, and new pods would get one: not beyond wait.max. A fixed wait is the
 * operator's decision: a measurement does not make it wrong.
 */
function isTooShort(plan: Plan, exposure: Exposure): boolean {
  const longer = Math.min(neededOf(exposure), exposure.choice.seconds);
  return plan.why !== 'fixed' && longestWait(plan) < longer;
}

function standingPlan(plan: Plan, exposure: Exposure | undefined): Standing {
  const { wait, grace } = plan;
  if (exposure !== undefined && isTooShort(plan, exposure)) {
    const text = `the pods carry a wait of ${wait}s, and the lag asks for ${exposure.choice.seconds}s today: roll them, or inject --refresh`;
    return { verdict: 'unprotected', reason: 'StampedTooShort', wait, grace, text };
  }
  const text = `the pods carry a wait of ${wait}s already`;
  return { verdict: 'protected', reason: 'AlreadyInjected', wait, grace, text };
}

/** Every container has a hook of its author's. */
function standingHook(subject: Decided, exposure: Exposure): Standing {
  const pod = subject.request.object as Pod;
  const grace = graceOf(pod);
  const sleeps = pod.spec.containers.map(ownSleep).filter((seconds) => seconds !== undefined);
  if (sleeps.length < pod.spec.containers.length) {
    const text = 'every container has a preStop hook of its own; how long that waits is not known';
    return { verdict: 'unknown', reason: 'ExistingHook', wait: null, grace, text };
  }
  const own = Math.min(...sleeps);
  const base = { wait: own, grace };
  const { choice, lag } = exposure;
  const needed = Math.ceil(neededOf(exposure));
  const enough = `the containers' own hooks wait ${own}s`;
  if (own >= needed) return { ...base, verdict: 'protected', reason: 'OwnHook', text: enough };
  if (choice.why !== 'fixed' && lag.known === undefined) {
    const text = `${enough}; whether that is enough is not known: nothing has been measured, and Linger would wait ${choice.seconds}s`;
    return { ...base, verdict: 'unknown', reason: 'ExistingHook', text };
  }
  const cure = 'remove the hooks, or set linger.dev/existing-hook: Extend on the pod template';
  const text = `${enough}, and the lag asks for ${needed}s: ${cure}`;
  return { ...base, verdict: 'unprotected', reason: 'HookTooShort', text };
}

/** The seconds of a container's own hook; undefined: it has none, or they are not known. */
function ownSleep(container: Container): number | undefined {
  const handler = preStopOf(container);
  return handler && plainSleep(handler)?.seconds;
}

/** Notes of the decision that are findings, too. */
const OF_NOTES = ['PartialWait', 'DaemonSetServing', 'StormNotCovered', 'Episode'] as const;

/** What the kubelet grants after the hook. Source: pkg/kubelet/kuberuntime (minimumGracePeriodInSeconds). */
const LEAST_GRACE = 2;

function furtherFindings(
  subject: Decided,
  exposure: Exposure,
  related: RelatedObjects,
  standing: Standing,
): readonly Said[] {
  // A plan that is there already leaves no notes: they are those of the wait that new pods would get.
  const noted = standing.reason === 'AlreadyInjected' ? exposure.choice.notes : [];
  const ofNotes = [...subject.decision.notes, ...noted].flatMap(({ code, text }) =>
    OF_NOTES.filter((reason) => reason === code).map((reason) => ({ reason, text })),
  );
  const misplaced = misplacedAnnotations(subject);
  if (standing.verdict === 'skipped')
    return [...ofNotes.filter(({ reason }) => reason === 'DaemonSetServing'), ...misplaced];
  return [
    ...patchRefused(subject),
    ...graceEaten(subject),
    ...ofNotes,
    ...neverWithdrawn(exposure, related),
    ...noOtherEndpoint(subject, exposure, related),
    ...runningFindings(subject, exposure, related),
    ...lagNotCovered(subject, exposure, standing),
    ...undeclaredConsumer(exposure, related),
    ...misplaced,
  ];
}

function patchRefused({ refusal }: AuditSubject): readonly Said[] {
  if (refusal === undefined) return [];
  const text = `pods with this wait would be refused, and without it they are taken: ${refusal}; change what refuses them before the mode is Enforce`;
  return [{ reason: 'PatchRefused', text, wait: 0 }];
}

function graceEaten({ request, decision }: Decided): readonly Said[] {
  if (decision.outcome === 'inject' || decision.reason !== 'ExistingHook') return [];
  const pod = request.object as Pod;
  const grace = graceOf(pod);
  const eater = pod.spec.containers.find((each) => {
    const own = ownSleep(each);
    return own !== undefined && own > grace - LEAST_GRACE;
  });
  if (eater === undefined) return [];
  const text = `container "${eater.name}" sleeps for all of its grace of ${grace}s: the application is killed ${LEAST_GRACE}s after SIGTERM; raise terminationGracePeriodSeconds by the sleep`;
  return [{ reason: 'GraceEaten', text }];
}

/** A Service that lists terminating pods until they are gone sends to them however long they wait. */
function neverWithdrawn({ services }: Exposure, { neverWithdrawing }: RelatedObjects): readonly Said[] {
  if (services === 'unknown') return [];
  const named = services.filter(({ namespace, name }) => neverWithdrawing.has(serviceKey(namespace, name)));
  if (named.length === 0) return [];
  const text = `Service ${fewOf(named.map(({ name }) => name))} has publishNotReadyAddresses: its clients are sent to terminating pods until these are gone, and no wait changes that`;
  return [{ reason: 'NeverWithdrawn', text }];
}

/** Without another ready endpoint, kube-proxy keeps sending to the terminating one. Source: KEP-1669. */
function noOtherEndpoint(
  subject: AuditSubject,
  exposure: Exposure,
  related: RelatedObjects,
): readonly Said[] {
  if (exposure.services !== 'unknown' && exposure.services.length === 0) return [];
  const { workload, namespace } = subject;
  const replicas = replicasOf(subject, related);
  const gap = 'a wait only lengthens the time without an endpoint that serves';
  if (workload.kind === 'Deployment' && strategyOf(subject) === 'Recreate') {
    const text = `strategy Recreate ends every pod before it begins another: ${gap}; use RollingUpdate`;
    return [{ reason: 'NoOtherEndpoint', text, verdict: 'unprotected' }];
  }
  if (replicas !== 1) return [];
  if (workload.kind === 'StatefulSet') {
    const text = `a StatefulSet of one ends its pod before it begins the next: ${gap}; use two replicas`;
    return [{ reason: 'NoOtherEndpoint', text, verdict: 'unprotected' }];
  }
  if (workload.kind !== 'Deployment' && workload.kind !== 'ReplicaSet' && workload.kind !== 'Rollout')
    return [];
  const text = `${subjectOf({ ...workload, namespace })} has one replica: when its node is drained, no other endpoint serves; use two replicas and a PodDisruptionBudget`;
  return [{ reason: 'NoOtherEndpoint', text }];
}

/** @returns undefined for a kind without a number of replicas */
function replicasOf(
  { workload, namespace, object }: AuditSubject,
  { scaled }: RelatedObjects,
): number | undefined {
  const least = scaled.get(workloadKey(workload.kind, namespace, workload.name));
  if (least !== undefined) return least;
  if (!/^(Deployment|ReplicaSet|ReplicationController|StatefulSet|Rollout|CloneSet)$/.test(workload.kind))
    return undefined;
  const replicas = memberAt(object, ['spec', 'replicas']);
  return typeof replicas === 'number' ? replicas : 1;
}

function strategyOf({ object }: AuditSubject): unknown {
  return memberAt(object, ['spec', 'strategy', 'type']);
}

/** Pods that were created without the webhook or before its policy, and pods with outdated waits. */
function runningFindings(
  subject: Decided,
  exposure: Exposure,
  { configured }: RelatedObjects,
): readonly Said[] {
  const { running, decision, workload } = subject;
  if (running === undefined) return [];
  const plans = running
    .map(({ annotations }) => parsePlan(annotations[ANNOTATION.plan] ?? ''))
    .filter((plan) => plan !== undefined);
  const without = running.length - plans.length;
  const expected = decision.outcome === 'inject' && !isAudit(decision);
  const short = plans.filter((plan) => isTooShort(plan, exposure));
  const cure = workload.kind === 'Pod' ? 'create it again' : 'kubectl rollout restart replaces them';
  const said: Said[] = [];
  const lacking = `${ofPods(without, running.length)} ${without === 1 ? 'has' : 'have'} no wait`;
  const noWait = configured
    ? `${lacking}: created before the policy, or while the webhook was away; ${cure}`
    : `${without > 0 ? `${lacking}, and new ones get none` : 'new pods get no wait'}: the cluster has no MutatingWebhookConfiguration of Linger's; bring it back, or install Linger; until then a restart changes nothing`;
  if (expected && (without > 0 || !configured)) said.push({ reason: 'NotInjected', text: noWait, wait: 0 });
  if (short.length > 0) {
    const lag = Math.ceil(neededOf(exposure));
    const text = `${ofPods(short.length, running.length)} ${short.length === 1 ? 'carries' : 'carry'} a wait that is shorter than the lag of today, ${lag}s; ${cure}`;
    said.push({ reason: 'StampedTooShort', text, wait: Math.min(...short.map(longestWait)) });
  }
  return said;
}

/**
 * The wait is as long as its bounds let it be, and most removals take longer. A rare storm is another matter: it is left
 * uncovered on purpose.
 */
function lagNotCovered({ decision }: Decided, exposure: Exposure, standing: Standing): readonly Said[] {
  const plan = decision.outcome === 'inject' ? decision.plan : decision.standing;
  const isFixed = plan?.why === 'fixed' || exposure.choice.why === 'fixed';
  if (plan === undefined || isFixed || standing.reason === 'StampedTooShort') return [];
  const wait = longestWait(plan);
  if ((exposure.lag.coverage?.(wait) ?? 1) >= 0.5) return [];
  const lag = Math.ceil(neededOf(exposure));
  const text = `most removals take longer than its wait of ${wait}s (the lag is ${lag}s), and wait.max, ceiling.wait or grace.max allows no longer one: make the controllers faster, or raise it`;
  return [{ reason: 'LagNotCovered', text, wait }];
}

function ofPods(some: number, all: number): string {
  return `${some} of ${all} ${all === 1 ? 'pod' : 'pods'}`;
}

/** A route leads from outside to one of the pods' Services, and no consumer declares its lag. */
function undeclaredConsumer({ services, consumers }: Exposure, { routes }: RelatedObjects): readonly Said[] {
  if (services === 'unknown' || consumers.some(({ builtIn }) => !builtIn)) return [];
  const leading = services.flatMap(({ namespace, name }) => routes.get(serviceKey(namespace, name)) ?? []);
  const [first] = leading;
  if (first === undefined) return [];
  const named = fewOf([...new Set(leading)]);
  const text = `${named} leads here, and no DiscoveryConsumer says how late what is behind it follows: its lag is in no wait. Declare it, for example: ${declarationOf(first)}`;
  return [{ reason: 'UndeclaredConsumer', text }];
}

/** Flow YAML, to be pasted. */
function declarationOf(route: string): string {
  const name = /^Service /.test(route) ? 'load-balancer' : 'gateway';
  return `{apiVersion: ${GROUP}/v1alpha1, kind: DiscoveryConsumer, metadata: {name: ${name}}, spec: {measure: {declared: {syncInterval: 10s}}}}`;
}

/** Pods do not inherit their workload's annotations. */
function misplacedAnnotations({ workload, object }: AuditSubject): readonly Said[] {
  const annotations = memberAt(object, ['metadata', 'annotations']);
  if (workload.kind === 'Pod' || !isRecord(annotations)) return [];
  const keys = Object.keys(annotations).filter((key) => key.startsWith(ANNOTATION_PREFIX));
  if (keys.length === 0) return [];
  const place = `spec${workload.pointer.slice('/spec'.length).replaceAll('/', '.')}.metadata.annotations`;
  const text = `${fewOf(keys)} on the ${workload.kind} itself has no effect: it belongs into ${place}`;
  return [{ reason: 'AnnotationMisplaced', text }];
}

/** StatefulSets replace one pod after the other, and Recreate starts when all pods have ended; other rollouts overlap. */
function costOf(subject: Decided, related: RelatedObjects): Audited['cost'] {
  const { decision, workload } = subject;
  if (decision.outcome !== 'inject') return { rollout: 0, drain: 0 };
  const { wait } = decision.plan;
  const replicas = replicasOf(subject, related) ?? 1;
  if (workload.kind === 'StatefulSet') return { rollout: wait * replicas, drain: wait };
  return { rollout: strategyOf(subject) === 'Recreate' ? wait : 0, drain: wait };
}

/** The totals of an audit. */
export interface AuditSummary {
  readonly workloads: number;
  readonly verdicts: Readonly<Record<Verdict, number>>;
  /** How many workloads would be protected if the policies said Enforce. */
  readonly wouldBe: number;
  /** The number of workloads by reason. */
  readonly reasons: Readonly<Record<string, number>>;
  /** The number of skipped workloads by reason. */
  readonly skipped: Readonly<Record<string, number>>;
  /** The seconds that waits add to all rollouts together, and at most to the drain of a node. */
  readonly rolloutSeconds: number;
  readonly drainSeconds: number;
}

export function summaryOfAudit(audited: readonly Audited[]): AuditSummary {
  const verdicts: Record<Verdict, number> = { protected: 0, unprotected: 0, skipped: 0, unknown: 0 };
  const reasons: Record<string, number> = {};
  const skipped: Record<string, number> = {};
  let wouldBe = 0;
  for (const { findings } of audited) {
    const [own] = findings;
    if (own === undefined) continue;
    verdicts[own.verdict] += 1;
    const remains = findings.some(({ reason }) => reason === 'PatchRefused' || reason === 'LagNotCovered');
    if (own.reason === 'AuditOnly' && !remains) wouldBe += 1;
    if (own.verdict === 'skipped') skipped[own.reason] = (skipped[own.reason] ?? 0) + 1;
    for (const { reason } of findings) reasons[reason] = (reasons[reason] ?? 0) + 1;
  }
  return {
    ...{ workloads: audited.length, verdicts, wouldBe, reasons, skipped },
    rolloutSeconds: audited.reduce((sum, { cost }) => sum + cost.rollout, 0),
    drainSeconds: audited.reduce((most, { cost }) => Math.max(most, cost.drain), 0),
  };
}
