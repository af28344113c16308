import {
  ANNOTATION,
  type Curable,
  fewOf,
  GROUP,
  isRecord,
  isStringMap,
  type Labels,
  leastSecondsOf,
  memberAt,
  printable,
  readingInWords,
  type ServiceRecord,
  selects,
  textOf,
} from '../api/index.ts';
import {
  type ClusterSnapshot,
  type ContainerWait,
  containerWaits,
  type Decision,
  type Evidence,
  type Exposure,
  eatenInWords,
  eatsGrace,
  evidenceOf,
  exposureOf,
  graceOf,
  holdUnreached,
  isAudit,
  longestWait,
  NODE_BUDGET_SHARE,
  NOTES,
  nodeBudget,
  type Plan,
  type Pod,
  parsePlan,
  promiseOf,
  requestOf,
  SKIP_REASONS,
  type SkipReason,
  type Workload,
  workloadKey,
} from '../decision/index.ts';
import { addedTo } from './added-sidecars.ts';
import { misplacedIn } from './misplaced.ts';
import { nodesGone } from './node-pools.ts';
import {
  type Budgeted,
  budgetsOf,
  isControlled,
  KnownPods,
  leadsTo,
  type PodsOf,
  podLabelsIn,
  portNamesIn,
  servingBeside,
} from './peers.ts';
import {
  type Around,
  type Autoscaler,
  isAsked,
  type PodPool,
  type RelatedObjects,
  relatedObjectsIn,
  serviceKey,
  togetherWith,
} from './related-objects.ts';
import { type Originated, waysToInstall } from './renders.ts';
import { type Rollout, rolloutOf } from './rollouts.ts';
import { type Judged, judgedOf } from './standing-plan.ts';

/** An audit's verdict on a workload's pods: they lose no requests, they lose some, they need no wait, or it is not known. */
export const VERDICTS = ['protected', 'unprotected', 'skipped', 'unknown'] as const;
export type AuditVerdict = (typeof VERDICTS)[number];

/** How serious a line is. `warning`: the workload loses requests because of it. `note`: worth knowing. */
export type AuditLevel = 'warning' | 'note';

interface FindingKind extends Curable {
  /** The verdict that it gives an otherwise protected workload; null: it stays protected. */
  readonly verdict: AuditVerdict | null;
  /** The case in which a finding gives another verdict ({@link Said}), and which. Its level then follows that verdict. */
  readonly sometimes?: string;
  readonly level: AuditLevel;
  /** Whether it is also reported for workloads that are skipped, such as a DaemonSet or a Job. */
  readonly ofSkipped: boolean;
  /**
   * When an explanation lists it beside the notes of the decision. `warning`: if it has that level. `running`: likewise, but
   * only running pods can have it, while `linger explain` judges manifests.
   */
  readonly explained: 'always' | 'warning' | 'running' | 'never';
}

/**
 * The findings that are not reasons of decisions, in the order in which they are reported for a workload. The first one that
 * makes a protected workload unprotected determines its verdict and comes first.
 */
export const AUDIT_FINDINGS = {
  AuditOnly: {
    verdict: 'unprotected',
    level: 'warning',
    ofSkipped: false,
    explained: 'never',
    means: 'Its pods would get a wait, but the mode is Audit.',
    cure: 'Set the mode to Enforce.',
  },
  PatchRefused: {
    verdict: 'unprotected',
    level: 'warning',
    ofSkipped: false,
    explained: 'never',
    means: 'With `--server-dry-run`: the cluster refuses its pods with the wait, and accepts them without.',
    cure: 'Change the policy that the text quotes, or stay in Audit.',
  },
  HookTooShort: {
    verdict: 'unprotected',
    level: 'warning',
    ofSkipped: false,
    explained: 'warning',
    means: "The containers' own hooks sleep for less than the lag, or than the policy's fixed wait.",
    cure: 'Remove the hooks, or `linger.dev/existing-hook: Extend`.',
  },
  GraceEaten: {
    verdict: 'unprotected',
    level: 'warning',
    ofSkipped: false,
    explained: 'warning',
    means: NOTES.GraceEaten.means,
    cure: NOTES.GraceEaten.cure,
  },
  PartialWait: {
    verdict: 'unprotected',
    level: 'warning',
    ofSkipped: false,
    explained: 'warning',
    means: NOTES.PartialWait.means,
    cure: NOTES.PartialWait.cure,
  },
  WaitShrunk: {
    verdict: null,
    sometimes: 'unprotected if the rest is shorter than the lag',
    level: 'note',
    ofSkipped: false,
    explained: 'never',
    means: `${NOTES.WaitShrunk.means} Or, with \`--server-dry-run\`: the cluster cuts the grace period that the wait needs.`,
    cure: 'Exempt the pods there, or lower `grace.max`. A restart changes nothing.',
  },
  SidecarHook: {
    verdict: null,
    level: 'note',
    ofSkipped: false,
    explained: 'never',
    means: NOTES.SidecarHook.means,
    cure: NOTES.SidecarHook.cure,
  },
  HoldUnavailable: {
    verdict: null,
    level: 'note',
    ofSkipped: false,
    explained: 'never',
    means: NOTES.HoldUnavailable.means,
    cure: NOTES.HoldUnavailable.cure,
  },
  NodeBudgetShort: {
    verdict: null,
    sometimes:
      'unprotected if what is left of the wait is shorter than the lag, unknown if the lag is assumed',
    level: 'note',
    ofSkipped: false,
    explained: 'warning',
    means: NOTES.NodeBudgetShort.means,
    cure: NOTES.NodeBudgetShort.cure,
  },
  ShutdownShortened: {
    verdict: null,
    level: 'note',
    ofSkipped: false,
    explained: 'never',
    means: NOTES.ShutdownShortened.means,
    cure: NOTES.ShutdownShortened.cure,
  },
  ProbeGraceShort: {
    verdict: null,
    level: 'note',
    ofSkipped: false,
    explained: 'never',
    means: NOTES.ProbeGraceShort.means,
    cure: NOTES.ProbeGraceShort.cure,
  },
  HookUnsupported: {
    verdict: null,
    level: 'note',
    ofSkipped: false,
    explained: 'never',
    means: NOTES.HookUnsupported.means,
    cure: NOTES.HookUnsupported.cure,
  },
  InvalidAnnotation: {
    verdict: null,
    level: 'note',
    ofSkipped: true,
    explained: 'never',
    means: NOTES.InvalidAnnotation.means,
    cure: NOTES.InvalidAnnotation.cure,
  },
  UnknownAnnotation: {
    verdict: null,
    level: 'note',
    ofSkipped: true,
    explained: 'never',
    means: NOTES.UnknownAnnotation.means,
    cure: NOTES.UnknownAnnotation.cure,
  },
  UnknownContainer: {
    verdict: null,
    level: 'note',
    ofSkipped: false,
    explained: 'never',
    means: NOTES.UnknownContainer.means,
    cure: NOTES.UnknownContainer.cure,
  },
  MetricsOnly: {
    verdict: null,
    level: 'note',
    ofSkipped: false,
    explained: 'never',
    means: 'Its only Services are for metrics, by the names of their ports, and nothing routes to them.',
    cure: 'Nothing, unless clients push to that port.',
  },
  NoService: {
    verdict: 'unknown',
    level: 'note',
    ofSkipped: false,
    explained: 'never',
    means:
      'Its containers declare ports, and no Service selects its pods, although the namespace has others; or a Service selects them, and its `targetPort` is the name of no port of theirs.',
    cure: 'Give the audit the Service too, or declare the consumer (`podSelector`); correct `targetPort`.',
  },
  NeverWithdrawn: {
    verdict: 'unprotected',
    sometimes: 'none for the Service of the pods’ peers',
    level: 'warning',
    ofSkipped: false,
    explained: 'warning',
    means: 'A Service with `publishNotReadyAddresses` sends to terminating pods until they are gone.',
    cure: 'Give clients another Service.',
  },
  NoOtherEndpoint: {
    verdict: null,
    sometimes: 'unprotected if a rollout causes the gap',
    level: 'note',
    ofSkipped: false,
    explained: 'warning',
    means:
      'When its pods stop, no other serves, and kube-proxy keeps sending to them: Recreate, a StatefulSet of one, a `maxUnavailable` that lets all pods stop at once.',
    cure: 'Use two replicas, RollingUpdate, a lower `maxUnavailable`.',
  },
  RollsTogether: {
    verdict: null,
    level: 'note',
    ofSkipped: false,
    explained: 'never',
    means:
      'Its rollout stops all of its pods; those of other workloads serve behind the same Service. One `kubectl apply` rolls all at once.',
    cure: 'Roll them one after the other.',
  },
  DrainRefused: {
    verdict: null,
    level: 'note',
    ofSkipped: false,
    explained: 'never',
    means:
      'A PodDisruptionBudget allows no eviction, or two select the same pods: a drain of the node never ends.',
    cure: 'Run more replicas than it requires, or `maxUnavailable: 1`. One budget for each pod.',
  },
  LocalTrafficPolicy: {
    verdict: null,
    level: 'note',
    ofSkipped: false,
    explained: 'never',
    means:
      'A Service has traffic policy `Local`: the last endpoint is [that of each node](../concepts.md#traffic-policy-local).',
    cure: "Declare the load balancer's health check interval as a DiscoveryConsumer; two pods on each node, or policy `Cluster`.",
  },
  NotInjected: {
    verdict: 'unprotected',
    level: 'warning',
    ofSkipped: false,
    explained: 'running',
    means:
      'In manifests: its pods get no wait, and [no webhook is known](#with-the-webhook-and-without). In a cluster: pods run without a wait: older than the policy, created while the webhook was down, or changed afterwards.',
    cure: '`linger inject`, or the webhook. In a cluster: `kubectl rollout restart`, once the webhook is there.',
  },
  UnknownKind: {
    verdict: 'unknown',
    level: 'note',
    ofSkipped: false,
    explained: 'never',
    means:
      'An unknown kind of workload, a template that was not found, or an API version that is no longer served.',
    cure: 'Add the object with the template; look at a pod with `linger explain`.',
  },
  NotRendered: {
    verdict: 'unknown',
    level: 'note',
    ofSkipped: false,
    explained: 'never',
    means: 'A HelmRelease, Application or another source of GitOps, whose workloads are not in the input.',
    cure: 'Render them as the text says, and audit that.',
  },
  InvalidObject: {
    verdict: 'unknown',
    level: 'note',
    ofSkipped: false,
    explained: 'never',
    means: NOTES.InvalidObject.means,
    cure: NOTES.InvalidObject.cure,
  },
  StampedTooShort: {
    verdict: 'unprotected',
    level: 'warning',
    ofSkipped: false,
    explained: 'warning',
    means: "Pods carry a wait that is shorter than today's lag.",
    cure: '`kubectl rollout restart`, or `inject --refresh`.',
  },
  HoldUnreached: {
    verdict: 'unprotected',
    level: 'warning',
    ofSkipped: false,
    explained: 'running',
    means:
      'Pods with hook Hold call [an address where the Service of Hold is not](operations.md#the-address-of-hold): they wait only statically.',
    cure: '`kubectl rollout restart`: new pods get the present address. The text says what they call.',
  },
  LagNotCovered: {
    verdict: 'unprotected',
    level: 'warning',
    ofSkipped: false,
    explained: 'warning',
    means:
      'Most removals take longer than its wait, and `wait.max`, `ceiling.wait` or `grace.max` prevents a longer one.',
    cure: 'Faster controllers ([`diagnose`](#diagnose)), or raise that bound.',
  },
  UndeclaredConsumer: {
    verdict: null,
    level: 'note',
    ofSkipped: false,
    explained: 'always',
    means:
      'A gateway or mesh that [`consumers discover`](../gateways.md#find-the-consumers) recognises, or something else that [routes traffic](#what-routes-traffic-to-a-service), sends to it, and no DiscoveryConsumer covers its lag.',
    cure: '`linger consumers discover` prints the DiscoveryConsumer.',
  },
  LivenessRestart: {
    verdict: null,
    level: 'note',
    ofSkipped: false,
    explained: 'always',
    means: NOTES.LivenessRestart.means,
    cure: NOTES.LivenessRestart.cure,
  },
  SidecarAddedLater: {
    verdict: null,
    level: 'note',
    ofSkipped: false,
    explained: 'never',
    means:
      'Another webhook (Linkerd, Istio, Dapr, Consul) adds a proxy that stops sooner. Only where the webhook of Linger is not known to be there.',
    cure: "The proxy's annotation in the text, or Linger's webhook.",
  },
  RolloutOutrunsConsumers: {
    verdict: null,
    level: 'note',
    ofSkipped: false,
    explained: 'never',
    means:
      'A rollout removes old pods before a consumer sends to the new ones: `minReadySeconds` is shorter than the p99 of `ADDED`.',
    cure: 'Set `minReadySeconds` to the value in the text.',
  },
  DaemonSetServing: {
    verdict: null,
    level: 'note',
    ofSkipped: true,
    explained: 'never',
    means: NOTES.DaemonSetServing.means,
    cure: NOTES.DaemonSetServing.cure,
  },
  AnnotationMisplaced: {
    verdict: null,
    level: 'note',
    ofSkipped: true,
    explained: 'never',
    means: NOTES.AnnotationMisplaced.means,
    cure: NOTES.AnnotationMisplaced.cure,
  },
  FieldMisplaced: {
    verdict: null,
    level: 'note',
    ofSkipped: true,
    explained: 'never',
    means: NOTES.FieldMisplaced.means,
    cure: NOTES.FieldMisplaced.cure,
  },
  StormNotCovered: {
    verdict: null,
    level: 'note',
    ofSkipped: false,
    explained: 'never',
    means: NOTES.StormNotCovered.means,
    cure: 'Faster controllers.',
  },
  Episode: {
    verdict: null,
    level: 'note',
    ofSkipped: false,
    explained: 'never',
    means: NOTES.Episode.means,
    cure: NOTES.Episode.cure,
  },
  ObjectsUnread: {
    verdict: 'unknown',
    level: 'note',
    ofSkipped: false,
    explained: 'never',
    means:
      "Objects around it are not known: its namespace's take more room than a namespace may, or one is too large.",
    cure: 'Delete what is not needed; the text names the kinds.',
  },
} as const satisfies Readonly<Record<string, FindingKind>>;
export type FindingCode = keyof typeof AUDIT_FINDINGS;

