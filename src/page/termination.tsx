import { matchesWords } from '../core/report/index.ts';
import { chartOf } from '../core/timeline/index.ts';
import type { TimelineView } from '../dashboard/index.ts';
import { Listed, LiveView, Time, useAddress } from './live.tsx';
import { Choice, Head, Name, Verdict } from './parts.tsx';
import { Picture } from './picture.tsx';
import { AFTER_SIGTERM_WORDS } from './termination-words.ts';

type Termination = TimelineView['terminations'][number];
type AfterSigterm = Termination['afterSigterm'];

const SHOWN = [
  ['', 'all'],
  ...Object.entries(AFTER_SIGTERM_WORDS).map(([each, [, short]]) => [each, short] as const),
] as const;

/** More rows would not help, and take long to lay out. */
const MOST_ROWS = 100;

export function Timeline() {
  return <LiveView<TimelineView> topic="timeline">{(report) => <Report report={report} />}</LiveView>;
}

function Report({ report: { terminations } }: { readonly report: TimelineView }) {
  const { get, set } = useAddress();
  const [search, only] = [get('search'), get('only')];
  const matching = terminations.filter(
    ({ namespace, pod, owner, afterSigterm }) =>
      (only === '' || afterSigterm === only) &&
      matchesWords(`${namespace}/${pod} ${namespace}/${owner}`.toLowerCase(), search),
  );
  const named = terminations.find(({ uid }) => uid === get('pod'));
  const chosen = named ?? ofHeadline(matching);
  return (
    <>
      <h1 class="headline">{headlineOf(terminations)}</h1>
      {terminations.length === 0 ? (
        <p>
          Linger’s leader keeps the latest terminations of pods that a Service lists. Delete such a pod, or
          roll a Deployment: it is here about 15 seconds after its end.
        </p>
      ) : (
        <>
          {chosen !== undefined && <Shown termination={chosen} />}
          <div class="filters">
            <label class="search">
              <span>Pod or workload</span>
              <input
                type="search"
                value={search}
                onInput={({ currentTarget: { value } }) => set('search', value)}
              />
            </label>
            <Choice title="Show" of={SHOWN} chosen={only} onChoose={(each) => set('only', each)} />
          </div>
          <Listed title="Last terminations" none="None matches." isEmpty={matching.length === 0}>
            <table class="workloads">
              <caption>
                {matching.length > MOST_ROWS
                  ? `The latest ${MOST_ROWS} of ${matching.length}`
                  : 'The latest first'}
              </caption>
              <Head words={['Deleted', 'Pod', 'Workload', 'Requests']} />
              <tbody>
                {matching
                  .slice(0, MOST_ROWS)
                  .map(({ uid, namespace, pod, owner, deletedAt, afterSigterm }) => (
                    <tr key={uid} aria-current={uid === chosen?.uid ? 'true' : undefined}>
                      <td>
                        <Time at={deletedAt} day />
                      </td>
                      <td>
                        <button type="button" class="plain" onClick={() => set('pod', uid)}>
                          <Name>{`${namespace}/${pod}`}</Name>
                        </button>
                      </td>
                      <td>
                        <Name>{owner}</Name>
                      </td>
                      <td>
                        <Verdict tone={AFTER_SIGTERM_WORDS[afterSigterm][0]}>
                          {AFTER_SIGTERM_WORDS[afterSigterm][1]}
                        </Verdict>
                      </td>
                    </tr>
                  ))}
              </tbody>
            </table>
          </Listed>
        </>
      )}
    </>
  );
}

/** The latest of the terminations that the headline counts. */
function ofHeadline(terminations: readonly Termination[]): Termination | undefined {
  const latest = (of: AfterSigterm) => terminations.find(({ afterSigterm }) => afterSigterm === of);
  return latest('sent') ?? latest('unknown') ?? terminations[0];
}

function headlineOf(terminations: readonly Termination[]): string {
  if (terminations.length === 0) return 'No termination is known yet';
  const count = (of: AfterSigterm) => terminations.filter(({ afterSigterm }) => afterSigterm === of).length;
  const all = `${terminations.length} ${terminations.length === 1 ? 'pod' : 'pods'}`;
  const [sent, unknown] = [count('sent'), count('unknown')];
  const open = unknown > 0 ? `; for ${unknown} that is not known` : '';
  if (sent > 0) return `${sent} of the last ${all} may have been sent requests after SIGTERM${open}`;
  return unknown > 0
    ? `Not known for ${unknown} of the last ${all} whether requests were sent after SIGTERM`
    : `Everything known had dropped the last ${all} before SIGTERM`;
}

/** The chart of a termination, and the same as a table. */
function Shown({ termination }: { readonly termination: Termination }) {
  const chart = chartOf(termination, new Date(termination.deletedAt * 1000).toLocaleString());
  return (
    <section aria-label="Timeline">
      <Picture charts={chart} />
      <details>
        <summary>As a table</summary>
        <table>
          <Head words={['What', 'Until, after the deletion']} />
          <tbody>
            {chart.lanes.map(({ label, note = '' }) => (
              <tr key={label}>
                <td>
                  <Name>{label}</Name>
                </td>
                <td>{note}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </details>
    </section>
  );
}
