import { Head } from './parts.tsx';

/** The numbers of two audits that are compared. */
interface Counted {
  readonly verdicts: Readonly<Partial<Record<'protected' | 'unprotected' | 'skipped' | 'unknown', number>>>;
  readonly rolloutSeconds: number;
  readonly drainSeconds: number;
}

/** @param after null: not available yet */
export function BeforeAfter({ before, after }: { readonly before: Counted; readonly after: Counted | null }) {
  return (
    <table>
      <caption>As audit judges; then: with this policy, and Linger’s webhook in place</caption>
      <Head words={['What']} numbers={['Now', 'Then']} />
      <tbody>
        {ROWS.map(([what, of, unit, isCost]) => {
          const [now, then] = [of(before), after === null ? undefined : of(after)];
          return (
            <tr key={what}>
              <td>
                {what}
                <Bars now={now} then={then ?? now} isCost={isCost} />
              </td>
              <td class="number">{`${now}${unit}`}</td>
              <td class="number">{then === undefined ? '…' : `${then}${unit}`}</td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}

const ROWS: readonly (readonly [what: string, of: (of: Counted) => number, unit: string, isCost: boolean])[] =
  [
    ['Workloads protected', ({ verdicts }) => verdicts.protected ?? 0, '', false],
    ['Workloads unprotected', ({ verdicts }) => verdicts.unprotected ?? 0, '', true],
    [
      'Added to all rollouts that replace pods in turn, at most',
      ({ rolloutSeconds }) => rolloutSeconds,
      ' s',
      true,
    ],
    ['Added to the drain of a node, at most', ({ drainSeconds }) => drainSeconds, ' s', true],
  ];

/** The numbers before and after a change, as two bars. */
function Bars(props: { readonly now: number; readonly then: number; readonly isCost: boolean }) {
  const { now, then, isCost } = props;
  const most = Math.max(now, then, 1);
  return (
    <svg class="bars" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
      <rect x="0" y="0" width={(100 * now) / most} height="2" opacity="0.45" />
      <rect
        x="0"
        y="3"
        width={(100 * then) / most}
        height="3"
        class={isCost && then > now ? 'more' : undefined}
      />
    </svg>
  );
}
