import { useEffect, useRef, useState } from 'preact/hooks';
import { asError } from '../core/api/index.ts';
import {
  causeInWords,
  FATES,
  type Fate,
  type Grouping,
  groupOf,
  type WorkloadList as List,
  type ListQuery,
  type Sort,
  type WorkloadDetail,
  type WorkloadRow,
} from '../core/report/index.ts';
import { spanOf } from '../core/timeline/index.ts';
import type { WorkloadsReport } from '../dashboard/index.ts';
import { Takeaway } from './copied.tsx';
import { Diff } from './diff.tsx';
import { ExplainedPlan } from './explained.tsx';
import { useEvent } from './live.tsx';
import { Choice, Name, Verdict, type VerdictTone } from './parts.tsx';
import { Picture } from './picture.tsx';

// The list of workloads of manifests and of a cluster alike: its data come from the page’s worker or from the dashboard’s
// server, in the same shape.

type Finding = WorkloadsReport['rows'][number]['findings'][number];
type Row = WorkloadRow<Finding>;

const WORDS: Readonly<Record<Fate, readonly [tone: VerdictTone, word: string]>> = {
  lost: ['bad', 'loses'],
  assumed: ['open', 'assumed to lose'],
  fine: ['good', 'fine'],
  unknown: ['idle', 'not known'],
};

const COLUMNS: Readonly<Record<Sort, string>> = {
  fate: 'Requests',
  name: 'Workload',
  wait: 'Waits',
  open: 'Lost for',
};
const SORTED = Object.entries(COLUMNS) as readonly (readonly [Sort, string])[];
const GROUPINGS: readonly (readonly [Grouping | '', string])[] = [
  ['', 'nothing'],
  ['cause', 'cause'],
  ['namespace', 'namespace'],
];

/** How many rows are shown at first, and how many more each time, because thousands at once would make scrolling slow. */
export const ROWS = 100;
const MOST_ROWS = 1_000;

export type Query = Omit<ListQuery, 'open'>;

interface Source {
  /** The details that are shown when a workload is opened. @throws Error whose message is shown instead */
  readonly detailOf: (address: string) => Promise<WorkloadDetail | undefined>;
  /** How a patch is applied, in a sentence. */
  readonly patchHint: string;
  /** Changes whenever the workloads do. */
  readonly version: number;
}

