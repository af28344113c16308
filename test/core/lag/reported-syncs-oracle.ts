import { instantOf } from '../../../src/core/lag/reported-syncs.ts';
import type { SimulatedSync } from './simulated-gateways.ts';

/** What is specified, worked out from the whole history for each instant by itself. Milliseconds; lags in seconds. */
export interface Expected {
  readonly lags: readonly number[];
  readonly lost: number;
}

/** A time in which an instance was live: from the end of its first sync to its silence. */
interface Life {
  readonly from: number;
  readonly until: number;
  readonly syncs: readonly SimulatedSync[];
}

const SECOND = 1_000;

/** @param syncs reported at their end, each with its exact beginning */
export function expectedOf(syncs: readonly SimulatedSync[], horizon: number): Expected {
  const lives = livesOf(syncs.filter(({ end }) => end <= horizon).toSorted((a, b) => a.end - b.end));
  const lags: number[] = [];
  let lost = 0;
  for (let second = 0; second * SECOND <= horizon; second++) {
    const at = instantOf(second);
    const live = at > horizon ? [] : lives.filter(({ from, until }) => from < at && at <= until);
    if (live.length === 0) continue;
    const ends = live.map((life) => life.syncs.find(({ begin }) => begin >= at)?.end);
    const known = ends.every((end) => end !== undefined);
    if (known) lags.push((Math.max(...(ends as number[])) - at) / SECOND);
    // It counts as lost once no instance is waited for any more.
    else if (live.every((life, index) => ends[index] !== undefined || life.until <= horizon)) lost += 1;
  }
  return { lags, lost };
}

function livesOf(syncs: readonly SimulatedSync[]): readonly Life[] {
  const lives: Life[] = [];
  const names = new Set(syncs.map(({ gateway }) => gateway));
  const open = new Map<string, { from: number; until: number; syncs: SimulatedSync[] }>();
  const ends = new Map<string, number[]>([...names].map((name) => [name, []]));
  for (const sync of syncs) {
    const { gateway, end } = sync;
    for (const [name, life] of open) {
      if (life.until <= end) {
        lives.push(life);
        open.delete(name);
      }
    }
    const longest = (name: string) => longestInterval(ends.get(name) ?? []);
    const others = [...open.keys()].flatMap((name) => longest(name) ?? []);
    ends.get(gateway)?.push(end);
    const until = end + patience(longest(gateway) ?? (others.length === 0 ? undefined : Math.max(...others)));
    const life = open.get(gateway);
    if (life === undefined) open.set(gateway, { from: end, until, syncs: [] });
    else {
      life.until = until;
      life.syncs.push(sync);
    }
  }
  return [...lives, ...open.values()];
}

/** The longest of the last eight intervals; undefined without any. */
function longestInterval(ends: readonly number[]): number | undefined {
  const intervals = ends.slice(1).map((end, index) => end - (ends[index] ?? 0));
  return intervals.length === 0 ? undefined : Math.max(...intervals.slice(-8));
}

function patience(longest: number | undefined): number {
  return longest === undefined ? 900_000 : Math.min(900_000, Math.max(30_000, 3 * longest));
}
