import type { Registry } from '@prometheus-io/client';
import { ANNOTATION } from '../api/index.ts';
import {
  asFailure,
  type KubeConnection,
  listSome,
  type ObjectEvents,
  type PodGroup,
  type Resource,
} from '../cluster/index.ts';
import { type World, workloadOf } from '../decision/index.ts';
import type { Lead } from '../leader/index.ts';
import { gaugeAtScrape, type Logger, LogOnce, numberAtScrape, samplesBy } from '../telemetry/index.ts';
import { pause, Schedule } from '../timing/index.ts';
import { levelOf } from './audit-formats.ts';
import { type Audited, auditWorkload, type RunningPod, subjectOf, summaryOfAudit } from './findings.ts';
import { type Kind, objectsIn, WORKLOAD_KINDS } from './kinds.ts';
import { NEIGHBOUR_KINDS, neighboursIn, workloadKey } from './neighbours.ts';
import { type ClusterFindings, PolicyReports, type ReportApi } from './policy-reports.ts';

/** What the operator says of it. */
export interface ClusterAuditSettings {
  /** Seconds between two audits; 0: there are none. */
  readonly every: number;
  /** The API group of the reports to write; `off`: none. */
  readonly policyReports: 'off' | ReportApi;
}

interface ClusterAuditOptions {
  readonly connection: KubeConnection;
  readonly settings: ClusterAuditSettings;
  /** Linger's own; undefined: it has none. */
  readonly namespace: string | undefined;
  readonly registry: Registry;
  readonly logger: Logger;
  readonly events: ObjectEvents;
  readonly world: () => World;
  /** Whether all that decisions read has been read. */
  readonly synced: () => boolean;
  /** The pods that run; undefined until they have been listed. */
  readonly pods: () => Iterable<PodGroup> | undefined;
  /** Milliseconds, monotonic. */
  readonly clock: () => number;
  readonly epochSeconds: () => number;
  readonly random: () => number;
}

/** Enough to read, and 400 KB. Metrics count all of them. */
const MOST_FINDINGS = 1_000;
/** Of each kind; the others are left out. */
const MOST_WORKLOADS = 20_000;
/** Namespaces × reasons; further namespaces are counted together. */
const MOST_SERIES = 1_000;
const LOOK_EVERY_MS = 1_000;
/** After a replica has begun to lead: what it serves with comes first. */
const FIRST_AFTER_MS = 30_000;
const ANSWER_MS = 30_000;
/** Two a second: half of what all Events may, so that those of terminations have room. */
const EVENT_EVERY_MS = 500;
/** The API server keeps Events for an hour; what lasts is told again from time to time. */
const EVENT_AGAIN_MS = 24 * 3_600_000;

/** The webhook is not asked about their pods, so there is nothing to find. Source: deploy/webhook.yaml. */
const LEFT_ALONE: readonly string[] = ['kube-system', 'kube-node-lease'];

/**
 * Audits the cluster again and again while this replica leads, as `linger audit` does once: of the World that decisions
 * are made of, the pods that are followed anyway, and lists of the workloads and of what surrounds them. Nothing is
 * remembered from one audit to the next, so a new leader finds what the one before has found.
 */
export class ClusterAudit {
  readonly #options: ClusterAuditOptions;
  readonly #once: LogOnce;
  readonly #reports: PolicyReports | undefined;
  /** When an Event was told, by workload and reason. */
  readonly #toldAt = new Map<string, number>();
  #last: (Latest & { readonly lead: Lead }) | undefined;

