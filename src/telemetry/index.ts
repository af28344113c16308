export { LogOnce } from './log-once.ts';
export { LOG_LEVELS, type Logger, logToStandardOutput } from './logs.ts';
export {
  counterAtScrape,
  createMetrics,
  gaugeAtScrape,
  type Metrics,
  numberAtScrape,
  samplesBy,
} from './registry.ts';
