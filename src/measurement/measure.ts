import type { EndpointGroup, Measure, MeasureKind, MeasurementState, PodKey } from '../core/lag/index.ts';
import type { TimedByCanary } from './canary/timed.ts';
import type { Inspecting } from './inspect/inspecting.ts';

/** A measure of this kind, as declared by a consumer. */
export type Declared<K extends MeasureKind> = Measure & { readonly kind: K };

/**
 * How the lag of a consumer is determined: what each kind of `measure` provides to the rest of Linger. `by` names the part
 * that does the work; the other members are what that part needs.
 */
export type Measuring<K extends MeasureKind> = MeasuringAs<Declared<K>>;

/** @typeParam M what its functions take */
export type MeasuringAs<M extends Measure> =
  | { readonly by: 'declaration' }
  | { readonly by: 'reports' }
  /** Held pods measure it as they terminate, so nothing runs for it, and its state never changes. */
  | { readonly by: 'held pods'; readonly state: MeasurementState }
  | ({ readonly by: 'canary' } & TimedByCanary<M>)
  | ({ readonly by: 'inspection' } & Inspecting<M>);

/** What is known of a held pod when its consumers' instances are asked about it. Instants in milliseconds. */
export interface Held {
  readonly uid: string;
  readonly withdrawn: readonly {
    readonly group: Pick<EndpointGroup, 'stage'>;
    readonly at: number;
    /** The resourceVersion with which it was withdrawn; undefined: the object was found missing. */
    readonly version: string | undefined;
  }[];
  /** `wait.initial` of its policy. Seconds. */
  readonly initial: number;
}

/** What a consumer's instances acknowledge. Those in `still` may send to the pod; until `completeAt` there may be others. */
export interface Word {
  readonly still: readonly string[];
  readonly completeAt: number;
}

/** What Hold needs from a part that knows the instances of consumers. */
export interface Instances {
  /** @returns undefined: the answer is not known */
  readonly wordOf: (consumer: string, pod: Held) => Word | undefined;
  /** Announces that a pod is held from now until {@link done}. Absent if instances report without being asked. */
  readonly want?: (pod: PodKey) => void;
  readonly done?: (uid: string) => void;
  /** The instances for which Hold does not wait. Absent if it waits for all. */
  readonly skipped?: (consumer: string) => readonly string[];
}
