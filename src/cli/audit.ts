import {
  type EndedPods,
  isShortfall,
  ROW_SECONDS,
  type Shortfall,
  sentenceOf,
  sumOfEnded,
  TERMINATION_FINDINGS,
  type TerminationFinding,
} from '../audit/index.ts';
import type { KubeConnection } from '../cluster/index.ts';
import {
  type ClusterTerminationPolicy,
  formatDuration,
  isRecord,
  LingerError,
  printable,
  UserError,
} from '../core/api/index.ts';
import {
  type ClusterSnapshot,
  NO_DOCUMENTS,
  SKIP_REASONS,
  type Sources,
  snapshotOf,
} from '../core/decision/index.ts';
import {
  AUDIT_FINDINGS,
  type Audited,
  type AuditReport,
  type AuditSubject,
  type AuditSummary,
  type AuditVerdict,
  auditWorkload,
  GOOD_REASONS,
  github,
  isAsked,
  junit,
  markdown,
  type RelatedObjects,
  relatedTo,
  type Suggestion,
  sarif,
  suggest,
  summaryOfAudit,
  VERDICTS,
  WEBHOOK_KIND,
} from '../core/judge/index.ts';
import { partsIn, withEmbedded } from '../core/report/index.ts';
import type { AuditJson } from '../dashboard/index.ts';
import { inPieces } from '../timing/index.ts';
import { renderAudit, renderNames } from './audit-table.ts';
import { type Known, knownIn } from './baseline.ts';
import type { OutputFormat, Settings } from './commands.ts';
import { usageError } from './flags.ts';
import { askCluster, placeOf, readGivenManifests, readingOf, sourcesFor } from './manifests.ts';
import { rendered, yamlText } from './rendering.ts';
import type { Tried } from './server-dry-run.ts';
import {
  checkFailOn,
  columns,
  exitCodeFor,
  jsonText,
  paragraphs,
  type Surroundings,
  showInstant,
  showSeconds,
} from './terminal.ts';

const ANY = 'any';

export interface AuditInput {
  readonly subjects: readonly AuditSubject[];
  readonly sources: Sources;
  readonly related: RelatedObjects;
  /** undefined: there is no cluster. */
  readonly connection: KubeConnection | undefined;
  /** A full sentence if new pods get no hook at this moment. */
  readonly noHooks?: string | undefined;
  /** Whether a document could not be read, which has been reported. */
  readonly failed: boolean;
  /** Whether workloads of the cluster were left out, which has been reported. */
  readonly incomplete?: boolean;
}

/** `linger audit`: which workloads lose requests when their pods terminate, and what to do about it. */
export async function audit(settings: Settings<'audit'>, surroundings: Surroundings): Promise<number> {
  const { failOn, filename = [], operands } = settings;
  const { print, warn } = surroundings;
  // A finding of the other kind of audit would never occur here.
  const reasons =
    settings.since === undefined
      ? [...GOOD_REASONS, ...Object.keys(AUDIT_FINDINGS), ...Object.keys(SKIP_REASONS)]
      : Object.keys(TERMINATION_FINDINGS);
  checkFailOn(failOn, [ANY, ...VERDICTS, ...reasons]);
  refuseTogether(settings);
  if (settings.since !== undefined) return terminationReview(settings, settings.since, surroundings);
  const ofManifests = filename.length > 0 || operands.length > 0;
  const { sources, related, connection, failed, ...input }: AuditInput = ofManifests
    ? await manifestsOf(settings, surroundings)
    : await clusterInput(settings, surroundings).catch((thrown: unknown) => {
        const isUnnamed = settings.kubeconfig === undefined && settings.context === undefined;
        if (isUnnamed && thrown instanceof UserError && thrown.code === 'KubeconfigUnreadable')
          warn('no cluster is configured here; for manifests: linger audit -f FILE');
        throw thrown;
      });
  const snapshot = snapshotOf(sources);
  const { subjects, incomplete } = settings.serverDryRun
    ? await tried(input.subjects, snapshot, related, connection, surroundings)
    : { ...input, incomplete: false };
  const isEmpty = subjects.length === 0;
  if (isEmpty) warn('no Pod or workload in the input');
  if (settings.suggest) {
    const alone = related.configured
      ? undefined
      : summaryOfAudit(await auditAll({ subjects, related }, snapshot));
    const inPlace = { ...related, configured: true };
    const found = suggest(subjects, inPlace, (policies) => snapshotOf(withPolicies(sources, policies)));
    print(renderSuggestion(found, alone));
    return failed || incomplete ? 1 : 0;
  }
  const audited = await auditAll({ subjects, related }, snapshot, { progress: surroundings.progress });
  const all = audited.flatMap(({ findings }) => findings);
  const known = await knownBefore(settings, surroundings);
  const findings = all.filter((each) => !known(each));
  if (findings.length < all.length)
    warn(`${all.length - findings.length} of ${all.length} findings are in the baseline, and left out`);
  const { noHooks } = input;
  const report: AuditReport & AuditJson = {
    findings,
    summary: summaryOfAudit(audited),
    ...(noHooks !== undefined && { noHooks }),
  };
  print(printed(settings, report, surroundings));
  if (failed || incomplete) return 1;
  if (isEmpty && failOn !== undefined && !settings.allowEmpty) {
    warn('--fail-on: there is nothing to judge, so this fails; pass --allow-empty if that may be');
    return 1;
  }
  // `any` means findings that lose requests; merely informative ones do not fail.
  const codes = report.findings.flatMap(({ verdict, reason }) => [
    verdict,
    reason,
    verdict === 'unprotected' ? ANY : null,
  ]);
  return exitCodeFor(failOn, input.incomplete ? [...codes, 'unknown'] : codes);
}

