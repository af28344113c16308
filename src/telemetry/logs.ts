import { setTimeout as sleep } from 'node:timers/promises';
import { type DestinationStream, type Logger, pino } from 'pino';
import { printable } from '../core/api/index.ts';

export const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

export type { Logger };

/**
 * Structured logs, one JSON object per line. Foreign objects (pods, reviews, Secrets) are never logged as a whole: a line
 * contains names, reasons and numbers.
 */
export function createLogger(level: LogLevel, destination: DestinationStream): Logger {
  const options = {
    level,
    // The time as text, which both people and log collectors can read.
    timestamp: () => `,"time":"${new Date().toISOString()}"`,
    formatters: { level: (label: string) => ({ level: label }) },
    base: {},
    // Logs are also read on terminals, so characters that control a terminal are escaped; JSON escapes the rest.
    hooks: { streamWrite: (line: string) => line.replaceAll(/[\u007f-\u009f]/g, printable) },
  };
  return pino(options, destination);
}

/** Bytes that are kept for a reader that does not read, which is some 20,000 lines. Later lines are dropped and counted. */
const MOST_UNREAD = 4 * 2 ** 20;

/** How long the end of the process waits for the reader. */
const END_WITHIN_MS = 250;

/**
 * A log that never blocks the process, even if nothing reads it: lines are written in the background, up to 4 MB wait for a
 * slow reader, and how many lines were dropped is logged once it has caught up.
 * @returns the log, and a function to call before the process ends, which writes what is left, within a quarter of a second
 */
export function logToStandardOutput(level: LogLevel) {
  // Registered before pino's own handler, which would write what is left and, if the reader is gone or does not read, try
  // forever.
  process.once('exit', () => output.destroy());
  const output = pino.destination({ dest: 1, sync: false, maxLength: MOST_UNREAD });
  let ended = false;
  const write = (line: string) => void (ended || output.write(line));
  const logger = createLogger(level, { write });
  let dropped = 0;
  output.on('drop', () => {
    dropped += 1;
  });
  output.on('drain', () => {
    const lines = dropped;
    dropped = 0;
    if (lines > 0) logger.warn({ lines }, 'log lines dropped; standard output was not read fast enough');
  });
  // A full disk, for example. What is kept is written once there is room, and there is no other place to report it.
  output.on('error', () => undefined);
  const end = async () => {
    ended = true;
    const written = new Promise((resolve) => output.once('close', resolve));
    output.end();
    await Promise.race([written, sleep(END_WITHIN_MS)]);
    output.destroy();
  };
  return { logger, end };
}
