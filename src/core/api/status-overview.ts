import { z } from 'zod';

const counts = z.record(z.string(), z.number()).readonly();

/** A running Linger at a glance; null: not known, for a reason that `unseen` gives. */
export const overview = z.strictObject({
  /** Whether pods created now get a hook; `headline` is a sentence for the case that they get none. */
  hooks: z.strictObject({
    given: z.boolean().nullable(),
    why: z.string().optional(),
    headline: z.string().optional(),
  }),
  replicas: z.strictObject({ ready: z.number(), all: z.number() }).nullable(),
  /** The replica that leads, and how many seconds ago it renewed its lease. */
  leader: z.strictObject({ name: z.string(), renewedSeconds: z.number() }).nullable(),
  /** Decisions of the last hour, by all replicas together: by outcome, and skips by reason. */
  decisions: z
    .strictObject({
      outcomes: counts,
      skips: counts,
      /**
       * Replicas that were started since, so that they have counted for only this many seconds; null: they do not report how
       * long.
       */
      started: z.array(z.strictObject({ replica: z.string(), seconds: z.number().nullable() })).readonly(),
    })
    .nullable(),
  /** How many pods are held now, as reported by the leader. */
  held: z.number().nullable(),
  /** How many running pods call (by Hold) an address that the Hold Service does not have. */
  unreached: z.number().nullable(),
  /** The last audit: workloads by verdict, and findings by reason and namespace. */
  audit: z
    .strictObject({
      verdicts: counts,
      findings: z
        .array(
          z.strictObject({
            reason: z.string(),
            workloads: z.number(),
            namespaces: z.array(z.string()).readonly(),
          }),
        )
        .readonly(),
    })
    .nullable(),
  /**
   * Whether the policy that gives pods a wait while Linger is down is bound in the API server, and until when its waits are
   * up to date, in seconds since the epoch; null: it has none that can be used. `changed`: paths at which the policy and its
   * binding differ from what this version installs.
   */
  floor: z
    .strictObject({
      bound: z.boolean(),
      validUntil: z.number().nullable(),
      changed: z.array(z.string()).readonly(),
    })
    .nullable(),
  unseen: z.array(z.string()).readonly(),
});
export type Overview = z.infer<typeof overview>;
