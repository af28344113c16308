import { randomBytes } from 'node:crypto';
import { isProven, proofOf, type SigningKeys } from '../../certs/index.ts';
import { fewOf, REPORT_RESULTS, type ReportResult } from '../../core/api/index.ts';
import {
  type InstanceName,
  type InstancesState,
  type MeasurementState,
  ReportedSyncs,
  type StageVersions,
  type SyncClaim,
  type SyncResult,
} from '../../core/lag/index.ts';

/** The format of a cursor: term, time of issue, versions of EndpointSlices and of Endpoints, signature. */
const FORM = /^([\w-]{8})\.([0-9a-z]{1,11})\.(\d{0,20})\.(\d{0,20})\.([\w-]{22})$/;

type CursorClaim = Extract<SyncClaim, { readonly by: 'cursor' }>;

/**
 * Cursors contain the versions that Linger had seen and the time of issue, signed for one instance of one consumer. The key
 * outlives the term, so a cursor of an earlier leader still acknowledges versions; its time is from another clock and is
 * ignored.
 */
export class ReportCursors {
  readonly #keys: () => SigningKeys;
  readonly #lead = randomBytes(6).toString('base64url');

  constructor(keys: () => SigningKeys) {
    this.#keys = keys;
  }

  /** @param now milliseconds of this leader's clock */
  write(consumer: string, instance: string, now: number, versions: StageVersions): string {
    // Whole microseconds, rounded down, so that a cursor never seems to be newer than it is.
    const given = Math.floor(now * 1000).toString(36);
    const said = `${this.#lead}.${given}.${decimal(versions.EndpointSlice)}.${decimal(versions.Endpoints)}`;
    return `${said}.${proofOf(this.#keys()[0], consumer, instance, said)}`;
  }

