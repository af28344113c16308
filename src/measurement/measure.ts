import type { EndpointGroup, Measure, MeasureKind, MeasurementState, PodKey } from '../core/lag/index.ts';
import type { TimedByCanary } from './canary/timed.ts';
import type { Inspecting } from './inspect/inspecting.ts';

/** A measure of this kind, as a consumer declares it. */
export type Declared<K extends MeasureKind> = Measure & { readonly kind: K };

/**
 * How the lag of a consumer becomes known: what each kind of `measure` tells the rest of Linger. `by` names what runs for
 * it; the other members are what that asks of it.
 */
export type Measuring<K extends MeasureKind> = MeasuringAs<Declared<K>>;

/** `M`: what its functions take. */
export type MeasuringAs<M extends Measure> =
  | { readonly by: 'declaration' }
  | { readonly by: 'reports' }
  /** Held pods time it as they terminate, so nothing runs for it, and its state never changes. */
  | { readonly by: 'held pods'; readonly state: MeasurementState }
  | ({ readonly by: 'canary' } & TimedByCanary<M>)
  | ({ readonly by: 'inspection' } & Inspecting<M>);

/** What is known of a held pod when its consumers' instances are asked for their word. Instants in milliseconds. */
export interface Held {
  readonly uid: string;
  readonly withdrawn: readonly {
    readonly group: Pick<EndpointGroup, 'stage'>;
    readonly at: number;
    /** The resourceVersion that withdrew it; undefined: the object vanished unseen. */
    readonly version: string | undefined;
  }[];
  /** `wait.initial` of its policy. Seconds. */
  readonly initial: number;
}

/** The word of a consumer's instances. Those in `still` may send to the pod; until `completeAt` there may be others. */
export interface Word {
  readonly still: readonly string[];
  readonly completeAt: number;
}

/** What Hold asks of whatever knows the instances of consumers. */
export interface Instances {
  /** @returns undefined: it is not known */
  readonly wordOf: (consumer: string, pod: Held) => Word | undefined;
  /** A pod is held, from now until {@link done}. Absent where instances speak without being asked. */
  readonly want?: (pod: PodKey) => void;
  readonly done?: (uid: string) => void;
  /** The instances that Hold does without. Absent where it waits for all. */
  readonly skipped?: (consumer: string) => readonly string[];
}
