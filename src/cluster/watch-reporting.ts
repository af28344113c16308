import { type Logger, LogOnce } from '../telemetry/index.ts';
import type { KubeFailure } from './failure.ts';
import type { ObjectIdentity } from './resource.ts';

/** Logs what happens to list-watches. `what` is the kind of objects, as the API’s plural. */
export function watchReporting(logger: Logger) {
  const once = new LogOnce(logger);
  return {
    onFailure: (what: string, { reason, message }: KubeFailure, pauseMs: number) => {
      const members = { what, reason, problem: message, pauseMs: Math.round(pauseMs) };
      once.warn(what, members, 'watch failed; the last known state stays in force');
    },
    onCurrent: (what: string) => once.over(what, { what }, 'watch recovered'),
    onLeftOut: (what: string, { namespace, name }: ObjectIdentity, cause: 'NoRoom' | 'ForeignTargets') => {
      const key = `${cause} ${what} of ${namespace}`;
      const members = { what, namespace, name };
      if (cause === 'NoRoom')
        once.warn(key, members, 'object too large, or too many in its namespace; treated as unknown');
      else once.warn(key, members, 'endpoints target pods of another namespace; these targets are ignored');
    },
    onHandlerError: (what: string, err: Error) => {
      logger.error({ what, err }, 'cluster event dropped; this is a bug in Linger');
    },
  };
}

/** Logs what happens to one list-watch. */
export function watchReportingOf(what: string, logger: Logger) {
  const { onFailure, onCurrent, onHandlerError } = watchReporting(logger);
  return {
    onFailure: (failure: KubeFailure, pauseMs: number) => onFailure(what, failure, pauseMs),
    onCurrent: () => onCurrent(what),
    onHandlerError: (error: Error) => onHandlerError(what, error),
  };
}
