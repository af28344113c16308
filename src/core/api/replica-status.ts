import { z } from 'zod';
import { jsonIn } from './json.ts';

const count = z.number().min(0);
const counts = z.record(z.string(), count).readonly();

/** A member that an earlier version did not write is optional: during an upgrade replicas of both run. */
const replicaStatus = z.object({
  /** Whether everything that decisions read has been read once; null: it follows no cluster. */
  synced: z.boolean().nullable(),
  /** By the plural of a kind: whether its events arrive as they happen. */
  watches: z.record(z.string(), z.boolean()).readonly(),
  /** Whether the webhook configuration trusts the certificate that it serves; null: not known. */
  trusted: z.boolean().nullable().default(null),
  /** The decisions of the last hour (to five minutes), or since its start, by outcome, and skips by reason. */
  decisions: z.object({
    outcomes: counts,
    skips: counts,
    /** How long it has counted, in seconds: at most an hour; absent: an earlier version, which does not say. */
    seconds: count.optional(),
  }),
  /** The pods that it holds now; only the leader holds any. null: there is no Hold Service. */
  held: count.nullable(),
  /**
   * Running pods whose hooks call an address where the Hold Service is not; null: there is no Hold Service; absent: an earlier
   * version, which does not say.
   */
  unreached: count.nullish(),
  /** The flips of the canary that it has led, by result; null: it has no canary. */
  flips: counts.nullable(),
  /** Its last audit while it leads: workloads by verdict, and those of a namespace with a finding. null: none. */
  audit: z
    .object({
      verdicts: counts,
      findings: z.array(z.object({ namespace: z.string(), reason: z.string(), count })).readonly(),
    })
    .nullable(),
});

/** What a replica says of itself, at `/status` of its admin port. Each part of the server adds its own members. */
export type ReplicaStatus = z.output<typeof replicaStatus>;

/** @returns undefined for what is no status */
export function parseReplicaStatus(text: string): ReplicaStatus | undefined {
  return replicaStatus.safeParse(jsonIn(text)).data;
}
