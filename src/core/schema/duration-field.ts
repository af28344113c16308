import { z } from 'zod';
import { DURATION_HINT, parseDuration } from './duration.ts';

/** A duration in a document: text in, seconds out. */
export const duration = z
  .string({ error: `expected ${DURATION_HINT}` })
  .refine((text) => parseDuration(text) !== undefined, { error: `expected ${DURATION_HINT}, at most 168h` })
  .transform((text) => parseDuration(text) ?? 0);
