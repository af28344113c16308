import { spanOf } from '../core/timeline/index.ts';

type Points = readonly (readonly [seconds: number, share: number])[];
const [WIDE, HIGH] = [800, 220];
/** Seconds: the shortest lag that is drawn by itself. */
const SHORTEST = 0.001;
/** More lines cannot be distinguished. */
const MOST_CURVES = 6;
/** Rows for the labels of waits, which may be close to each other; a row is as high as its letters on a phone. */
const [ROWS, ROW_HEIGHT] = [8, 26];

/** Distributions on a logarithmic scale, the whole first; waits are drawn in. */
export function Curve(props: {
  readonly label: string;
  readonly curves: readonly Points[];
  /** Seconds. */
  readonly longest: number;
  readonly waits: readonly number[];
}) {
  const { label, curves, waits } = props;
  const longest = Math.max(props.longest, ...waits, 1) * 1.5;
  const x = (seconds: number) =>
    (WIDE * Math.log(Math.max(seconds, SHORTEST) / SHORTEST)) / Math.log(longest / SHORTEST);
  const y = (share: number) => HIGH - share * (HIGH - 10);
  const path = (points: Points) =>
    points.map(([seconds, share]) => `H${x(seconds).toFixed(1)}V${y(share).toFixed(1)}`).join('');
  const marks = [0.01, 0.1, 1, 10, 100, 1000].filter((seconds) => seconds < longest);
  return (
    <svg class="curve" viewBox={`0 -12 ${WIDE} ${HIGH + 36}`} role="img" aria-label={label}>
      {marks.map((seconds) => (
        <g key={seconds} class="mark-line">
          <line x1={x(seconds)} x2={x(seconds)} y1={0} y2={HIGH} />
          <text x={x(seconds)} y={HIGH + 18} text-anchor={x(seconds) > WIDE - 30 ? 'end' : 'middle'}>
            {spanOf(seconds)}
          </text>
        </g>
      ))}
      {[0.5, 0.9, 1].map((share) => (
        <g key={share} class="mark-line">
          <line x1={0} x2={WIDE} y1={y(share)} y2={y(share)} />
          <text x={0} y={y(share) + (share === 1 ? -2 : 14)}>
            {100 * share} %
          </text>
        </g>
      ))}
      {curves
        .slice(0, MOST_CURVES)
        .map(
          (points, index) =>
            points.length > 0 && (
              <path key={index} class={`curve-${index}`} d={`M0 ${HIGH}${path(points)}H${WIDE}`} />
            ),
        )}
      {waits.map((seconds, index) => (
        <g key={seconds} class="wait">
          <line x1={x(seconds)} x2={x(seconds)} y1={0} y2={HIGH} />
          <text x={x(seconds) - 6} y={HIGH - 8 - (index % ROWS) * ROW_HEIGHT} text-anchor="end">
            wait {seconds} s
          </text>
        </g>
      ))}
    </svg>
  );
}

/** How a curve is drawn, beside its name; nothing where it is not. */
export function CurveMark({ index }: { readonly index: number }) {
  if (index >= MOST_CURVES) return null;
  return (
    <svg class="curve sample" width="28" height="8" aria-hidden="true">
      <path class={`curve-${index}`} d="M0 4H28" />
    </svg>
  );
}
