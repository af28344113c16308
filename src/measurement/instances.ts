import type { Consumer, Measure, PodKey } from '../core/lag/index.ts';
import type { Held, Instances, MeasuringAs, Word } from './measure.ts';
import { measuringOf } from './measures.ts';

type Running = Readonly<Partial<Record<MeasuringAs<Measure>['by'], Instances>>>;

/** The instances of all consumers, whichever way each is measured. */
export type ConsumerInstances = ReturnType<typeof consumerInstances>;

/** @param running the parts that know instances, by the way of measuring; the instances of other consumers are unknown */
export function consumerInstances(running: Running) {
  const all = Object.values(running);
  const of = (consumer: Pick<Consumer, 'measure'>) => running[measuringOf(consumer).by];
  return {
    want: (pod: PodKey): void => {
      for (const each of all) each.want?.(pod);
    },
    done: (uid: string): void => {
      for (const each of all) each.done?.(uid);
    },
    skipped: (consumer: Consumer): readonly string[] => of(consumer)?.skipped?.(consumer.name) ?? [],
    /**
     * What a consumer's instances acknowledge about a pod. @returns undefined: consumers of this kind have no instances that
     * answer; `unknown`: they have, but the answer is not known
     */
    wordOf: (consumer: Consumer, pod: Held): Word | 'unknown' | undefined => {
      const instances = of(consumer);
      return instances && (instances.wordOf(consumer.name, pod) ?? 'unknown');
    },
  };
}
