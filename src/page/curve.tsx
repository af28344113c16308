import { spanOf } from '../core/timeline/index.ts';
import { Explored } from './explored.tsx';
import { coveredInWords } from './live.tsx';
import { Name } from './parts.tsx';

type Points = readonly (readonly [seconds: number, share: number])[];
const [WIDE, HIGH] = [800, 220];
/** Seconds: the shortest lag that is drawn separately. */
const SHORTEST = 0.001;
/** More lines cannot be distinguished. */
const MOST_CURVES = 6;
/** Rows for the labels of waits, which may be close together. A row is as high as its letters are on a phone. */
const [ROWS, ROW_HEIGHT] = [8, 26];

/** Distributions on a logarithmic scale, the whole first, with the waits. */
export function Curve(props: {
  readonly label: string;
  readonly curves: readonly { readonly name: string; readonly distribution: Points }[];
  /** Seconds. */
  readonly longest: number;
  readonly waits: readonly number[];
}) {
  const { label, waits } = props;
  const curves = props.curves.slice(0, MOST_CURVES).filter(({ distribution }) => distribution.length > 0);
  const points = curves[0]?.distribution ?? [];
  const longest = Math.max(props.longest, ...waits, 1) * 1.5;
  const x = (seconds: number) =>
    (WIDE * Math.log(Math.max(seconds, SHORTEST) / SHORTEST)) / Math.log(longest / SHORTEST);
  const y = (share: number) => HIGH - share * (HIGH - 10);
  const path = (of: Points) =>
    of.map(([seconds, share]) => `H${x(seconds).toFixed(1)}V${y(share).toFixed(1)}`).join('');
  const marks = [0.01, 0.1, 1, 10, 100, 1000].filter((seconds) => seconds < longest);
  const inWords = (index: number) => {
    const [seconds = 0] = points[index] ?? [];
    const shares = curves.map(({ name, distribution }) => {
      const [, share = 0] = distribution.findLast(([upTo]) => upTo <= seconds) ?? [];
      return `${name} ${coveredInWords(share)}`;
    });
    return `within ${spanOf(seconds)}: ${shares.join(', ')}`;
  };
  const near = (left: number) => {
    const after = points.findIndex(([seconds]) => x(seconds) > left * WIDE);
    return after < 0 ? points.length - 1 : Math.max(0, after - 1);
  };
  return (
    <>
      <Explored label={label} count={points.length} inWords={inWords} near={near}>
        {(chosen) => (
          <svg class="curve" viewBox={`0 -12 ${WIDE} ${HIGH + 36}`} aria-hidden="true">
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
            {curves.map(({ name, distribution }, index) => (
              <path key={name} class={`curve-${index}`} d={`M0 ${HIGH}${path(distribution)}H${WIDE}`} />
            ))}
            {waits.map((seconds, index) => (
              <g key={seconds} class="wait">
                <line x1={x(seconds)} x2={x(seconds)} y1={0} y2={HIGH} />
                <text x={x(seconds) - 6} y={HIGH - 8 - (index % ROWS) * ROW_HEIGHT} text-anchor="end">
                  wait {seconds} s
                </text>
              </g>
            ))}
            {chosen !== undefined && (
              <line
                class="chosen"
                x1={x(points[chosen]?.[0] ?? 0)}
                x2={x(points[chosen]?.[0] ?? 0)}
                y1={0}
                y2={HIGH}
              />
            )}
          </svg>
        )}
      </Explored>
      <ul class="legend" aria-label="Legend">
        {curves.map(({ name }, index) => (
          <li key={name}>
            <CurveMark index={index} /> <Name>{name}</Name>
          </li>
        ))}
        {waits.length > 0 && <li>dashed upright: the waits that pods get</li>}
      </ul>
    </>
  );
}

/** How a curve is drawn, shown beside its name; nothing if it is not drawn. */
export function CurveMark({ index }: { readonly index: number }) {
  if (index >= MOST_CURVES) return null;
  return (
    <svg class="curve sample" width="28" height="8" aria-hidden="true">
      <path class={`curve-${index}`} d="M0 4H28" />
    </svg>
  );
}
