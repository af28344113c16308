import type { VNode } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { AuditFinding } from '../core/judge/index.ts';
import { type Fate, keyOf, type ListQuery } from '../core/report/index.ts';
import { spanOf } from '../core/timeline/index.ts';
import type { DetailShown, Listed, Overview } from './asked.ts';
import { askWorker } from './asking.ts';
import { Takeaway } from './copied.tsx';
import { Diff } from './diff.tsx';
import { ExplainedPlan } from './explained.tsx';
import { useEvent } from './live.tsx';
import { Name, Verdict, type VerdictTone, WorkloadCells } from './parts.tsx';
import { Picture } from './picture.tsx';

const FATES: Readonly<Record<Fate, readonly [tone: VerdictTone, word: string]>> = {
  lost: ['bad', 'loses'],
  assumed: ['open', 'assumed to lose'],
  fine: ['good', 'fine'],
  unknown: ['idle', 'not known'],
};

type Sort = NonNullable<ListQuery['sort']>;
const COLUMNS: readonly (readonly [sort: Sort, title: string])[] = [
  ['verdict', 'Requests'],
  ['name', 'Workload'],
  ['wait', 'Waits'],
  ['open', 'Lost for'],
];

/** How many rows there are at first, and how many more at a time: thousands at once would make scrolling slow. */
const ROWS = 100;

/** @param judged counts up with each judgement */
export function Rows({ overview, judged }: { readonly overview: Overview; readonly judged: number }) {
  const [query, setQuery] = useState<ListQuery>({ search: '', verdict: '', sort: 'verdict', limit: ROWS });
  const [list, setList] = useState<Listed>();
  const [opened, setOpened] = useState<string>();
  useEffect(() => {
    let isLatest = true;
    void askWorker('list', query).then((answer) => isLatest && setList(answer));
    return () => {
      isLatest = false;
    };
  }, [query, judged]);
  const state = useRef({ opened, query });
  state.current = { opened, query };
  useEvent(window, 'keydown', (event) => {
    const key = event as KeyboardEvent;
    const isWriting =
      key.target instanceof Element && key.target.matches('textarea, input:not([type=range])');
    if (key.key === '/' && !isWriting) {
      key.preventDefault();
      document.getElementById('search')?.focus();
    } else if (key.key === 'Escape') {
      if (state.current.opened !== undefined) setOpened(undefined);
      else setQuery({ ...state.current.query, search: '', reason: '' });
    } else if (key.key === 'ArrowDown' || key.key === 'ArrowUp') {
      const rows = [...document.querySelectorAll<HTMLElement>('[data-row]')];
      const at = rows.indexOf(document.activeElement as HTMLElement);
      const isSearch = document.activeElement?.id === 'search';
      if (at < 0 && !isSearch) return;
      key.preventDefault();
      rows[key.key === 'ArrowDown' ? at + 1 : at - 1]?.focus();
    }
  });
  const sort = (by: Sort) =>
    setQuery({ ...query, sort: by, reverse: query.sort === by && query.reverse !== true, limit: ROWS });
  if (overview.summary.workloads === 0) return null;
  const rows = [...Map.groupBy(list?.findings ?? [], keyOf)];
  return (
    <>
      <Causes
        overview={overview}
        chosen={query.reason ?? ''}
        choose={(reason) => setQuery({ ...query, reason, limit: ROWS })}
      />
      <label class="search">
        <span>
          Search <small>press /</small>
        </span>
        <input
          id="search"
          type="search"
          value={query.search}
          onInput={({ currentTarget: { value } }) => setQuery({ ...query, search: value, limit: ROWS })}
        />
      </label>
      <table class="workloads">
        <caption>
          {list === undefined ? 'Reading …' : `${list.matching} of ${overview.summary.workloads} workloads`}
        </caption>
        <thead>
          <tr>
            {COLUMNS.map(([by, title]) => (
              <th
                key={by}
                scope="col"
                class={by === 'wait' || by === 'open' ? 'number' : undefined}
                aria-sort={query.sort !== by ? undefined : query.reverse ? 'descending' : 'ascending'}
              >
                <button type="button" class="plain" onClick={() => sort(by)}>
                  {title}
                </button>
              </th>
            ))}
            <th scope="col">Why</th>
          </tr>
        </thead>
        <tbody>
          {rows.map(([key, all]) => (
            <Row
              key={key}
              all={all}
              fate={list?.fates[key] ?? 'unknown'}
              detail={key === opened ? <Detail id={key} judged={judged} all={all} /> : undefined}
              onToggle={() => setOpened(key === opened ? undefined : key)}
            />
          ))}
        </tbody>
      </table>
      {list !== undefined && list.matching > rows.length && (
        <button type="button" onClick={() => setQuery({ ...query, limit: query.limit + ROWS })}>
          Show {Math.min(ROWS, list.matching - rows.length)} more of {list.matching - rows.length}
        </button>
      )}
    </>
  );
}

