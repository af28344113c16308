import type { Consumer, Measure, PodKey } from '../core/lag/index.ts';
import type { Held, Instances, MeasuringAs, Word } from './measure.ts';
import { measuringOf } from './measures.ts';

type Running = Readonly<Partial<Record<MeasuringAs<Measure>['by'], Instances>>>;

/** What is known of the instances of all consumers, however each is measured. */
export type ConsumerInstances = ReturnType<typeof consumerInstances>;

/** @param running what knows the instances of consumers that are measured so; those of others are not known */
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
    /** @returns undefined: no instances speak for such a consumer; `unknown`: they do, and what they would say is not known */
    wordOf: (consumer: Consumer, pod: Held): Word | 'unknown' | undefined => {
      const instances = of(consumer);
      return instances && (instances.wordOf(consumer.name, pod) ?? 'unknown');
    },
  };
}
