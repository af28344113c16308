import { compareVersions, type EndpointSource, type StageVersions } from '../../core/lag/index.ts';
import type { Held, Instances } from '../measure.ts';
import type { ReportTaking } from './report-taking.ts';

/** The instances that report, for Hold. */
export function reportingInstances(taken: ReportTaking['taken']): Instances {
  return {
    wordOf: (consumer, { withdrawn, initial }) => {
      const versions = versionsOf(withdrawn);
      const reports = taken();
      const still = versions && reports?.taken.waitingFor(consumer, versions);
      if (versions === undefined || reports === undefined || still === undefined) return undefined;
      // Reports to an earlier leader are not known here, so an instance that has not reported yet may still send.
      const all = reports.since + initial * 1000;
      const completeAt = reports.taken.hasSilent(consumer, versions) ? Number.POSITIVE_INFINITY : all;
      return { still, completeAt };
    },
  };
}

/** The newest resourceVersions with which the pod was withdrawn. @returns undefined if one of them is not known */
function versionsOf(withdrawals: Held['withdrawn']): StageVersions | undefined {
  const newest: Partial<Record<EndpointSource, string>> = {};
  for (const { group, version } of withdrawals) {
    if (version === undefined) return undefined;
    const other = newest[group.stage];
    const order = other === undefined ? 1 : compareVersions(version, other);
    if (order === undefined) return undefined;
    if (order > 0) newest[group.stage] = version;
  }
  return withdrawals.length === 0 ? undefined : newest;
}
