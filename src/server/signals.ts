import { EXITS } from '../core/api/index.ts';
import type { Logger, LogLevel } from '../telemetry/index.ts';

/**
 * SIGTERM asks to drain; SIGINT (a person at a terminal) and any second signal end the process at once.
 * @returns `requested` resolves at the first SIGTERM, `forced` with the exit code; `release` stops listening
 */
export function listenForShutdown() {
  const requested = Promise.withResolvers<void>();
  const forced = Promise.withResolvers<number>();
  let terminating = false;
  const onTerminate = () => {
    if (terminating) forced.resolve(EXITS.terminated.code);
    terminating = true;
    requested.resolve();
  };
  const onInterrupt = () => forced.resolve(EXITS.interrupted.code);
  process.on('SIGTERM', onTerminate).on('SIGINT', onInterrupt);
  const release = () => process.off('SIGTERM', onTerminate).off('SIGINT', onInterrupt);
  return { requested: requested.promise, forced: forced.promise, release };
}

/**
 * SIGUSR2 switches the log to debug and back, so that a replica can be examined without restarting it. (SIGUSR1 opens Node’s
 * inspector.)
 * @returns a function that stops listening
 */
export function listenForLogLevel(logger: Logger, configured: LogLevel): () => void {
  const other = configured === 'debug' ? 'info' : 'debug';
  const onSignal = () => {
    logger.level = logger.level === configured ? other : configured;
    logger.info({ logLevel: logger.level }, 'log level changed');
  };
  process.on('SIGUSR2', onSignal);
  return () => process.off('SIGUSR2', onSignal);
}