export function WorkloadList(props: {
  readonly overview: Pick<WorkloadsReport, 'summary' | 'fates'>;
  /** undefined: not available yet. */
  readonly list: List<Finding> | undefined;
  readonly query: Query;
  readonly change: (part: Partial<Query>) => void;
  /** The address of the open workload; empty: none is open. */
  readonly opened: string;
  readonly open: (address: string) => void;
  readonly source: Source;
}) {
  const { overview, list, query, change, opened, open, source } = props;
  const { workloads } = overview.summary;
  const state = useRef({ opened, open, change });
  state.current = { opened, open, change };
  useEvent(window, 'keydown', (event) => {
    const { key, target } = event as KeyboardEvent;
    const isWriting = target instanceof Element && target.matches('textarea, input:not([type=range])');
    if (key === '/' && !isWriting) {
      event.preventDefault();
      document.getElementById('search')?.focus();
    } else if (key === 'Escape') {
      if (state.current.opened !== '') state.current.open('');
      else state.current.change({ search: '', reason: '' });
    } else if (key === 'ArrowDown' || key === 'ArrowUp') {
      const rows = [...document.querySelectorAll<HTMLElement>('[data-row]')];
      const at = rows.indexOf(document.activeElement as HTMLElement);
      if (at < 0 && document.activeElement?.id !== 'search') return;
      event.preventDefault();
      rows[key === 'ArrowDown' ? at + 1 : at - 1]?.focus();
    }
  });
  if (workloads === 0) return null;
  const { sort = 'fate', reverse = false, group } = query;
  const sortBy = (by: Sort) => change({ sort: by, reverse: by === sort && !reverse, limit: ROWS });
  const rows = list?.rows ?? [];
  const isApart = list?.opened != null && !rows.some(({ address }) => address === list.opened?.address);
  const shown = isApart && list.opened !== null ? [list.opened, ...rows] : rows;
  return (
    <>
      <Causes
        overview={overview}
        chosen={query.reason ?? ''}
        choose={(reason) => change({ reason, limit: ROWS })}
      />
      <div class="filters">
        <label class="search">
          <span>
            Search <small>press /</small>
          </span>
          <input
            id="search"
            type="search"
            value={query.search}
            placeholder="name, namespace, kind, cause"
            onInput={({ currentTarget: { value } }) => change({ search: value, limit: ROWS })}
          />
        </label>
        <Choice
          title="Requests"
          of={[
            ['', `all ${workloads}`] as const,
            ...FATES.filter((fate) => overview.fates[fate] > 0 || fate === query.fate).map(
              (fate) => [fate, `${WORDS[fate][1]} ${overview.fates[fate]}`] as const,
            ),
          ]}
          chosen={query.fate ?? ''}
          onChoose={(fate) => change({ fate: fate === '' ? undefined : fate, limit: ROWS })}
        />
        <Choice
          title="Group by"
          of={GROUPINGS}
          chosen={group ?? ''}
          onChoose={(by) => change({ group: by === '' ? undefined : by, limit: ROWS })}
        />
      </div>
      <table class="workloads">
        <caption>{list === undefined ? 'Reading …' : `${list.matching} of ${workloads} workloads`}</caption>
        <thead>
          <tr>
            {SORTED.map(([by, title]) => (
              <th
                key={by}
                scope="col"
                class={by === 'wait' || by === 'open' ? 'number' : undefined}
                aria-sort={by !== sort ? undefined : (by === 'name') !== reverse ? 'ascending' : 'descending'}
              >
                <button type="button" class="plain" onClick={() => sortBy(by)}>
                  {title}
                </button>
              </th>
            ))}
            <th scope="col">Why</th>
          </tr>
        </thead>
        <tbody>
          {shown.map((row, index) => {
            const of = (each: Row | undefined) => group && each && groupOf(each, group);
            const [name, before] = [of(row), of(shown[index - 1])];
            return (
              <Line
                key={row.address}
                row={row}
                heading={name === before ? undefined : headingOf(name, group, list?.groups)}
                isOpen={row.address === opened}
                onToggle={() => open(row.address === opened ? '' : row.address)}
                source={source}
              />
            );
          })}
        </tbody>
      </table>
      {list !== undefined && rows.length < Math.min(list.matching, MOST_ROWS) && (
        <button type="button" onClick={() => change({ limit: Math.min(MOST_ROWS, query.limit + ROWS) })}>
          Show {Math.min(ROWS, list.matching - rows.length)} more of {list.matching - rows.length}
        </button>
      )}
      {list !== undefined && rows.length >= MOST_ROWS && list.matching > rows.length && (
        <p class="quiet">{list.matching - rows.length} more: search or filter to see them.</p>
      )}
    </>
  );
}

function headingOf(name = '', group: Grouping | undefined, groups: List<Finding>['groups'] = []): string {
  const count = groups.find((each) => each.name === name)?.workloads;
  const words = group === 'cause' ? causeInWords(name) : name;
  return count === undefined ? words : `${words}: ${count} ${count === 1 ? 'workload' : 'workloads'}`;
}

const MOST_CAUSES = 12;

/** What makes workloads lose requests, each with the number of workloads. */
function Causes(props: {
  readonly overview: Pick<WorkloadsReport, 'summary'>;
  readonly chosen: string;
  readonly choose: (reason: string) => void;
}) {
  const { overview, chosen, choose } = props;
  const reasons = Object.entries(overview.summary.reasons).toSorted(([, a], [, b]) => b - a);
  return (
    <fieldset class="examples causes">
      <legend>Causes</legend>
      {reasons.slice(0, MOST_CAUSES).map(([reason, count]) => (
        <button
          key={reason}
          type="button"
          aria-pressed={reason === chosen}
          onClick={() => choose(reason === chosen ? '' : reason)}
        >
          {causeInWords(reason)}: {count}
        </button>
      ))}
    </fieldset>
  );
}

