import { z } from 'zod';

const counts = z.record(z.string(), z.number()).readonly();

/** A running Linger at a glance; null: not known, and `unseen` says why. */
export const overview = z.strictObject({
  /** Whether pods that are created now get a hook; `headline` is a sentence where they get none. */
  hooks: z.strictObject({
    given: z.boolean().nullable(),
    why: z.string().optional(),
    headline: z.string().optional(),
  }),
  replicas: z.strictObject({ ready: z.number(), all: z.number() }).nullable(),
  /** The replica that leads, and how many seconds ago it renewed its lease. */
  leader: z.strictObject({ name: z.string(), renewedSeconds: z.number() }).nullable(),
  /** Decisions of the last hour, on all replicas together: by outcome, and skips by reason. */
  decisions: z
    .strictObject({
      outcomes: counts,
      skips: counts,
      /** The replicas that have started since: they have counted for so many seconds only; null: they do not say how long. */
      started: z.array(z.strictObject({ replica: z.string(), seconds: z.number().nullable() })).readonly(),
    })
    .nullable(),
  /** Pods that are held now, as the leader says. */
  held: z.number().nullable(),
  /** Running pods whose hooks (Hold) call an address where the Hold Service is not. */
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
   * Whether the policy that gives pods a wait while Linger is down is bound in the API server, and until when its waits count
   * as up to date, in seconds since the epoch; null: there are none that can be used. `changed`: paths at which the policy and
   * its binding differ from what this version installs.
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