const IN_ORDER = Object.keys(AUDIT_FINDINGS);

/** Narrows the code of a reason or a note to one that is also a finding. */
export function isFinding(code: string): code is FindingCode {
  return Object.hasOwn(AUDIT_FINDINGS, code);
}

/** The reasons of workloads without findings. */
export const GOOD_REASONS = ['Injected', 'OwnHook', 'AlreadyInjected', 'NotAsked', 'NoReplicas'] as const;
export type AuditReason = FindingCode | SkipReason | (typeof GOOD_REASONS)[number];

/** One line of an audit. Times in whole seconds; null: not known. */
export interface AuditFinding {
  readonly kind: string;
  readonly namespace: string;
  readonly name: string;
  /** The verdict on the workload. */
  readonly verdict: AuditVerdict;
  readonly reason: AuditReason;
  /** The level of this line; null: it calls for no action. */
  readonly level: AuditLevel | null;
  /** The wait that the pods have, or would have. */
  readonly waitSeconds: number | null;
  readonly graceSeconds: number | null;
  /** How long requests may still arrive after the pod has stopped: 0 where the wait suffices. */
  readonly exposureSeconds: number | null;
  /** The evidence for these numbers; null: there are none. */
  readonly evidence: Evidence | null;
  readonly file?: string;
  readonly line?: number;
  readonly column?: number;
  /** The folder of the kustomization or chart that it was rendered from; several may share a file. */
  readonly source?: string;
  /** One or two full sentences about this workload, with the fix if there is one. */
  readonly text: string;
}

/** `Deployment shop/web` */
export function subjectOf(of: Pick<AuditFinding, 'kind' | 'namespace' | 'name'>): string {
  return `${of.kind} ${of.namespace}/${of.name}`;
}

/** A running pod of a workload. */
export interface RunningPod {
  readonly annotations: Labels;
}

/** How something in the cluster cuts the grace of a pod, as a dry run shows. Seconds. */
export interface GraceCut {
  /** The grace that Linger sets. */
  readonly from: number;
  readonly grace: number;
  /** The wait that fits into the cut grace. */
  readonly wait: number;
  /** What may have cut it: `MutatingAdmissionPolicy short-grace`; empty: not known. */
  readonly by: readonly string[];
}

/** A workload to be audited. */
export interface AuditSubject {
  readonly workload: Workload;
  readonly namespace: string;
  /** The whole object, unchecked. */
  readonly object: unknown;
  readonly file?: string;
  readonly line?: number;
  readonly column?: number;
  /** The folder of the kustomization or chart that it was rendered from. */
  readonly source?: string;
  /** What is unknown about its pods, as a sentence: their template, or what creates them. */
  readonly unknown?: string;
  /** It only refers to manifests from which its workloads are rendered elsewhere. */
  readonly notRendered?: true;
  /** Why kubectl rejects the object. */
  readonly refused?: string;
  /** Why the API server rejects its pods with a wait but accepts them without; absent: it does not, or was not asked. */
  readonly refusal?: string;
  /** Absent: nothing cuts its grace, or that is not known. */
  readonly cut?: GraceCut;
  /** undefined: not known, as for a manifest. */
  readonly running?: readonly RunningPod[];
}

type Decided = AuditSubject & Judged;

