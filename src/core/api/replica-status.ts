import { z } from 'zod';
import { jsonIn } from './json.ts';

const count = z.number().min(0);
const counts = z.record(z.string(), count).readonly();

/**
 * By the name of the part that reports them. Members that an earlier version did not write are optional, because replicas of
 * both versions run during an upgrade.
 */
const FACTS = {
  cluster: {
    /** Whether everything that decisions depend on has been read once; null: it follows no cluster. */
    synced: z.boolean().nullable(),
  },
  certificates: {
    /** Whether the webhook configuration trusts the certificate that it serves; null: not known. */
    trusted: z.boolean().nullable().default(null),
  },
  webhook: {
    /** The decisions of the last hour (to within five minutes) or since its start, by outcome, and skips by reason. */
    decisions: z.object({
      outcomes: counts,
      skips: counts,
      /** For how many seconds it has counted, at most an hour; absent: an earlier version, which does not report that. */
      seconds: count.optional(),
    }),
  },
  hold: {
    /**
     * How many pods it holds now; null: it does not lead, or has not led for long enough for hooks to call again, or there
     * is no Hold Service. Followers of an earlier version report 0.
     */
    held: count.nullable(),
    /**
     * How many running pods call an address that the Hold Service does not have; null: there is no Hold Service; absent: an
     * earlier version, which does not report that.
     */
    unreached: count.nullish(),
  },
  canary: {
    /** The flips that it has made as the leader, by result; null: it has no canary. */
    flips: counts.nullable(),
  },
  audit: {
    /** Its last audit as the leader: workloads by verdict, and the number in each namespace with a finding. null: none. */
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

/** The type with all optional members present, at any depth. */
type Complete<T> = T extends object
  ? { readonly [Member in keyof T]-?: Complete<Exclude<T[Member], undefined>> }
  : T;

/** The status that a replica of this or an earlier version reports. */
export type ReplicaStatus = z.output<typeof replicaStatus>;

/** The status that a replica of this version reports, at `/status` of its admin port. */
export type OwnStatus = Complete<ReplicaStatus>;

/** The facts that a part of the server contributes. */
export type FactsOf<Part extends keyof typeof FACTS> = Complete<z.output<z.ZodObject<(typeof FACTS)[Part]>>>;

/** @returns undefined for anything other than a status */
export function parseReplicaStatus(text: string): ReplicaStatus | undefined {
  return replicaStatus.safeParse(jsonIn(text)).data;
}
