/**
 * What a decision says beside its outcome. `warns` marks the few that also reach whoever created the pod, as an
 * admission warning: a value that was ignored because it does not parse, and a wait that was shrunk.
 */
export const NOTES = {
  UnreadablePod: { warns: true, summary: 'The object in the review is not a Pod that can be read.' },
  InvalidAnnotation: {
    warns: true,
    summary: 'A linger.dev annotation or label does not parse; it is ignored.',
  },
  UnknownAnnotation: {
    warns: false,
    summary: 'A linger.dev annotation that Linger does not know; it is ignored.',
  },
  WaitShrunk: {
    warns: true,
    summary: 'The grace period has no room for the whole wait, so the wait is shorter.',
  },
  CeilingApplied: { warns: false, summary: 'A cluster policy’s ceiling lowered the wait or the mode.' },
  OverrideIgnored: {
    warns: false,
    summary: 'A layer was ignored because a cluster policy does not let it override.',
  },
  StormNotCovered: {
    warns: false,
    summary:
      'The lag’s tail lies beyond wait.max and a longer wait would buy almost nothing: a rare storm is not covered. Faster controllers, or Hold, are the cures.',
  },
  ConsumerNotMeasured: {
    warns: false,
    summary:
      'A DiscoveryConsumer sends traffic to the pod and nothing is known of its lag yet; until then the wait is `wait.initial`, or what other consumers are declared to need.',
  },
  ProbeGraceShort: {
    warns: false,
    summary:
      'A liveness or startup probe has a terminationGracePeriodSeconds shorter than the wait; a failing probe kills the container before its wait is over.',
  },
  ExistingHookKept: { warns: false, summary: 'A container has a preStop hook of its own, which is kept.' },
  HookExtended: {
    warns: false,
    summary: 'A container’s own sleep hook was shorter than the wait and is lengthened.',
  },
  UnknownContainer: { warns: false, summary: 'The policy names a container that the pod does not have.' },
  HookUnsupported: { warns: false, summary: 'The hook asked for does not work on this pod’s nodes.' },
  StalePlan: {
    warns: false,
    summary:
      'The pod carries a linger.dev/plan annotation that its hooks do not match (copied or forged); it is ignored.',
  },
  HookWithdrawn: {
    warns: true,
    summary:
      'Somebody cut the grace period after injection so far that no wait is left; the hook is taken back.',
  },
  ServicesUnknown: {
    warns: false,
    summary: 'The namespace’s Services are not known (yet), so the pod counts as serving.',
  },
} as const satisfies Record<string, { warns: boolean; summary: string }>;

export type NoteCode = keyof typeof NOTES;

/** One remark on a decision. `text` is a full sentence about this very pod. */
export interface Note {
  readonly code: NoteCode;
  readonly text: string;
  /** For InvalidAnnotation: the annotation's key, so that a metric can count it without parsing the text. */
  readonly subject?: string;
}

export function note(code: NoteCode, text: string, subject?: string): Note {
  return subject === undefined ? { code, text } : { code, text, subject };
}