/** What makes workloads lose requests, each with how many. */
function Causes(props: {
  readonly overview: Overview;
  readonly chosen: string;
  readonly choose: (reason: string) => void;
}) {
  const { overview, chosen, choose } = props;
  const reasons = Object.entries(overview.summary.reasons).toSorted(([, a], [, b]) => b - a);
  return (
    <fieldset class="examples causes">
      <legend>Causes</legend>
      {reasons.map(([reason, count]) => (
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

/** Where the words of the reason itself would mislead. */
const CAUSES: Readonly<Record<string, string>> = {
  NotInjected: 'no wait',
  GraceEaten: 'killed in its own hook',
  NoOtherEndpoint: 'no other endpoint',
  AuditOnly: 'mode Audit',
};

/** `HookTooShort` as `hook too short`. */
function causeInWords(reason: string): string {
  return CAUSES[reason] ?? reason.replaceAll(/(?<=[a-z])[A-Z]/g, (letter) => ` ${letter}`).toLowerCase();
}

function Row(props: {
  readonly all: readonly AuditFinding[];
  readonly fate: Fate;
  readonly detail: VNode | undefined;
  readonly onToggle: () => void;
}) {
  const { all, fate, detail, onToggle } = props;
  const [own] = all;
  if (own === undefined) return null;
  const [tone, word] = FATES[fate];
  return (
    <>
      <tr>
        <td>
          <Verdict tone={tone}>{word}</Verdict>
        </td>
        <WorkloadCells own={own} isOpen={detail !== undefined} onToggle={onToggle} />
        <td class="number" data-label="lost for">
          {own.exposureSeconds === null ? '–' : spanOf(own.exposureSeconds)}
          {own.exposureSeconds ? <small>{own.evidence?.basis}</small> : null}
        </td>
        <td class="reasons">{all.map(({ reason }) => causeInWords(reason)).join(', ')}</td>
      </tr>
      {detail !== undefined && (
        <tr class="detail">
          <td colSpan={5}>{detail}</td>
        </tr>
      )}
    </>
  );
}

/** Its termination as a picture, why, the patch, and where each value comes from. */
function Detail(props: {
  readonly id: string;
  readonly judged: number;
  readonly all: readonly AuditFinding[];
}) {
  const { id, judged, all } = props;
  const [detail, setDetail] = useState<DetailShown>();
  useEffect(() => void askWorker('detail', id).then(setDetail), [id, judged]);
  const [own] = all;
  return (
    <>
      <ul class="notes">
        {all.map(({ reason, text }) => (
          <li key={reason}>
            <b>{reason}</b> {text}
          </li>
        ))}
      </ul>
      {own?.file !== undefined && (
        <p class="quiet">
          <Name>{`${own.file}:${own.line}`}</Name>
        </p>
      )}
      {detail !== undefined && (
        <>
          {detail.charts.length > 0 && <Picture charts={detail.charts} />}
          <Patch detail={detail} name={own?.name ?? ''} />
          <ExplainedPlan plan={detail.plan} because={detail.because} />
        </>
      )}
    </>
  );
}

function Patch({
  detail: { patch, left, policy },
  name,
}: {
  readonly detail: DetailShown;
  readonly name: string;
}) {
  return (
    <section class="patch" aria-label="The patch">
      <h2>The patch</h2>
      {left.map((each) => (
        <p key={each}>{each}</p>
      ))}
      {patch === null && left.length === 0 && <p class="quiet">Nothing changes in the manifest.</p>}
      {patch !== null && (
        <>
          <Takeaway name={`${name}.yaml`} text={patch.after} />
          <Diff text={patch.diff} />
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