function Line(props: {
  readonly row: Row;
  readonly heading: string | undefined;
  readonly isOpen: boolean;
  readonly onToggle: () => void;
  readonly source: Source;
}) {
  const { row, heading, isOpen, onToggle, source } = props;
  const line = useRef<HTMLTableRowElement>(null);
  // Browsers scroll to a fragment by themselves, but here the row appears only after the page.
  useEffect(() => {
    if (isOpen && document.activeElement === document.body)
      line.current?.scrollIntoView({ block: 'nearest' });
  }, []);
  const [own] = row.findings;
  if (own === undefined) return null;
  const [tone, word] = WORDS[row.fate];
  return (
    <>
      {heading !== undefined && (
        <tr class="group">
          <th scope="rowgroup" colSpan={5}>
            <Name>{heading}</Name>
          </th>
        </tr>
      )}
      <tr ref={line}>
        <td>
          <Verdict tone={tone}>{word}</Verdict>
        </td>
        <th scope="row">
          <button type="button" class="plain" data-row aria-expanded={isOpen} onClick={onToggle}>
            <Name>{`${own.namespace}/${own.name}`}</Name>
          </button>
          <small>{own.kind}</small>
        </th>
        <td class="number" data-label="waits">
          {own.waitSeconds === null ? '–' : `${own.waitSeconds} s`}
        </td>
        <td class="number" data-label="lost for">
          {own.exposureSeconds === null ? '–' : spanOf(own.exposureSeconds)}
          {own.exposureSeconds ? <small>{own.evidence?.basis}</small> : null}
        </td>
        <td class="reasons">{row.findings.map(({ reason }) => causeInWords(reason)).join(', ')}</td>
      </tr>
      {isOpen && (
        <tr class="detail">
          <td colSpan={5}>
            <Detail row={row} own={own} source={source} />
          </td>
        </tr>
      )}
    </>
  );
}

/** The chart of its termination, the reason, the patch, and where each value comes from. */
function Detail({ row, own, source }: { readonly row: Row; readonly own: Finding; readonly source: Source }) {
  const { detailOf, patchHint, version } = source;
  const [detail, setDetail] = useState<WorkloadDetail>();
  const [failure, setFailure] = useState('');
  useEffect(() => {
    let isLatest = true;
    detailOf(row.address).then(
      (answer) => {
        if (!isLatest) return;
        setDetail(answer);
        setFailure('');
      },
      (error: unknown) => isLatest && setFailure(asError(error).message),
    );
    return () => {
      isLatest = false;
    };
  }, [row.address, version]);
  return (
    <>
      <ul class="notes">
        {row.findings.map(({ reason, text }) => (
          <li key={reason}>
            <b>{reason}</b> {text}
          </li>
        ))}
      </ul>
      {own.file !== undefined && (
        <p class="quiet">
          <Name>{`${own.file}:${own.line}`}</Name>
        </p>
      )}
      {failure !== '' && <p role="alert">{failure}</p>}
      {detail !== undefined && (
        <>
          {detail.charts.length > 0 && <Picture charts={detail.charts} />}
          <Patch detail={detail} name={own.name} hint={patchHint} />
          <ExplainedPlan
            plan={detail.plan}
            stands={detail.stands}
            helps={detail.helps}
            because={detail.because}
          />
        </>
      )}
    </>
  );
}

function Patch(props: {
  readonly detail: Pick<WorkloadDetail, 'patch' | 'left' | 'policy' | 'helps'>;
  readonly name: string;
  readonly hint: string;
}) {
  const {
    detail: { patch, left, policy, helps },
    name,
    hint,
  } = props;
  return (
    <section class="patch" aria-label="The patch">
      <h2>The patch</h2>
      {left.map((each) => (
        <p key={each}>{each}</p>
      ))}
      {patch === null && left.length === 0 && <p class="quiet">Nothing changes in it.</p>}
      {patch !== null && (
        <>
          {!helps && <p>A wait alone does not end the loss: what else it needs stands above.</p>}
          <p class="quiet">{hint}</p>
          <Takeaway name={`${name}.yaml`} text={patch.after} />
          <Diff before={patch.before} after={patch.after} />
        </>
      )}
      {policy !== null && (
        <details>
          <summary>The same by a policy, where Linger’s webhook is installed</summary>
          <p class="quiet">
            Audit changes nothing, and says what would change. Apply it with mode Enforce once that looks
            right.
          </p>
          <Takeaway name="policy.yaml" text={policy} />
          {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and so the keyboard must reach it */}
          <pre tabIndex={0}>
            <span>{policy}</span>
          </pre>
        </details>
      )}
    </section>
  );
}
