import type { Registry } from '@prometheus-io/client';
import { tellConfigured } from '../certs/index.ts';
import { asFailure, type KubeConnection, type ObjectEvents } from '../cluster/index.ts';
import { ANNOTATION, fewOf, type OwnStatus, setNewest } from '../core/api/index.ts';
import { type ClusterSnapshot, workloadKey } from '../core/decision/index.ts';
import {
  type Audited,
  type AuditFinding,
  type AuditVerdict,
  additionsIn,
  anyPodOf,
  auditWorkload,
  hooksNow,
  KnownPods,
  type PodsOf,
  type RunningPod,
  subjectOf,
} from '../core/judge/index.ts';
import type { ConsumerView } from '../core/lag/index.ts';
import type { PodGroup } from '../informers/index.ts';
import type { Leadership } from '../manager/index.ts';
import {
  gaugeAtScrape,
  type Logger,
  LogOnce,
  numberAtScrape,
  samplesBy,
  stepsOnLoop,
} from '../telemetry/index.ts';
import { inPieces, pause, Schedule, tick } from '../timing/index.ts';
import { gather, type RunningPods, truncatedInWords } from './cluster-workloads.ts';
import {
  type ClusterFindings,
  type NamespaceCounts,
  PolicyReports,
  type ReportApi,
} from './policy-reports.ts';

/** The operator's settings of the audit. */
export interface ClusterAuditSettings {
  /** The name of the MutatingWebhookConfiguration whose selectors determine for which pods the webhook is called. */
  readonly configuration: string;
  /** Whether that configuration exists, if this replica follows it; undefined: audits find out. */
  readonly configured: () => boolean | undefined;
  /** Whether the configuration trusts the certificate of this replica; undefined: not known. */
  readonly trusted: () => boolean | undefined;
  /** Seconds between two audits; 0: no audits. */
  readonly every: number;
  /** The API group of the reports to write; `off`: no reports. */
  readonly policyReports: 'off' | ReportApi;
}

interface ClusterAuditOptions {
  readonly connection: KubeConnection;
  readonly settings: ClusterAuditSettings;
  readonly registry: Registry;
  readonly logger: Logger;
  readonly events: ObjectEvents;
  readonly snapshot: () => ClusterSnapshot;
  readonly consumers: () => readonly ConsumerView[];
  /** Whether everything that decisions need has been read. */
  readonly synced: () => boolean;
  /** The running pods; undefined until they have been listed. */
  readonly pods: () => Iterable<PodGroup> | undefined;
  /** The running pods without a controller. */
  readonly barePods: () => Iterable<RunningPods['bare'][number]>;
  /** Milliseconds, monotonic. */
  readonly clock: () => number;
  readonly epochSeconds: () => number;
  readonly random: () => number;
  /** How many objects of each kind are read; default: the usual number. */
  readonly mostObjects?: number;
  /** How many characters of the objects around workloads are kept; default: the usual number. */
  readonly mostKept?: number;
}

/** More than a person reads, and 400 KB. Metrics count all findings. */
const MOST_FINDINGS = 1_000;
/** How many series of namespace × reason are kept; further namespaces are counted together. */
const MOST_SERIES = 1_000;
const LOOK_EVERY_MS = 1_000;
/** When the first audit of a term begins: after everything on which pods depend. */
const FIRST_AFTER_MS = 30_000;
/** Two Events a second: half of the rate of all Events, which leaves room for those of terminations. */
export const EVENT_EVERY_MS = 500;
/** A finding that persists is repeated daily, because the API server keeps Events only for an hour. */
const EVENT_AGAIN_MS = 24 * 3_600_000;

/**
 * Audits the cluster periodically while this replica leads, as `linger audit` does once: from the snapshot that decisions
 * use, the pods that are followed anyway, and lists of workloads and related objects. Audits do not depend on earlier ones,
 * so a new leader finds the same as the previous one.
 */
export class ClusterAudit {
  readonly #options: ClusterAuditOptions;
  readonly #once: LogOnce;
  readonly #reports: PolicyReports | undefined;
  /** When the latest Event was written, by workload and reason. */
  readonly #toldAt = new Map<string, number>();
  /** Findings of the last audit that are due for an Event, the next one first. */
  #untold: readonly AuditFinding[] = [];
  #last: (Latest & { readonly lead: Leadership }) | undefined;

