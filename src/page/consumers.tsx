import { spanOf } from '../core/timeline/index.ts';
import type { ConsumersView } from '../dashboard/index.ts';
import { Listed, LiveView, Time, Unseen, useNow } from './live.tsx';
import { Head, Name, Verdict, type VerdictTone } from './parts.tsx';

type View = ConsumersView['consumers'][number];

const TONES: Readonly<Record<View['condition']['status'], VerdictTone>> = {
  True: 'good',
  False: 'bad',
  Unknown: 'open',
};

export function Consumers() {
  return (
    <LiveView<ConsumersView> topic="consumers">
      {(report) => (
        <>
          <Table report={report} />
          <Undeclared report={report} />
          <Unseen lines={report.unseen} />
        </>
      )}
    </LiveView>
  );
}

function Table({ report: { consumers, asOf } }: { readonly report: ConsumersView }) {
  const now = useNow(asOf);
  const troubled = consumers.filter(({ condition }) => condition.status === 'False').length;
  const count = consumers.length === 1 ? '1 consumer' : `${consumers.length} consumers`;
  return (
    <>
      <h1 class="headline">
        {troubled === 0 ? `${count}, none in trouble` : `${troubled} of ${count} in trouble`}
      </h1>
      <table>
        <caption>
          As published at <Time at={asOf} day />
        </caption>
        <Head words={['Consumer', 'Measured']} numbers={NUMBERS} extra={EXTRA} />
        <tbody>
          {consumers.map((view) => (
            <Row key={view.name} view={view} now={now} />
          ))}
        </tbody>
      </table>
      {consumers.length === 0 && <p class="quiet">None is declared, and none is built in.</p>}
    </>
  );
}

/** Senders that no wait considers, because no DiscoveryConsumer declares them. */
function Undeclared({ report: { undeclared, routed, asOf } }: { readonly report: ConsumersView }) {
  const now = useNow(asOf);
  return (
    <>
      {undeclared !== null && (
        <Listed
          title="Undeclared, seen by held pods"
          none="None. Pods with hook Hold see who still connects after every known consumer has dropped the pod."
          isEmpty={undeclared.length === 0}
        >
          <table>
            <caption>Who connected after every known consumer had dropped the pod, in the last week</caption>
            <Head words={['From', 'To pods of']} numbers={['Pods', 'Connections', 'Last seen']} />
            <tbody>
              {undeclared.map(({ from, pods, connections, lastSeen, workloads }) => (
                <tr key={from}>
                  <th scope="row">
                    <Name>{from}</Name>
                  </th>
                  <td>
                    <Name>{workloads.join(', ')}</Name>
                  </td>
                  <td class="number">{pods}</td>
                  <td class="number">{connections}</td>
                  <td class="number">{spanOf(Math.max(0, now - lastSeen))} ago</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Listed>
      )}
      {routed !== null && (
        <Listed
          title="Undeclared, by their routes"
          none="None: every route and load balancer that leads to a workload is declared."
          isEmpty={routed.length === 0}
        >
          <ul class="notes">
            {routed.slice(0, MOST_ROUTED).map(({ kind, namespace, name, text }) => (
              <li key={`${kind} ${namespace}/${name}`}>
                <b>
                  <Name>{`${kind} ${namespace}/${name}`}</Name>
                </b>{' '}
                <span class="name">{text}</span>
              </li>
            ))}
          </ul>
          {routed.length > MOST_ROUTED && (
            <p>
              <a href="/workloads?search=undeclaredconsumer">All {routed.length}</a>
            </p>
          )}
        </Listed>
      )}
    </>
  );
}

const MOST_ROUTED = 10;

const NUMBERS = ['Samples', 'Half within', '99 % within', 'Last sample', 'Services', 'Instances'];
/** Columns that do not fit on a phone. */
const EXTRA = ['Samples', 'Half within', 'Services', 'Instances'];

function Row({ view, now }: { readonly view: View; readonly now: number }) {
  const { name, measure, mode, removals, lastSample, services, instances, condition, limits } = view;
  return (
    <tr>
      <th scope="row">
        <Name>{name}</Name>
        <small>
          {' '}
          {measure}
          {mode !== undefined && ', only observed'}
        </small>
      </th>
      <td>
        <Verdict tone={TONES[condition.status]}>{condition.reason}</Verdict>
        <div class="quiet">{condition.message}</div>
        {limits.map((limit) => (
          <div key={limit} class="quiet">
            {limit}
          </div>
        ))}
      </td>
      <td class="number extra">{removals?.samples ?? '–'}</td>
      <td class="number extra">{removals === null ? '–' : spanOf(removals.p50)}</td>
      <td class="number">{removals === null ? '–' : spanOf(removals.p99)}</td>
      <td class="number">{lastSample === null ? '–' : `${spanOf(Math.max(0, now - lastSample))} ago`}</td>
      <td class="number extra">{services ?? '–'}</td>
      <td class="number extra">{instances ?? '–'}</td>
    </tr>
  );
}

/** A consumer whose lag cannot be relied on. @param now seconds since the epoch */
export function Troubled({ view, now }: { readonly view: View; readonly now: number }) {
  const { name, condition } = view;
  return (
    <p>
      <Verdict tone="bad">{condition.reason}</Verdict> <Name>{name}</Name>, for{' '}
      {spanOf(Math.max(0, now - condition.since))}: {condition.message}
    </p>
  );
}
