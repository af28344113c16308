import { Counter, type Registry } from '@prometheus-io/client';
import { FLIP_RESULTS, type FlipResult } from '../core/catalog/canary.ts';

/** A flip, as far as metrics tell of it. */
export interface FlipReading {
  readonly result: FlipResult;
  /** New connections that it took. */
  readonly attempts: number;
}

/** Registers the metrics of the canary. @returns what to call with each flip */
export function registerCanaryMetrics(registry: Registry): (flip: FlipReading) => void {
  const registers = [registry];
  const flips = new Counter({
    name: 'linger_canary_flips_total',
    help: 'Flips of the canary that this replica has led, by how they ended.',
    labelNames: ['result'] as const,
    registers,
  });
  const connections = new Counter({
    name: 'linger_canary_connections_total',
    help: 'Connections that they took, through ClusterIPs and probe URLs.',
    registers,
  });
  for (const result of Object.keys(FLIP_RESULTS) as FlipResult[]) flips.inc({ result }, 0);
  return ({ result, attempts }) => {
    flips.inc({ result });
    connections.inc(attempts);
  };
}
