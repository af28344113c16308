/** Why a removal gave no sample. Each removal is counted under one reason at most. */
export const DISCARDS = {
  Reconnect:
    'The watch of the pods, of the object or of the Services was interrupted while the removal was under way.',
  Inversion: 'The withdrawal showed more than 250 ms before the termination did.',
  NeverWithdrawn: 'The Service has publishNotReadyAddresses: it lists a terminating pod until it is gone.',
  OverCapacity: 'The Endpoints object is truncated at 1,000 addresses, so a missing pod says nothing.',
  NoService:
    'The Service is not known, or was deleted meanwhile, so whether it withdraws pods is not, either.',
  Expired: 'Two hours passed without a withdrawal.',
  TooMany: 'More removals were open at once than are followed.',
  Relisted: 'A terminating pod was listed as ready again: the sample taken of it was too short.',
} as const satisfies Record<string, string>;

export type DiscardReason = keyof typeof DISCARDS;
export type DiscardCounts = Readonly<Record<DiscardReason, number>>;