async function knownBefore(settings: Settings<'audit'>, surroundings: Surroundings): Promise<Known> {
  const { baseline, filename = [], operands } = settings;
  if (baseline === undefined) return () => false;
  const quiet = { ...surroundings, warn: () => undefined };
  return knownIn(baseline, [...filename, ...operands], async (paths) => {
    const then = { ...settings, filename: paths, operands: [] };
    const { subjects, related, sources } = await manifestsOf(then, quiet);
    const audited = await auditAll({ subjects, related }, snapshotOf(sources));
    return audited.flatMap(({ findings }) => findings);
  });
}

/**
 * Rejects combinations of flags of which one would be ignored: a check that relies on the ignored one would always pass.
 * @throws LingerError `settings-invalid`
 */
function refuseTogether(settings: Settings<'audit'>): void {
  const { since, suggest: suggests, serverDryRun, selector, policies, namespace, output } = settings;
  const given = (flags: Readonly<Record<string, boolean>>) =>
    Object.keys(flags).find((flag) => flags[flag] === true);
  const refuse = (flag: string, other: string | undefined, why: string) => {
    if (other === undefined) return;
    throw usageError(`${flag} and ${other}: ${why}; leave one out`);
  };
  const files = settings.filename !== undefined || settings.operands.length > 0;
  const workloads = {
    '--suggest': suggests,
    '--server-dry-run': serverDryRun,
    '--baseline': settings.baseline !== undefined,
    '--policies': policies !== undefined,
  };
  if (since !== undefined) {
    const others = { files: files, ...workloads, '--selector': selector !== undefined };
    refuse('--since', given(others), '--since is about terminated pods, not about workloads');
  }
  const forms = {
    [`--output ${output}`]: output !== 'table' && output !== 'yaml',
    '--fail-on': settings.failOn !== undefined,
    '--baseline': settings.baseline !== undefined,
  };
  if (suggests) refuse('--suggest', given(forms), 'it prints policies, as YAML');
  if (namespace !== undefined && settings.allNamespaces)
    refuse('--namespace', '--all-namespaces', 'they contradict each other');
}

/** @throws LingerError `settings-invalid` without a cluster */
async function tried(
  subjects: readonly AuditSubject[],
  snapshot: ClusterSnapshot,
  related: RelatedObjects,
  connection: KubeConnection | undefined,
  surroundings: Surroundings,
): Promise<Tried> {
  if (connection === undefined)
    throw usageError('--server-dry-run: needs a cluster; name it with --kubeconfig or --context');
  const { tryPods } = await import('./server-dry-run.ts');
  const asked = ({ namespace }: AuditSubject) =>
    isAsked(related, namespace, snapshot.namespaces.get(namespace)?.labels);
  return tryPods(subjects, snapshot, asked, connection, surroundings);
}

export function withPolicies(sources: Sources, policies: readonly ClusterTerminationPolicy[]): Sources {
  const { files } = sources;
  return { ...sources, files: { ...files, clusterPolicies: [...files.clusterPolicies, ...policies] } };
}

