import type { PlannedTable } from '../core/lag/planned.ts';
import type { KubeConnection } from '../kube/connection.ts';
import type { WatchFailure } from '../kube/failure.ts';
import { PUBLISHED_NAMES, type Published, readPlanned } from '../measure/publication.ts';
import type { Resource } from './kube/resource.ts';
import type { WatchStats } from './kube/stats.ts';
import { type WatchOptions, watchResource } from './kube/watch-resource.ts';

/** Calls are synchronous. */
export interface PublishedHandlers {
  /** How the ConfigMap of the planned lags stands: at the beginning, and whenever it has changed. */
  onPlanned(planned: Published<PlannedTable>): void;
  onFailure(failure: WatchFailure, pauseMs: number): void;
  onCurrent(): void;
  /** What a handler threw. */
  onHandlerError(error: Error): void;
}

export interface PublishedSource {
  /** Resolves once it has been read for the first time. It may never. */
  readonly read: Promise<void>;
  readonly stats: WatchStats;
  /** Resolves once the signal has aborted and every connection is closed. */
  readonly ended: Promise<void>;
}

/**
 * Follows the planned lags that the leader publishes. Watched and not polled, so that replicas differ for
 * milliseconds after a change: pods of one ReplicaSet come to all of them, seconds apart, and should get one number. A
 * watch of one name needs no right to read any other ConfigMap, and costs nothing while nothing changes.
 */
export function followPublished(
  connection: KubeConnection,
  namespace: string,
  handlers: PublishedHandlers,
  options: WatchOptions,
): PublishedSource {
  const read = Promise.withResolvers<void>();
  let present = false;
  const watch = watchResource(
    plannedResource(namespace),
    connection,
    {
      onEvent: (event) => {
        present = event.type !== 'deleted';
        handlers.onPlanned(event.type === 'deleted' ? { outcome: 'empty' } : event.object);
      },
      onStream: ({ type }) => {
        if (type === 'ListEnds') {
          if (!present) handlers.onPlanned({ outcome: 'empty' });
          read.resolve();
        }
        if (type === 'StreamCurrent') handlers.onCurrent();
      },
      onFailure: handlers.onFailure,
      onHandlerError: handlers.onHandlerError,
    },
    options,
  );
  return { read: read.promise, ...watch };
}

function plannedResource(namespace: string): Resource<Published<PlannedTable>> {
  return {
    path: `/api/v1/namespaces/${namespace}/configmaps`,
    query: { fieldSelector: `metadata.name=${PUBLISHED_NAMES.planned}` },
    project: readPlanned,
  };
}
