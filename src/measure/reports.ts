import type { ReportResult } from '../core/catalog/report-results.ts';
import { type InstancesState, ReportedSyncs, type SyncResult } from '../core/consumers/reported-syncs.ts';
import type { MeasuringState } from './consumers.ts';
import { ReportCursors } from './report-cursors.ts';
import { type Refused, stateOf } from './report-state.ts';

/** What an instance of a consumer says after a sync, or before its first. */
export interface Report {
  readonly instance: string;
  /** As it was given; undefined: one is asked for. */
  readonly cursor: string | undefined;
  readonly syncSeconds: number | undefined;
}

export interface ReportAnswer {
  readonly result: SyncResult;
  /** undefined: none can be given. */
  readonly cursor: string | undefined;
}

export interface ConsumerReportsOptions {
  /** Monotonic milliseconds. */
  readonly clock: () => number;
  /** Called with each lag, in seconds. */
  readonly onLag: (consumer: string, seconds: number) => void;
}

interface Reported {
  readonly syncs: ReportedSyncs;
  refused: Refused | undefined;
  /** When the latest lag was known; undefined: never yet. */
  lagAt: number | undefined;
}

/** All reports of one lead, by consumer. It ends with the lead: the next leader's cursors are others. */
export class ConsumerReports {
  readonly #options: ConsumerReportsOptions;
  readonly #cursors = new ReportCursors();
  readonly #consumers = new Map<string, Reported>();

  constructor(options: ConsumerReportsOptions) {
    this.#options = options;
  }

  /** The consumers that are measured by reports. What others have reported is forgotten. */
  keep(names: ReadonlySet<string>): void {
    for (const name of this.#consumers.keys()) if (!names.has(name)) this.#consumers.delete(name);
    for (const name of names) if (!this.#consumers.has(name)) this.#consumers.set(name, this.#begin(name));
  }

  /** @returns undefined where the consumer is not kept */
  report(consumer: string, { instance, cursor, syncSeconds }: Report): ReportAnswer | undefined {
    const reported = this.#consumers.get(consumer);
    if (reported === undefined) return undefined;
    const number = cursor === undefined ? undefined : this.#cursors.read(consumer, instance, cursor);
    const took = syncSeconds === undefined ? undefined : syncSeconds * 1000;
    const answer = reported.syncs.report({ instance, cursor: number, took }, this.#options.clock());
    return {
      result: answer.result,
      cursor:
        answer.cursor === undefined ? undefined : this.#cursors.write(consumer, instance, answer.cursor),
    };
  }

  /** A report did not come as far as that: who sent it, or what it was, was refused. */
  refused(consumer: string, result: ReportResult): void {
    const reported = this.#consumers.get(consumer);
    if (reported !== undefined) reported.refused = { result, at: this.#options.clock() };
  }

  /** How the measuring of each consumer goes. */
  states(): ReadonlyMap<string, MeasuringState> {
    const now = this.#options.clock();
    const state = ({ syncs, refused, lagAt }: Reported) =>
      stateOf({ instances: syncs.state(now), refused, lagAt, now });
    return new Map([...this.#consumers].map(([name, reported]) => [name, state(reported)]));
  }

  /** Its instances, for metrics. */
  *instances(): Iterable<readonly [consumer: string, state: InstancesState, lost: number]> {
    for (const [name, { syncs }] of this.#consumers)
      yield [name, syncs.state(this.#options.clock()), syncs.lost];
  }

  /**
   * Up to which instant of {@link ConsumerReportsOptions.clock} all live instances have applied every removal: no
   * estimate, but what they have said. @returns undefined where no instance is live
   */
  acknowledged(consumer: string): number | undefined {
    return this.#consumers.get(consumer)?.syncs.acknowledged();
  }

  #begin(name: string): Reported {
    const { clock, onLag } = this.#options;
    const reported: Reported = {
      refused: undefined,
      lagAt: undefined,
      syncs: new ReportedSyncs(clock(), (seconds) => {
        reported.lagAt = clock();
        onLag(name, seconds);
      }),
    };
    return reported;
  }
}