  constructor(options: ClusterAuditOptions) {
    const { policyReports: api } = options.settings;
    this.#options = options;
    this.#once = new LogOnce(options.logger);
    this.#reports = api === 'off' ? undefined : new PolicyReports({ ...options, api });
    const latest = () => (this.#last?.lead.holds() === true ? this.#last : undefined);
    registerAuditMetrics(options.registry, latest, options.settings);
  }

  /** The result of the last audit in this term. */
  latest(): OwnStatus['audit'] {
    const { tally, lead } = this.#last ?? {};
    if (tally === undefined || lead?.holds() !== true) return null;
    const findings = tally.series.map(([{ namespace, reason }, count]) => ({ namespace, reason, count }));
    return { verdicts: tally.verdicts, findings };
  }

  /** Audits while this replica leads. Events are written concurrently, so that a thousand of them do not delay an audit. */
  async lead(lead: Leadership): Promise<void> {
    if (this.#options.settings.every === 0) return;
    this.#untold = [];
    await Promise.all([this.#auditPeriodically(lead), this.#recordEvents(lead)]);
  }

  async #auditPeriodically(lead: Leadership): Promise<void> {
    const { clock, random, settings, synced, pods } = this.#options;
    const everyMs = settings.every * 1000;
    const pace = { everyMs, firstPauseMs: Math.min(everyMs, 10_000), longestPauseMs: everyMs };
    const schedule = new Schedule(pace, clock() + Math.min(everyMs, FIRST_AFTER_MS), random);
    while (await tick(Math.min(everyMs, LOOK_EVERY_MS), lead.signal)) {
      const begun = clock();
      if (!schedule.due(begun) || !synced() || pods() === undefined || !lead.holds()) continue;
      try {
        const found = await this.#audit(lead.signal);
        const { tally, configured } = found;
        schedule.done(begun);
        this.#last = { ...found, lead, at: this.#options.epochSeconds() };
        const { settings } = this.#options;
        // If a source of certificates follows the configuration, it has reported this already.
        if (settings.configured() === undefined && configured !== undefined)
          tellConfigured(this.#once, settings.configuration, configured);
        this.#once.over('audit', {}, 'audit recovered');
        const { findings } = tally;
        await this.#reports?.write(findings, lead);
        this.#untold = findings.kept.filter((finding) => this.#isUntold(finding));
      } catch (thrown) {
        if (lead.signal.aborted) return;
        const { reason, message: problem, retryAfterMs } = asFailure(thrown);
        const pauseMs = Math.round(schedule.failed(clock(), retryAfterMs));
        const members = { reason, problem, pauseMs };
        this.#once.warn('audit', members, 'audit failed; the previous findings stay');
      }
    }
  }

  async #audit(signal: AbortSignal): Promise<Omit<Latest, 'at'>> {
    const { connection, settings, snapshot: current, pods, barePods, mostObjects, mostKept } = this.#options;
    const snapshot = current();
    const running = runningIn([...(pods() ?? [])], [...barePods()]);
    const gathering = {
      signal,
      configuration: settings.configuration,
      mostObjects,
      mostKept,
      pods: await inPieces(stepsOnLoop('audit', running)),
    };
    const additions = additionsIn(this.#options.consumers());
    const tally = new AuditTally();
    const { truncated, denied, unlisted, configured } = await gather(
      connection,
      gathering,
      (subject, related) => tally.add(auditWorkload(subject, snapshot, { ...related, additions })),
    );
    const [first] = denied;
    if (first !== undefined) throw first;
    if (unlisted.length > 0)
      this.#once.warn(
        'related',
        { kinds: unlisted.join(', ') },
        'listing related objects is forbidden; findings that need them are missing',
      );
    else this.#once.over('related', {}, 'listing related objects recovered');
    if (truncated.size > 0)
      this.#once.warn(
        'truncated',
        { kinds: truncatedInWords(truncated) },
        'audit incomplete; objects beyond the limit of their kind are left out',
      );
    else this.#once.over('truncated', {}, 'audit complete again');
    const { leftOut } = tally;
    if (leftOut.length > 0)
      this.#once.warn(
        'left out',
        { namespaces: fewOf(leftOut.map(([namespace, count]) => `${namespace} (${count})`)) },
        'more findings than are reported; the others are only counted',
      );
    else this.#once.over('left out', {}, 'all findings are reported again');
    return { tally, leftOut, truncated: [...truncated.keys()].toSorted(), configured };
  }

  #isUntold(finding: AuditFinding): boolean {
    const toldAt = this.#toldAt.get(keyOf(finding)) ?? Number.NEGATIVE_INFINITY;
    return this.#options.clock() - toldAt >= EVENT_AGAIN_MS;
  }

