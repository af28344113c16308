/** How a flip of the canary ends: the label `result` of linger_canary_flips_total. */
export const FLIP_RESULTS = {
  Measured: 'The replica was removed and added again, and at least one consumer was timed.',
  NotSeen:
    'No consumer could be timed: their conditions say why. Where none led to the replica, it was left alone.',
  NoReplica: 'No replica could be removed: none is ready, bears the label, and answers on its canary port.',
  NoService: 'There is no Service linger-canary with a ClusterIP.',
  Refused: 'The API server did not take the change of the label, or did not answer.',
  Late: 'The EndpointSlice did not follow the label within 30 s: the control plane is slow.',
  Interrupted: 'The watch was interrupted, or this process stood still: instants could not be relied on.',
  Ended: 'The lead was lost, or the process was told to end; the label was put back.',
} as const satisfies Record<string, string>;

export type FlipResult = keyof typeof FLIP_RESULTS;