/** The audit of one workload: its lines, and what is reported once per workload. */
export interface Audited {
  /** The workload's main finding, then one for each further finding. Never empty. */
  readonly findings: readonly AuditFinding[];
  /** How many seconds waits add to a rollout, and at most to the drain of a node, where pods wait in parallel. */
  readonly cost: { readonly rollout: number; readonly drain: number };
  /** It loses requests, but would not if Linger’s webhook were installed and the mode were Enforce. */
  readonly wouldBe: boolean;
  /** The minReadySeconds that its rollouts need, if it has less. */
  readonly minReadySeconds?: number | undefined;
}

/** A problem of a workload, or something worth knowing. */
interface Said {
  readonly reason: FindingCode;
  readonly text: string;
  /** The verdict in this case if it differs from the finding's usual one; null: none. */
  readonly verdict?: AuditVerdict | null;
  /** The shortest wait of the affected pods, if it differs from that of new pods. Seconds. */
  readonly wait?: number;
  /** The minReadySeconds that the workload should have. */
  readonly minReadySeconds?: number;
}

/** The verdict from the hooks alone, with the wait that the pods have today or would get. */
interface Standing {
  readonly verdict: AuditVerdict;
  readonly reason: AuditReason;
  readonly wait: number | null;
  readonly grace: number | null;
  readonly text: string;
}

/**
 * The verdict on one workload, with all of its findings. An error becomes a finding of this workload instead of failing the
 * whole audit, because anyone may create a workload.
 */
export function auditWorkload(
  audited: AuditSubject,
  snapshot: ClusterSnapshot,
  related: RelatedObjects,
): Audited {
  try {
    return judge(audited, snapshot, related);
  } catch (thrown) {
    return unjudged(audited, thrown);
  }
}

/** How many characters of an error's message a finding quotes. */
const LONGEST_ERROR = 200;

function unjudged(audited: AuditSubject, thrown: unknown): Audited {
  const { workload, namespace } = audited;
  const error = printable(String(thrown).slice(0, LONGEST_ERROR));
  const text = `Linger failed on this workload (${error}), so nothing is known of its pods; report this with its manifest`;
  const finding: AuditFinding = {
    kind: workload.kind,
    namespace,
    name: workload.name,
    verdict: 'unknown',
    reason: 'InternalError',
    level: 'note',
    waitSeconds: null,
    graceSeconds: null,
    exposureSeconds: null,
    evidence: null,
    ...placeOf(audited),
    text,
  };
  return { findings: [finding], cost: { rollout: 0, drain: 0 }, wouldBe: false };
}

function placeOf({ file, line, column, source }: AuditSubject) {
  if (file === undefined) return {};
  return { file, ...(line && { line }), ...(column && { column }), ...(source && { source }) };
}

function originOf({ source, file = '' }: AuditSubject): string {
  return source ?? file;
}

/**
 * Leaves out Services that belong to another way of installing the same, unless these are the only ones that select the
 * pods.
 */
function exposedBy(
  exposure: Exposure | undefined,
  related: RelatedObjects,
  all: RelatedObjects,
): Exposure | undefined {
  if (exposure === undefined || exposure.services === 'unknown' || related.services === all.services)
    return exposure;
  const services = exposure.services.filter(({ namespace, name }) => {
    const key = serviceKey(namespace, name);
    return related.services.has(key) || !all.services.has(key);
  });
  return services.length === 0 ? exposure : { ...exposure, services };
}

function judge(audited: AuditSubject, snapshot: ClusterSnapshot, all: RelatedObjects): Audited {
  const { workload, namespace } = audited;
  const related = { ...all, ...all.aroundOf?.(originOf(audited)) };
  const subject: Decided = { ...audited, ...judgedOf(requestOf(audited), snapshot) };
  const exposure = exposedBy(exposureOf(subject.request, snapshot), related, all);
  const asked =
    subject.stands !== undefined || isAsked(related, namespace, snapshot.namespaces.get(namespace)?.labels);
  const own = standingOf(subject, exposure, related);
  const traffic =
    exposure && own.verdict !== 'skipped' ? trafficFinding(subject, exposure, related, snapshot) : undefined;
  const standing = asked ? eased(own, traffic) : unasked(own);
  const found =
    exposure === undefined || !asked || audited.refused !== undefined
      ? []
      : furtherFindings(subject, exposure, related, standing, snapshot);
  const others = found.filter(({ reason }) => reason !== standing.reason);
  const said = (
    traffic?.reason === 'MetricsOnly' ? ofMetricsOnly(others, traffic, standing) : others
  ).toSorted((a, b) => IN_ORDER.indexOf(a.reason) - IN_ORDER.indexOf(b.reason));
  const sooner =
    said.find((each) => verdictOf(each) === 'unprotected') ??
    said.find((each) => verdictOf(each) !== undefined);
  const decisive = standing.verdict === 'protected' || standing.verdict === 'unknown' ? sooner : undefined;
  const verdict = (decisive && verdictOf(decisive)) ?? standing.verdict;
  const common = {
    kind: workload.kind,
    namespace,
    name: workload.name,
    verdict,
    waitSeconds: standing.wait,
    graceSeconds: standing.grace,
    exposureSeconds: openFor(exposure, verdict, decisive?.wait ?? standing.wait),
    evidence: exposure === undefined || verdict === 'skipped' ? null : evidenceOf(exposure),
  };
  const where = placeOf(audited);
  const lines = [decisive ?? standing, ...said.filter((each) => each !== decisive)];
  const findings = [...Map.groupBy(lines, ({ reason }) => reason)].map(([reason, each]) => {
    const [first = '', ...more] = new Set(each.map(({ text }) => text));
    const levels = each.map(levelOf);
    const level = levels.find((one) => one === 'warning') ?? levels[0] ?? null;
    return {
      ...common,
      reason,
      level,
      ...where,
      text: more.length === 0 ? first : `${first}; ${fewOf(more)}`,
    };
  });
  return {
    findings,
    cost: asked && standing.wait !== 0 ? costOf(subject, related) : { rollout: 0, drain: 0 },
    minReadySeconds: said.find((each) => each.minReadySeconds !== undefined)?.minReadySeconds,
    wouldBe: WITHOUT_LINGER.has(standing.reason) && said.every((each) => verdictOf(each) !== 'unprotected'),
  };
}

/**
 * What is known about clients of the pods if no Service for clients leads to them. undefined: one does, or something
 * declared or a pool sends to them, or that is not known.
 */
function trafficFinding(
  subject: Decided,
  { services, consumers }: Exposure,
  related: RelatedObjects,
  snapshot: ClusterSnapshot,
): Said | undefined {
  if (services === 'unknown' || consumers.some(({ builtIn }) => !builtIn)) return undefined;
  const names = fewOf(services.map(({ name }) => name));
  if (services.length === 0) {
    const { workload, namespace } = subject;
    const isOfCanary = related.canaries.has(workloadKey(workload.kind, namespace, workload.name));
    if (isOfCanary || poolsOf(subject, related).length > 0) return undefined;
    if ((snapshot.services.byNamespace.get(subject.namespace)?.length ?? 0) === 0) return undefined;
    const text =
      'no Service selects its pods, although the namespace has others: whether anything sends requests to them is not known';
    return { reason: 'NoService', text };
  }
  const ports = services.map((each) => (each.headless ? undefined : targetsOf(each, related)));
  if (ports.every((each) => each !== undefined && !leadsTo(subject.workload, each))) {
    const wanted = fewOf([
      ...new Set(ports.flatMap((each) => each?.named.map(({ target }) => target) ?? [])),
    ]);
    const text = `Service ${names} selects its pods, but none of its ports leads to them: no container has a port named ${wanted}. Unless something adds one when the pods are admitted, nothing is sent to them`;
    return { reason: 'NoService', text };
  }
  const isForMetrics = services.every(({ namespace, name }) => {
    const key = serviceKey(namespace, name);
    return related.services.get(key)?.metricsOnly === true && !related.routes.has(key);
  });
  if (!isForMetrics) return undefined;
  const text = `Service ${names} has ports for metrics alone, and nothing routes to it: as far as is known, no request of a client is lost when its pods are replaced`;
  return { reason: 'MetricsOnly', text };
}

/** Eases the verdict where no clients are known, because then it is not known that anything is lost. */
function eased(standing: Standing, traffic: Said | undefined): Standing {
  if (traffic === undefined || standing.verdict !== 'unprotected') return standing;
  const verdict = verdictOf(traffic) ?? 'protected';
  return {
    ...standing,
    verdict,
    reason: traffic.reason,
    text: `${traffic.text}. ${sentence(standing.text)}`,
  };
}

function sentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}`;
}

/** Findings that matter only if there are clients. */
const OF_CLIENTS: ReadonlySet<FindingCode> = new Set([
  'NoOtherEndpoint',
  'LivenessRestart',
  'UndeclaredConsumer',
]);
/** Findings that matter even without clients. */
const WITHOUT_CLIENTS: ReadonlySet<FindingCode> = new Set(['GraceEaten', 'PatchRefused']);

function ofMetricsOnly(found: readonly Said[], traffic: Said, standing: Standing): readonly Said[] {
  const kept = found
    .filter(({ reason }) => !OF_CLIENTS.has(reason))
    .map((each) => (WITHOUT_CLIENTS.has(each.reason) ? each : { ...each, verdict: null }));
  return standing.reason === 'MetricsOnly' ? kept : [...kept, traffic];
}

/** Reasons that disappear once Linger is installed in mode Enforce. */
const WITHOUT_LINGER: ReadonlySet<AuditReason> = new Set(['AuditOnly', 'NotInjected']);

function verdictOf({ reason, verdict }: Said): AuditVerdict | undefined {
  return (verdict === undefined ? AUDIT_FINDINGS[reason].verdict : verdict) ?? undefined;
}

/** The level of a line: that of the verdict that it gives in this case, or else the finding's usual one. */
function levelOf(line: Standing | Said): AuditLevel | null {
  if (line.verdict === 'unprotected') return 'warning';
  if (line.verdict === 'unknown' || line.verdict === null) return 'note';
  return isFinding(line.reason) ? AUDIT_FINDINGS[line.reason].level : null;
}

/** How long requests may still arrive after the pod has stopped, as far as the lag is known. */
function openFor(exposure: Exposure | undefined, verdict: AuditVerdict, wait: number | null): number | null {
  if (verdict === 'protected') return 0;
  if (verdict === 'skipped' || exposure === undefined) return null;
  // If the wait is unknown, so is the length of the exposure.
  if (verdict === 'unknown' && wait === null) return null;
  return Math.max(0, Math.ceil(neededOf(exposure) - (wait ?? 0)));
}

/** The lag that a hook must cover: the known lag without the safety factor, or if that is not known, the policy's wait. */
export function neededOf({ policy, choice, lag }: Exposure): number {
  if (choice.why === 'fixed' || choice.why === 'initial' || lag.known === undefined)
    return choice.onOtherNodes ?? choice.seconds;
  return lag.known.quantile(policy['wait.percentile'].value);
}

function isAssumed(exposure: Exposure): boolean {
  return evidenceOf(exposure).basis === 'assumed';
}

/** The wording: only a known lag *requires* a wait. */
function asks(exposure: Exposure): string {
  return isAssumed(exposure) ? 'Linger would wait' : 'the lag requires';
}

function standingOf(subject: Decided, exposure: Exposure | undefined, related: RelatedObjects): Standing {
  const { decision, stands } = subject;
  const { refused, unknown: isOpen, notRendered } = subject;
  if (refused !== undefined)
    return { verdict: 'unknown', reason: 'InvalidObject', wait: null, grace: null, text: refused };
  if (isOpen !== undefined)
    return { ...standingUnknown(isOpen, decision), ...(notRendered && { reason: 'NotRendered' as const }) };
  if (replicasOf(subject, related) === 0 && autoscalerOf(subject, related) === undefined) {
    const text = 'it has 0 replicas, so no pod can lose a request';
    return { verdict: 'skipped', reason: 'NoReplicas', wait: null, grace: null, text };
  }
  if (decision.outcome === 'inject') {
    const unknown = unknownHook(subject);
    if (stands !== undefined && unknown === undefined) return standingPlan(stands, exposure, subject);
    const { wait, grace: planned, hook, why } = decision.plan;
    const grace = decision.hold?.grace ?? planned;
    const gets =
      decision.hold === undefined
        ? `a wait of ${wait}s (${hook}, ${why}) and a grace of ${grace}s`
        : promiseOf(decision);
    if (stands === undefined && !related.configured && subject.running === undefined) {
      const rows = ordinaryRows(subject, false);
      const least = Math.floor(Math.min(...rows.map(({ held }) => leastSecondsOf(held))));
      const bare = rows.flatMap(({ own, container }) => (own === undefined ? [container.name] : []));
      const lacks = bare.length === 0 ? `wait ${least}s only` : `have no wait in container ${fewOf(bare)}`;
      const text = `its pods ${lacks}, and no webhook of Linger’s is known to be there: SIGTERM arrives while requests are still sent to them. Linger would give them ${gets}: run linger inject, or pass --webhook if the webhook is installed`;
      const own = graceOf(subject.request.object as Pod);
      return { verdict: 'unprotected', reason: 'NotInjected', wait: least, grace: own, text };
    }
    if (stands === undefined && isAudit(decision)) {
      const text = `pods would get ${gets}, but the mode is Audit (${decision.policy.mode.origin}): they are left unchanged`;
      return { verdict: 'unprotected', reason: 'AuditOnly', wait: 0, grace, text };
    }
    if (unknown !== undefined) {
      const text = `container "${unknown}" keeps its own hook, whose duration is unknown; the others get a wait of ${wait}s`;
      return { verdict: 'unknown', reason: 'ExistingHook', wait, grace, text };
    }
    const text = `pods get ${gets} when they are created`;
    const left = subject.cut ?? { wait, grace };
    return { verdict: 'protected', reason: 'Injected', wait: left.wait, grace: left.grace, text };
  }
  const { reason } = decision;
  if (reason === 'ExistingHook' && exposure !== undefined) return standingHook(subject, exposure);
  const pools = reason === 'NotServing' ? poolsOf(subject, related) : [];
  if (pools.length > 0) {
    const text = `${ofPools(pools)}. Until then the webhook leaves these pods alone (NotServing), and SIGTERM arrives while requests are still sent to them`;
    const own = graceOf(subject.request.object as Pod);
    return { verdict: 'unprotected', reason: 'UndeclaredConsumer', wait: 0, grace: own, text };
  }
  const { verdict, means } = SKIP_REASONS[reason];
  const [note] = reason === 'InvalidPod' ? decision.notes : [];
  const text = note === undefined ? means : `${note.text}; the API server rejects it`;
  return { verdict, reason, wait: null, grace: null, text };
}

function standingUnknown(unknown: string, decision: Decision): Standing {
  const base = { verdict: 'unknown', reason: 'UnknownKind', grace: null } as const;
  // The template was not found, so nothing is known of it.
  if (decision.outcome === 'skip' && decision.reason === 'InvalidPod')
    return { ...base, wait: null, text: unknown };
  if (decision.outcome === 'skip') {
    const text = `${unknown}. The webhook leaves such pods unchanged, ${decision.reason}: ${SKIP_REASONS[decision.reason].means}`;
    return { ...base, wait: null, text };
  }
  const { wait, grace, hook } = decision.plan;
  const text = `${unknown}. Linger’s webhook, where it is installed, gives such pods a wait of ${wait}s (${hook}) and a grace of ${grace}s${isAudit(decision) ? ' in mode Enforce' : ''}`;
  return { ...base, wait, grace, text };
}

/** The container that may stop before the others have waited, because its own hook is not a plain sleep. */
function unknownHook({ request, decision }: Decided): string | undefined {
  if (decision.outcome !== 'inject') return undefined;
  const { wait } = decision.plan;
  const found = containerWaits(request.object as Pod, decision).find(
    ({ sidecar, ends, held }) => !sidecar && !ends && held.kind !== 'exact' && leastSecondsOf(held) < wait,
  );
  return found?.container.name;
}

/**
 * Replaces the verdict for pods for which the webhook is not called, except where they are skipped anyway or already have a
 * wait.
 */
function unasked(standing: Standing): Standing {
  if (standing.verdict === 'skipped' || standing.reason === 'AlreadyInjected') return standing;
  const text =
    'Linger’s webhook is not called for pods of this namespace (its namespaceSelector excludes it): they are left unchanged';
  return { verdict: 'skipped', reason: 'NotAsked', wait: null, grace: null, text };
}

/**
 * Whether the lag now asks for a longer wait, and new pods would get one (which wait.max may prevent). A fixed wait is the
 * operator's decision, so no measurement makes it too short.
 */
function isTooShort(plan: Plan, exposure: Exposure, { fresh, cut }: Decided): boolean {
  // What new pods get is less than the policy says if the grace has no room for it or is cut.
  const given =
    cut?.wait ?? (fresh.outcome === 'inject' ? longestWait(fresh.plan) : Number.POSITIVE_INFINITY);
  const longer = Math.min(neededOf(exposure), exposure.choice.seconds, given);
  return plan.why !== 'fixed' && longestWait(plan) < longer;
}

function standingPlan(plan: Plan, exposure: Exposure | undefined, subject: Decided): Standing {
  const { wait, grace } = plan;
  if (exposure !== undefined && isTooShort(plan, exposure, subject)) {
    const text = `the pods carry a wait of ${wait}s, but ${asks(exposure)} ${exposure.choice.seconds}s today: restart them, or run linger inject --refresh`;
    return { verdict: 'unprotected', reason: 'StampedTooShort', wait, grace, text };
  }
  const text = `the pods carry a wait of ${wait}s already`;
  return { verdict: 'protected', reason: 'AlreadyInjected', wait, grace, text };
}

/** The verdict where every container has a hook of its author's. */
function standingHook(subject: Decided, exposure: Exposure): Standing {
  const rows = ordinaryRows(subject, true);
  const needed = Math.ceil(neededOf(exposure));
  const least = Math.min(...rows.map(({ held }) => leastSecondsOf(held)));
  const own = Math.floor(least);
  const base = { wait: own, grace: graceOf(subject.request.object as Pod) };
  const first = rows.find(({ held }) => leastSecondsOf(held) === least);
  const why = first?.held.kind === 'exact' && first.held.why ? ` (${first.held.why})` : '';
  const enough = `the containers' own hooks wait ${own}s${why}`;
  if (least >= needed) return { ...base, verdict: 'protected', reason: 'OwnHook', text: enough };
  const open = rows.find(({ held }) => held.kind !== 'exact' && leastSecondsOf(held) < needed);
  const isShort = rows.some(({ held }) => held.kind === 'exact' && held.seconds < needed);
  if (open !== undefined && !isShort) {
    const text = `every container has a preStop hook of its own; that of "${open.container.name}" ${readingInWords(open.held)}`;
    return { ...base, verdict: 'unknown', reason: 'ExistingHook', wait: null, text };
  }
  // Any known lag is above zero, but whether this wait suffices is not known.
  if (isAssumed(exposure) && least > 0) {
    const text = `${enough}; whether that suffices is unknown: too little has been measured yet, and Linger would wait ${needed}s`;
    return { ...base, verdict: 'unknown', reason: 'ExistingHook', text };
  }
  const cure =
    least === 0
      ? 'remove the hook so that Linger’s wait replaces it'
      : 'remove the hooks, or set linger.dev/existing-hook: Extend on the pod template';
  const text = `${enough}, but ${asks(exposure)} ${needed}s: ${cure}`;
  return { ...base, verdict: 'unprotected', reason: 'HookTooShort', text };
}

