/** Why a pod is left unchanged, in the order in which the reasons are tried: the first that applies is reported. */
export const SKIP_REASONS = {
  NotPodCreate: 'The request is not the creation of a Pod.',
  InvalidPod: 'The object is not a Pod that can be read; the API server will say what is wrong with it.',
  TooLarge:
    'The pod has more than 1,000 containers, 1,000 labels or 256 KiB of annotations, or takes too long to read.',
  MirrorPod: 'The pod is the mirror of a static pod: the kubelet runs its own copy of the manifest.',
  OptedOut: 'linger.dev/inject is "false" on the pod or its namespace.',
  ModeOff: 'The mode is Off for this pod.',
  AlreadyInjected: 'The pod already carries its plan and the hooks for it.',
  Job: 'Pods of Jobs are excluded: no traffic is routed to them, and a native sleep outlives a container that has already exited (kubernetes#134338).',
  RestartPolicy:
    'No container’s restart policy is Always: the containers exit by themselves, and a native sleep outlives a container that has already exited (kubernetes#134338).',
  DaemonSet:
    'Pods of DaemonSets are excluded: their rollout is serial and would take wait × nodes ÷ maxUnavailable longer.',
  ExcludedKind: 'The kind of workload that owns the pod is in the policy’s exclude list.',
  ZeroGrace: 'terminationGracePeriodSeconds is 0: the kubelet kills such a pod at once and runs no hook.',
  NotServing:
    'The pod receives no traffic: no Service selects it, and it has neither a port nor a readiness probe.',
  DrainsItself:
    'The pod is of a kind that drains by itself when its termination begins (Knative, for one): a wait would undo that.',
  NoContainer: 'The policy names containers, and the pod has none of them.',
  ExistingHook: 'Every container that would wait has a preStop hook of its own, which is kept.',
  NoHook: 'The hook that the policy asks for does not work on this pod’s nodes.',
  NoWait: 'The wait is 0 seconds.',
  NoRoom:
    'The grace period leaves less than one second for a wait: grace.max is too small, or the grace was cut.',
  InternalError: 'Linger failed on this pod and let it pass unchanged; the log has the error.',
} as const satisfies Record<string, string>;

export type SkipReason = keyof typeof SKIP_REASONS;

