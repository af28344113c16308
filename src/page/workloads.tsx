import { useState } from 'preact/hooks';
import {
  FATES,
  type Fate,
  GROUPINGS,
  type Grouping,
  SORTS,
  type Sort,
  type WorkloadDetail,
} from '../core/report/index.ts';
import type { WorkloadsReport } from '../dashboard/index.ts';
import { askServer } from './ask.ts';
import { useOpened } from './fragment.ts';
import { LiveView, Time, Unseen, useAddress } from './live.tsx';
import { Headline } from './parts.tsx';
import { type Query, ROWS, WorkloadList } from './workload-list.tsx';

const oneOf = <T extends string>(of: readonly T[], value: string): T | undefined =>
  of.find((each) => each === value);

/** The list is determined by the address; `-name` sorts in reverse. */
export function Workloads() {
  const { get, change } = useAddress();
  const [limit, setLimit] = useState(ROWS);
  const [opened, open] = useOpened();
  const query: Query = {
    search: get('search'),
    fate: oneOf<Fate>(FATES, get('fate')),
    reason: get('reason'),
    sort: oneOf<Sort>(SORTS, get('sort').replace(/^-/, '')) ?? 'fate',
    reverse: get('sort').startsWith('-'),
    group: oneOf<Grouping>(GROUPINGS, get('group')),
    limit,
  };
  const changed = (part: Partial<Query>) => {
    const { search, fate, reason, sort, reverse, group, limit: most } = { ...query, ...part };
    setLimit(most);
    change({
      search,
      fate: fate ?? '',
      reason: reason ?? '',
      sort: `${reverse ? '-' : ''}${sort}`.replace(/^fate$/, ''),
      group: group ?? '',
    });
  };
  const asked = Object.entries({ ...query, open: opened }).map(([name, value]) => [name, `${value ?? ''}`]);
  return (
    <LiveView<WorkloadsReport> topic="workloads" query={`?${new URLSearchParams(asked)}`}>
      {(report) => (
        <>
          <Headline report={report} />
          <WorkloadList
            overview={report}
            list={report}
            query={query}
            change={changed}
            opened={opened}
            open={open}
            source={{ detailOf, patchHint: HINT, version: report.asOf }}
          />
          <p class="quiet">
            As of <Time at={report.asOf} />
          </p>
          <Unseen lines={report.unseen} />
        </>
      )}
    </LiveView>
  );
}

const HINT =
  'The members that change: a patch for a kustomization, or for kubectl apply --server-side. Where its manifest is at hand: linger inject.';

function detailOf(address: string): Promise<WorkloadDetail> {
  return askServer<WorkloadDetail>(`/explanation?${new URLSearchParams({ workload: address })}`);
}
