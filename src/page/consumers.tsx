import type { ConsumersReport } from '../dashboard/index.ts';
import { LiveView, span, Time } from './live.tsx';
import { Name, type Tone, Verdict } from './parts.tsx';

type View = ConsumersReport['consumers'][number];

const TONES: Readonly<Record<View['condition']['status'], Tone>> = {
  True: 'good',
  False: 'bad',
  Unknown: 'open',
};

export function Consumers() {
  return <LiveView<ConsumersReport> topic="consumers">{(report) => <Table report={report} />}</LiveView>;
}

function Table({ report: { consumers, asOf } }: { readonly report: ConsumersReport }) {
  const troubled = consumers.filter(({ condition }) => condition.status === 'False').length;
  const count = consumers.length === 1 ? '1 consumer' : `${consumers.length} consumers`;
  return (
    <>
      <h1 class="headline">
        {troubled === 0 ? `${count}, none in trouble` : `${troubled} of ${count} in trouble`}
      </h1>
      <table>
        <caption>
          As published at <Time at={asOf} />
        </caption>
        <thead>
          <tr>
            {[
              'Consumer',
              'Measured',
              'Samples',
              'Half within',
              '99 % within',
              'Last sample',
              'Services',
              'Instances',
            ].map((title) => (
              <th key={title} scope="col">
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {consumers.map((view) => (
            <Row key={view.name} view={view} asOf={asOf} />
          ))}
        </tbody>
      </table>
      {consumers.length === 0 && <p class="quiet">None is declared, and none is built in.</p>}
    </>
  );
}

function Row({ view, asOf }: { readonly view: View; readonly asOf: number }) {
  const { name, measure, removals, lastSample, services, instances, condition, limits } = view;
  return (
    <tr>
      <th scope="row">
        <Name>{name}</Name>
        <small> {measure}</small>
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
      <td class="number">{removals?.samples ?? '–'}</td>
      <td class="number">{removals === null ? '–' : span(removals.p50)}</td>
      <td class="number">{removals === null ? '–' : span(removals.p99)}</td>
      <td class="number">{lastSample === null ? '–' : `${span(Math.max(0, asOf - lastSample))} ago`}</td>
      <td class="number">{services ?? '–'}</td>
      <td class="number">{instances ?? '–'}</td>
    </tr>
  );
}

/** One whose lag cannot be relied on. @param now seconds since the epoch */
export function Troubled({ view, now }: { readonly view: View; readonly now: number }) {
  const { name, condition } = view;
  return (
    <p>
      <Verdict tone="bad">{condition.reason}</Verdict> <Name>{name}</Name>, for{' '}
      {span(Math.max(0, now - condition.since))}: {condition.message}
    </p>
  );
}
