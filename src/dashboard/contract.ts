import { z } from 'zod';
import { overview } from '../core/api/index.ts';
import { FATES, GROUPINGS, SORTS } from '../core/report/index.ts';
import { AFTER_SIGTERM, INSTANT_SOURCES, TONES } from '../core/timeline/index.ts';

/*
 * The output of the commands' `--output json` and the answers of /api/v1 have the same shapes. Objects are strict, so that a
 * test fails if one of the two gets an additional member.
 */

const seconds = z.number();
const nothingKnown = z.null();

const said = z.strictObject({ code: z.string(), text: z.string() });

const explainedField = z.strictObject({
  field: z.string(),
  /** Durations are texts, as in a policy: `30s`. */
  value: z.unknown(),
  /** The layer from which the value comes: `built-in`, a policy, an annotation. */
  origin: z.string(),
  ignored: z
    .array(z.strictObject({ origin: z.string(), value: z.unknown(), because: z.string() }))
    .readonly()
    .optional(),
});

/** What a lag is based on. */
const evidence = z.union([
  z.strictObject({
    basis: z.enum(['measured', 'declared', 'assumed']),
    removals: z.number(),
    historySeconds: seconds,
    text: z.string(),
  }),
  nothingKnown,
]);

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
  /** The estimate behind the wait, as a sentence and in numbers. */
  evidence,
  estimate: z.union([z.looseObject({ text: z.string() }), nothingKnown]),
  /**
   * The longest waits that its pods get from the floor while Linger is down: at first, and once the floor is out of date;
   * null: none. Absent if there is no floor, or that is not known.
   */
  floor: z
    .union([z.strictObject({ hook: z.string(), waitSeconds: seconds, laterSeconds: seconds }), nothingKnown])
    .optional(),
  /** Consumers in mode Observe: they are measured for its pods, but make no wait longer. */
  observers: z.array(z.string()).readonly(),
  fields: z.array(explainedField).readonly(),
  notes: z.array(said).readonly(),
};

const located = z.strictObject({ ...explanation, file: z.string(), line: z.number() });

/** A workload of the cluster: what its pods got when they were created, with the most frequent plan first. */
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

const named = { kind: z.string(), namespace: z.string(), name: z.string() };

const auditFinding = z.strictObject({
  ...named,
  verdict: z.enum(['protected', 'unprotected', 'skipped', 'unknown']),
  reason: z.string(),
  level: z.union([z.enum(['warning', 'note']), nothingKnown]),
  waitSeconds: z.union([seconds, nothingKnown]),
  graceSeconds: z.union([seconds, nothingKnown]),
  /** 1e9 and more means forever. */
  exposureSeconds: z.union([seconds, nothingKnown]),
  /** The evidence for these numbers; null: there are none. */
  evidence: evidence,
  file: z.string().optional(),
  line: z.number().optional(),
  column: z.number().optional(),
  source: z.string().optional(),
  text: z.string(),
});

const counts = z.record(z.string(), z.number());

const auditSummary = z.strictObject({
  workloads: z.number(),
  verdicts: z.record(z.enum(['protected', 'unprotected', 'skipped', 'unknown']), z.number()),
  wouldBe: z.number(),
  reasons: counts,
  skipped: counts,
  rolloutSeconds: seconds,
  drainSeconds: seconds,
});

/** `linger audit -o json`. The findings of a workload follow each other, the decisive one first. */
export const auditReport = z.strictObject({
  findings: z.array(auditFinding).readonly(),
  summary: auditSummary,
  /** Only with a cluster: a full sentence if new pods get no hook at this moment. */
  noHooks: z.string().optional(),
});

const workloadRow = z.strictObject({
  /** `Deployment/shop/web`: its fragment in the page's address, and its name in `GET /api/v1/explanation`. */
  address: z.string(),
  fate: z.enum(FATES),
  /** The decisive one first. */
  findings: z.array(auditFinding).readonly(),
});

/**
 * The answer to `GET /api/v1/workloads?search=…&fate=…&sort=…&limit=…`. The page for manifests gets the same from its
 * worker.
 */
