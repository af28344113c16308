import { z } from 'zod';
import { apiRule, celPattern } from './api-rules.ts';
import {
  DURATION,
  DURATION_HINT,
  LONGEST_DURATION,
  LONGEST_DURATION_TEXT,
  parseDuration,
} from './duration.ts';

/** A duration in a document: text in, seconds out. */
export const duration = z
  .string({ error: `expected ${DURATION_HINT}` })
  .refine((text) => parseDuration(text) !== undefined, { error: `expected ${DURATION_HINT}, at most 168h` })
  .transform((text) => parseDuration(text) ?? 0);

/**
 * A duration that is not shorter than this. Both are read as Go's `time.ParseDuration` reads them, which is also what
 * CEL's `duration()` does.
 */
export function durationFrom(least: string) {
  const leastSeconds = parseDuration(least) ?? Number.NaN;
  const error = `expected ${DURATION_HINT}, from ${least} to ${LONGEST_DURATION}`;
  const rule = `self.matches(${celPattern(DURATION)}) && duration(self) >= duration('${least}') && duration(self) <= duration('${LONGEST_DURATION}')`;
  return z
    .string({ error })
    .refine((text) => (parseDuration(text) ?? Number.NaN) >= leastSeconds, { error })
    .meta({ ...apiRule(rule, error), maxLength: LONGEST_DURATION_TEXT })
    .transform((text) => parseDuration(text) ?? 0);
}
