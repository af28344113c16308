export { LogOnce } from './log-once.ts';
export { createLogger, LOG_LEVELS, type Logger } from './logs.ts';
export {
  counterAtScrape,
  createMetrics,
  gaugeAtScrape,
  type Metrics,
  numberAtScrape,
  samplesBy,
} from './registry.ts';