export const workloadsReport = z.strictObject({
  /** Seconds since the epoch. */
  asOf: seconds,
  headline: z.string(),
  /** What the headline is based on, in sentences. */
  basis: z.array(z.string()).readonly(),
  summary: auditSummary,
  /** How many workloads lose requests, are assumed to, do not, and for how many that is not known. */
  fates: z.record(z.enum(FATES), z.number()),
  /** The first workloads that match. */
  rows: z.array(workloadRow).readonly(),
  matching: z.number(),
  /** If they are grouped: how many match in each group, in the order of the rows. */
  groups: z.array(z.strictObject({ name: z.string(), workloads: z.number() })).readonly(),
  /** The workload that `open` names, even if it does not match; null: it does not exist. */
  opened: z.union([workloadRow, nothingKnown]),
  /** What could not be read, and what is assumed instead; names missing rights. */
  unseen: z.array(z.string()).readonly(),
});

const orAll = <const T extends readonly string[]>(of: T) =>
  z
    .enum(of)
    .or(z.literal(''))
    .optional()
    .transform((value) => (value === '' ? undefined : value));

/** The query of `GET /api/v1/workloads`. */
export const workloadsQuery = z.strictObject({
  /** Words, each to be found in the name, the namespace, the kind or a reason. */
  search: z.string().default(''),
  fate: orAll(FATES),
  reason: z.string().optional(),
  /** Default: in the order of `audit`. */
  sort: orAll(SORTS),
  /** `true`: in reverse order. */
  reverse: z.stringbool().default(false),
  group: orAll(GROUPINGS),
  open: z.string().optional(),
  limit: z.coerce.number().int().min(1).max(1_000).default(100),
});

const chart = z.strictObject({
  title: z.string(),
  summary: z.string(),
  from: seconds,
  to: seconds,
  marks: z.array(z.strictObject({ at: seconds, label: z.string() })).readonly(),
  lanes: z
    .array(
      z.strictObject({
        label: z.string(),
        note: z.string().optional(),
        spans: z
          .array(z.strictObject({ from: seconds, to: seconds, tone: z.enum(TONES) }))
          .readonly()
          .optional(),
      }),
    )
    .readonly(),
});

/** The answer to `GET /api/v1/explanation?workload=Deployment/shop/web`. */
export const explanationReport = z.strictObject({
  plan: z.strictObject(explanation),
  /** Whether its pods already have that plan, or need none. */
  stands: z.boolean(),
  /** Whether the plan would stop its loss of requests. */
  helps: z.boolean(),
  because: z.string(),
  /** Charts of its termination, as it is and with Linger's wait. */
  charts: z.array(chart).readonly(),
  /** The change as YAML: the members that change, or the document that contains them. null: nothing changes. */
  patch: z.union([z.strictObject({ before: z.string(), after: z.string() }), nothingKnown]),
  /** Why some changes cannot be made. */
  left: z.array(z.string()).readonly(),
  /** A policy with the same effect where Linger's webhook is installed. */
  policy: z.union([z.string(), nothingKnown]),
});

const lagView = z.union([z.strictObject({ samples: z.number(), p50: seconds, p99: seconds }), nothingKnown]);

const consumerView = z.strictObject({
  name: z.string(),
  measure: z.string(),
  mode: z.literal('Observe').optional(),
  removals: lagView,
  additions: lagView,
  lastSample: z.union([seconds, nothingKnown]),
  services: z.union([z.number(), nothingKnown]),
  instances: z.union([z.number(), nothingKnown]),
  unseen: z.strictObject({ since: seconds, pods: z.number() }).optional(),
  condition: z.strictObject({
    status: z.enum(['True', 'False', 'Unknown']),
    reason: z.string(),
    message: z.string(),
    since: seconds,
  }),
  limits: z.array(z.string()).readonly(),
});

/** `linger consumers -o json`. */
export const consumersReport = z.strictObject({
  asOf: seconds,
  consumers: z.array(consumerView).readonly(),
});

/** A sender that held pods saw after every known consumer had stopped using them. */
const undeclaredSender = z.strictObject({
  /** An address, with its owner if that is known. */
  from: z.string(),
  pods: z.number(),
  connections: z.number(),
  /** Seconds since the epoch. */
  lastSeen: seconds,
  /** The workloads of the pods that saw it: `shop/Deployment/web`. */
  workloads: z.array(z.string()).readonly(),
});

