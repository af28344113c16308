import { REPORT_RESULTS, type ReportResult } from '../core/catalog/report-results.ts';
import type { InstancesState } from '../core/consumers/reported-syncs.ts';
import type { MeasuringState } from './consumers.ts';

/** The latest report that was refused for what it was or who sent it. */
export interface Refused {
  readonly result: ReportResult;
  /** Milliseconds of the clock of {@link ReportsStanding.now}. */
  readonly at: number;
}

/** How the reports of a consumer stand. */
export interface ReportsStanding {
  readonly instances: InstancesState;
  readonly refused: Refused | undefined;
  /** When a lag was known last. */
  readonly lagAt: number | undefined;
  readonly now: number;
}

/** For so long a refusal is worth telling. Milliseconds. */
const RECENT = 600_000;
/** Instances that report once a quarter of an hour are still expected. Milliseconds. */
const STALE_AFTER = 2_700_000;
const NAMES_SHOWN = 3;

const ALWAYS = [
  'Only instances that report are seen, and only what they report: one that says it has synced and has not is believed.',
  'A report that does not arrive looks like a sync that was missed: the lag is then too long, never too short.',
  'Where a gateway reads a discovery service of its own, that service’s lag is not seen: it comes on top.',
];

/** How reports go, in the words of the condition. */
export function stateOf(standing: ReportsStanding): MeasuringState {
  const { live, untimed, silent } = standing.instances;
  const untold =
    untimed === 0
      ? []
      : [
          `${untimed} of ${live} instances do not say how long a sync takes (syncSeconds): by so much their lag is too short.`,
        ];
  const gone =
    silent.length === 0
      ? []
      : [
          `Fallen silent within the last hour: ${namesOf(silent)}. Whether they still send traffic is not known; what was waiting for them is left out.`,
        ];
  return { instances: live, trouble: troubleOf(standing), limits: [...ALWAYS, ...untold, ...gone] };
}

function troubleOf({ instances, refused, lagAt, now }: ReportsStanding): MeasuringState['trouble'] {
  const { live, silent, contradicting } = instances;
  const refusal = refused !== undefined && now - refused.at < RECENT ? refused.result : undefined;
  if (contradicting.length > 0) {
    const message = `${namesOf(contradicting)}: cursors come back that this instance was not given, or not last; either two processes report under one name, or answers do not reach it. Its reports are left out`;
    return { reason: 'Implausible', message };
  }
  if (live === 0 && refusal !== undefined) {
    const message = `reports are refused: ${REPORT_RESULTS[refusal].summary}`;
    return { reason: isAboutRights(refusal) ? 'Unauthorized' : 'NoInstances', message };
  }
  if (live === 0) {
    const message =
      silent.length === 0
        ? 'no instance has completed a sync and reported it'
        : `all instances have fallen silent: ${namesOf(silent)}`;
    return { reason: 'NoInstances', message };
  }
  if (lagAt === undefined)
    return { reason: 'Waiting', message: 'every instance has to report a second sync first' };
  if (now - lagAt > STALE_AFTER) {
    const message = 'instances report, but again and again one falls silent before the others are done';
    return { reason: 'Stale', message };
  }
  return undefined;
}

function isAboutRights(result: ReportResult): boolean {
  const { status } = REPORT_RESULTS[result];
  return status === 401 || status === 403;
}

function namesOf(names: readonly string[]): string {
  const more = names.length - NAMES_SHOWN;
  return `${names.slice(0, NAMES_SHOWN).join(', ')}${more > 0 ? ` and ${more} more` : ''}`;
}
