import type { WhatIfReport } from '../dashboard/index.ts';
import { Listed, LiveView, shareInWords, useAddress } from './live.tsx';

const DEFAULTS = { from: 'Measured', percentile: '99', safetyFactor: '1.5', fixed: '30' };
type Choice = keyof typeof DEFAULTS;

export function WhatIf() {
  const { get, set } = useAddress();
  const chosen = (name: Choice) => get(name) || DEFAULTS[name];
  const isFixed = chosen('from') === 'Fixed';
  const wait = isFixed
    ? { from: 'Fixed', fixed: `${chosen('fixed')}s` }
    : { from: 'Measured', percentile: chosen('percentile'), safetyFactor: chosen('safetyFactor') };
  const slider = (name: Choice, title: string, unit: string, [min, max, step]: readonly number[]) => (
    <label class="search" key={name}>
      <span>
        {title}: {chosen(name)}
        {unit}
      </span>
      <input
        type="range"
        min={min}
        max={max}
        step={step}
        value={chosen(name)}
        onChange={({ currentTarget: { value } }) => set(name, value)}
      />
    </label>
  );
  return (
    <>
      <div class="filters">
        <fieldset class="examples">
          <legend>Wait</legend>
          {['Measured', 'Fixed'].map((from) => (
            <button
              key={from}
              type="button"
              aria-pressed={from === chosen('from')}
              onClick={() => set('from', from)}
            >
              {from}
            </button>
          ))}
        </fieldset>
        {isFixed
          ? slider('fixed', 'Seconds', ' s', [0, 300, 1])
          : [
              slider('percentile', 'Percentile', '', [50, 99.9, 0.1]),
              slider('safetyFactor', 'Factor', '', [1, 5, 0.1]),
            ]}
      </div>
      <LiveView<WhatIfReport> topic="what-if" query={`?${new URLSearchParams(wait)}`}>
        {(report) => <Report report={report} />}
      </LiveView>
    </>
  );
}

function Report({ report }: { readonly report: WhatIfReport }) {
  const { policy, waits, removals, before, after } = report;
  const rows = [
    ['Workloads protected', before.verdicts.protected, after.verdicts.protected],
    ['Workloads unprotected', before.verdicts.unprotected, after.verdicts.unprotected],
    [
      'Added to rollouts that replace pods in turn',
      `${before.rolloutSeconds} s`,
      `${after.rolloutSeconds} s`,
    ],
    ['Added to the drain of a node, at most', `${before.drainSeconds} s`, `${after.drainSeconds} s`],
  ] as const;
  return (
    <>
      <div role="status">
        <h1 class="headline">
          {after.verdicts.protected} of {after.workloads} workloads would be protected; now{' '}
          {before.verdicts.protected}
        </h1>
      </div>
      <Listed title="Waits" none="There is no namespace that would have one." isEmpty={waits.length === 0}>
        <ul class="rows">
          {waits.map(({ seconds, namespaces, covered }) => (
            <li key={seconds}>
              <b>{seconds} s</b> in {namespaces} {namespaces === 1 ? 'namespace' : 'namespaces'}
              {covered !== null && removals !== null && (
                <>
                  : covers {shareInWords(covered)} of {removals.toLocaleString()} past removals
                </>
              )}
            </li>
          ))}
        </ul>
        {removals === null && (
          <p class="quiet">No history of removals is known here, so what a wait would cover is not.</p>
        )}
      </Listed>
      <Listed title="Before and after" none="" isEmpty={false}>
        <table>
          <caption>As audit judges; then: with this policy, and Linger’s webhook in place</caption>
          <thead>
            <tr>
              <th scope="col">What</th>
              <th scope="col" class="number">
                Now
              </th>
              <th scope="col" class="number">
                Then
              </th>
            </tr>
          </thead>
          <tbody>
            {rows.map(([what, now, then]) => (
              <tr key={what}>
                <td>{what}</td>
                <td class="number">{now}</td>
                <td class="number">{then}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Listed>
      <Listed title="To apply" none="" isEmpty={false}>
        {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and so the keyboard must reach it */}
        <pre tabIndex={0}>
          <span>{policy}</span>
        </pre>
      </Listed>
    </>
  );
}