/** The answer to `GET /api/v1/consumers`; null: not known, for a reason that `unseen` gives. */
export const consumersView = consumersReport.extend({
  undeclared: z.union([z.array(undeclaredSender).readonly(), nothingKnown]),
  /** Workloads to which a route or a load balancer leads that no DiscoveryConsumer declares, as `audit` finds them. */
  routed: z.union([z.array(z.strictObject({ ...named, text: z.string() })).readonly(), nothingKnown]),
  unseen: z.array(z.string()).readonly(),
});

/** A pod whose SIGTERM hook Hold is delaying. */
const heldPod = z.strictObject({
  namespace: z.string(),
  pod: z.string(),
  uid: z.string(),
  cause: z.string().optional(),
  heldMs: z.number(),
  deleted: z.boolean(),
  hooks: z.number(),
  maxSeconds: seconds,
  leftMs: z.number(),
  waitingFor: z
    .array(
      z.strictObject({
        consumer: z.string(),
        instances: z.array(z.string()).readonly().optional(),
      }),
    )
    .readonly(),
  open: z.number().optional(),
  from: z.array(z.string()).readonly(),
});

/** `linger hold list -o json`. */
export const holdReport = z.strictObject({ held: z.array(heldPod).readonly() });

/**
 * Pods of one workload that, for the same cause, got SIGTERM before everything that sends to them had followed their
 * removal.
 */
const shortfall = z.strictObject({
  /** When the latest of them got SIGTERM. */
  at: seconds,
  namespace: z.string(),
  /** As `Deployment/web`. */
  owner: z.string(),
  pods: z.number(),
  /** For how many seconds requests may have been lost, at most. */
  seconds,
  /** The cause: `no wait; edge follows within 9.8 s (p99)`. */
  text: z.string(),
});

const episode = z.strictObject({
  from: seconds,
  to: seconds,
  removals: z.number(),
  share: z.number(),
  p99Seconds: seconds,
  p99WithoutSeconds: seconds,
});

const forgotten = z.strictObject({
  from: seconds,
  to: seconds,
  namespace: z.string().optional(),
  consumer: z.string().optional(),
});

/** `linger history -o json`. */
export const historyReport = z.strictObject({
  episodes: z.array(episode.extend({ scope: z.string() })).readonly(),
  forgotten: z.array(forgotten).readonly(),
});

/** `linger status -o json`; null: not known, for a reason that `unseen` gives. */
export const statusReport = overview.extend({
  headline: z.string(),
  /** Groups of namespaces whose pods get the same, largest group first. */
  namespaces: z
    .array(
      z.strictObject({
        mode: z.string(),
        hook: z.string(),
        waitSeconds: seconds,
        why: z.string(),
        namespaces: z.array(z.string()).readonly(),
      }),
    )
    .readonly(),
  /** The consumers whose lag cannot be relied on. */
  consumers: z.array(consumerView).readonly().nullable(),
});

const place = { namespace: z.string(), service: z.string(), pod: z.string(), source: z.string() };