  async #recordEvents(lead: Leadership): Promise<void> {
    const { events, clock } = this.#options;
    while (await pause(EVENT_EVERY_MS, lead.signal)) {
      const [finding, ...others] = this.#untold;
      if (finding === undefined || !lead.holds()) continue;
      this.#untold = others;
      // Twice the bound, because findings come and go between audits.
      setNewest(this.#toldAt, keyOf(finding), clock(), 2 * MOST_FINDINGS);
      const { kind, namespace, name, reason, level, text } = finding;
      // AuditOnly is the operator's choice rather than a fault of the workload.
      const type = level === 'warning' && reason !== 'AuditOnly' ? 'Warning' : 'Normal';
      events.tell({ object: { kind, namespace, name }, type, reason, action: 'Audit', note: text });
    }
  }
}

const keyOf = (finding: AuditFinding) => `${subjectOf(finding)} ${finding.reason}`;

/** The result of an audit, and when it was made. */
interface Latest {
  readonly tally: AuditTally;
  /** {@link AuditTally.leftOut}, kept because it takes some work. */
  readonly leftOut: AuditTally['leftOut'];
  /** The kinds that have more objects than are read. */
  readonly truncated: readonly string[];
  /** Whether the webhook configuration exists; undefined: it may not be read. */
  readonly configured: boolean | undefined;
  /** Seconds since the epoch. */
  readonly at: number;
}

/** Pods whose plan is unknown say nothing about their workload, so they are left out. */
function podsOf({ plan, unread, count }: PodGroup): readonly RunningPod[] {
  if (unread) return [];
  return Array(count).fill({ annotations: plan === undefined ? {} : { [ANNOTATION.plan]: plan } });
}

/** A generator, because there may be 150,000 groups. */
function* runningIn(
  groups: readonly PodGroup[],
  bare: RunningPods['bare'],
): Generator<undefined, RunningPods> {
  const byWorkload = new Map<string, RunningPod[]>();
  const labelled = new Map<string, PodsOf[]>();
  for (const group of groups) {
    yield;
    const { namespace, owner, labels, count } = group;
    const [kind = '', name = ''] = owner?.split('/') ?? [];
    const key = workloadKey(kind, namespace, name);
    const running = byWorkload.get(key) ?? [];
    byWorkload.set(key, running);
    for (const pod of podsOf(group)) running.push(pod);
    if (labels === undefined) continue;
    const whose =
      owner === undefined ? { of: anyPodOf(namespace), by: 'Pod' } : { of: key, by: owner.replace('/', ' ') };
    const within = labelled.get(namespace) ?? [];
    labelled.set(namespace, within);
    within.push({ ...whose, labels, count });
  }
  return { byWorkload, bare, labelled: new KnownPods(labelled) };
}

/** @param latest returns undefined if this replica does not lead, or has not made an audit yet */
export function registerAuditMetrics(
  registry: Registry,
  latest: () => Latest | undefined,
  {
    configuration,
    configured,
    trusted,
  }: Pick<ClusterAuditSettings, 'configuration' | 'configured' | 'trusted'>,
): void {
  const isThere = () => configured() ?? latest()?.configured;
  gaugeAtScrape<string>(registry, {
    name: 'linger_webhook_configured',
    help: '1 while there is the webhook configuration, without which no pod reaches Linger.',
    reference:
      '1 while the MutatingWebhookConfiguration exists. With `--certs-secret` on each replica; otherwise only on the leader.',
    labelNames: [],
    read: () => {
      const there = isThere();
      return there === undefined ? [] : [[{}, Number(there)]];
    },
  });
  gaugeAtScrape<string>(registry, {
    name: 'linger_webhook_gives_hooks',
    help: '1 while pods that are created now get hooks, as far as this replica can know.',
    reference:
      '1 while new pods get hooks: there is a webhook configuration, and it trusts this replica’s certificate. 0 while they get none; absent where that is not known.',
    labelNames: [],
    read: () => {
      const { given } = hooksNow({ configuration, configured: isThere(), trusted: trusted() });
      return given === null ? [] : [[{}, Number(given)]];
    },
  });
  gaugeAtScrape(registry, {
    name: 'linger_findings',
    help: 'Workloads of a namespace with a finding, by the last audit of the leader; other replicas have none.',
    reference:
      'Workloads with a [finding](commands.md#what-an-audit-finds), by the leader\'s last audit; `sum` over replicas. At most 1,000 series, further namespaces under `""`.',
    labelNames: ['namespace', 'reason'],
    read: () => latest()?.tally.series ?? [],
  });
  gaugeAtScrape(registry, {
    name: 'linger_findings_left_out',
    help: 'Findings of a namespace that the last audit of the leader has only counted: there are too many to report all.',
    reference:
      'Findings that are in these counts only: Events and reports have [1,000](operations.md#findings).',
    labelNames: ['namespace'],
    read: () => (latest()?.leftOut ?? []).map(([namespace, count]) => [{ namespace }, count] as const),
  });
  gaugeAtScrape(registry, {
    name: 'linger_audited_workloads',
    help: 'Workloads that the last audit of the leader has judged, by verdict.',
    reference: 'Workloads that the last audit of the leader has judged, by [verdict](commands.md#audit).',
    labelNames: ['verdict'],
    read: () => samplesBy('verdict', latest()?.tally.verdicts ?? {}, (count) => count),
  });
  gaugeAtScrape(registry, {
    name: 'linger_audit_truncated',
    help: '1 for each kind with more objects than an audit reads (20,000; 200 pods without a controller): the others are left out.',
    labelNames: ['kind'],
    read: () => (latest()?.truncated ?? []).map((kind) => [{ kind }, 1] as const),
  });
  numberAtScrape(registry, {
    name: 'linger_audit_timestamp_seconds',
    help: 'When the leader has last audited the cluster; 0 on other replicas.',
    read: () => latest()?.at ?? 0,
  });
}