/** The notes that a decision may carry beside its outcome. */
export const NOTES = {
  UnreadablePod: 'The object in the review is not a Pod that can be read.',
  InvalidAnnotation:
    'A linger.dev annotation or label does not parse. It is ignored; an unreadable mode or inject keeps the pod in Audit.',
  UnknownAnnotation: 'Linger has no annotation of this name; it is ignored.',
  WaitShrunk: 'The grace period has no room for the whole wait, so the wait is shorter.',
  ShutdownShortened:
    'The grace could not rise by the whole wait, so the application has less time for its own shutdown than before.',
  PartialWait: 'Some containers do not wait as long as the plan says, so they may get SIGTERM sooner.',
  CeilingApplied: 'A ceiling lowered the wait or the mode.',
  OverrideIgnored: 'A layer was ignored because a cluster policy does not let it override.',
  NamespaceUnknown:
    'Linger has not seen the Namespace, and a policy that may select it says Audit or Off, so nothing is enforced.',
  StormNotCovered:
    'The lag’s tail lies beyond wait.max and a longer wait would gain almost nothing: a rare storm is not covered. Faster controllers, or Hold, are the cures.',
  ConsumerNotMeasured:
    'A consumer sends traffic to the pod and too little is known of its lag; until then the wait is the greatest of `wait.initial`, what other consumers are declared to need, and what is known requires.',
  ConsumerAssumed:
    'A consumer is assumed to send traffic to the pod because the Service or the Namespace that would show it has not been seen yet.',
  Episode:
    'One short time with many long lags (a storm, a bad release) raises the wait; the note names its span, its share of the removals and the wait without it.',
  ProbeGraceShort:
    'A liveness or startup probe has a terminationGracePeriodSeconds shorter than the wait; a failing probe kills the container before its wait is over.',
  ExistingHookKept: 'A container has a preStop hook of its own, which is kept.',
  HookExtended:
    'A container’s own sleep is lengthened: the shortest of the pod to the wait, all others by the same, so that their order stays.',
  NodeBudgetShort:
    'The pod can only run on nodes that go away at short notice (spot): the wait takes at most a third of what they leave it.',
  ContainerEnds:
    'A container’s restart policy is not Always: it exits by itself, so it gets no wait; the others do.',
  OwnDrain: 'With DrainsItself: what kind of workload the pod is, and what a wait would do to it.',
  SidecarHook:
    'A native sidecar has a preStop hook that is neither a plain sleep nor Istio’s own. It runs at second 0, beside the wait.',
  GraceEaten:
    'A container’s own hook takes so much of the grace that the application is killed as soon as it gets SIGTERM.',
  UnknownContainer: 'The policy names a container that the pod does not have.',
  HoldUnavailable: 'Hold cannot be used for this pod, so it waits as with Auto; the note says why.',
  HoldNeedsPod:
    'Hold needs a token of its own for each pod, which a manifest cannot have: the hook put into it waits as with Auto.',
  HoldUnwitnessed:
    'The pod uses its node’s network, whose connections say nothing of the pod’s own: Hold relies on consumers alone.',
  HookUnsupported: 'The hook asked for does not work on this pod’s nodes.',
  DaemonSetServing: 'A Service selects this pod of a DaemonSet, which is excluded all the same.',
  StalePlan:
    'The linger.dev/plan annotation claims hooks that the pod does not have (copied, forged, or removed by another webhook); these claims are ignored.',
  HookWithdrawn: 'The grace was cut after injection so far that no wait is left; the hook is removed.',
  UnknownKind:
    'Linger does not know this kind, or does not see the template of its pods: the decision is the one for such pods when the webhook sees them.',
  AnnotationMisplaced: 'A linger.dev annotation on the workload itself has no effect on its pods.',
  FieldMisplaced: 'A field is set where it has no effect, or is misspelt.',
  ServicesUnknown: 'The namespace’s Services are not known (yet), so the pod counts as serving.',
} as const satisfies Record<string, string>;

export type NoteCode = keyof typeof NOTES;

/** The notes that the pod's creator also gets, as an admission warning. */
export const WARNING_NOTES: ReadonlySet<NoteCode> = new Set<NoteCode>([
  'UnreadablePod',
  'InvalidAnnotation',
  'WaitShrunk',
  'HookWithdrawn',
]);

/** One note on a decision. `text` is a full sentence about this particular pod. */
export interface Note {
  readonly code: NoteCode;
  readonly text: string;
  /** For InvalidAnnotation: the annotation's key, so that a metric can count it without parsing the text. */
  readonly subject?: string;
}

export function note(code: NoteCode, text: string, subject?: string): Note {
  return subject === undefined ? { code, text } : { code, text, subject };
}

/**
 * kubectl and client-go print warnings as they come; the API server truncates all of a response's warnings
 * beyond 4 KiB and drops a header that is not valid text, so ours are one short line of ASCII.
 * Source: k8s.io/apiserver pkg/endpoints/filters/warning.go.
 */
const WARNING_MAX_BYTES = 256;
const PREFIX = 'linger: ';
const ELLIPSIS = '...';

/** An admission warning: ASCII, at most 256 bytes, one line, prefixed `linger: `. */
export function admissionWarning(text: string): string {
  const line = PREFIX + toAscii(text);
  return line.length <= WARNING_MAX_BYTES
    ? line
    : line.slice(0, WARNING_MAX_BYTES - ELLIPSIS.length) + ELLIPSIS;
}

/** The warnings that a decision's notes give rise to, in their order. */
export function warningsOf(notes: readonly Note[]): string[] {
  return notes.filter(({ code }) => WARNING_NOTES.has(code)).map(({ text }) => admissionWarning(text));
}

const TYPOGRAPHY: Readonly<Record<string, string>> = {
  '’': "'",
  '“': '"',
  '”': '"',
  '×': 'x',
  '÷': '/',
  '…': '...',
  '→': '->',
  '≤': '<=',
  '≥': '>=',
};

function toAscii(text: string): string {
  return text.replace(/[^\x20-\x7e]/gu, (char) => TYPOGRAPHY[char] ?? (/\s/u.test(char) ? ' ' : '?'));
}
