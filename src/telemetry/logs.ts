import { type DestinationStream, type Logger, pino } from 'pino';

export const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

export type { Logger };

/**
 * Structured logs, one JSON object a line. Whole objects of others (pods, reviews, Secrets) are never logged: a
 * line carries names, reasons and numbers.
 */
export function createLogger(level: LogLevel, destination?: DestinationStream): Logger {
  const options = {
    level,
    // Time as text, which people and log collectors read alike.
    timestamp: () => `,"time":"${new Date().toISOString()}"`,
    formatters: { level: (label: string) => ({ level: label }) },
    base: {},
  };
  return destination === undefined ? pino(options) : pino(options, destination);
}