/** Audits thousands of workloads in pieces, so that other work can run in between. */
export function auditAll(
  { subjects, related }: Pick<AuditInput, 'subjects' | 'related'>,
  snapshot: ClusterSnapshot,
  { signal, progress }: { readonly signal?: AbortSignal } & Partial<Pick<Surroundings, 'progress'>> = {},
): Promise<readonly Audited[]> {
  const steps = function* () {
    const all: Audited[] = [];
    for (const subject of subjects) {
      signal?.throwIfAborted();
      progress?.('auditing workloads', all.length, subjects.length);
      all.push(auditWorkload(subject, snapshot, related));
      yield;
    }
    return all;
  };
  return inPieces(steps());
}

/**
 * Policies to pipe into `kubectl apply`, with their effect and cost as comments. They have an effect only with the webhook.
 * @param alone the summary of an audit of the same workloads without the webhook; undefined: the webhook is installed
 */
function renderSuggestion({ policies, changes, before, after }: Suggestion, alone?: AuditSummary): string {
  const { workloads } = before;
  const own = changes.map((line) => `# ${printable(line)}\n`).join('');
  const all = `${workloads} ${workloads === 1 ? 'workload' : 'workloads'}`;
  const counts =
    alone === undefined
      ? `${before.verdicts.protected} of ${all} protected`
      : `as the manifests are, ${alone.verdicts.protected} of ${all} protected, with Linger’s webhook ${before.verdicts.protected}`;
  if (policies.length === 0)
    return `# ${counts}; no policy would change that: what is left needs changes to the workloads (linger audit)\n${own}`;
  const cost = [
    `rollouts that replace pods one after the other: ${formatDuration(before.rolloutSeconds)} → ${formatDuration(after.rolloutSeconds)} of waits, all together`,
    `the drain of a node: ${formatDuration(before.drainSeconds)} → ${formatDuration(after.drainSeconds)} of waits, at most`,
  ];
  const head = [`${counts}; with these policies ${after.verdicts.protected}`, ...cost];
  return `${head.map((line) => `# ${line}\n`).join('')}${own}${policies.map((each) => yamlText(each)).join('---\n')}`;
}

/** `linger audit --since 2h`: reports whether requests were lost, and those of which workloads. */
async function terminationReview(
  settings: Settings<'audit'>,
  since: number,
  surroundings: Surroundings,
): Promise<number> {
  const { namespace, output, failOn } = settings;
  if (output !== 'table' && output !== 'wide' && output !== 'json' && output !== 'yaml')
    throw usageError(`--output ${output}: with --since, expected table, wide, json or yaml`);
  const { connectToLinger } = await import('./connect.ts');
  const { checkNamespace, readConsumerTable, readTerminations, stalenessOf } = await import(
    './read-cluster.ts'
  );
  const { connection, lingerNamespace } = await connectToLinger(settings, surroundings);
  const record = await readTerminations(connection, lingerNamespace);
  // The record of terminations exists only once a pod has ended, but something is published of consumers all the time.
  const published = await readConsumerTable(connection, lingerNamespace).catch(() => undefined);
  const stale = published && stalenessOf(published, surroundings.now());
  if (stale !== undefined) surroundings.warn(`${stale}; what has ended since then is missing`);
  const from = surroundings.now() - since;
  const hasOverflowed = record.incompleteBefore > from;
  const isIncomplete = hasOverflowed || stale !== undefined;
  if (hasOverflowed)
    surroundings.warn(
      `termination log overflowed; what ended before ${showInstant(record.incompleteBefore)} is incomplete`,
    );
  const isWanted = (each: { readonly namespace: string }) => (namespace ?? each.namespace) === each.namespace;
  const recent = record.findings.filter((each) => each.at >= from && isWanted(each));
  const shortfalls = recent.filter(isShortfall);
  const findings = recent.flatMap((each) => (isShortfall(each) ? [] : [{ ...each, text: sentenceOf(each) }]));
  const rows = record.ended.filter((each) => each.from + ROW_SECONDS > from && isWanted(each));
  // The record may contain pods of a namespace that no longer exists. If there are none, the namespace may be misspelt.
  if (namespace !== undefined && recent.length + rows.length === 0)
    await checkNamespace(connection, namespace);
  const workloads = endedByWorkload(rows);
  surroundings.print(
    rendered(output, { summary: summaryOfEnded(workloads), workloads, shortfalls, findings }, (wide) => {
      const detail = wide ? renderShortfalls(shortfalls) : '';
      return renderEnded(workloads, since) + detail + renderTerminations(findings, wide);
    }),
  );
  const { tooEarly, unknown } = summaryOfEnded(workloads);
  const lost = tooEarly > 0 || shortfalls.length > 0;
  return exitCodeFor(failOn, [
    ...recent.map(({ reason }) => reason),
    ...(lost ? [ANY, 'unprotected' as const] : []),
    ...(unknown > 0 || isIncomplete ? ['unknown' as const] : []),
    ...(lost || workloads.length === 0 ? [] : ['protected' as const]),
  ]);
}