  /** @returns undefined for a cursor that was never issued to this instance */
  read(consumer: string, instance: string, text: string): CursorClaim | undefined {
    const [, lead, given = '', slices, endpoints, proof = ''] = FORM.exec(text) ?? [];
    if (lead === undefined) return undefined;
    const said = text.slice(0, text.lastIndexOf('.'));
    if (!isProven(proof, this.#keys(), consumer, instance, said)) return undefined;
    return {
      by: 'cursor',
      givenAt: lead === this.#lead ? Number.parseInt(given, 36) / 1000 : undefined,
      // A gateway with a cursor may read either kind, so a version that Linger had not seen counts as not acknowledged.
      versions: { EndpointSlice: slices ?? '', Endpoints: endpoints ?? '' },
    };
  }
}

/** Leaves out versions that cannot be compared. */
function decimal(version: string | undefined): string {
  return version !== undefined && /^\d{1,20}$/.test(version) ? version : '';
}

/** @param slices empty or undefined: not known, or not read */
export function versionsOf(slices: string | undefined, endpoints: string | undefined): StageVersions {
  return {
    ...(slices ? { EndpointSlice: slices } : {}),
    ...(endpoints ? { Endpoints: endpoints } : {}),
  };
}

/** The reports of one consumer's instances. Instants are milliseconds of the leader's clock. */
interface Reported {
  readonly syncs: ReportedSyncs;
  /** The latest report that was refused because of its content or its sender. */
  refused: { readonly result: ReportResult; readonly at: number } | undefined;
  /** When the last lag was measured. */
  lagAt: number | undefined;
}

/** How long a refusal is shown in the condition. Milliseconds. */
const RECENT = 600_000;
/** Three times a quarter of an hour, because instances may report that rarely. Milliseconds. */
const STALE_AFTER = 2_700_000;

const ALWAYS = [
  'Only instances that report are seen, and only what they report: one that says it has synced and has not is believed.',
  'A report that does not arrive looks like a sync that was missed: the lag is then too long, never too short.',
  'Where a gateway reads a discovery service of its own, that service’s lag is not seen: it comes on top.',
];

/** The state of reporting, as a condition's reason and message. */
function reportStateOf(reported: Reported, now: number): MeasurementState {
  const instances = reported.syncs.state(now);
  const { live, silent } = instances;
  const gone = `Fallen silent within the last hour: ${fewOf(silent)}. Whether they still send traffic is not known; what was waiting for them is left out.`;
  const limits = silent.length === 0 ? ALWAYS : [...ALWAYS, gone];
  return { instances: live, trouble: troubleOf(reported, instances, now), limits };
}

function troubleOf(
  { refused, lagAt }: Reported,
  { live, silent }: InstancesState,
  now: number,
): MeasurementState['trouble'] {
  if (live === 0 && refused !== undefined && now - refused.at < RECENT) {
    const { status, means } = REPORT_RESULTS[refused.result];
    const reason = status === 401 || status === 403 ? 'Unauthorized' : 'NoInstances';
    return { reason, message: `reports are refused: ${means}` };
  }
  if (live === 0) {
    const never = 'no instance has completed a sync and reported it';
    const message = silent.length === 0 ? never : `all instances have fallen silent: ${fewOf(silent)}`;
    return { reason: 'NoInstances', message };
  }
  if (lagAt === undefined)
    return { reason: 'Waiting', message: 'every instance has to report a second sync first' };
  if (now - lagAt <= STALE_AFTER) return undefined;
  const message = 'instances report, but none of their syncs follows what has been removed since';
  return { reason: 'Stale', message };
}

/** A report that an instance makes before or after a sync. */
export interface Report {
  readonly instance: InstanceName;
  /** The cursor, as it was issued; undefined: the instance requests one. */
  readonly cursor?: string | undefined;
  /** Instead of a cursor: the versions of the API that it has read and applied. */
  readonly applied?: StageVersions | undefined;
}

export interface ReportAnswer {
  readonly result: SyncResult | 'ForeignCursor';
  /** undefined: none can be issued. */
  readonly cursor: string | undefined;
}

interface ConsumerReportsOptions {
  /** The keys that sign cursors; they outlive terms. */
  readonly keys: () => SigningKeys;
  readonly newest: () => StageVersions;
  readonly clock: () => number;
  /** Called with each lag, in seconds. */
  readonly onLag: (consumer: string, seconds: number) => void;
  /** Called whenever an instance has reported what it has applied. */
  readonly onSynced?: ((consumer: string) => void) | undefined;
}

/** All reports of one term, by consumer. */
export class ConsumerReports {
  readonly #options: ConsumerReportsOptions;
  readonly #cursors: ReportCursors;
  readonly #consumers = new Map<string, Reported>();

  constructor(options: ConsumerReportsOptions) {
    this.#options = options;
    this.#cursors = new ReportCursors(options.keys);
  }

  /** Sets the consumers that are measured by reports, and forgets the reports of all others. */
  keep(names: ReadonlySet<string>): void {
    for (const name of this.#consumers.keys()) if (!names.has(name)) this.#consumers.delete(name);
    for (const name of names) if (!this.#consumers.has(name)) this.#consumers.set(name, this.#begin(name));
  }

  /** @returns undefined if the consumer is not measured by reports */
  report(consumer: string, { instance, cursor, applied }: Report): ReportAnswer | undefined {
    const reported = this.#consumers.get(consumer);
    if (reported === undefined) return undefined;
    const { clock, newest } = this.#options;
    const [now, versions] = [clock(), newest()];
    const next = this.#cursors.write(consumer, instance.key, now, versions);
    let claim: SyncClaim | undefined = applied && { by: 'versions', versions: applied };
    if (cursor !== undefined) {
      claim = this.#cursors.read(consumer, instance.key, cursor);
      if (claim === undefined) return { result: 'ForeignCursor', cursor: next };
    }
    const result = reported.syncs.report(instance, claim, now, versions);
    if (result === 'Synced') this.#options.onSynced?.(consumer);
    return { result, cursor: result === 'TooManyInstances' ? undefined : next };
  }

  /** Records that a report was refused because of its content or its sender. */
  refused(consumer: string, result: ReportResult): void {
    const reported = this.#consumers.get(consumer);
    if (reported !== undefined) reported.refused = { result, at: this.#options.clock() };
  }

  /** Advances the clock. @returns the state of each consumer's measurement */
  states(): ReadonlyMap<string, MeasurementState> {
    const { clock, newest } = this.#options;
    const now = clock();
    const states = [...this.#consumers].map(([name, reported]) => {
      reported.syncs.advance(now, newest());
      return [name, reportStateOf(reported, now)] as const;
    });
    return new Map(states);
  }

  *instances(): Iterable<readonly [consumer: string, state: InstancesState, lost: number]> {
    for (const [name, { syncs }] of this.#consumers)
      yield [name, syncs.state(this.#options.clock()), syncs.lost];
  }

  /** The instances that have not acknowledged the versions of a withdrawal. @returns undefined if no instance is live */
  waitingFor(consumer: string, versions: StageVersions): readonly string[] | undefined {
    return this.#consumers.get(consumer)?.syncs.waitingFor(versions);
  }

  /** Whether an instance fell silent before it acknowledged these versions. */
  hasSilent(consumer: string, versions: StageVersions): boolean {
    return this.#consumers.get(consumer)?.syncs.hasSilent(versions) ?? false;
  }

  /** Records that a pod was deleted, which may have been an instance. */
  gone(uid: string): void {
    const now = this.#options.clock();
    for (const { syncs } of this.#consumers.values()) syncs.gone(uid, now);
  }

  #begin(name: string): Reported {
    const { clock, onLag, newest } = this.#options;
    const reported: Reported = {
      refused: undefined,
      lagAt: undefined,
      syncs: new ReportedSyncs(clock(), newest(), (seconds) => {
        reported.lagAt = clock();
        onLag(name, seconds);
      }),
    };
    return reported;
  }
}