/** For {@link containerWaits}: leaves the hooks as they are. */
export const NO_WAIT: Decision = { outcome: 'skip', reason: 'ExistingHook', notes: [] };

/** @param given whether to include Linger's wait */
function rowsOf({ request, decision }: Decided, given: boolean): readonly ContainerWait[] {
  return containerWaits(request.object as Pod, given ? decision : NO_WAIT);
}

/** The containers that serve for as long as the pod does. */
function ordinaryRows(...of: Parameters<typeof rowsOf>): readonly ContainerWait[] {
  return rowsOf(...of).filter(({ sidecar, ends }) => !sidecar && !ends);
}

/** All findings besides the verdict from the hooks, in any order. */
function furtherFindings(
  subject: Decided,
  exposure: Exposure,
  related: RelatedObjects,
  standing: Standing,
  snapshot: ClusterSnapshot,
): readonly Said[] {
  const { decision } = subject;
  const others =
    decision.outcome === 'inject' ? ordinaryRows(subject, true).filter(({ wait }) => wait === undefined) : [];
  const least =
    others.length === 0 ? undefined : Math.floor(Math.min(...others.map(({ held }) => leastSecondsOf(held))));
  const cutTo =
    exposure.choice.onOtherNodes !== undefined &&
    decision.outcome === 'inject' &&
    decision.plan.hold === undefined
      ? longestWait(decision.plan)
      : undefined;
  const ofNotes = decision.notes.flatMap(({ code, text }): readonly Said[] => {
    // graceEaten examines the containers itself, because their wait may come from a plan on running pods.
    if (!isFinding(code) || code === 'GraceEaten') return [];
    return [
      {
        reason: code,
        text,
        ...(code === 'PartialWait' && least !== undefined && { wait: least }),
        ...(code === 'NodeBudgetShort' && cutTo !== undefined && shortBy(cutTo, exposure)),
      },
    ];
  });
  const misplaced = misplacedIn(subject.workload, subject.object).map(({ code, text }) => ({
    reason: code,
    text,
  }));
  const found: readonly Said[] = [
    ...patchRefused(subject),
    ...waitShrunk(subject, exposure),
    ...graceEaten(subject, related),
    ...ofNotes,
    ...neverWithdrawn(exposure, related),
    ...noOtherEndpoint(subject, exposure, related),
    ...drainRefused(subject, related),
    ...localTraffic(exposure, related),
    ...runningFindings(subject, exposure, related, snapshot),
    ...lagNotCovered(subject, exposure, standing),
    ...undeclaredConsumer(subject, exposure, related, snapshot),
    ...livenessRestart(subject, related),
    ...sidecarAddedLater(subject, related, snapshot),
    ...nodePoolShort(subject, exposure, related),
    ...rolloutOutruns(subject, exposure, related),
    ...misplaced,
    ...objectsUnread(subject, related),
  ];
  return standing.verdict === 'skipped'
    ? found.filter(({ reason }) => AUDIT_FINDINGS[reason].ofSkipped)
    : found;
}

function objectsUnread({ namespace }: Decided, { unread }: RelatedObjects): readonly Said[] {
  const kinds = unread.get(namespace);
  if (kinds === undefined) return [];
  const text = `some objects of namespace ${namespace} are too large to be kept, or too many (${fewOf([...kinds])}): what they say about these pods is unknown`;
  return [{ reason: 'ObjectsUnread', text }];
}

function poolsOf(
  { namespace, request }: Pick<Decided, 'namespace' | 'request'>,
  { pools }: RelatedObjects,
): readonly PodPool[] {
  const labels = memberAt(request.object, ['metadata', 'labels']);
  return isStringMap(labels)
    ? (pools.get(namespace)?.filter((each) => selects({ matchLabels: each.labels }, labels)) ?? [])
    : [];
}

/** No Service selects the pods of a pool, and the webhook knows only Services and DiscoveryConsumers. */
function ofPools(pools: readonly PodPool[]): string {
  const [first] = pools;
  const declared = Object.entries(first?.labels ?? {})
    .map(([key, value]) => `${key}: ${value}`)
    .join(', ');
  return `${fewOf(pools.map(({ by }) => by))} sends traffic to these pods without a Service, and no DiscoveryConsumer declares it: declare one with appliesTo: {podSelector: {matchLabels: {${declared}}}}, and its lag`;
}

/**
 * While the hung container of an only replica waits, nothing else serves. Source: kubernetes.io, Container lifecycle hooks.
 */
function livenessRestart(subject: Decided, related: RelatedObjects): readonly Said[] {
  const replicas = isBare(subject) ? 1 : replicasOf(subject, related);
  if (replicas !== 1) return [];
  const text = livenessInWords(subject);
  return text === undefined
    ? []
    : [{ reason: 'LivenessRestart', text: `${text}, and this is its only replica: ${LIVENESS_CURE}` }];
}

const LIVENESS_CURE =
  'set the probe’s terminationGracePeriodSeconds, or use hook Hold, which ends such a wait within 2s';

/** How long a hung container waits before it is restarted, in words; undefined: it does not wait. */
export function livenessInWords({
  request,
  decision,
}: Pick<Judged, 'request' | 'decision'>): string | undefined {
  if (decision.outcome === 'inject' && decision.plan.hold !== undefined) return undefined;
  if (decision.outcome === 'skip' && decision.reason !== 'ExistingHook') return undefined;
  const row = containerWaits(request.object as Pod, decision).find(({ container, sidecar, held }) => {
    const probes = [container.livenessProbe, container.startupProbe].filter(isRecord);
    const hasGrace = probes.some(({ terminationGracePeriodSeconds: grace }) => typeof grace === 'number');
    return !sidecar && probes.length > 0 && !hasGrace && leastSecondsOf(held) >= 1;
  });
  if (row === undefined) return undefined;
  return `kubelets run preStop hooks also when a liveness or startup probe fails, so container "${row.container.name}", when it hangs, is restarted ${Math.floor(leastSecondsOf(row.held))}s later`;
}

/** Without Linger's webhook, a sidecar that another webhook adds gets no wait. */
function sidecarAddedLater(
  { request, decision, namespace }: Decided,
  { configured }: RelatedObjects,
  { namespaces }: ClusterSnapshot,
): readonly Said[] {
  if (configured || decision.outcome !== 'inject') return [];
  const { wait } = decision.plan;
  const pod = request.object as Pod;
  const own = new Set(pod.spec.containers.filter(({ image }) => image !== undefined).map(({ name }) => name));
  const bare: Pod = {
    ...pod,
    spec: { ...pod.spec, containers: pod.spec.containers.filter(({ name }) => own.has(name)) },
  };
  return addedTo(bare, namespaces.get(namespace))
    .filter((each) => (each.wait ?? 0) < wait)
    .map(({ name, by, wait: has, cure }) => {
      const what =
        has === undefined
          ? 'without any wait'
          : `with a wait of ${has}s, shorter than the ${wait}s of the containers`;
      const text = `${by} adds ${name} when the pod is admitted, ${what}: from its SIGTERM on it takes no new requests, so the wait of the other containers alone does not protect; ${cure}, or let Linger’s webhook give it a wait`;
      return { reason: 'SidecarAddedLater' as const, text };
    });
}

