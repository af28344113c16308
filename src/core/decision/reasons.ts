import type { Curable } from '../api/index.ts';

/** The questions that skip reasons answer, in the order in which they are asked. */
export const SKIP_QUESTIONS = {
  creation: 'Is this the creation of a pod, and can it be read?',
  off: 'Has it been switched off?',
  done: 'Has it been done already?',
  use: 'Would a wait do harm, or no good?',
  container: 'Is there a container to put it in?',
  rest: 'Is anything left of the wait?',
  fault: 'Did Linger itself fail?',
} as const satisfies Record<string, string>;

interface SkipReasonKind extends Curable {
  readonly asked: keyof typeof SKIP_QUESTIONS;
  /** What an audit says of such pods. `skipped`: they lose no request, or are none of Linger's business. */
  readonly verdict: 'skipped' | 'unprotected' | 'unknown';
  /**
   * What happens to a wait of an earlier pass. `unread`: the pod is not looked at, and nothing is removed. `stays`: the
   * reason concerns new pods only, so the wait is kept. `goes`: its hooks are removed.
   */
  readonly standing: 'unread' | 'stays' | 'goes';
  /** Whether `linger.dev/inject: "true"` overrides it. Overriding any of the others would break the pod or have no effect. */
  readonly isOverridable?: true;
}