/** The answer to `GET /api/v1/now`; null: not known, for a reason that `unseen` gives. */
export const nowReport = z.strictObject({
  asOf: seconds,
  headline: z.string(),
  held: z.union([z.array(heldPod).readonly(), nothingKnown]),
  /** Consumers whose lag cannot be relied on. */
  troubled: z.union([z.array(consumerView).readonly(), nothingKnown]),
  /** The shortfalls of the last day, as the leader published them, most frequent first. */
  shortfalls: z.union([z.array(shortfall).readonly(), nothingKnown]),
  /** The terminations of the last hours, latest first. Spans begin at the deletion; null: not known. */
  ended: z.union([
    z
      .array(
        z.strictObject({
          uid: z.string(),
          namespace: z.string(),
          pod: z.string(),
          owner: z.string(),
          at: seconds,
          waitSeconds: z.union([seconds, nothingKnown]),
          /** For how many seconds something sent to it. */
          lagSeconds: z.union([seconds, nothingKnown]),
          afterSigterm: z.enum(AFTER_SIGTERM),
        }),
      )
      .readonly(),
    nothingKnown,
  ]),
  /** What this command has observed itself since it started. */
  watched: z.strictObject({
    /** null: the watches have not begun yet. */
    since: z.union([seconds, nothingKnown]),
    /** Withdrawals that have begun and not ended, oldest first. */
    open: z.array(z.strictObject({ ...place, since: seconds })).readonly(),
    /** Withdrawals that have ended, latest first. A lag of null: the watches were not current at that time. */
    done: z
      .array(z.strictObject({ ...place, at: seconds, lagSeconds: z.union([seconds, nothingKnown]) }))
      .readonly(),
    lags: z
      .array(
        z.strictObject({ source: z.string(), samples: z.number(), p50: seconds, p99: seconds, max: seconds }),
      )
      .readonly(),
  }),
  unseen: z.array(z.string()).readonly(),
});

/** Lags in ascending order, each with the share of removals that took no longer. */
const distribution = z.array(z.tuple([seconds, z.number()]).readonly()).readonly();

/**
 * The answer to `GET /api/v1/lag?scope=…`. Waits are based on these lags, which are of a week, or of more in a quiet
 * cluster.
 */
export const lagReport = z.strictObject({
  asOf: seconds,
  /** The scopes that have a history: `cluster`, `namespace/NAME`, `consumer/NAME/removal` and so on. */
  scopes: z.array(z.string()).readonly(),
  scope: z.string(),
  samples: z.number(),
  p50: seconds,
  p90: seconds,
  p99: seconds,
  max: seconds,
  /** The upper edges of the bands of lags, in ascending order; the last band has none. */
  edges: z.array(seconds).readonly(),
  /** The spans of time with removals, and how many of these are in each band. */
  spans: z
    .array(z.strictObject({ from: seconds, to: seconds, counts: z.array(z.number()).readonly() }))
    .readonly(),
  /** The whole lag: the control plane, followed by the slowest known consumer. */
  distribution,
  /** The control plane first, then each consumer of an ordinary Service; empty if the scope is itself one of these. */
  parts: z
    .array(
      z.strictObject({
        name: z.string(),
        /** `unknown`: nothing has been measured yet, so the whole is longer than it looks. */
        source: z.enum(['measured', 'declared', 'unknown']),
        samples: z.number(),
        p50: z.union([seconds, nothingKnown]),
        p99: z.union([seconds, nothingKnown]),
        distribution,
      }),
    )
    .readonly(),
  /** The waits that pods get now without policies and annotations of their own, and in how many namespaces. */
  waits: z.array(z.strictObject({ seconds, namespaces: z.number(), covered: z.number() })).readonly(),
  episodes: historyReport.shape.episodes,
  unseen: z.array(z.string()).readonly(),
});

const wait = z.strictObject({
  seconds,
  /** The number of namespaces that have it. */
  namespaces: z.number(),
  /** The shortest and the longest hold; null: another hook applies. */
  hold: z.union([z.strictObject({ minSeconds: seconds, maxSeconds: seconds }), nothingKnown]),
  /**
   * The smallest share, over these namespaces, of past removals that were complete within it (with Hold: within the longest
   * hold), as in `simulate`; null: not enough has been measured.
   */
  covered: z.union([z.number(), nothingKnown]),
});

/** The answer to `GET /api/v1/what-if?from=…`: the effect of a policy, with Linger's webhook installed. */
export const whatIfReport = z.strictObject({
  /** YAML for `kubectl apply`. */
  policy: z.string(),
  waits: z.array(wait).readonly(),
  /** The number of past removals on which the whole lag is based; null: not enough has been measured. */
  removals: z.union([z.number(), nothingKnown]),
  /** The whole lag in the cluster; empty: not enough has been measured. */
  distribution,
  /**
   * With Hold: for how long half of the pods, and 99 % of them, would be held; null: another hook, or not enough has been
   * measured.
   */
  held: z.union([z.strictObject({ p50: seconds, p99: seconds }), nothingKnown]),
  /** Why pods of some namespaces would get no Hold. */
  obstacles: z.array(z.string()).readonly(),
  /**
   * The audit as it is, and with the policy applied. null: it takes a while, and the event `what-if` reports when it is
   * available.
   */
  before: auditSummary,
  after: z.union([auditSummary, nothingKnown]),
});

