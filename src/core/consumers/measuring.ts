import type { ConditionReason } from '../catalog/conditions.ts';

/** What whoever measures a consumer says of how that goes. */
export interface MeasuringState {
  /** Of those that report; absent where instances cannot be told apart. */
  readonly instances?: number;
  /** Seconds between two samples, when all is well; absent: what is usual for its way of measuring. */
  readonly every?: number;
  /** undefined: all is well. */
  readonly trouble: { readonly reason: ConditionReason; readonly message: string } | undefined;
  /** What it cannot see, in sentences: shown beside its numbers. */
  readonly limits: readonly string[];
}