/** Why a pod is left unchanged, in the order in which the reasons are tried: the first that applies is reported. */
export const SKIP_REASONS = {
  NotPodCreate: {
    asked: 'creation',
    verdict: 'skipped',
    standing: 'unread',
    means: 'The request is not the creation of a Pod.',
    cure: "Restrict the webhook's `rules` to `CREATE` of `pods`, as in `deploy/webhook.yaml`.",
  },
  InvalidPod: {
    asked: 'creation',
    verdict: 'unknown',
    standing: 'unread',
    means: 'The object is not a Pod that can be read.',
    more: 'Note `UnreadablePod` names the member, or says why a preStop hook is invalid (two handlers, none).',
    cure: 'Fix the manifest: the API server says what is wrong, and refuses such a pod itself.',
  },
  TooLarge: {
    asked: 'creation',
    verdict: 'unknown',
    standing: 'unread',
    means:
      'The pod has more than 1,000 containers, 1,000 labels or 256 KiB of annotations, or takes too long to read.',
    more: 'The API server refuses such annotations itself.',
    cure: 'Make it smaller.',
  },
  MirrorPod: {
    asked: 'creation',
    verdict: 'skipped',
    standing: 'unread',
    means: 'The pod is the mirror of a static pod: the kubelet runs its own copy of the manifest.',
    more: '*Not sent.*',
    cure: "`linger inject` on the static pod's file.",
  },
  OptedOut: {
    asked: 'off',
    verdict: 'skipped',
    standing: 'stays',
    means: 'linger.dev/inject is "false" on the pod or its namespace.',
    cure: 'Remove it if you want a wait.',
  },
  ModeOff: {
    asked: 'off',
    verdict: 'skipped',
    standing: 'stays',
    means: 'The mode is Off for this pod.',
    more: '`explain` shows its origin.',
    cure: 'Change that policy, annotation or `--mode-limit`.',
  },
  AlreadyInjected: {
    asked: 'done',
    verdict: 'unknown',
    standing: 'stays',
    means: 'The pod already carries its plan and the hooks for it.',
    cure: 'Nothing.',
  },
  Job: {
    asked: 'use',
    verdict: 'skipped',
    standing: 'stays',
    means:
      'Pods of Jobs are excluded: no traffic is routed to them, and a native sleep outlives a container that has already exited (kubernetes#134338).',
    more: '*Not sent.*',
    cure: 'Nothing.',
  },
  RestartPolicy: {
    asked: 'use',
    verdict: 'skipped',
    standing: 'stays',
    means:
      'No container’s restart policy is Always: the containers exit by themselves, and a native sleep outlives a container that has already exited (kubernetes#134338).',
    more: 'The pod’s counts, or the container’s own; *not sent* where none is.',
    cure: 'Nothing.',
  },
  DaemonSet: {
    asked: 'use',
    verdict: 'skipped',
    standing: 'stays',
    isOverridable: true,
    means:
      'Pods of DaemonSets are excluded: their rollout is serial and would take wait × nodes ÷ maxUnavailable longer.',
    cure: '`linger.dev/inject: "true"` on the pod template for one; take `DaemonSet` out of `exclude` for all.',
  },
  ExcludedKind: {
    asked: 'use',
    verdict: 'skipped',
    standing: 'stays',
    means: 'The kind of workload that owns the pod is in the policy’s exclude list.',
    cure: 'Take it out of the list.',
  },
  ZeroGrace: {
    asked: 'use',
    verdict: 'unprotected',
    standing: 'goes',
    means: 'terminationGracePeriodSeconds is 0: the kubelet kills such a pod at once and runs no hook.',
    cure: 'Give it a grace period.',
  },
  NotServing: {
    asked: 'use',
    verdict: 'skipped',
    standing: 'stays',
    isOverridable: true,
    means:
      'The pod receives no traffic: no Service selects it, and it has neither a port nor a readiness probe.',
    more: 'Those of an injected `istio-proxy` or `linkerd-proxy` do not count.',
    cure: 'If it does get traffic: declare the port; or `linger.dev/inject: "true"`; or `pods: All`. `--policies` must have all Services of the namespace, or none.',
  },
  DrainsItself: {
    asked: 'use',
    verdict: 'skipped',
    standing: 'stays',
    isOverridable: true,
    means: 'The pod is of a kind that drains by itself when its termination begins: a wait would undo that.',
    more: 'Knative revisions, Envoys with a shutdown manager (Contour, Envoy Gateway), game servers of Agones; note `OwnDrain` says how.',
    cure: 'Nothing; or `linger.dev/inject: "true"`.',
  },
  NoContainer: {
    asked: 'container',
    verdict: 'unprotected',
    standing: 'goes',
    means: 'The policy names containers, and the pod has none of them.',
    cure: 'Correct the names: note `UnknownContainer`.',
  },
  ExistingHook: {
    asked: 'container',
    verdict: 'unknown',
    standing: 'goes',
    means: 'Every container that would wait has a preStop hook of its own, which is kept.',
    more: 'Or a sleep that is long enough.',
    cure: 'Nothing; or `existingHook: Extend` for short sleeps.',
  },
  NoHook: {
    asked: 'container',
    verdict: 'unprotected',
    standing: 'goes',
    means: 'The hook that the policy asks for does not work on this pod’s nodes.',
    more: 'Such as `Exec` on Windows.',
    cure: '`hook: Auto` or `Sleep`.',
  },
  NoWait: {
    asked: 'rest',
    verdict: 'unprotected',
    standing: 'goes',
    means: 'The wait is 0 seconds.',
    cure: 'Set a longer one; check `ceiling.wait`.',
  },
  NoRoom: {
    asked: 'rest',
    verdict: 'unprotected',
    standing: 'goes',
    means:
      'The grace period leaves less than one second for a wait: grace.max is too small, or the grace period was cut.',
    more: 'Or the pod carries a plan that says so.',
    cure: 'Raise `grace.max`. Remove a copied `linger.dev/plan` from the manifest.',
  },
  InternalError: {
    asked: 'fault',
    verdict: 'unknown',
    standing: 'unread',
    means: 'Linger failed on this pod and let it pass unchanged; the log has the error.',
    more: 'In an audit: it failed on this workload only, and the finding has the error.',
    cure: 'Report it, with that line.',
  },
} as const satisfies Readonly<Record<string, SkipReasonKind>>;

export type SkipReason = keyof typeof SKIP_REASONS;

/** The reasons that `linger.dev/inject: "true"` overrides. */
export const OVERRIDABLE: ReadonlySet<SkipReason> = new Set(
  (Object.keys(SKIP_REASONS) as SkipReason[]).filter((reason) => 'isOverridable' in SKIP_REASONS[reason]),
);

interface NoteKind extends Curable {
  /** Whether the pod's creator also sees the note, as an admission warning. */
  readonly warns: boolean;
}

