import { spanOf } from '../core/timeline/index.ts';
import type { NowReport } from '../dashboard/index.ts';
import { Explored } from './explored.tsx';
import { AFTER_SIGTERM_WORDS } from './termination-words.ts';

type Ended = NonNullable<NowReport['ended']>[number];
type AfterSigterm = Ended['afterSigterm'];

const [WIDE, HIGH, LEFT, BELOW] = [760, 240, 56, 44];
/** Seconds; shorter ones are drawn at the edge. */
const SHORTEST = 0.1;
const TICKS = [0, 1, 10, 100, 1000];

const PATHS: Readonly<Record<AfterSigterm, string>> = {
  sent: 'M0 -6L6 5H-6Z',
  unknown: 'M0 -6L6 0L0 6L-6 0Z',
  clear: 'M-5 0A5 5 0 1 0 5 0A5 5 0 1 0 -5 0Z',
};

/** The last terminations. Each mark is a pod: how long it waited before SIGTERM, and how long something sent to it. */
export function EndedPicture({ ended, now }: { readonly ended: readonly Ended[]; readonly now: number }) {
  const drawn = ended.filter(({ waitSeconds, lagSeconds }) => waitSeconds !== null && lagSeconds !== null);
  const longest = Math.max(
    10,
    ...drawn.flatMap(({ waitSeconds, lagSeconds }) => [waitSeconds ?? 0, lagSeconds ?? 0]),
  );
  const share = (seconds: number) =>
    seconds <= SHORTEST
      ? 0
      : Math.min(1, Math.log(seconds / SHORTEST) / Math.log((longest * 1.3) / SHORTEST));
  const x = (seconds: number) => LEFT + share(seconds) * (WIDE - LEFT - 16);
  const y = (seconds: number) => HIGH - share(seconds) * (HIGH - 16);
  const inWords = (index: number) => {
    const each = drawn[index];
    if (each === undefined) return '';
    const { namespace, pod, owner, at, waitSeconds, lagSeconds, afterSigterm } = each;
    const of = owner === '' ? '' : ` of ${owner}`;
    return `${namespace}/${pod}${of}, ${spanOf(Math.max(0, now - at))} ago: SIGTERM after ${spanOf(waitSeconds ?? 0)}, sent to for ${spanOf(lagSeconds ?? 0)}: ${AFTER_SIGTERM_WORDS[afterSigterm][1]}`;
  };
  const near = (left: number, top: number) => {
    const [px, py] = [left * WIDE, top * (HIGH + BELOW)];
    const away = ({ waitSeconds, lagSeconds }: Ended) =>
      Math.hypot(x(waitSeconds ?? 0) - px, y(lagSeconds ?? 0) - py);
    const nearest = drawn.toSorted((a, b) => away(a) - away(b))[0];
    return nearest === undefined ? undefined : drawn.indexOf(nearest);
  };
  const marks = TICKS.filter((seconds) => seconds < longest * 1.3);
  const left = ended.length - drawn.length;
  const count = (of: AfterSigterm) => drawn.filter(({ afterSigterm }) => afterSigterm === of).length;
  return (
    <>
      <Explored
        label={`${drawn.length} terminations: how long each pod waited before SIGTERM, and how long something sent to it`}
        count={drawn.length}
        inWords={inWords}
        near={near}
        onOpen={(index) => location.assign(`/timeline?pod=${encodeURIComponent(drawn[index]?.uid ?? '')}`)}
      >
        {(chosen) => (
          <svg class="scatter" viewBox={`0 0 ${WIDE} ${HIGH + BELOW}`} aria-hidden="true">
            <path class="lost-area" d={`M${x(0)} ${y(0)}L${x(longest * 1.3)} ${y(longest * 1.3)}H${x(0)}Z`} />
            {marks.map((seconds) => (
              <g key={seconds} class="mark-line">
                <line x1={x(seconds)} x2={x(seconds)} y1={16} y2={HIGH} />
                <text x={x(seconds)} y={HIGH + 18} text-anchor="middle">
                  {spanOf(seconds)}
                </text>
                <line x1={LEFT} x2={WIDE - 16} y1={y(seconds)} y2={y(seconds)} />
                <text x={LEFT - 8} y={y(seconds) + 4} text-anchor="end">
                  {spanOf(seconds)}
                </text>
              </g>
            ))}
            <text x={WIDE - 16} y={HIGH + 38} text-anchor="end">
              wait before SIGTERM →
            </text>
            <text x={LEFT + 6} y={12}>
              ↑ something sent to it for
            </text>
            {drawn.map(({ uid, waitSeconds, lagSeconds, afterSigterm }, index) => (
              <path
                key={uid}
                class={`end ${afterSigterm}${index === chosen ? ' chosen' : ''}`}
                d={PATHS[afterSigterm]}
                transform={`translate(${x(waitSeconds ?? 0).toFixed(1)} ${y(lagSeconds ?? 0).toFixed(1)})`}
              />
            ))}
          </svg>
        )}
      </Explored>
      <ul class="legend" aria-label="Legend">
        {(Object.keys(PATHS) as readonly AfterSigterm[]).map((of) => (
          <li key={of}>
            <svg class="scatter" viewBox="-8 -8 16 16" width="16" height="16" aria-hidden="true">
              <path class={`end ${of}`} d={PATHS[of]} />
            </svg>
            {AFTER_SIGTERM_WORDS[of][1]}: {count(of)}
          </li>
        ))}
        <li>shaded: SIGTERM came while something still sent</li>
        {left > 0 && <li>{left} not drawn: their times are not known</li>}
      </ul>
    </>
  );
}