/** Reports pods that can run only on nodes that go away before the grace ends. */
function nodePoolShort(
  { request, decision }: Decided,
  exposure: Exposure,
  { nodePools }: RelatedObjects,
): readonly Said[] {
  if (decision.outcome !== 'inject') return [];
  const { grace, wait, hold } = decision.plan;
  const pod = request.object as Pod;
  const gone = nodesGone(pod, nodePools, nodeBudget(pod, undefined));
  if (gone === undefined || grace <= gone.seconds) return [];
  const text = `every pod is ${gone.text}: its grace of ${grace}s is more than the node grants, so the application may be killed before it has drained; use nodes that stay, or a shorter grace`;
  const most = Math.floor((gone.notice ?? Number.POSITIVE_INFINITY) * NODE_BUDGET_SHARE);
  // Where the webhook itself shortens the wait, the decision has its own note on that.
  if (most >= wait || hold !== undefined) return [{ reason: 'NodeBudgetShort', text }];
  return [
    {
      reason: 'NodeBudgetShort',
      text: `${text}. Where these nodes have their cloud’s label, or linger.dev/node-budget, the webhook gives a wait of ${most}s instead of ${wait}s`,
      ...shortBy(most, exposure),
    },
  ];
}

/** The verdict where nodes cut the wait to this: it may be shorter than the lag, as far as that is known. */
function shortBy(wait: number, exposure: Exposure): Pick<Said, 'wait' | 'verdict'> {
  if (wait >= neededOf(exposure)) return {};
  return { wait, verdict: isAssumed(exposure) ? 'unknown' : 'unprotected' };
}

function patchRefused({ refusal }: AuditSubject): readonly Said[] {
  if (refusal === undefined) return [];
  const text = `pods with this wait would be rejected, pods without it are accepted: ${refusal}; fix what rejects them before you set mode Enforce`;
  return [{ reason: 'PatchRefused', text, wait: 0 }];
}

/** Reports that something in the cluster cuts the grace that the wait needs; restarting pods does not help. */
function waitShrunk({ cut, decision, stands }: Decided, exposure: Exposure): readonly Said[] {
  if (cut === undefined || stands !== undefined || decision.outcome !== 'inject') return [];
  const { from, grace, wait, by } = cut;
  const planned = decision.plan.wait;
  const who = by.length === 0 ? 'something in the cluster' : fewOf(by);
  const left =
    wait < planned
      ? `the wait is ${wait}s instead of ${planned}s`
      : `the application has ${Math.max(0, grace - wait)}s left after the wait of ${wait}s`;
  const text = `${who} cuts the grace of its pods from ${from}s to ${grace}s, so ${left}: exempt these pods there, or set grace.max to ${grace}s; a restart changes nothing`;
  const isShort = wait < neededOf(exposure);
  return [{ reason: 'WaitShrunk', text, wait, ...(isShort && { verdict: 'unprotected' as const }) }];
}

function graceEaten(subject: Decided, { configured }: RelatedObjects): readonly Said[] {
  const { stands, running } = subject;
  const given = stands !== undefined || configured || running !== undefined;
  // Without a grace, no hook runs.
  const eater = rowsOf(subject, given).find(
    (row) => !row.ends && row.grace > 0 && row.wait === undefined && eatsGrace(row),
  );
  return eater === undefined ? [] : [{ reason: 'GraceEaten', text: eatenInWords(eater) }];
}

/**
 * A Service that lists terminating pods until they are gone sends to them however long they wait. A headless one is taken to
 * be for the pods' peers if clients have another Service.
 */
function neverWithdrawn({ services }: Exposure, related: RelatedObjects): readonly Said[] {
  if (services === 'unknown') return [];
  const traitsOf = ({ namespace, name }: (typeof services)[number]) =>
    related.services.get(serviceKey(namespace, name));
  const named = services.filter((each) => traitsOf(each)?.neverWithdraws === true);
  if (named.length === 0) return [];
  const all = `Service ${fewOf(named.map(({ name }) => name))} has publishNotReadyAddresses: its clients are sent to terminating pods until these are gone, and no wait changes that`;
  const clients = services.filter((each) => !named.includes(each) && traitsOf(each)?.metricsOnly !== true);
  const isForPeers = named.every(
    (each) => traitsOf(each)?.headless === true && !related.routes.has(serviceKey(each.namespace, each.name)),
  );
  if (clients.length === 0 || !isForPeers) return [{ reason: 'NeverWithdrawn', text: all }];
  const text = `${all}. That is right for the pods’ peers; clients use Service ${fewOf(clients.map(({ name }) => name))}`;
  return [{ reason: 'NeverWithdrawn', text, verdict: null }];
}

const GAP = 'a wait only lengthens the time without a serving endpoint';

/** Without another ready endpoint, kube-proxy keeps sending to the terminating one. Source: KEP-1669. */
function noOtherEndpoint(subject: Decided, exposure: Exposure, related: RelatedObjects): readonly Said[] {
  const isReached = exposure.services === 'unknown' || exposure.services.length > 0;
  if (!isReached && poolsOf(subject, related).length === 0) return [];
  const replicas = replicasOf(subject, related);
  if (replicas === undefined) return [];
  const { gap } = rolloutIn(subject, related);
  const { services } = exposure;
  const beside =
    services === 'unknown'
      ? undefined
      : servingBeside(subject, services, related.pods, (each) => targetsOf(each, related));
  if (beside !== undefined) return gap === undefined ? [] : [rollsTogether(gap, beside)];
  if (gap !== undefined) {
    const text = `${gap}: ${GAP}; ${wayOutOf(subject, replicas)}`;
    return [{ reason: 'NoOtherEndpoint', text, verdict: 'unprotected' }];
  }
  const scaler = autoscalerOf(subject, related);
  if (replicas === 0 && scaler !== undefined) {
    const text = `${scaler.by} scales it down to 0: when its last pod stops, no other endpoint serves; keep two replicas if requests may arrive at any time`;
    return [{ reason: 'NoOtherEndpoint', text }];
  }
  if (replicas !== 1) return [];
  const { refusing, all } = budgetedBy(subject, replicas, related);
  // Its budget refuses the drain, and its rollouts overlap.
  if (refusing !== undefined || all.length > 1) return [];
  const budget = all.length === 0 ? ' and a PodDisruptionBudget' : '';
  const least = scaler === undefined ? 'one replica' : `one replica at least (${scaler.by})`;
  const text = `it has ${least}: when its node is drained, no other endpoint serves; use two replicas${budget}`;
  return [{ reason: 'NoOtherEndpoint', text }];
}

function targetsOf({ namespace, name }: ServiceRecord, { services }: RelatedObjects) {
  return services.get(serviceKey(namespace, name))?.targets;
}

function wayOutOf({ workload: { kind }, object }: AuditSubject, replicas: number): string {
  if (memberAt(object, ['spec', 'strategy', 'type']) === 'Recreate') return 'use RollingUpdate';
  if (replicas > 1) return 'lower maxUnavailable';
  // Without a surge the only pod has to stop first, and the API server refuses maxUnavailable 0 then.
  return kind === 'StatefulSet' ? 'use two replicas' : 'set maxSurge: 1 and maxUnavailable: 0';
}

/**
 * One apply may restart all of these workloads at once; budgets do not prevent that. Source: k8s.io/kubernetes
 * pkg/controller/disruption (evictions only).
 */
function rollsTogether(gap: string, beside: string): Said {
  const text = `${gap}: meanwhile the pods of ${beside} serve behind the same Service. One kubectl apply may roll all of them at once, and PodDisruptionBudgets do not bind rollouts: roll them one after the other`;
  return { reason: 'RollsTogether', text };
}

function budgetedBy(subject: Decided, count: number, { budgets, pods }: RelatedObjects): Budgeted {
  const { workload, namespace } = subject;
  return budgetsOf(budgets, { workload, namespace, labels: podLabelsOf(subject), count }, pods);
}

/** A drain waits forever for a budget that allows no eviction, but loses no requests. */
function drainRefused(subject: Decided, related: RelatedObjects): readonly Said[] {
  const replicas = subject.workload.kind === 'Pod' ? 1 : replicasOf(subject, related);
  if (replicas === undefined || replicas === 0) return [];
  const { all, refusing, always } = budgetedBy(subject, replicas, related);
  const pods = replicas === 1 ? 'its one pod' : `any of ${replicas} pods`;
  const effect = 'no request is lost, but draining the node blocks until the pod is deleted by hand';
  if (all.length > 1) {
    const text = `PodDisruptionBudgets ${fewOf(all.map(({ name }) => name))} select the same pods, and the eviction API refuses a pod with more than one: ${effect}; let one budget select them`;
    return [{ reason: 'DrainRefused', text }];
  }
  if (refusing === undefined) return [];
  const cure = isBare(subject)
    ? 'let a Deployment make the pod, as a budget counts no pod without a controller unless minAvailable is a number'
    : always
      ? 'set maxUnavailable: 1 instead, as this budget refuses for any number of replicas'
      : 'run more replicas than the budget requires';
  const text = `PodDisruptionBudget ${refusing.name} refuses the eviction of ${pods}: ${effect}; ${cure}`;
  return [{ reason: 'DrainRefused', text }];
}

