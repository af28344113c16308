import { expect, test } from 'vitest';
import type { ClusterEvent } from '../../../src/core/lag/events.ts';
import { endpoints, recorded, slice } from './sample-events.ts';

/** What happens, the lags that it gives, and what is discarded. */
type Case = [what: string, events: ClusterEvent[], lags: string[], discarded?: object];

/** The slice and the Endpoints of `web` list these pods as ready. */
export const both = (at: number, ...uids: string[]): ClusterEvent[] => [
  slice(at, Object.fromEntries(uids.map((uid) => [uid, 'ready' as const]))),
  endpoints(at, uids),
];

/** A table in which each row is a rule. */
export function specify(cases: readonly Case[]) {
  test.each(cases)('%s', (...[, events, lags, discarded = {}]) => {
    const seen = recorded(...events);
    expect(seen.lags).toEqual(lags);
    expect(seen.discarded).toEqual(discarded);
  });
}