/** What is kept of an audit, which is bounded however large the cluster is. */
class AuditTally {
  readonly verdicts: Record<AuditVerdict, number> = { protected: 0, unprotected: 0, skipped: 0, unknown: 0 };
  readonly #counts = new Map<string, { namespace: string; reason: string; count: number }>();
  readonly #namespaces = new Map<string, NamespaceCounts>();
  #kept: AuditFinding[] = [];

  add({ findings }: Audited): void {
    const [own] = findings;
    if (own === undefined) return;
    this.verdicts[own.verdict] += 1;
    const counts = this.#namespaces.get(own.namespace) ?? { pass: 0, fail: 0, warn: 0, skip: 0 };
    this.#namespaces.set(own.namespace, counts);
    if (own.verdict === 'protected') counts.pass += 1;
    if (own.verdict === 'skipped') counts.skip += 1;
    for (const finding of findings) {
      if (finding.level === null) continue;
      counts[finding.level === 'warning' ? 'fail' : 'warn'] += 1;
      this.#count(finding);
      if (this.#kept.push(finding) >= 2 * MOST_FINDINGS) this.#kept = fairest(this.#kept);
    }
  }

  /** Counts a finding. Namespaces beyond the bound are counted together, without a name. */
  #count({ namespace, reason }: AuditFinding): void {
    const isFull = this.#counts.size >= MOST_SERIES && !this.#counts.has(`${namespace} ${reason}`);
    const key = `${isFull ? '' : namespace} ${reason}`;
    const series = this.#counts.get(key) ?? { namespace: isFull ? '' : namespace, reason, count: 0 };
    series.count += 1;
    this.#counts.set(key, series);
  }

  /** How many workloads of each namespace have each finding. */
  get series() {
    return [...this.#counts.values()].map(
      ({ namespace, reason, count }) => [{ namespace, reason }, count] as const,
    );
  }

  get findings(): ClusterFindings {
    return { kept: fairest(this.#kept), namespaces: this.#namespaces };
  }

  /**
   * How many findings of each namespace are not among {@link findings}, largest number first; not more entries than there
   * are series.
   */
  get leftOut(): readonly (readonly [namespace: string, count: number])[] {
    const kept = Map.groupBy(this.findings.kept, ({ namespace }) => namespace);
    const left = [...this.#namespaces].map(
      ([namespace, { fail, warn }]) => [namespace, fail + warn - (kept.get(namespace)?.length ?? 0)] as const,
    );
    const some = left.filter(([, count]) => count > 0).toSorted(([, a], [, b]) => b - a);
    return some.slice(0, MOST_SERIES);
  }
}

/**
 * The findings to report: the first of each namespace, then the second of each, and so on, so that namespaces with thousands
 * of findings cannot displace those of others. In a namespace, findings on lost requests come first.
 */
function fairest(findings: readonly AuditFinding[]): AuditFinding[] {
  const rankOf = (finding: AuditFinding) => Number(finding.level !== 'warning');
  const byLevel = (a: AuditFinding, b: AuditFinding) => rankOf(a) - rankOf(b);
  const turns = [...Map.groupBy(findings, ({ namespace }) => namespace).values()].flatMap((of) =>
    of.toSorted(byLevel).map((finding, turn) => ({ finding, turn })),
  );
  const inTurn = turns.toSorted((a, b) => a.turn - b.turn || byLevel(a.finding, b.finding));
  const fair = inTurn.slice(0, MOST_FINDINGS).map(({ finding }) => finding);
  return fair.toSorted(byLevel);
}
