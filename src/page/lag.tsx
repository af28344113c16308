import { useEffect, useRef } from 'preact/hooks';
import { spanOf } from '../core/timeline/index.ts';
import type { LagReport } from '../dashboard/index.ts';
import { Curve, CurveMark } from './curve.tsx';
import { Explored } from './explored.tsx';
import { coveredInWords, Listed, LiveView, Time, Unseen, useAddress } from './live.tsx';
import { Choice, Head, Name } from './parts.tsx';

const DAY = 86_400;
const SLICE = 900;
const SPANS = { day: ['Day', DAY], week: ['Week', 7 * DAY], month: ['28 days', 28 * DAY] } as const;
type SpanName = keyof typeof SPANS;
const SPAN_WORDS = Object.entries(SPANS).map(([name, [words]]) => [name, words] as const);

export function Lag() {
  const { get, set } = useAddress();
  const scope = get('scope') || 'cluster';
  return (
    <LiveView<LagReport> topic="lag" query={`?${new URLSearchParams({ scope })}`}>
      {(report) => <Report report={report} get={get} set={set} />}
    </LiveView>
  );
}

type Address = Pick<ReturnType<typeof useAddress>, 'get' | 'set'>;

function Report({ report, get, set }: { readonly report: LagReport } & Address) {
  const { scope, scopes, samples, p50, p90, p99, max, parts, waits, episodes, unseen, asOf } = report;
  const shares = Object.entries({ '50 %': p50, '90 %': p90, '99 %': p99, all: max });
  const unknown = parts.filter(({ source }) => source === 'unknown');
  const name: SpanName = get('span') in SPANS ? (get('span') as SpanName) : 'week';
  return (
    <>
      <h1 class="headline">
        {samples === 0
          ? 'No removal has been measured yet'
          : `Half of ${samples.toLocaleString()} removals were complete within ${spanOf(p50)}, 99 % within ${spanOf(p99)}`}
      </h1>
      <div class="filters">
        <label class="search">
          <span>Of</span>
          <select value={scope} onChange={({ currentTarget: { value } }) => set('scope', value)}>
            {scopes.map((each) => (
              <option key={each} value={each}>
                {wordsOf(each)}
              </option>
            ))}
          </select>
        </label>
        <Choice title="Time" of={SPAN_WORDS} chosen={name} onChoose={(each) => set('span', each)} />
      </div>
      <Listed title="When, and how long" none="Nothing has been measured yet." isEmpty={samples === 0}>
        <Heatmap report={report} seconds={SPANS[name][1]} />
        {episodes.length > 0 && (
          <ul class="rows">
            {episodes.map(({ from, to, removals }) => (
              <li key={from}>
                Storm: {removals.toLocaleString()} removals from <Time at={from} day /> to{' '}
                <Time at={to} day />
              </li>
            ))}
          </ul>
        )}
      </Listed>
      <Listed title="Share of removals that were complete" none="Nothing yet." isEmpty={samples === 0}>
        <Curve
          label={`Distribution of lags: 99 % within ${spanOf(p99)}, the longest ${spanOf(max)}`}
          curves={[{ name: 'whole', distribution: report.distribution }, ...(parts.length > 1 ? parts : [])]}
          longest={max}
          waits={waits.map(({ seconds }) => seconds)}
        />
        {parts.length > 1 && <Parts report={report} />}
        {unknown.length > 0 && (
          <p>
            Not measured, and so not in the whole: <Name>{unknown.map((each) => each.name).join(', ')}</Name>
          </p>
        )}
        <table>
          <caption>
            The whole, as of <Time at={asOf} />
          </caption>
          <Head words={['Within', 'of removals', 'What']} />
          <tbody>
            {shares.map(([share, seconds]) => (
              <tr key={share}>
                <td>{spanOf(seconds)}</td>
                <td>{share}</td>
                <td class="quiet">measured</td>
              </tr>
            ))}
            {waits.map(({ seconds, covered, namespaces }) => (
              <tr key={seconds}>
                <td>{seconds} s</td>
                <td>{coveredInWords(covered)}</td>
                <td>
                  the wait in {namespaces} {namespaces === 1 ? 'namespace' : 'namespaces'}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </Listed>
      <Unseen lines={unseen} />
    </>
  );
}

/** The parts of the whole: the control plane, followed by the slowest of the others. */
function Parts({ report: { samples, p50, p99, parts } }: { readonly report: LagReport }) {
  const whole = { name: 'whole', source: 'the control plane, then the slowest', samples, p50, p99 };
  return (
    <table>
      <caption>Parts of the lag</caption>
      <Head words={['Part', 'Known']} numbers={['Samples', 'Half within', '99 % within']} />
      <tbody>
        {[whole, ...parts].map(({ name, source, samples: count, p50: half, p99: most }, index) => (
          <tr key={name}>
            <th scope="row">
              <CurveMark index={index} /> <Name>{name}</Name>
            </th>
            <td>{source}</td>
            <td class="number">{count === 0 ? '–' : count.toLocaleString()}</td>
            <td class="number">{half === null ? '–' : spanOf(half)}</td>
            <td class="number">{most === null ? '–' : spanOf(most)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** `consumer/edge/removal` → `consumer edge, removals` */
function wordsOf(scope: string): string {
  const [kind, name, change] = scope.split('/');
  if (kind === 'cluster') return 'the whole cluster';
  if (kind === 'watched')
    return `withdrawals from ${name === 'Endpoints' ? name : `${name}s`}, watched by this command`;
  return change === undefined ? `${kind} ${name}` : `${kind} ${name}, ${change}s`;
}

const BAND_PX = 22;
const LEFT_PX = 64;
const BELOW_PX = 22;

/**
 * A column for each quarter of an hour and a row for each band of lags; the darker a cell, the more removals it contains.
 */
function Heatmap({ report, seconds }: { readonly report: LagReport; readonly seconds: number }) {
  const { edges, spans, asOf, p99 } = report;
  const end = Math.ceil(asOf / SLICE) * SLICE;
  const begin = end - seconds;
  const shown = spans.filter(({ to }) => to > begin);
  const cells = shown.flatMap(({ from, to, counts }) =>
    counts.flatMap((count, band) => (count === 0 ? [] : [{ from, to, band, count }])),
  );
  const removals = cells.reduce((sum, { count }) => sum + count, 0);
  const most = Math.max(1, ...cells.map(({ count }) => count));
  const label = `${removals} removals by the time at which they were complete and by their lag; 99 % of all within ${spanOf(p99)}`;
  const inWords = (index: number) => {
    const cell = cells[index];
    if (cell === undefined) return '';
    const [longer, most] = [edges[cell.band - 1], edges[cell.band]];
    const lag =
      most === undefined
        ? `more than ${spanOf(longer ?? 0)}`
        : longer === undefined
          ? `up to ${spanOf(most)}`
          : `${spanOf(longer)} to ${spanOf(most)}`;
    const count = cell.count === 1 ? '1 removal' : `${cell.count} removals`;
    return `${new Date(cell.from * 1000).toLocaleString()}: ${count} with a lag of ${lag}`;
  };
  return (
    <>
      <Explored
        label={label}
        count={cells.length}
        inWords={inWords}
        near={(x, y) => {
          const { clientWidth: width } = document.querySelector('.heatmap') ?? { clientWidth: LEFT_PX + 1 };
          const at = begin + ((x * width - LEFT_PX) / (width - LEFT_PX)) * seconds;
          const band = edges.length - Math.floor((y * heightOf(edges)) / BAND_PX);
          const found = cells.findIndex((cell) => cell.band === band && cell.from <= at && at < cell.to);
          return found < 0 ? undefined : found;
        }}
      >
        {(chosen) => {
          const cell = chosen === undefined ? undefined : cells[chosen];
          return <Painted edges={edges} spans={shown} from={begin} to={end} most={most} chosen={cell} />;
        }}
      </Explored>
      <ul class="legend" aria-label="Scale: removals in a quarter of an hour">
        {[...new Set([1, Math.round(Math.sqrt(most)), most])].map((count) => (
          <li key={count}>
            <svg class="shade" width="18" height="12" aria-hidden="true">
              <rect width="18" height="12" opacity={shadeOf(count, most)} />
            </svg>
            {count === 1 ? '1 removal' : `${count} removals`} in a quarter of an hour
          </li>
        ))}
      </ul>
    </>
  );
}

interface Painting {
  readonly edges: LagReport['edges'];
  readonly spans: LagReport['spans'];
  readonly from: number;
  readonly to: number;
  /** Removals in the darkest cell. */
  readonly most: number;
  /** The cell whose values are currently read. */
  readonly chosen: { readonly from: number; readonly to: number; readonly band: number } | undefined;
}

function Painted(painting: Painting) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const draw = () => canvas.current !== null && paint(canvas.current, painting);
    draw();
    const dark = matchMedia('(prefers-color-scheme: dark)');
    dark.addEventListener('change', draw);
    addEventListener('resize', draw);
    return () => {
      dark.removeEventListener('change', draw);
      removeEventListener('resize', draw);
    };
  });
  return <canvas class="heatmap" ref={canvas} />;
}

const heightOf = (edges: LagReport['edges']) => (edges.length + 1) * BAND_PX + BELOW_PX;

/** Scaled so that one removal is visible beside thousands. */
function shadeOf(count: number, most: number): number {
  return 0.15 + 0.85 * (Math.log1p(count) / Math.log1p(most));
}

function paint(canvas: HTMLCanvasElement, { edges, spans, from, to, most, chosen }: Painting): void {
  const bands = edges.length + 1;
  const [width, height] = [canvas.clientWidth, heightOf(edges)];
  const scale = devicePixelRatio;
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext('2d');
  if (context === null) return;
  context.scale(scale, scale);
  const style = getComputedStyle(canvas);
  const x = (at: number) => LEFT_PX + ((at - from) / (to - from)) * (width - LEFT_PX);
  context.fillStyle = style.color;
  for (const { from: begins, to: ends, counts } of spans) {
    const left = Math.max(LEFT_PX, x(begins));
    for (const [band, count] of counts.entries()) {
      if (count === 0) continue;
      context.globalAlpha = shadeOf(count, most);
      context.fillRect(left, (bands - 1 - band) * BAND_PX, Math.max(1.5, x(ends) - left), BAND_PX - 1);
    }
  }
  context.globalAlpha = 1;
  // A canvas does not resolve custom properties, so read the colour from a property that the style has resolved.
  context.fillStyle = style.borderTopColor;
  if (chosen !== undefined) {
    const left = Math.max(LEFT_PX, x(chosen.from));
    context.strokeStyle = style.borderTopColor;
    context.lineWidth = 2;
    const top = (bands - 1 - chosen.band) * BAND_PX;
    context.strokeRect(left - 1, top - 1, Math.max(1.5, x(chosen.to) - left) + 2, BAND_PX + 1);
  }
  context.font = '12px system-ui, sans-serif';
  context.textBaseline = 'middle';
  for (const [band, edge] of edges.entries())
    context.fillText(`≤ ${spanOf(edge)}`, 0, (bands - 1 - band) * BAND_PX + BAND_PX / 2);
  context.fillText(`> ${spanOf(edges.at(-1) ?? 0)}`, 0, BAND_PX / 2);
  const isDay = to - from <= DAY;
  const ticks = Math.max(2, Math.min(7, Math.floor(width / 140)));
  for (let tick = 0; tick < ticks; tick += 1) {
    const at = new Date((from + ((to - from) * tick) / ticks) * 1000);
    const text = isDay
      ? at.toLocaleTimeString(undefined, { hour: 'numeric', minute: '2-digit' })
      : at.toLocaleDateString(undefined, { weekday: 'short', day: 'numeric', month: 'short' });
    context.fillText(text, x(at.getTime() / 1000), height - BELOW_PX / 2);
  }
}
