import type { RestartReason, WatchFailure } from '../kube/failure.ts';
import type { Logger } from '../telemetry/logs.ts';

/** What a list-watch meets, for the log. */
export interface WatchReporting {
  onFailure(failure: WatchFailure, pauseMs: number): void;
  onCurrent(): void;
  onHandlerError(error: Error): void;
}

/** The same for several kinds of objects: each call names its kind. */
export interface WatchesReporting {
  onFailure(what: string, failure: WatchFailure, pauseMs: number): void;
  onCurrent(what: string): void;
  onHandlerError(what: string, error: Error): void;
}

/**
 * Says what goes wrong once for each kind of trouble, and when it is over: an outage is not a line a second.
 * @param what the plural name of the kind, in the API
 */
export function watchReporting(logger: Logger, what: string): WatchReporting {
  let reported: RestartReason | undefined;
  return {
    onFailure: ({ reason, message }, pauseMs) => {
      if (reported === reason) return;
      reported = reason;
      logger.warn(
        { what, reason, problem: message, pauseMs: Math.round(pauseMs) },
        'the cluster cannot be followed for now; what is known stays in force',
      );
    },
    onCurrent: () => {
      if (reported !== undefined) logger.info({ what }, 'the cluster is followed again');
      reported = undefined;
    },
    onHandlerError: (err) => {
      logger.error({ what, err }, 'an event of the cluster was left out: a mistake in Linger');
    },
  };
}

export function watchesReporting(logger: Logger): WatchesReporting {
  const kinds = new Map<string, WatchReporting>();
  const of = (what: string) => {
    const known = kinds.get(what) ?? watchReporting(logger, what);
    kinds.set(what, known);
    return known;
  };
  return {
    onFailure: (what, failure, pauseMs) => of(what).onFailure(failure, pauseMs),
    onCurrent: (what) => of(what).onCurrent(),
    onHandlerError: (what, error) => of(what).onHandlerError(error),
  };
}