/** With policy Local, a node without a ready pod of its own drops traffic that arrives there. Source: KEP-1669, KEP-2086. */
function localTraffic({ services }: Exposure, related: RelatedObjects): readonly Said[] {
  if (services === 'unknown') return [];
  return services.flatMap(({ namespace, name }) => {
    const field = related.services.get(serviceKey(namespace, name))?.local;
    if (field === undefined) return [];
    const sender =
      field === 'externalTrafficPolicy'
        ? 'the load balancer notices through its health check of the node, whose interval the wait must cover'
        : 'clients on that node have no other endpoint';
    const text = `Service ${name} has ${field}: Local, so each node serves only its own pods. While a node’s only pod terminates, it still gets the node’s traffic; after it stops, that traffic is dropped: ${sender}`;
    return [{ reason: 'LocalTrafficPolicy' as const, text }];
  });
}

function podLabelsOf({ request }: Decided): unknown {
  return memberAt(request.object, ['metadata', 'labels']);
}

/** With 0 replicas, a HorizontalPodAutoscaler is disabled. Source: k8s.io/kubernetes pkg/controller/podautoscaler. */
function autoscalerOf(subject: AuditSubject, { scaled }: Around): Autoscaler | undefined {
  const { workload, namespace } = subject;
  const scaler = scaled.get(workloadKey(workload.kind, namespace, workload.name));
  return scaler?.wakes === false && declaredReplicas(subject) === 0 ? undefined : scaler;
}

/** Whether it is a Pod without a controller. How many pods the controller of an exported Pod has is not known. */
function isBare({ workload }: AuditSubject): boolean {
  return workload.kind === 'Pod' && !isControlled(workload);
}

/** The smallest number of replicas that there may be. @returns undefined for a kind without a number of replicas */
function replicasOf(subject: AuditSubject, related: Around): number | undefined {
  return autoscalerOf(subject, related)?.least ?? declaredReplicas(subject);
}

function declaredReplicas({ workload, object }: AuditSubject): number | undefined {
  if (!/^(Deployment|ReplicaSet|ReplicationController|StatefulSet|Rollout|CloneSet)$/.test(workload.kind))
    return undefined;
  const replicas = memberAt(object, ['spec', 'replicas']) ?? 1;
  // It is not a number if it is the parameter of a template: `${REPLICAS}`.
  return typeof replicas === 'number' ? replicas : undefined;
}

function rolloutIn(subject: Decided, related: RelatedObjects): Rollout {
  const { workload, object, running } = subject;
  const least = replicasOf(subject, related) ?? 1;
  const declared = declaredReplicas(subject) ?? running?.length ?? 1;
  return rolloutOf(workload, object, Math.max(1, least), Math.max(declared, least, 1));
}

const NOT_CONFIGURED = "the cluster has no MutatingWebhookConfiguration of Linger's";

const WITHDRAWN =
  'something in the cluster has changed them after Linger, which took its hook back (linger audit --server-dry-run names what cuts a grace), or they were created before the policy, or while the webhook was down';

/** How many characters of different plans are read for one workload: more than a thousand of the usual length. */
const MOST_PLANS = 256 * 1024;

/**
 * The different plans of pods; pods of one ReplicaSet share the same text. @returns also how many pods have a plan that was
 * not read
 */
function plansOf(running: readonly RunningPod[]) {
  const read = new Map<string, Plan | undefined>();
  const carried: Plan[] = [];
  let left = MOST_PLANS;
  let unread = 0;
  for (const { annotations } of running) {
    const text = annotations[ANNOTATION.plan] ?? '';
    if (!read.has(text)) {
      if (text.length > left) {
        unread += 1;
        continue;
      }
      left -= text.length;
      read.set(text, parsePlan(text));
    }
    const plan = read.get(text);
    if (plan !== undefined) carried.push(plan);
  }
  return { carried, unread };
}

/** Findings on running pods: some were created without the webhook or before its policy, or have an outdated wait. */
function runningFindings(
  subject: Decided,
  exposure: Exposure,
  { configured, noHooks = NOT_CONFIGURED }: RelatedObjects,
  { hold }: ClusterSnapshot,
): readonly Said[] {
  const { running, decision, stands, workload } = subject;
  if (running === undefined) return [];
  const { carried, unread } = plansOf(running);
  const plans = carried.filter(({ wait }) => wait > 0);
  const without = running.length - unread - plans.length;
  const isWithdrawn = plans.length < carried.length;
  const expected = stands === undefined && decision.outcome === 'inject' && !isAudit(decision);
  const short = plans.filter((plan) => isTooShort(plan, exposure, subject));
  const cure = workload.kind === 'Pod' ? 'create it again' : 'kubectl rollout restart replaces them';
  const said: Said[] = [];
  const lacking = `${ofPods(without, running.length)} ${without === 1 ? 'has' : 'have'} no wait`;
  const noWait = configured
    ? `${lacking}: ${isWithdrawn ? WITHDRAWN : 'created before the policy, or while the webhook was down'}; ${cure}`
    : `${without > 0 ? `${lacking}, and new ones get none` : 'new pods get no wait'}: ${noHooks}; restore it or install Linger first, as a restart alone changes nothing`;
  if (expected && (without > 0 || !configured)) said.push({ reason: 'NotInjected', text: noWait, wait: 0 });
  if (short.length > 0) {
    const lag = Math.ceil(neededOf(exposure));
    const text = `${ofPods(short.length, running.length)} ${short.length === 1 ? 'carries' : 'carry'} a wait shorter than ${isAssumed(exposure) ? 'wait.initial' : 'today’s lag'} of ${lag}s; ${cure}${workload.kind === 'Pod' || subject.cut ? '' : '. If new pods get no more, something cuts their grace: linger audit --server-dry-run names it'}`;
    said.push({ reason: 'StampedTooShort', text, wait: Math.min(...short.map(longestWait)) });
  }
  const unreached = plans.flatMap((plan) => {
    const why = holdUnreached(plan, hold);
    return why === undefined ? [] : [{ why, wait: plan.wait }];
  });
  const [first] = unreached;
  if (first !== undefined) {
    const wait = Math.min(...unreached.map((each) => each.wait));
    const effect = unreached.length === 1 ? 'does not reach' : 'do not reach';
    const text = `${ofPods(unreached.length, running.length)} with hook Hold ${effect} the Hold Service and ${unreached.length === 1 ? 'waits' : 'wait'} for ${wait}s instead: ${first.why}; ${cure}`;
    said.push({ reason: 'HoldUnreached', text, wait });
  }
  return said;
}

/**
 * Reports a wait that is as long as its bounds allow while most removals take longer. Rare storms are not reported, since
 * they are left uncovered on purpose.
 */
function lagNotCovered({ decision }: Decided, exposure: Exposure, standing: Standing): readonly Said[] {
  const plan = decision.outcome === 'inject' ? decision.plan : undefined;
  const isFixed = plan?.why === 'fixed' || exposure.choice.why === 'fixed';
  const isCut = exposure.choice.onOtherNodes !== undefined;
  if (plan === undefined || isFixed || isCut || standing.reason === 'StampedTooShort') return [];
  const wait = longestWait(plan);
  if ((exposure.lag.coverage?.(wait) ?? 1) >= 0.5) return [];
  const lag = Math.ceil(neededOf(exposure));
  const text = `most removals take longer than its wait of ${wait}s (the lag is ${lag}s), and wait.max, ceiling.wait or grace.max prevents a longer one: make the controllers faster, or raise that limit`;
  return [{ reason: 'LagNotCovered', text, wait }];
}

function ofPods(some: number, all: number): string {
  return `${some} of ${all} ${all === 1 ? 'pod' : 'pods'}`;
}

/**
 * Reports that something sends to the pods (known from the catalogue, or by a route from outside) while no consumer declares
 * its lag.
 */
function undeclaredConsumer(
  { namespace, request }: Decided,
  { services, consumers }: Exposure,
  related: RelatedObjects,
  { measured }: ClusterSnapshot,
): readonly Said[] {
  const { unrecognised, undeclared } = related;
  const pools = consumers.some(({ builtIn }) => !builtIn) ? [] : poolsOf({ namespace, request }, related);
  if (pools.length > 0) return [{ reason: 'UndeclaredConsumer', text: ofPools(pools) }];
  // A mesh sends through Services too, so without a Service there is no sender.
  if (services === 'unknown' || services.length === 0) return [];
  const keys = services.map((each) => serviceKey(each.namespace, each.name));
  const found = undeclared({ namespace, services: keys }, consumers);
  const [one] = found;
  if (one !== undefined) {
    const senders = found.map(({ name, seen }) => `${name} (${fewOf(seen)})`);
    const observed = measured.find((each) => each.observed && found.some(({ name }) => name === each.name));
    const cure =
      observed === undefined
        ? 'linger consumers discover prints it ready to be applied'
        : `DiscoveryConsumer ${observed.name} only observes it; set its mode to Enforce`;
    const text = `${fewOf(senders)} sends traffic here, and no DiscoveryConsumer in mode Enforce declares it, so no wait covers its lag: ${cure}`;
    return [{ reason: 'UndeclaredConsumer', text }];
  }
  if (consumers.some(({ builtIn }) => !builtIn)) return [];
  const leading = keys.flatMap((key) => unrecognised.get(key) ?? []);
  const [first] = leading;
  if (first === undefined) return [];
  const named = fewOf([...new Set(leading)]);
  const text = `${named} routes traffic here, but no DiscoveryConsumer declares the lag of what is behind it, so no wait covers that. Declare it, for example: ${declarationOf(first)}`;
  return [{ reason: 'UndeclaredConsumer', text }];
}

