import { useEffect, useRef } from 'preact/hooks';
import { CHART_STYLE, type Chart, chartSvg } from '../core/timeline/index.ts';

const STYLES = new CSSStyleSheet();
STYLES.replaceSync(CHART_STYLE);
document.adoptedStyleSheets = [...document.adoptedStyleSheets, STYLES];

/** A chart as wide as its container. Parsed as XML, in which no name can become an element. */
export function Picture({ charts }: { readonly charts: Chart | readonly Chart[] }) {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const within = place.current;
    if (within === null) return;
    let width = 0;
    const draw = () => {
      if (within.clientWidth === width) return;
      width = within.clientWidth;
      const drawn = new DOMParser().parseFromString(
        chartSvg(charts, { width, style: 'none' }),
        'image/svg+xml',
      );
      within.replaceChildren(document.importNode(drawn.documentElement, true));
    };
    draw();
    const resized = new ResizeObserver(draw);
    resized.observe(within);
    return () => resized.disconnect();
  });
  return (
    <>
      <div class="timeline" ref={place} />
      <Legend />
    </>
  );
}

const TONES = [
  ['sends', 'something still sends to it'],
  ['lost', 'requests are lost'],
  ['waits', 'its hook holds SIGTERM back'],
  ['stops', 'it shuts down'],
  ['unknown', 'not known'],
] as const;

function Legend() {
  return (
    <ul class="legend" aria-label="Legend">
      {TONES.map(([tone, words]) => (
        <li key={tone}>
          <svg class="tl" width="18" height="12" aria-hidden="true">
            <rect class={tone} x="1" y="1" width="16" height="10" />
          </svg>
          {words}
        </li>
      ))}
    </ul>
  );
}
