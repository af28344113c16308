import { z } from 'zod';
import { REPORT_RESULTS, type ReportResult } from '../catalog/report-results.ts';

const REFUSALS = (Object.keys(REPORT_RESULTS) as ReportResult[]).filter(
  (name) => REPORT_RESULTS[name].status !== 200,
);

/** Names that people can read in a condition; pods' names are among them. */
const INSTANCE = /^[A-Za-z0-9]([A-Za-z0-9._:-]{0,126}[A-Za-z0-9])?$/;
const LONGEST_SYNC_SECONDS = 3_600;

/** The body of `POST /v1/consumers/NAME/reports`. Strict: a misspelt field is an error, and not a sync of unknown length. */
export const reportRequest = z
  .strictObject({
    instance: z
      .string()
      .regex(INSTANCE, {
        error: 'expected 1 to 128 letters, digits, dots, colons, dashes and underscores, such as a pod name',
      })
      .describe('Which instance reports, such as its pod’s name. No two may use one name.'),
    cursor: z
      .string()
      .max(256, { error: 'expected at most 256 characters' })
      .optional()
      .describe(
        'The cursor of the answer before, as it came: the sync that began while the instance held it is complete. Absent or empty: a cursor is asked for.',
      ),
    syncSeconds: z
      .number({ error: 'expected a number of seconds' })
      .min(0, { error: 'expected no less than 0' })
      .max(LONGEST_SYNC_SECONDS, { error: `expected at most ${LONGEST_SYNC_SECONDS}` })
      .optional()
      .describe('How long the sync took, by the instance’s own clock.'),
  })
  .describe('What an instance of a consumer reports around a sync.');
export type ReportRequest = z.output<typeof reportRequest>;

export const reportAccepted = z
  .strictObject({
    cursor: z.string().describe('To be held during the next sync, and sent back after it. Opaque.'),
  })
  .describe('The report counts.');

export const reportRefused = z
  .strictObject({
    reason: z.enum(REFUSALS).describe('Why, for programs.'),
    message: z.string().describe('Why, and the way out, for people.'),
    cursor: z
      .string()
      .optional()
      .describe('With 409 for a cursor: the one to go on with. The sync that was reported does not count.'),
  })
  .describe('The report does not count.');
export type ReportRefused = z.output<typeof reportRefused>;
