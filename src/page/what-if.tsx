import { spanOf } from '../core/timeline/index.ts';
import type { WhatIfReport } from '../dashboard/index.ts';
import { BeforeAfter } from './before-after.tsx';
import { Curve } from './curve.tsx';
import { coveredInWords, Listed, LiveView, useAddress } from './live.tsx';
import { Choice } from './parts.tsx';

/** The defaults of the policy. */
const DEFAULTS = {
  from: 'Measured',
  percentile: '99',
  safetyFactor: '1.5',
  fixed: '30',
  hook: 'Auto',
  holdMin: '5',
  holdMax: '60',
};
type Setting = keyof typeof DEFAULTS;
type Range = readonly [min: number, max: number, step: number];

export function WhatIf() {
  const { get, set } = useAddress();
  const chosen = (name: Setting) => get(name) || DEFAULTS[name];
  const isFixed = chosen('from') === 'Fixed';
  const isHold = chosen('hook') === 'Hold';
  const policy = {
    ...(isFixed
      ? { from: 'Fixed', fixed: `${chosen('fixed')}s` }
      : { from: 'Measured', percentile: chosen('percentile'), safetyFactor: chosen('safetyFactor') }),
    ...(isHold && {
      hook: 'Hold',
      'hold.min': `${chosen('holdMin')}s`,
      'hold.max': `${chosen('holdMax')}s`,
    }),
  };
  const slider = (name: Setting, title: string, unit: string, [min, max, step]: Range) => (
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
  const choice = (name: Setting, title: string, values: readonly string[]) => (
    <Choice
      title={title}
      of={values.map((value) => [value, value])}
      chosen={chosen(name)}
      onChoose={(value) => set(name, value)}
    />
  );
  return (
    <>
      <div class="filters">
        {choice('from', 'Wait', ['Measured', 'Fixed'])}
        {isFixed
          ? slider('fixed', 'Seconds', ' s', [0, 300, 1])
          : [
              slider('percentile', 'Percentile', '', [50, 99.9, 0.1]),
              slider('safetyFactor', 'Factor', '', [1, 5, 0.1]),
            ]}
        {choice('hook', 'Hook', ['Auto', 'Hold'])}
        {isHold && [
          slider('holdMin', 'Hold at least', ' s', [0, 60, 1]),
          slider('holdMax', 'Hold at most', ' s', [1, 300, 1]),
        ]}
      </div>
      <LiveView<WhatIfReport> topic="what-if" query={`?${new URLSearchParams(policy)}`}>
        {(report) => <Report report={report} />}
      </LiveView>
    </>
  );
}

function Report({ report }: { readonly report: WhatIfReport }) {
  const { policy, waits, removals, distribution, held, obstacles, before, after } = report;
  const protectedNow = before.verdicts.protected ?? 0;
  return (
    <>
      <div role="status">
        <h1 class="headline">
          {after === null
            ? `Auditing ${before.workloads.toLocaleString()} workloads with this policy …`
            : `${after.verdicts.protected ?? 0} of ${after.workloads} workloads would be protected; now ${protectedNow}`}
        </h1>
      </div>
      <Listed title="Waits" none="No namespace would have one." isEmpty={waits.length === 0}>
        <ul class="rows">
          {waits.map(({ seconds, namespaces, hold, covered }) => (
            <li key={`${seconds} ${hold?.maxSeconds}`}>
              <b>
                {hold === null
                  ? `${seconds} s`
                  : `Held for ${hold.minSeconds} to ${hold.maxSeconds} s, as long as each removal takes`}
              </b>{' '}
              in {namespaces} {namespaces === 1 ? 'namespace' : 'namespaces'}
              {covered !== null && removals !== null && (
                <>
                  : covers {coveredInWords(covered)} of {removals.toLocaleString()} past removals
                </>
              )}
              {hold !== null && `; ${seconds} s where Linger cannot be asked`}
            </li>
          ))}
        </ul>
        {held !== null && (
          <p>
            Of the past removals, Hold would have held half for at most {spanOf(held.p50)}, and 99 % for at
            most {spanOf(held.p99)}.
          </p>
        )}
        {obstacles.map((why) => (
          <p key={why} class="name">
            Some pods would get the wait instead of Hold: {why}
          </p>
        ))}
        {removals === null ? (
          <p class="quiet">
            Not enough removals have been measured here, so what a wait would cover is not known.
          </p>
        ) : (
          <Curve
            label={`Share of removals that were complete, by time; the waits are ${waits.map(({ seconds }) => `${seconds} s`).join(', ')}`}
            curves={[{ name: 'all removals', distribution }]}
            longest={distribution.at(-1)?.[0] ?? 0}
            waits={[...new Set(waits.map(({ seconds, hold }) => hold?.maxSeconds ?? seconds))]}
          />
        )}
      </Listed>
      <Listed title="Before and after" none="" isEmpty={false}>
        <BeforeAfter before={before} after={after} />
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
