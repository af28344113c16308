import type { KubeConnection } from '../kube/connection.ts';
import { type ConsumersSource, followConsumers } from '../sources/consumers.ts';
import type { Logger } from '../telemetry/logs.ts';
import type { WorldHolder } from '../world/world.ts';
import { watchReporting } from './watch-reporting.ts';

export interface DeclaredConsumersContext {
  readonly connection: KubeConnection;
  readonly world: WorldHolder;
  readonly logger: Logger;
  /** Monotonic milliseconds. */
  readonly clock: () => number;
  readonly signal: AbortSignal;
}

/** Follows the DiscoveryConsumers of the cluster into the world; log lines say what cannot be used. */
export function followDeclaredConsumers(context: DeclaredConsumersContext): ConsumersSource {
  const { connection, world, logger, clock, signal } = context;
  let wasAbsent = false;
  return followConsumers(
    connection,
    {
      onWorld: (event) => world.apply(event),
      onProblem: (consumer, problem) => {
        if (problem === undefined)
          logger.info({ consumer }, 'a DiscoveryConsumer can be used again, or is gone');
        else
          logger.warn(
            { consumer, problem },
            'a DiscoveryConsumer cannot be used; its last good spec stays in force',
          );
      },
      onServed: (served) => {
        if (!served)
          logger.info(
            'DiscoveryConsumers are not served here: those of files count, until the CRD is installed',
          );
        else if (wasAbsent) logger.info('DiscoveryConsumers are served now');
        wasAbsent = !served;
      },
      ...watchReporting(logger, 'discoveryconsumers'),
    },
    { signal, clock, random: Math.random },
  );
}
