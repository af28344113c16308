/**
 * How the measuring of a DiscoveryConsumer goes: the reasons of its condition `Measured`. `status` is the condition's:
 * True where the estimate can be relied on, Unknown where it is too early to say.
 */
export const CONDITIONS = {
  Declared: { status: 'True', summary: 'Its lag is what its author has declared; nothing is measured.' },
  Measured: { status: 'True', summary: 'Samples arrive.' },
  Invalid: {
    status: 'False',
    summary:
      'This version of Linger cannot read its spec. The last good one stays in force, if there was one.',
  },
  Waiting: { status: 'Unknown', summary: 'Measuring has begun, and no sample is complete yet.' },
  NotMeasuring: {
    status: 'Unknown',
    summary: 'No replica measures at the moment: none leads, or the canary is off.',
  },
  NoInstances: { status: 'False', summary: 'No instance reports, or all that did have fallen silent.' },
  Stale: { status: 'False', summary: 'There were samples, and there have been no new ones for too long.' },
  Unreachable: {
    status: 'False',
    summary: 'The probe gets no answer: refused, timed out, or a name that does not resolve.',
  },
  BadAnswer: {
    status: 'False',
    summary: 'The probe gets an answer that cannot be used: an error status, a redirect, or too much.',
  },
  SomebodyElse: { status: 'False', summary: 'Something answers with success, and it is not Linger.' },
  Unauthorized: {
    status: 'False',
    summary: 'Reports are refused: no token, a wrong audience, or no right to report.',
  },
  Implausible: { status: 'False', summary: 'What comes in contradicts itself; it is left out.' },
} as const satisfies Record<string, { status: 'True' | 'False' | 'Unknown'; summary: string }>;

export type ConditionReason = keyof typeof CONDITIONS;
