import type { Consumer, Measure, MeasureKind } from '../core/lag/index.ts';
import { clusterDns } from './cluster-dns/measure.ts';
import { clusterIp } from './cluster-ip/measure.ts';
import { copies } from './copies/measure.ts';
import { declared } from './declared/measure.ts';
import { inspect } from './inspect/measure.ts';
import type { Measuring, MeasuringAs } from './measure.ts';
import { probe } from './probe/measure.ts';
import { reports } from './reports/measure.ts';
import { witness } from './witness/measure.ts';
import { xds } from './xds/measure.ts';

type Measures = { readonly [K in MeasureKind]: Measuring<K> };

/** Every kind of `measure`, including the built-in ones. Each has its own folder. */
export const MEASURES: Measures = {
  declared,
  reports,
  probe,
  inspect,
  endpoints: copies,
  xds,
  clusterIp,
  clusterDns,
  witness,
};

export type MeasuringOf<By> = Extract<MeasuringAs<Measure>, { readonly by: By }>;

/** How the consumer is measured. Functions of the result take the consumer's own `measure`. */
export function measuringOf({ measure }: Pick<Consumer, 'measure'>): MeasuringAs<Measure> {
  // The cast is safe: each entry takes measures of its own kind, and the consumer's is of that kind.
  return MEASURES[measure.kind] as MeasuringAs<Measure>;
}

/** How the consumer is measured, if this part measures it; undefined: another part does. */
export function measuredBy<By extends MeasuringAs<Measure>['by']>(
  by: By,
  consumer: Pick<Consumer, 'measure'>,
): MeasuringOf<By> | undefined {
  const measuring = measuringOf(consumer);
  return measuring.by === by ? (measuring as MeasuringOf<By>) : undefined;
}
