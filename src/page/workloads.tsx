import { useEffect, useState } from 'preact/hooks';
import { keyOf } from '../core/report/index.ts';
import { spanOf } from '../core/timeline/index.ts';
import type { ExplanationReport, WorkloadsReport } from '../dashboard/index.ts';
import { askServer, RequestError } from './ask.ts';
import { ExplainedPlan } from './explained.tsx';
import { LiveView, Time, Unseen, useAddress } from './live.tsx';
import { Choice, Failure, Name, Verdict, type VerdictTone, WorkloadCells } from './parts.tsx';

type Finding = WorkloadsReport['findings'][number];
type Word = Finding['verdict'];

/** The findings of one workload. */
interface Row {
  readonly key: string;
  readonly own: Finding;
  readonly all: readonly Finding[];
}

const TONES: Readonly<Record<Word, VerdictTone>> = {
  unprotected: 'bad',
  unknown: 'open',
  protected: 'good',
  skipped: 'idle',
};
const WORDS = Object.keys(TONES) as readonly Word[];

/** As the API names them. */
const ORDERS = { verdict: 'Verdict', name: 'Workload', wait: 'Wait', open: 'Open for' } as const;
type Order = keyof typeof ORDERS;

/** How many rows there are at first, and how many more at a time: thousands at once would make scrolling slow. */
const ROWS = 100;
/** The API gives no more. */
const MOST_ROWS = 1_000;

export function Workloads() {
  const { get, set } = useAddress();
  const [most, setMost] = useState(ROWS);
  // `-name`: the other way round.
  const by = get('sort').replace(/^-/, '');
  const sort: Order = by in ORDERS ? (by as Order) : 'verdict';
  const reverse = get('sort').startsWith('-');
  const query = new URLSearchParams({
    search: get('search'),
    verdict: get('verdict'),
    sort,
    reverse: `${reverse}`,
    limit: `${most}`,
  });
  return (
    <LiveView<WorkloadsReport> topic="workloads" query={`?${query}`}>
      {(report) => (
        <Table report={report} get={get} set={set} order={sort} onMore={() => setMost(most + ROWS)} />
      )}
    </LiveView>
  );
}

/** The findings of a workload follow each other. */
function rowsOf(findings: readonly Finding[]): readonly Row[] {
  const byKey = Map.groupBy(findings, keyOf);
  return [...byKey].flatMap(([key, all]) => {
    const [own] = all;
    return own === undefined ? [] : [{ key, own, all }];
  });
}

function Table({
  report,
  get,
  set,
  order,
  onMore,
}: ReturnType<typeof useAddress> & {
  readonly report: WorkloadsReport;
  readonly order: Order;
  readonly onMore: () => void;
}) {
  const [verdict, opened] = [get('verdict'), get('open')];
  const isReversed = get('sort').startsWith('-');
  const sort = (by: Order) => set('sort', by === order && !isReversed ? `-${by}` : by);
  const rows = rowsOf(report.findings);
  const { matching } = report;
  const { verdicts, workloads } = report.summary;
  return (
    <>
      <h1 class="headline">{report.headline}</h1>
      <div class="filters">
        <label class="search">
          <span>Search</span>
          <input
            type="search"
            value={get('search')}
            placeholder="name, namespace, kind, reason"
            onInput={({ currentTarget: { value } }) => set('search', value)}
          />
        </label>
        <Choice
          title="Verdict"
          of={[
            ['', `all ${workloads}`],
            ...WORDS.map((word) => [word, `${word} ${verdicts[word] ?? 0}`] as const),
          ]}
          chosen={verdict}
          onChoose={(word) => set('verdict', word)}
        />
      </div>
      <table class="workloads">
        <caption>
          {matching} {matching === 1 ? 'workload' : 'workloads'}, as of <Time at={report.asOf} />
        </caption>
        <thead>
          <tr>
            {(Object.keys(ORDERS) as readonly Order[]).map((each) => (
              <th
                key={each}
                scope="col"
                class={['wait', 'open'].includes(each) ? 'number' : undefined}
                aria-sort={
                  each !== order ? undefined : (each === 'name') !== isReversed ? 'ascending' : 'descending'
                }
              >
                <button type="button" class="plain" onClick={() => sort(each)}>
                  {ORDERS[each]}
                </button>
              </th>
            ))}
            <th scope="col">Reasons</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <Line
              key={row.key}
              row={row}
              isOpen={row.key === opened}
              onToggle={() => set('open', row.key === opened ? '' : row.key)}
            />
          ))}
        </tbody>
      </table>
      {rows.length < Math.min(matching, MOST_ROWS) && (
        <button type="button" onClick={onMore}>
          Show {Math.min(ROWS, matching - rows.length)} more of {matching - rows.length}
        </button>
      )}
      {rows.length >= MOST_ROWS && matching > rows.length && (
        <p class="quiet">{matching - rows.length} more: search or filter to see them.</p>
      )}
      {rows.length === 0 && <p class="quiet">No workload is like that.</p>}
      <Unseen lines={report.unseen} />
    </>
  );
}

function Line(props: { readonly row: Row; readonly isOpen: boolean; readonly onToggle: () => void }) {
  const { row, isOpen, onToggle } = props;
  const { own, all } = row;
  return (
    <>
      <tr>
        <td>
          <Verdict tone={TONES[own.verdict]}>{own.verdict}</Verdict>
        </td>
        <WorkloadCells own={own} isOpen={isOpen} onToggle={onToggle} />
        <td class="number" data-label="open for">
          {own.exposureSeconds === null ? '–' : spanOf(own.exposureSeconds)}
        </td>
        <td class="reasons">{all.map(({ reason }) => reason).join(', ')}</td>
      </tr>
      {isOpen && (
        <tr class="detail">
          <td colSpan={5}>
            <Detail row={row} />
          </td>
        </tr>
      )}
    </>
  );
}

function Detail({ row: { own, all } }: { readonly row: Row }) {
  const [report, setReport] = useState<ExplanationReport>();
  const [failure, setFailure] = useState<RequestError>();
  const { kind, namespace, name, file, line } = own;
  useEffect(() => {
    const ending = new AbortController();
    const where = file === undefined ? {} : { file, line: String(line) };
    const query = new URLSearchParams({ kind, namespace, name, ...where });
    askServer<ExplanationReport>(`/explanation?${query}`, ending.signal).then(setReport, (error: unknown) => {
      if (error instanceof RequestError) setFailure(error);
    });
    return () => ending.abort();
  }, [kind, namespace, name, file, line]);
  return (
    <>
      <ul class="notes">
        {all.map(({ reason, text }) => (
          <li key={reason}>
            <b>{reason}</b> {text}
          </li>
        ))}
      </ul>
      {file !== undefined && (
        <p class="quiet">
          <Name>{`${file}:${line}`}</Name>
        </p>
      )}
      {failure !== undefined && <Failure failure={failure} />}
      {report !== undefined && <ExplainedPlan plan={report.plan} because={report.because} />}
    </>
  );
}