interface EndedWorkload extends Omit<EndedPods, 'from' | 'by'> {
  readonly verdict: AuditVerdict;
}

/** By workload, worst first. */
function endedByWorkload(rows: readonly EndedPods[]): readonly EndedWorkload[] {
  const workloads = Map.groupBy(rows, ({ namespace, owner }) => `${namespace} ${owner}`);
  return [...workloads.values()]
    .map((all): EndedWorkload => {
      const { from: _, by: __, ...sum } = all.reduce(sumOfEnded);
      const verdict = sum.tooEarly > 0 ? 'unprotected' : sum.unknown > 0 ? 'unknown' : 'protected';
      return { verdict, ...sum };
    })
    .toSorted((a, b) => b.tooEarly - a.tooEarly || b.unknown - a.unknown || b.ended - a.ended);
}

function summaryOfEnded(workloads: readonly EndedWorkload[]) {
  const sum = (of: (each: EndedWorkload) => number) => workloads.reduce((total, each) => total + of(each), 0);
  return {
    ended: sum(({ ended }) => ended),
    tooEarly: sum(({ tooEarly }) => tooEarly),
    unknown: sum(({ unknown }) => unknown),
    noWait: sum(({ noWait }) => noWait),
    cut: sum(({ cut }) => cut),
  };
}

function renderEnded(workloads: readonly EndedWorkload[], since: number): string {
  const { ended, tooEarly, unknown, noWait, cut } = summaryOfEnded(workloads);
  const within = `in the last ${formatDuration(since)}`;
  if (ended === 0) return `no pod that a Service lists ended ${within}\n`;
  const why = [
    ...(noWait > 0 ? [`${noWait} ended with no wait`] : []),
    ...(cut > 0 ? [`${cut} had the wait cut short`] : []),
    ...(unknown > 0 ? [`for ${unknown} it is not known`] : []),
  ];
  const headline = `${tooEarly} of ${ended} ${ended === 1 ? 'pod' : 'pods'} that ended ${within} may have lost requests`;
  const rows = workloads.map((each) => [
    ...[each.verdict, each.namespace, each.owner, String(each.ended), String(each.tooEarly)],
    each.waits === null ? '?' : [...new Set(each.waits.map(showSeconds))].join('..'),
    String(each.noWait),
    each.cut === 0 ? '0' : `${each.cut} (${each.cutBy})`,
    each.lag === null ? '?' : showSeconds(each.lag),
    [each.consumer, ...each.unmeasured.map((name) => `${name} (not measured)`)].filter(Boolean).join(', '),
  ]);
  const header = [
    ...['VERDICT', 'NAMESPACE', 'WORKLOAD', 'ENDED', 'TOO EARLY', 'WAITED'],
    ...['NO WAIT', 'CUT', 'LAG', 'CONSUMER'],
  ];
  return paragraphs([[headline, ...why].join('; ')], columns([header, ...rows]));
}

/** Other findings about terminations: the latest of each workload and reason, or with `wide`, all of them. */
function renderTerminations(findings: readonly TerminationFinding[], wide: boolean): string {
  if (findings.length === 0) return '';
  const groups = Map.groupBy(findings, ({ reason, namespace, owner, pod }) =>
    wide ? `${reason} ${namespace} ${pod}` : `${reason} ${namespace} ${owner || `Pod/${pod}`}`,
  );
  const rows = [...groups.values()].flatMap((all) => {
    const last = all.at(-1);
    if (last === undefined) return [];
    const { reason, namespace, owner, pod } = last;
    return [[reason, namespace, owner || `Pod/${pod}`, String(all.length), sentenceOf(last)]];
  });
  const header = ['FINDING', 'NAMESPACE', 'WORKLOAD', 'PODS', 'THE LATEST'];
  return `\n${paragraphs(columns([header, ...rows]))}`;
}

function renderShortfalls(shortfalls: readonly Shortfall[]): string {
  if (shortfalls.length === 0) return '';
  const pods = shortfalls.map(({ at, namespace, pod, wait, lag, seconds: lost, services, consumer = '' }) => {
    const spans = [wait, lag, lost].map(showSeconds);
    return [showInstant(at), namespace, pod, ...spans, services.join(', '), consumer];
  });
  const header = [
    ...['SIGTERM (UTC)', 'NAMESPACE', 'POD', 'WAITED', 'LAG', 'TOO EARLY BY'],
    ...['SERVICES', 'CONSUMER'],
  ];
  return `\n${paragraphs(columns([header, ...pods]))}`;
}

