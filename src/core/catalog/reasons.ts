/**
 * Every reason for which a pod is left alone, in the order in which they are tried: the first that holds is
 * the one reported. The sentences are what people read in `explain`, in audit annotations and in the docs.
 */
export const SKIP_REASONS = {
  NotPodCreate: 'The request is not the creation of a Pod.',
  InvalidPod: 'The object is not a Pod that can be read; the API server will say what is wrong with it.',
  MirrorPod: 'The pod is the mirror of a static pod: the kubelet runs its own copy of the manifest.',
  OptedOut: 'linger.dev/inject is "false" on the pod or its namespace.',
  ModeOff: 'The mode is Off for this pod.',
  AlreadyInjected: 'The pod already carries this plan and its hooks; there is nothing left to do.',
  Job: 'Pods of Jobs are excluded: nobody routes traffic to them, and a native sleep outlives a container that has already exited (kubernetes#134338).',
  RestartPolicy:
    'The restart policy is not Always: the containers exit by themselves, and a native sleep outlives a container that has already exited (kubernetes#134338).',
  DaemonSet:
    'Pods of DaemonSets are excluded: their rollout is serial, so it would take wait × nodes ÷ maxUnavailable longer.',
  ExcludedKind: 'The kind of workload that owns the pod is in the policy’s exclude list.',
  ZeroGrace: 'terminationGracePeriodSeconds is 0: the kubelet kills such a pod at once and runs no hook.',
  NotServing:
    'Nothing sends traffic to the pod: no Service selects it and it has no port and no readiness probe.',
  NoContainer: 'No container of the pod is among those that the policy names.',
  ExistingHook: 'Every container concerned has a preStop hook of its own, which is kept.',
  NoHook: 'The hook that the policy asks for does not work on this pod’s nodes.',
  NoWait: 'The wait is 0 seconds.',
  NoRoom: 'The grace period leaves less than one second for a wait: grace.max is too small.',
  InternalError: 'Linger failed on this pod and let it pass unchanged; the log says why.',
} as const satisfies Record<string, string>;

export type SkipReason = keyof typeof SKIP_REASONS;

export const SKIP_REASON_NAMES = Object.keys(SKIP_REASONS) as readonly SkipReason[];