  constructor(options: ClusterAuditOptions) {
    const { connection, logger, settings, registry } = options;
    this.#options = options;
    this.#once = new LogOnce(logger);
    const { policyReports: api } = settings;
    this.#reports = api === 'off' ? undefined : new PolicyReports({ ...options, connection, api });
    registerAuditMetrics(registry, () => (this.#last?.lead.holds() === true ? this.#last : undefined));
  }

  /** To be called whenever this replica leads. */
  lead(lead: Lead): void {
    if (this.#options.settings.every > 0) void this.#follow(lead);
  }

  async #follow(lead: Lead): Promise<void> {
    const { clock, random, settings, synced, pods } = this.#options;
    const everyMs = settings.every * 1000;
    const pace = { everyMs, firstPauseMs: Math.min(everyMs, 10_000), longestPauseMs: everyMs };
    const schedule = new Schedule(pace, clock() + Math.min(everyMs, FIRST_AFTER_MS), random);
    while (await pause(Math.min(everyMs, LOOK_EVERY_MS), lead.signal)) {
      const begun = clock();
      if (!schedule.due(begun) || !synced() || pods() === undefined || !lead.holds()) continue;
      try {
        const audited = await this.#audit(lead.signal);
        schedule.done(begun);
        this.#last = { lead, audited, at: this.#options.epochSeconds() };
        this.#once.over('audit', {}, 'the workloads can be audited again');
        await this.#tell(findingsOf(audited), lead);
      } catch (thrown) {
        if (lead.signal.aborted) return;
        const { reason, message: problem, retryAfterMs } = asFailure(thrown);
        const pauseMs = Math.round(schedule.failed(clock(), retryAfterMs));
        const members = { reason, problem, pauseMs };
        this.#once.warn('audit', members, 'the workloads cannot be audited: findings are those of before');
      }
    }
  }

  async #audit(signal: AbortSignal): Promise<readonly Audited[]> {
    const { world: current, namespace } = this.#options;
    const world = current();
    const running = this.#running();
    const surrounding = await this.#objects(NEIGHBOUR_KINDS, signal, (object) => object);
    const neighbours = neighboursIn(surrounding, 'default');
    const leftAlone = new Set([...LEFT_ALONE, namespace]);
    const audited = await this.#objects(WORKLOAD_KINDS.filter(isAudited), signal, (object) => {
      const workload = workloadOf(object);
      const own = object.metadata.namespace ?? '';
      if (workload === undefined || leftAlone.has(own)) return undefined;
      const pods = running.get(workloadKey(workload.kind, own, workload.name)) ?? [];
      return auditWorkload({ workload, namespace: own, object, running: pods }, world, neighbours);
    });
    return audited.filter((each) => each !== undefined);
  }

  /** Each object is made into what is kept of it as it arrives: templates of thousands are never in memory together. */
  async #objects<T>(
    kinds: readonly Kind[],
    signal: AbortSignal,
    keep: (object: ReturnType<ReturnType<typeof objectsIn>['project']>) => T,
  ): Promise<readonly T[]> {
    const found: T[] = [];
    for (const kind of kinds) {
      const { project, ...resource } = objectsIn(undefined, kind);
      found.push(...(await this.#list({ ...resource, project: (raw) => keep(project(raw)) }, signal)));
    }
    return found;
  }

  /** A kind that is not served has no objects. */
  async #list<T>(resource: Resource<T>, signal: AbortSignal): Promise<readonly T[]> {
    try {
      const { connection } = this.#options;
      return await listSome(resource, connection, { signal, answerMs: ANSWER_MS, most: MOST_WORKLOADS });
    } catch (thrown) {
      if (asFailure(thrown).reason === 'NotServed') return [];
      throw thrown;
    }
  }

  /** The pods of each workload, by {@link workloadKey}. */
  #running(): ReadonlyMap<string, readonly RunningPod[]> {
    const running = new Map<string, RunningPod[]>();
    for (const { namespace, owner, plan, count } of this.#options.pods() ?? []) {
      const [kind, name] = owner?.split('/') ?? [];
      if (kind === undefined || name === undefined) continue;
      const key = workloadKey(kind, namespace, name);
      const pod = { name: '', annotations: plan === undefined ? {} : { [ANNOTATION.plan]: plan } };
      running.set(key, [...(running.get(key) ?? []), ...Array<RunningPod>(count).fill(pod)]);
    }
    return running;
  }

  async #tell(findings: ClusterFindings, lead: Lead): Promise<void> {
    await this.#reports?.write(findings, lead);
    const { events, clock } = this.#options;
    for (const finding of findings.kept) {
      const { kind, namespace, name, reason, text } = finding;
      const key = `${subjectOf(finding)} ${reason}`;
      if (clock() - (this.#toldAt.get(key) ?? Number.NEGATIVE_INFINITY) < EVENT_AGAIN_MS) continue;
      if (!lead.holds()) return;
      this.#toldAt.delete(key);
      this.#toldAt.set(key, clock());
      // Half of them may come and go between two audits.
      if (this.#toldAt.size > 2 * MOST_FINDINGS) this.#toldAt.delete(this.#toldAt.keys().next().value ?? '');
      // That a policy says Audit is somebody's decision and no fault of the workload's.
      const type = levelOf(finding) === 'warning' && reason !== 'AuditOnly' ? 'Warning' : 'Normal';
      events.tell({ object: { kind, namespace, name }, type, reason, action: 'Audit', note: text });
      if (!(await pause(EVENT_EVERY_MS, lead.signal))) return;
    }
  }
}

/** What an audit has found, and when. */
interface Latest {
  readonly audited: readonly Audited[];
  /** Seconds since the epoch. */
  readonly at: number;
}

/** @param latest undefined where this replica does not lead, or has not audited yet */
export function registerAuditMetrics(registry: Registry, latest: () => Latest | undefined): void {
  const readEach = <T>(samples: (latest: Latest) => readonly T[]) => {
    const present = latest();
    return present === undefined ? [] : samples(present);
  };
  gaugeAtScrape(registry, {
    name: 'linger_findings',
    help: 'Workloads of a namespace with a finding, by the last audit of the leader; other replicas have none.',
    labelNames: ['namespace', 'reason'],
    read: () => readEach(({ audited }) => seriesOf(audited)),
  });
  gaugeAtScrape(registry, {
    name: 'linger_audited_workloads',
    help: 'Workloads that the last audit of the leader has judged, by verdict.',
    labelNames: ['verdict'],
    read: () => readEach(({ audited }) => samplesBy('verdict', summaryOfAudit(audited).verdicts, (n) => n)),
  });
  numberAtScrape(registry, {
    name: 'linger_audit_timestamp_seconds',
    help: 'When the leader has last audited the cluster; 0 on other replicas.',
    read: () => latest()?.at ?? 0,
  });
}

function isAudited({ audited }: (typeof WORKLOAD_KINDS)[number]): boolean {
  return audited === true;
}

function findingsOf(audited: readonly Audited[]): ClusterFindings {
  const all = audited.flatMap(({ findings }) => findings);
  const ofLevel = (level: ReturnType<typeof levelOf>) => all.filter((each) => levelOf(each) === level);
  const told = [...ofLevel('warning'), ...ofLevel('note')];
  const byNamespace = Map.groupBy(audited, ({ findings }) => findings[0]?.namespace ?? '');
  return {
    kept: told.slice(0, MOST_FINDINGS),
    leftOut: Math.max(0, told.length - MOST_FINDINGS),
    summaries: new Map([...byNamespace].map(([namespace, own]) => [namespace, summaryOfAudit(own)])),
  };
}

/** How many workloads of each namespace have each finding; the namespaces beyond the bound are one, without a name. */
function seriesOf(audited: readonly Audited[]) {
  const counts = new Map<string, { namespace: string; reason: string; count: number }>();
  for (const finding of audited.flatMap(({ findings }) => findings)) {
    if (levelOf(finding) === undefined) continue;
    const { reason } = finding;
    const isFull = counts.size >= MOST_SERIES && !counts.has(`${finding.namespace} ${reason}`);
    const namespace = isFull ? '' : finding.namespace;
    const key = `${namespace} ${reason}`;
    const series = counts.get(key) ?? { namespace, reason, count: 0 };
    series.count += 1;
    counts.set(key, series);
  }
  return [...counts.values()].map(({ namespace, reason, count }) => [{ namespace, reason }, count] as const);
}
