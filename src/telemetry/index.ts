export {
  bucketsOf,
  chosen,
  type Exposition,
  growthBetween,
  MalformedExposition,
  type MetricSample,
  parseExposition,
  type SeriesChoice,
  sumOfSeries,
} from './exposition.ts';
export { LogOnce } from './log-once.ts';
export { createLogger, LOG_LEVELS, type Logger, type LogLevel, logToStandardOutput } from './logs.ts';
export { onLoop, reportLoopTime, stepsOnLoop } from './loop-time.ts';
export {
  counterAtScrape,
  createMetrics,
  gaugeAtScrape,
  type Metrics,
  numberAtScrape,
  samplesBy,
} from './registry.ts';