/** The consumer that takes longest to start sending to a new pod. */
function slowestAddition({ consumers }: Exposure, { additions }: RelatedObjects) {
  const known = consumers.flatMap(({ name }) => {
    const seconds = additions.get(name);
    return seconds === undefined ? [] : [{ name, seconds }];
  });
  return known.toSorted((a, b) => b.seconds - a.seconds)[0];
}

/** The kinds whose rollouts continue once a pod has been ready for minReadySeconds. */
const PACED = /^(Deployment|StatefulSet|DaemonSet|Rollout|CloneSet)$/;
/** Controllers themselves take up to about a second between the readiness of one pod and the deletion of the next. */
const PACE_SECONDS = 1;

/** Reports a rollout that removes old pods before consumers send to the new ones. */
function rolloutOutruns(subject: Decided, exposure: Exposure, related: RelatedObjects): readonly Said[] {
  const { workload, object } = subject;
  const { services } = exposure;
  const slowest = slowestAddition(exposure, related);
  if (!PACED.test(workload.kind) || slowest === undefined) return [];
  if (services !== 'unknown' && services.length === 0) return [];
  const types = [
    memberAt(object, ['spec', 'strategy', 'type']),
    memberAt(object, ['spec', 'updateStrategy', 'type']),
  ];
  // Recreate has no new pods beside old ones, and with OnDelete a person decides when pods are replaced.
  if (types.includes('Recreate') || types.includes('OnDelete')) return [];
  const given = memberAt(object, ['spec', 'minReadySeconds']);
  const paced = typeof given === 'number' ? given : 0;
  if (slowest.seconds < paced + PACE_SECONDS) return [];
  const needed = Math.ceil(slowest.seconds);
  const text = `${slowest.name} starts to send to a new pod up to ${needed}s (p99) after it is ready, and a rollout continues after ${paced}s (minReadySeconds): old pods stop while new ones get no traffic yet. Set spec.minReadySeconds to ${needed}`;
  return [{ reason: 'RolloutOutrunsConsumers', text, minReadySeconds: needed }];
}

/** A DiscoveryConsumer as flow YAML, ready to be pasted. */
function declarationOf(route: string): string {
  const name = /^Service /.test(route) ? 'load-balancer' : 'gateway';
  return `{apiVersion: ${GROUP}/v1alpha1, kind: DiscoveryConsumer, metadata: {name: ${name}}, spec: {measure: {declared: {syncInterval: 10s}}}}`;
}

function costOf(subject: Decided, related: RelatedObjects): Audited['cost'] {
  const { decision } = subject;
  if (decision.outcome !== 'inject') return { rollout: 0, drain: 0 };
  const wait = decision.hold?.max ?? longestWait(decision.plan);
  return { rollout: wait * rolloutIn(subject, related).waits, drain: wait };
}

/**
 * The facts around the workloads of one input: the input's other objects, and the pods of the other workloads. @param
 * webhooks see {@link relatedObjectsIn}
 */
export function relatedTo(
  subjects: readonly AuditSubject[],
  objects: readonly (Originated & { readonly value: unknown })[],
  defaultNamespace: string,
  webhooks?: Parameters<typeof relatedObjectsIn>[2],
): RelatedObjects {
  const wayOf = waysToInstall(
    subjects.map((subject) => {
      const { namespace, workload } = subject;
      return { origin: originOf(subject), name: `${namespace}/${workload.name}` };
    }),
  );
  const subjectsOf = Map.groupBy(subjects, (each) => wayOf(originOf(each)));
  const around = relatedObjectsIn(
    objects.map(({ value }) => value),
    defaultNamespace,
    webhooks,
  );
  const all = { ...around, pods: knownPods(podsOfAll(subjects, around)) };
  if ([...subjectsOf.keys()].every((way) => way === undefined)) return all;
  const objectsOf = Map.groupBy(objects, ({ origin }) => wayOf(origin));
  const among = (way: string | undefined) => {
    const values = (objectsOf.get(way) ?? []).map(({ value }) => value);
    return relatedObjectsIn(values, defaultNamespace, webhooks);
  };
  // Read only once: there may be as many ways to install as objects that belong to all of them.
  const common = among(undefined);
  const commonPods = podsOfAll(subjectsOf.get(undefined) ?? [], common);
  const ways = new Map<string, Around>();
  for (const [way, own] of subjectsOf) {
    if (way === undefined) continue;
    const both = togetherWith(common, among(way));
    ways.set(way, { ...both, pods: knownPods([...commonPods, ...podsOfAll(own, both)]) });
  }
  const aroundOf = (origin: string) => ways.get(wayOf(origin) ?? '');
  return { ...all, aroundOf };
}

type NamespacedPods = PodsOf & { readonly namespace: string };

/** The pods of all workloads, for {@link RelatedObjects.pods}, counting as many of each as there are at least. */
function podsOfAll(subjects: readonly AuditSubject[], related: Around): readonly NamespacedPods[] {
  return subjects.flatMap((subject) => {
    const { workload, namespace } = subject;
    const { kind, name } = workload;
    const labels = podLabelsIn(workload);
    // A DaemonSet is taken to have at least one pod.
    const count = /^(Pod|DaemonSet)$/.test(kind) ? 1 : replicasOf(subject, related);
    // Pods that end by themselves do not serve: tests of a release, or what a Job would run.
    const ends =
      kind === 'Pod' && /^(Never|OnFailure)$/.test(textOf(memberAt(workload.pod, ['spec', 'restartPolicy'])));
    if (labels === undefined || count === undefined || ends) return [];
    return [
      {
        namespace,
        of: workloadKey(kind, namespace, name),
        by: `${kind} ${name}`,
        labels,
        count,
        managed: isControlled(workload),
        ports: portNamesIn(workload),
      },
    ];
  });
}

function knownPods(all: readonly NamespacedPods[]): KnownPods {
  return new KnownPods(Map.groupBy(all, ({ namespace }) => namespace));
}

/** The totals of an audit. */
export interface AuditSummary {
  readonly workloads: number;
  readonly verdicts: Readonly<Record<AuditVerdict, number>>;
  /** How many workloads would be protected if Linger's webhook were installed and the policies said Enforce. */
  readonly wouldBe: number;
  /** The number of workloads by reason. */
  readonly reasons: Readonly<Record<string, number>>;
  /** The number of skipped workloads by reason. */
  readonly skipped: Readonly<Record<string, number>>;
  /** The seconds that waits add to all rollouts together, and at most to the drain of a node. */
  readonly rolloutSeconds: number;
  readonly drainSeconds: number;
}

/** The first line of every output that summarises an audit. */
export function headlineOf({
  workloads,
  verdicts,
  skipped,
}: Pick<AuditSummary, 'workloads' | 'verdicts' | 'skipped'>): string {
  const why = Object.entries(skipped).map(([reason, count]) => `${count} ${reason}`);
  const counts = VERDICTS.map((verdict) => {
    const reasons = verdict === 'skipped' && why.length > 0 ? ` (${why.join(', ')})` : '';
    return `${verdicts[verdict]} ${verdict}${reasons}`;
  });
  return `${workloads} ${workloads === 1 ? 'workload' : 'workloads'}: ${counts.join(', ')}`;
}

export function summaryOfAudit(audited: readonly Audited[]): AuditSummary {
  const verdicts: Record<AuditVerdict, number> = { protected: 0, unprotected: 0, skipped: 0, unknown: 0 };
  const reasons: Record<string, number> = {};
  const skipped: Record<string, number> = {};
  let wouldBe = 0;
  for (const { findings, wouldBe: cured } of audited) {
    const [own] = findings;
    if (own === undefined) continue;
    verdicts[own.verdict] += 1;
    if (cured) wouldBe += 1;
    if (own.verdict === 'skipped') skipped[own.reason] = (skipped[own.reason] ?? 0) + 1;
    for (const { reason } of findings) reasons[reason] = (reasons[reason] ?? 0) + 1;
  }
  return {
    workloads: audited.length,
    verdicts,
    wouldBe,
    reasons,
    skipped,
    rolloutSeconds: audited.reduce((sum, { cost }) => sum + cost.rollout, 0),
    drainSeconds: audited.reduce((most, { cost }) => Math.max(most, cost.drain), 0),
  };
}
