import { spanOf } from '../core/timeline/index.ts';
import type { NowReport } from '../dashboard/index.ts';
import { Troubled } from './consumers.tsx';
import { EndedPicture } from './ended-picture.tsx';
import { Listed, LiveView, Time, Unseen, useNow } from './live.tsx';
import { Head, Name, Verdict } from './parts.tsx';

export function Now() {
  return <LiveView<NowReport> topic="now">{(report) => <Report report={report} />}</LiveView>;
}

function Report({ report }: { readonly report: NowReport }) {
  const now = useNow(report.asOf);
  const { asOf, headline, held, troubled, shortfalls, ended, watched, unseen } = report;
  const [oldest] = watched.open;
  return (
    <>
      <div role="status">
        <h1 class="headline">{headline}</h1>
      </div>
      <p>
        <a href="/workloads">All workloads</a>
      </p>
      {ended !== null && (
        <Listed
          title="Terminations of the last hours"
          none="No pod that a Service lists has ended."
          isEmpty={ended.length === 0}
        >
          <EndedPicture ended={ended} now={now} />
        </Listed>
      )}
      {shortfalls !== null && (
        <Listed
          title="Stopped too early, in the last day"
          none="No pod got SIGTERM before everything that sends to it had followed its removal."
          isEmpty={shortfalls.length === 0}
        >
          <table>
            <caption>By workload and cause, the most frequent first</caption>
            <Head words={['Workload', 'Why']} numbers={['Pods', 'Lost for, at most', 'Last']} />
            <tbody>
              {shortfalls.map(({ at, namespace, owner, pods, seconds, text }) => (
                <tr key={`${namespace}/${owner} ${text}`}>
                  <th scope="row">
                    <a
                      href={`/timeline?${new URLSearchParams({ search: `${namespace}/ ${owner}`, only: 'sent' })}`}
                    >
                      <Name>{`${namespace}/${owner}`}</Name>
                    </a>
                  </th>
                  <td>
                    <Name>{text}</Name>
                  </td>
                  <td class="number">{pods}</td>
                  <td class="number">
                    <Verdict tone="bad">{spanOf(seconds)}</Verdict>
                  </td>
                  <td class="number">{spanOf(Math.max(0, now - at))} ago</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Listed>
      )}
      <div class="columns">
        <div>
          <Listed
            title="Being removed"
            none={watched.since === null ? 'The watches have not begun yet.' : 'No removal is under way.'}
            isEmpty={oldest === undefined}
          >
            {oldest !== undefined && (
              <p class="oldest">
                Oldest: <Name>{oldest.pod}</Name>, still in <Name>{oldest.service}</Name>, for{' '}
                {spanOf(now - oldest.since)}
              </p>
            )}
            <ul class="rows">
              {watched.open.map(({ namespace, service, pod, source, since }) => (
                <li key={`${pod} ${service} ${source}`}>
                  <Name>{`${namespace}/${pod}`}</Name>{' '}
                  <small>
                    {source} of <Name>{service}</Name>, since <Time at={since} />
                  </small>
                </li>
              ))}
            </ul>
          </Listed>
          <Listed
            title="Removed"
            none="None since this page’s command started watching. Delete a pod to see one."
            isEmpty={watched.done.length === 0}
          >
            <table>
              <caption>The latest first</caption>
              <Head words={['Time', 'Pod', 'Withdrawn from']} numbers={['Lag']} />
              <tbody>
                {watched.done.slice(0, 20).map(({ namespace, service, pod, source, at, lagSeconds }) => (
                  <tr key={`${pod} ${service} ${source} ${at}`}>
                    <td>
                      <Time at={at} />
                    </td>
                    <td>
                      <Name>{`${namespace}/${pod}`}</Name>
                    </td>
                    <td>
                      {source} of <Name>{service}</Name>
                    </td>
                    <td class="number">{lagSeconds === null ? 'not known' : spanOf(lagSeconds)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </Listed>
        </div>
        <div>
          <Listed title="Lag of removals" none="None has been seen yet." isEmpty={watched.lags.length === 0}>
            <table>
              <caption>
                Watched by this command since <Time at={watched.since ?? asOf} />
              </caption>
              <Head words={['From']} numbers={['Removals', 'Half within', '99 % within', 'Longest']} />
              <tbody>
                {watched.lags.map(({ source, samples, p50, p99, max }) => (
                  <tr key={source}>
                    <th scope="row">{source}</th>
                    <td class="number">{samples}</td>
                    <td class="number">{spanOf(p50)}</td>
                    <td class="number">{spanOf(p99)}</td>
                    <td class="number">{spanOf(max)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </Listed>
          {held !== null && (
            <Listed title="Held" none="No pod is held." isEmpty={held.length === 0}>
              <ul class="rows">
                {held.map(({ namespace, pod, heldMs, leftMs, waitingFor, open, from }) => (
                  <li key={`${namespace}/${pod}`}>
                    <Name>{`${namespace}/${pod}`}</Name> for {spanOf(heldMs / 1000)}, at most{' '}
                    {spanOf(leftMs / 1000)} more
                    {waitingFor.map(({ consumer, instances = [] }) => (
                      <small key={consumer}>
                        {' '}
                        waiting for <Name>{[consumer, ...instances].join(' ')}</Name>
                      </small>
                    ))}
                    {open !== undefined && (
                      <small>
                        {' '}
                        {open} connections open
                        {from.length > 0 && (
                          <>
                            , from <Name>{from.join(', ')}</Name>
                          </>
                        )}
                      </small>
                    )}
                  </li>
                ))}
              </ul>
            </Listed>
          )}
          {troubled !== null && (
            <Listed title="Consumers in trouble" none="None." isEmpty={troubled.length === 0}>
              {troubled.map((view) => (
                <Troubled key={view.name} view={view} now={now} />
              ))}
            </Listed>
          )}
        </div>
      </div>
      <Unseen lines={unseen} />
    </>
  );
}
