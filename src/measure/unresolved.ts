import type { UnresolvedRemoval } from '../core/lag/recorder.ts';
import { LAG_STAGES, type LagStage } from '../core/lag/sample.ts';

/** Removals that have begun and not ended. */
export interface Waiting {
  readonly count: number;
  /** 0 where none waits. */
  readonly oldestSeconds: number;
}

export type WaitingByStage = Readonly<Record<LagStage, Waiting>>;

export interface WaitingService extends Waiting {
  readonly stage: LagStage;
  readonly namespace: string;
  readonly name: string;
}

/** @param now milliseconds of the clock that the removals' instants are of */
export function waitingByStage(removals: Iterable<UnresolvedRemoval>, now: number): WaitingByStage {
  const waiting = new Map(LAG_STAGES.map((stage) => [stage, { count: 0, oldestSeconds: 0 }]));
  for (const { stage, since } of removals) add(waiting.get(stage), now - since);
  return Object.fromEntries(waiting) as unknown as WaitingByStage;
}

/** The Services with the oldest waiting removals first. */
export function waitingByService(
  removals: Iterable<UnresolvedRemoval>,
  now: number,
  most: number,
): readonly WaitingService[] {
  const services = new Map<string, WaitingService & { count: number; oldestSeconds: number }>();
  for (const { stage, namespace, name, since } of removals) {
    const key = `${stage}/${namespace}/${name}`;
    const known = services.get(key) ?? { stage, namespace, name, count: 0, oldestSeconds: 0 };
    services.set(key, known);
    add(known, now - since);
  }
  return [...services.values()].toSorted((a, b) => b.oldestSeconds - a.oldestSeconds).slice(0, most);
}

function add(waiting: { count: number; oldestSeconds: number } | undefined, ageMs: number): void {
  if (waiting === undefined) return;
  waiting.count += 1;
  waiting.oldestSeconds = Math.max(waiting.oldestSeconds, ageMs / 1000);
}
