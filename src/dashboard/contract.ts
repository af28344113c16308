import { z } from 'zod';

/*
 * What `--output json` of the commands prints and what /api/v1 answers with: the same shapes. Objects are strict, so that a
 * member that one of the two gains alone fails a test.
 */

const seconds = z.number();
const nothingKnown = z.null();

const said = z.strictObject({ code: z.string(), text: z.string() });

const explainedField = z.strictObject({
  field: z.string(),
  /** Durations as a policy writes them: `30s`. */
  value: z.unknown(),
  /** The layer that the value comes from: `built-in`, a policy, an annotation. */
  origin: z.string(),
  ignored: z
    .array(z.strictObject({ origin: z.string(), value: z.unknown(), because: z.string() }))
    .readonly()
    .optional(),
});

/** The decision for the pods of one workload. */
const explanation = {
  kind: z.string(),
  namespace: z.string(),
  name: z.string(),
  outcome: z.enum(['inject', 'skip', 'unknown']),
  mode: z.union([z.string(), nothingKnown]),
  digest: z.union([z.string(), nothingKnown]),
  reason: z.union([z.string(), nothingKnown]),
  waitSeconds: z.union([seconds, nothingKnown]),
  graceSeconds: z.union([seconds, nothingKnown]),
  baseGraceSeconds: z.union([seconds, nothingKnown]),
  hook: z.union([z.string(), nothingKnown]),
  hold: z.union([
    z.strictObject({ minSeconds: seconds, maxSeconds: seconds, observe: z.boolean() }),
    nothingKnown,
  ]),
  admitted: z.union([z.string(), nothingKnown]),
  containers: z.array(z.string()).readonly(),
  why: z.union([z.string(), nothingKnown]),
  /** The measurement behind the wait, as a sentence and in numbers. */
  estimate: z.union([z.looseObject({ text: z.string() }), nothingKnown]),
  fields: z.array(explainedField).readonly(),
  notes: z.array(said).readonly(),
};

const located = z.strictObject({ ...explanation, file: z.string(), line: z.number() });

/** A workload of the cluster: what its pods got when they were created, the most frequent plan first. */
const live = z.strictObject({
  ...explanation,
  live: z.strictObject({
    pods: z.number(),
    withoutPlan: z.number(),
    plans: z.array(z.looseObject({ pods: z.number(), wait: seconds })).readonly(),
  }),
});

/** `linger explain -o json`. */
export const explainReport = z.strictObject({ plans: z.array(z.union([located, live])).readonly() });

const problem = z.strictObject({
  in: z.enum(['manifest', 'policies']),
  /** From 1; null: it is about the whole text. */
  line: z.union([z.number(), nothingKnown]),
  column: z.union([z.number(), nothingKnown]),
  text: z.string(),
});

/** What a manifest and a policy come to: the answer to `POST /api/v1/explain`. */
export const playgroundReport = z.strictObject({
  plans: z.array(located.extend({ /** One sentence. */ because: z.string() })).readonly(),
  /** What is wrong with the texts; each object that can be read is explained nevertheless. */
  problems: z.array(problem).readonly(),
  /** `linger inject --diff`; empty: nothing changes. */
  diff: z.string(),
});

/** The body of that request. */
export const playgroundRequest = z.strictObject({ manifest: z.string(), policies: z.string().default('') });

/** Any answer with a status of 400 or more. */
export const apiError = z.strictObject({ error: z.strictObject({ code: z.string(), message: z.string() }) });

/** What this server has to show: the answer to `GET /api/v1`. */
export const apiRoot = z.strictObject({
  version: z.string(),
  views: z.array(z.enum(['playground'])).readonly(),
  /** The cluster or the folder that is shown; null: none. */
  source: z.union([z.string(), nothingKnown]),
});

export type ExplainReport = z.infer<typeof explainReport>;
export type PlaygroundReport = z.infer<typeof playgroundReport>;
export type PlaygroundRequest = z.infer<typeof playgroundRequest>;
export type Problem = z.infer<typeof problem>;
export type ApiRoot = z.infer<typeof apiRoot>;
export type ApiError = z.infer<typeof apiError>;
