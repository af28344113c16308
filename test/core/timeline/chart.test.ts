import { describe, expect, it } from 'vitest';
import { type Chart, chartSvg, chartText } from '../../../src/core/timeline/index.ts';

const HOSTILE = '<script>alert("1")</script>&\u202e\u0000\ud800';
const LONG = 'a'.repeat(253);

const CHART: Chart = {
  title: 'Pod shop/web-1',
  summary: 'edge may have sent to it.',
  from: 0,
  to: 10,
  marks: [
    { at: 0, label: 'deleted' },
    { at: 5, label: 'SIGTERM' },
  ],
  lanes: [
    {
      label: 'edge',
      note: '8 s',
      spans: [
        { from: 0, to: 5, tone: 'sends' },
        { from: 5, to: 8, tone: 'lost' },
      ],
    },
    { label: 'mesh', note: 'not known', spans: [{ from: 0, to: 10, tone: 'unknown' }] },
  ],
};

const dots = (count: number, lost: number) => ({
  ...CHART,
  lanes: [
    {
      label: 'requests',
      dots: Array.from({ length: count }, (_, index) => ({ at: (10 * index) / count, lost: index === lost })),
    },
  ],
});

describe('as SVG', () => {
  it('is one file: light and dark, without a script or anything from outside', () => {
    const svg = chartSvg(CHART);
    expect(svg).toMatch(/^<svg xmlns="http:\/\/www.w3.org\/2000\/svg"[\s\S]*<\/svg>$/);
    expect(svg).toContain('prefers-color-scheme:dark');
    expect(svg.replace('http://www.w3.org/2000/svg', '')).not.toMatch(/http|script|href|url\(|@import/);
    expect(chartSvg(CHART, { style: 'none' })).not.toContain('<style');
  });

  it('what was sent after SIGTERM is marked, and what is not known is drawn as such', () => {
    const svg = chartSvg(CHART);
    expect(svg.match(/class="lost"/g)).toHaveLength(1);
    expect(svg).toMatch(/class="bad">8 s</);
    expect(svg.match(/class="unknown"/g)).toHaveLength(1);
  });

  it('says the same to who cannot see it', () => {
    expect(chartSvg(CHART)).toContain(
      'aria-label="Pod shop/web-1. edge may have sent to it.. edge: 8 s. mesh: not known"',
    );
  });

  it.each([300, 960])('names of others are text, and not wider than their place, at %i pixels', (width) => {
    const lanes = [HOSTILE, LONG, '\u05d0'.repeat(253), '\u{1F600}'.repeat(200)].map((label) => ({
      label,
      note: label,
    }));
    const svg = chartSvg(
      { ...CHART, title: HOSTILE, summary: LONG, marks: [{ at: 0, label: HOSTILE }], lanes },
      { width },
    );
    const elements = new Set([...svg.matchAll(/<(\w+)/g)].map(([, element]) => element));
    expect([...elements].toSorted()).toEqual(['g', 'path', 'rect', 'style', 'svg', 'text', 'title']);
    expect(svg).not.toMatch(/[\p{Cf}\p{Cs}]|(?!\n)\p{Cc}/u);
    expect(svg).toContain('&lt;script&gt;');
    const drawn = [...svg.matchAll(/<text [^>]*>([^<]*)</g)].map(([, text = '']) =>
      text.replaceAll(/&\w+;/g, '&'),
    );
    for (const text of drawn) expect([...text].length * 7.6).toBeLessThanOrEqual(width);
  });

  it('a hundred thousand requests take as much room as the axis, and the lost one is seen', () => {
    const svg = chartSvg(dots(100_000, 54_321));
    expect(svg.length).toBeLessThan(20_000);
    expect(svg.match(/class="cross"/g)).toHaveLength(1);
    expect(chartSvg(dots(100_000, -1))).not.toContain('class="cross"');
  });

  it('several are one below the other', () => {
    const [one, two] = [CHART, [CHART, CHART]].map((charts) =>
      Number(/height="(\d+)"/.exec(chartSvg(charts))?.[1]),
    );
    expect(two).toBe(2 * (one ?? 0) + 16);
  });

  it.each([
    ['no time at all', { from: 0, to: 0 }],
    ['years', { from: 0, to: 1e8 }],
    ['no number', { from: 0, to: Number.NaN }],
  ])('an axis of %s draws', (_, axis) => {
    expect(chartSvg({ ...CHART, ...axis }).length).toBeLessThan(20_000);
    expect(chartText({ ...CHART, ...axis }, { width: 80, colour: false }).length).toBeLessThan(4_000);
  });
});

describe('in a terminal', () => {
  it('has the same lanes, marks and words', () => {
    expect(chartText(CHART, { width: 50, colour: false })).toBe(
      [
        'Pod shop/web-1',
        '      deleted         SIGTERM',
        'edge  ━━━━━━━━━━━━━━━━██████████         8 s',
        'mesh  ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄   not known',
        '      0s              5s              10s',
        'edge may have sent to it.',
        '',
      ].join('\n'),
    );
  });

  it.each([40, 60, 80, 200])('no line of names and bars is wider than %i columns', (width) => {
    const lanes = [{ label: LONG, note: LONG, spans: [{ from: 0, to: 10, tone: 'sends' as const }] }];
    const text = chartText(
      { ...CHART, title: LONG, lanes: [...CHART.lanes, ...lanes] },
      { width, colour: false },
    );
    for (const line of text.split('\n')) expect([...line].length).toBeLessThanOrEqual(width);
  });

  it('colours only where they are welcome, and ends each', () => {
    expect(chartText(CHART, { width: 80, colour: false })).not.toContain('\u001b');
    const coloured = chartText(CHART, { width: 80, colour: true });
    expect(coloured).toContain('\u001b[31m');
    for (const line of coloured.split('\n').filter((each) => each.includes('\u001b')))
      expect(line.lastIndexOf('\u001b[0m')).toBe(line.lastIndexOf('\u001b['));
  });

  it('no name commands it', () => {
    const text = chartText(
      { ...CHART, title: '\u001b[2J\nx', lanes: [{ label: '\u009b31m' }] },
      { width: 80, colour: false },
    );
    expect(text).not.toMatch(/(?!\n)\p{Cc}/u);
    expect(text.split('\n')[0]).toBe('\uFFFD[2J\uFFFDx');
  });
});