const instant = z.union([seconds, nothingKnown]);
const instantSource = z.enum(INSTANT_SOURCES);

/** Instants are seconds after the deletion; null: not known, or not before the observation ended. */
const termination = z.strictObject({
  namespace: z.string(),
  pod: z.string(),
  uid: z.string(),
  /** As `Deployment/web`; empty: it has none. */
  owner: z.string(),
  /** Seconds since the epoch. */
  deletedAt: seconds,
  hook: z.string(),
  withdrawals: z.union([
    z.array(z.strictObject({ source: z.string(), service: z.string(), after: instant })).readonly(),
    nothingKnown,
  ]),
  consumers: z.array(z.strictObject({ name: z.string(), after: instant, by: instantSource })).readonly(),
  omitted: z.number(),
  /** What the helper of hook Hold counted: when the last connection came, and how many were open at SIGTERM. */
  witness: z.union([
    z.strictObject({ last: instant, open: z.union([z.number(), nothingKnown]) }),
    nothingKnown,
  ]),
  sigterm: z.strictObject({ after: instant, by: instantSource }),
  release: z.string(),
  gone: instant,
  /** Whether something may have sent to the pod after SIGTERM; `overruns`: what did, and for how long. */
  afterSigterm: z.enum(AFTER_SIGTERM),
  overruns: z.array(z.strictObject({ what: z.string(), seconds: instant })).readonly(),
  /** What is unknown, in words. */
  unknown: z.array(z.string()).readonly(),
  text: z.string(),
});

/** `linger timeline -o json`, latest first. */
export const timelineReport = z.strictObject({ terminations: z.array(termination).readonly() });

/** The answer to `GET /api/v1/timeline`. */
export const timelineView = timelineReport.extend({ asOf: seconds });

/** The views whose data may change while they are shown; these are the events of `GET /api/v1/events`. */
export const TOPICS = ['workloads', 'now', 'timeline', 'consumers', 'lag', 'what-if'] as const;
export type Topic = (typeof TOPICS)[number];

/** The answer with any status of 400 or more. */
export const apiError = z.strictObject({ error: z.strictObject({ code: z.string(), message: z.string() }) });

/** The answer to `GET /api/v1`: which views this server has. */
export const apiRoot = z.strictObject({
  version: z.string(),
  views: z.array(z.enum(TOPICS)).readonly(),
  /** The cluster or the folder whose data are shown; null: none. */
  source: z.union([z.string(), nothingKnown]),
  /** Present if a recording is shown instead of one of the reader's clusters. */
  recording: z.strictObject({ of: z.string(), from: seconds, lasts: seconds }).optional(),
});

export type ExplainReport = z.infer<typeof explainReport>;
export type AuditJson = z.infer<typeof auditReport>;
export type WorkloadsReport = z.infer<typeof workloadsReport>;
/** All workloads of an audit; a query returns some of them. */
export type AllWorkloads = Omit<WorkloadsReport, 'matching' | 'groups' | 'opened'>;
export type WorkloadsQuery = z.infer<typeof workloadsQuery>;
export type ExplanationReport = z.infer<typeof explanationReport>;
export type ConsumersReport = z.infer<typeof consumersReport>;
export type ConsumersView = z.infer<typeof consumersView>;
export type HoldReport = z.infer<typeof holdReport>;
export type HistoryReport = z.infer<typeof historyReport>;
export type StatusReport = z.infer<typeof statusReport>;
export type LagReport = z.infer<typeof lagReport>;
export type WhatIfReport = z.infer<typeof whatIfReport>;
export type TimelineReport = z.infer<typeof timelineReport>;
export type TimelineView = z.infer<typeof timelineView>;
export type NowReport = z.infer<typeof nowReport>;
export type ApiRoot = z.infer<typeof apiRoot>;
export type ApiError = z.infer<typeof apiError>;