/** The notes that a decision may carry beside its outcome. */
export const NOTES = {
  UnreadablePod: {
    warns: true,
    means: 'With `InvalidPod`: which member of the object is wrong.',
    cure: 'Fix it.',
  },
  InvalidAnnotation: {
    warns: true,
    means:
      'A `linger.dev` annotation or label does not parse. It is ignored; an unreadable `mode` or `inject` keeps the pod in `Audit`.',
    cure: 'Correct the value: [annotations](annotations.md).',
  },
  UnknownAnnotation: {
    warns: false,
    means: 'Linger has no annotation of this name; it is ignored.',
    cure: 'Check its spelling.',
  },
  WaitShrunk: {
    warns: true,
    means:
      'The grace period has no room for the whole wait, so the wait is shorter. With a running workload: something has cut the grace period of its pods since they were injected.',
    cure: 'Raise `grace.max`; or find the webhook that cuts the grace period.',
  },
  ShutdownShortened: {
    warns: false,
    means:
      'The grace period could not rise by the whole wait: the application has less time to shut down than before.',
    cure: 'Raise `grace.max`.',
  },
  PartialWait: {
    warns: false,
    means:
      'Some containers do not wait as long as the plan says (a hook of their own, or not in `containers`).',
    cure: '`existingHook: Extend`, or name them in `containers`; nothing, if they receive no traffic.',
  },
  CeilingApplied: {
    warns: false,
    means: '`ceiling` or `--mode-limit` lowered the wait or the mode.',
    cure: 'Nothing, if you set it.',
  },
  OverrideIgnored: {
    warns: false,
    means: 'A policy or annotation was ignored: `overrides` forbids it.',
    cure: "Ask the platform's owners.",
  },
  NamespaceUnknown: {
    warns: false,
    means:
      'The Namespace is not known, and a policy that may select it says `Audit` or `Off`: nothing is enforced.',
    cure: 'Without a cluster: put the Namespace into `--policies`.',
  },
  StormNotCovered: {
    warns: false,
    means:
      "The lag's tail lies beyond `wait.max`, and a longer wait would gain almost nothing: a rare storm is not covered.",
    cure: 'Faster controllers (`linger diagnose`), or a larger `wait.max`.',
  },
  ConsumerNotMeasured: {
    warns: false,
    means:
      "A consumer's lag is not measured well enough: the wait is the greatest of `wait.initial`, declared and measured lags.",
    cure: "Wait for `minSamples` and `minHistory`. If it stays so, the consumer's condition says why.",
  },
  ConsumerAssumed: {
    warns: false,
    means: 'A consumer is assumed to send traffic to the pod: its Service or Namespace has not been seen.',
    cure: 'Apply Services before Deployments, or restart the workload.',
  },
  Episode: {
    warns: false,
    means:
      'A storm or a bad release raises the wait; the note gives its span, its share and the wait without it.',
    cure: 'If it will not happen again, `linger history forget` removes it.',
  },
  ProbeGraceShort: {
    warns: false,
    means:
      "A probe's `terminationGracePeriodSeconds` is shorter than the wait: when it fails, the container dies before its wait is over.",
    cure: "Raise the probe's, or accept it.",
  },
  ExistingHookKept: {
    warns: false,
    means: 'A container keeps its own preStop hook; the note says how long it waits.',
    cure: 'Make sure that its hook waits long enough.',
  },
  HookExtended: {
    warns: false,
    means: "A container's own sleep is [lengthened](policies.md#existing-hooks).",
    cure: 'Nothing.',
  },
  NodeBudgetShort: {
    warns: false,
    means:
      'The pod can only run on spot nodes (15, 30 or 120 s to end): the wait takes at most a third of that.',
    cure: '`linger.dev/wait`, or the label `linger.dev/node-budget` on nodes.',
  },
  ContainerEnds: {
    warns: false,
    means: "A container's restart policy is not `Always`: it gets no wait.",
    cure: 'Nothing.',
  },
  OwnDrain: {
    warns: false,
    means: 'With `DrainsItself`: what kind of workload it is.',
    cure: 'Nothing.',
  },
  SidecarHook: {
    warns: false,
    means:
      "A native sidecar's preStop hook, not a plain sleep nor [Istio's own](policies.md#existing-hooks), runs beside the wait: it drains while the pod still gets requests.",
    cure: 'Let the sidecar drain at SIGTERM, which comes last.',
  },
  GraceEaten: {
    warns: false,
    means: "A container's own hook takes all but 2 s of the grace period.",
    cure: 'Raise `terminationGracePeriodSeconds` by what the hook takes.',
  },
  UnknownContainer: {
    warns: false,
    means: '`containers` names one that the pod does not have.',
    cure: 'Correct it, or nothing.',
  },
  HoldUnavailable: {
    warns: false,
    means: '`hook: Hold` cannot be used for this pod; it waits as with `Auto`. The note says why.',
    cure: 'Provide what [Hold needs](policies.md#what-hold-needs); or nothing.',
  },
  HoldNeedsPod: {
    warns: false,
    means:
      '`hook: Hold` in a manifest: tokens are made at admission, so the hook there waits as with `Auto`.',
    cure: 'Leave such workloads to the webhook.',
  },
  HoldUnwitnessed: {
    warns: false,
    means: "The pod uses its node's network: Hold relies only on consumers.",
    cure: 'Declare the consumers.',
  },
  HookUnsupported: {
    warns: false,
    means: 'With `NoHook`: where the choice of the hook comes from.',
    cure: 'Change it there.',
  },
  DaemonSetServing: {
    warns: false,
    means: 'With `DaemonSet`: a Service selects the pod.',
    cure: '`linger.dev/inject: "true"` on its pod template.',
  },
  StalePlan: {
    warns: false,
    means: "The pod's `linger.dev/plan` claims hooks that it does not have; they are ignored.",
    cure: 'Remove it from the manifest; or find the webhook that removes hooks.',
  },
  HookWithdrawn: {
    warns: true,
    means: 'The grace period was cut so far that no wait is left; the hook is removed.',
    cure: 'Find the webhook or policy that cuts the grace period.',
  },
  UnknownKind: {
    warns: false,
    means: 'Linger does not know this kind of workload, or its pod template; `inject` leaves it unchanged.',
    cure: 'Explain a pod: `linger explain pod/NAME`.',
  },
  LivenessRestart: {
    warns: false,
    means:
      'Kubelets run preStop hooks also when a liveness or startup probe fails: the only replica restarts only after its wait.',
    cure: "Set the probe's `terminationGracePeriodSeconds`, or use hook Hold.",
  },
  UndeclaredConsumer: {
    warns: false,
    means: 'In manifests: something sends traffic to these pods, and no DiscoveryConsumer declares its lag.',
    cure: 'Declare it: the text says how.',
  },
  InvalidObject: {
    warns: false,
    means:
      'Kubernetes refuses the object: a field of another type (`namespace: no`), or a strategy that contradicts itself.',
    cure: 'Correct it: the text names the field.',
  },
  AnnotationMisplaced: {
    warns: false,
    means: 'A `linger.dev` annotation on the workload itself has no effect on its pods.',
    cure: 'Put it on the pod template.',
  },
  FieldMisplaced: {
    warns: false,
    means:
      '`terminationGracePeriodSeconds`, `lifecycle`, `strategy` or `minReadySeconds` where it has no effect, or misspelt.',
    cure: 'The text says where it belongs.',
  },
  ServicesUnknown: {
    warns: false,
    means: "The namespace's Services are not known, so the pod counts as serving.",
    cure: 'Nothing; or put its Services into `--policies`.',
  },
} as const satisfies Readonly<Record<string, NoteKind>>;

export type NoteCode = keyof typeof NOTES;

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
 * kubectl and client-go print warnings as they arrive. The API server truncates all warnings of a response beyond 4 KiB and
 * drops a header that is not valid text, so each of Linger's is one short line of ASCII. Source: k8s.io/apiserver
 * pkg/endpoints/filters/warning.go.
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
  return notes.filter(({ code }) => NOTES[code].warns).map(({ text }) => admissionWarning(text));
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
