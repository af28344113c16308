export { type Chart, type Dot, type Lane, type Mark, type Span, TONES, type Tone } from './chart.ts';
export { CHART_STYLE, chartSvg } from './chart-svg.ts';
export { chartText } from './chart-text.ts';
export { type ObservedEnd, type ObservedRelease, terminationOf } from './observed-end.ts';
export {
  AFTER_SIGTERM,
  type AfterSigterm,
  assess,
  chartOf,
  followedAfter,
  INSTANT_SOURCES,
  type InstantSource,
  isTermination,
  MOST_USERS,
  spanOf,
  type Termination,
  terminationSummary,
} from './termination.ts';
