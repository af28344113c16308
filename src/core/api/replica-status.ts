import { z } from 'zod';
import { jsonIn } from './json.ts';

const count = z.number().min(0);
const counts = z.record(z.string(), count).readonly();

/**
 * By the name of the part that says them. A member that an earlier version did not write is optional: during an upgrade
 * replicas of both run.
 */
const FACTS = {
  cluster: {
    /** Whether everything that decisions read has been read once; null: it follows no cluster. */
    synced: z.boolean().nullable(),
  },
  certificates: {
    /** Whether the webhook configuration trusts the certificate that it serves; null: not known. */
    trusted: z.boolean().nullable().default(null),
  },
  webhook: {
    /** The decisions of the last hour (to five minutes), or since its start, by outcome, and skips by reason. */
    decisions: z.object({
      outcomes: counts,
      skips: counts,
      /** How long it has counted, in seconds: at most an hour; absent: an earlier version, which does not say. */
      seconds: count.optional(),
    }),
  },
  hold: {
    /**
     * The pods that it holds now; null: it does not lead, or has not led for as long as hooks take to call again, or there is
     * no Hold Service. Followers of an earlier version say 0.
     */
    held: count.nullable(),
    /**
     * Running pods whose hooks call an address where the Hold Service is not; null: there is no Hold Service; absent: an
     * earlier version, which does not say.
     */
    unreached: count.nullish(),
  },
  canary: {
    /** The flips of the canary that it has led, by result; null: it has no canary. */
    flips: counts.nullable(),
  },
  audit: {
    /** Its last audit while it leads: workloads by verdict, and those of a namespace with a finding. null: none. */
    audit: z
      .object({
        verdicts: counts,
        findings: z.array(z.object({ namespace: z.string(), reason: z.string(), count })).readonly(),
      })
      .nullable(),
  },
};

const replicaStatus = z.object({
  /** By the plural of a kind: whether its events arrive as they happen. */
  watches: z.record(z.string(), z.boolean()).readonly(),
  ...FACTS.cluster,
  ...FACTS.certificates,
  ...FACTS.webhook,
  ...FACTS.hold,
  ...FACTS.canary,
  ...FACTS.audit,
});

/** With every optional member, at any depth. */
type Complete<T> = T extends object
  ? { readonly [Member in keyof T]-?: Complete<Exclude<T[Member], undefined>> }
  : T;

/** What a replica of this or an earlier version says of itself. */
export type ReplicaStatus = z.output<typeof replicaStatus>;

/** What a replica of this version says of itself, at `/status` of its admin port. */
export type OwnStatus = Complete<ReplicaStatus>;

/** What a part of the server adds to it. */
export type FactsOf<Part extends keyof typeof FACTS> = Complete<z.output<z.ZodObject<(typeof FACTS)[Part]>>>;

/** @returns undefined for what is no status */
export function parseReplicaStatus(text: string): ReplicaStatus | undefined {
  return replicaStatus.safeParse(jsonIn(text)).data;
}
