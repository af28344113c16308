import type { RestartReason, WatchFailure } from '../kube/failure.ts';
import type { Logger } from '../telemetry/logs.ts';

/** What lists and watches meet, for the log. */
export interface WatchReporting<What extends string> {
  onFailure(what: What, failure: WatchFailure, pauseMs: number): void;
  onCurrent(what: What): void;
  onHandlerError(what: What, error: Error): void;
}

/** Says what goes wrong once for each kind of trouble, and when it is over: an outage is not a line a second. */
export function watchReporting<What extends string>(logger: Logger): WatchReporting<What> {
  const reported = new Map<What, RestartReason>();
  return {
    onFailure: (what, { reason, message }, pauseMs) => {
      if (reported.get(what) === reason) return;
      reported.set(what, reason);
      logger.warn(
        { what, reason, problem: message, pauseMs: Math.round(pauseMs) },
        'the cluster cannot be followed for now; what is known stays in force',
      );
    },
    onCurrent: (what) => {
      if (reported.delete(what)) logger.info({ what }, 'the cluster is followed again');
    },
    onHandlerError: (what, err) => {
      logger.error({ what, err }, 'an event of the cluster was left out: a mistake in Linger');
    },
  };
}