type ReportFormat = Exclude<Settings<'audit'>['output'], OutputFormat>;

/** The formats for other programs. */
const REPORTS: Readonly<Record<ReportFormat, (report: AuditReport, version: string) => string>> = {
  sarif: (report, version) => jsonText(sarif(report, version)),
  github,
  junit,
  markdown,
  name: renderNames,
};

function isReportFormat(output: Settings<'audit'>['output']): output is ReportFormat {
  return Object.hasOwn(REPORTS, output);
}

function printed(
  { output }: Settings<'audit'>,
  report: AuditReport,
  { version, colour }: Surroundings,
): string {
  return isReportFormat(output)
    ? REPORTS[output](report, version)
    : rendered(output, report, (wide) => renderAudit(report, { wide, colour }));
}

export async function manifestsOf(
  settings: Settings<'audit'>,
  surroundings: Surroundings,
): Promise<AuditInput> {
  const { kubeconfig, context, namespace = 'default' } = settings;
  const wanted = { ...settings, namespace };
  const asked = kubeconfig !== undefined || context !== undefined;
  const cluster = asked ? await askCluster(settings, surroundings) : undefined;
  const manifests = await readGivenManifests(wanted, surroundings, 'with origins');
  const sources = await sourcesFor(manifests.documents, wanted, cluster?.known);
  const subjects: AuditSubject[] = [];
  const objects: { readonly value: unknown; readonly origin: string }[] = [];
  const reading = readingOf(surroundings.warn, manifests);
  for (const input of manifests.inputs)
    for (const part of partsIn(input, wanted, manifests, reading)) {
      objects.push(...part.objects.flatMap(withEmbedded).map(({ value }) => ({ value, origin: input.name })));
      for (const { object, ...placed } of part.workloads) {
        const source = input.placeOf === undefined ? {} : { source: input.path };
        subjects.push({ ...placed, ...source, object: object.value, ...(await placeOf(input, object)) });
      }
    }
  const webhooks = settings.webhook
    ? undefined
    : await webhooksBeside(
        objects.map(({ value }) => value),
        surroundings,
        cluster?.connection,
      );
  const related = {
    ...relatedTo(subjects, objects, namespace, webhooks),
    ...(cluster && { additions: cluster.known.additions }),
  };
  return { subjects, sources, related, connection: cluster?.connection, failed: reading.failed };
}

/**
 * The webhooks of the cluster, plus those in the manifests, because without `--webhook`, nothing else shows that there is
 * one.
 */
async function webhooksBeside(
  objects: readonly unknown[],
  { warn }: Pick<Surroundings, 'warn'>,
  connection?: KubeConnection,
) {
  const brought = objects.filter(isRecord).filter(({ kind }) => kind === WEBHOOK_KIND.kind);
  if (connection === undefined) return brought;
  const { readWebhooks } = await import('./read-cluster.ts');
  const there = await readWebhooks(connection);
  const wayOut = 'assuming that Linger’s webhook is not there: pass --webhook if it is';
  if (there === undefined) warn(`listing mutatingwebhookconfigurations is forbidden; ${wayOut}`);
  return [...brought, ...(there ?? [])];
}

export async function clusterInput(
  settings: Settings<'audit'>,
  surroundings: Surroundings,
): Promise<AuditInput> {
  const { namespace } = settings;
  const { readWorkloads } = await import('./read-cluster.ts');
  const { connection, known, lingerNamespace } = await askCluster(settings, surroundings);
  // Otherwise the audit of a misspelt namespace would have no findings.
  if (namespace !== undefined && !known.namespaces?.has(namespace))
    throw new LingerError('not-found', `there is no namespace ${namespace} in this cluster`);
  const sources = await sourcesFor(NO_DOCUMENTS, { ...settings, namespace: namespace ?? 'default' }, known);
  const read = await readWorkloads(connection, settings, surroundings);
  const { hooksNowIn, inquire } = await import('../check/index.ts');
  const about = { connection, namespace: lingerNamespace, configuration: 'linger', tryIn: 'default' };
  const { given, why, headline } = await inquire({ ...about, now: surroundings.now() }, hooksNowIn);
  const related = {
    ...read.related,
    additions: known.additions,
    ...(given === false && { configured: false, noHooks: why }),
  };
  return {
    ...read,
    subjects: read.workloads,
    sources,
    related,
    connection,
    failed: false,
    noHooks: headline,
  };
}
