import { LingerError } from '../api/index.ts';
import {
  AUDIT_FINDINGS,
  type Audited,
  type AuditFinding,
  type AuditReport,
  type AuditSubject,
  type AuditSummary,
  auditWorkload,
  GOOD_REASONS,
  github,
  junit,
  markdown,
  type Neighbours,
  neighboursIn,
  sarif,
  summaryOfAudit,
  VERDICTS,
} from '../audit/index.ts';
import { NO_SOURCES, SKIP_REASONS, type World, worldOf } from '../decision/index.ts';
import { ManifestError, readDocuments, readPolicies } from '../manifest/index.ts';
import type { Settings } from './commands.ts';
import { type KnownCluster, planOf, readInputs, requestOf, workloadsIn, worldFor } from './manifests.ts';
import {
  checkFailOn,
  columns,
  FINDINGS_EXIT_CODE,
  paragraphs,
  rendered,
  type Surroundings,
} from './terminal.ts';

const ANY = 'any';

/** What is to be audited, and what is known of it. */
export interface AuditInput {
  readonly subjects: Iterable<AuditSubject>;
  readonly world: World;
  readonly neighbours: Neighbours;
}

/** `linger audit`: which workloads lose requests when their pods terminate, and what to do about it. */
export async function audit(settings: Settings<'audit'>, surroundings: Surroundings): Promise<number> {
  const { failOn = [], filename = [], operands } = settings;
  const { print, warn } = surroundings;
  checkFailOn(failOn, [
    ...[ANY, ...VERDICTS, ...GOOD_REASONS],
    ...[...Object.keys(AUDIT_FINDINGS), ...Object.keys(SKIP_REASONS)],
  ]);
  const ofManifests = filename.length > 0 || operands.length > 0;
  const { input, failed } = ofManifests
    ? await manifestsOf(settings, surroundings)
    : { input: await clusterInput(settings, surroundings), failed: false };
  const audited: Audited[] = [];
  for (const subject of input.subjects) audited.push(auditWorkload(subject, input.world, input.neighbours));
  const report = { findings: audited.flatMap(({ findings }) => findings), summary: summaryOfAudit(audited) };
  print(printed(settings, report, surroundings.version));
  if (audited.length === 0) warn('no Pod and no workload among the objects given\n');
  if (failed) return 1;
  // `any` is what loses requests: what is only good to know fails nothing.
  const failing = report.findings.some(
    ({ verdict, reason }) =>
      failOn.includes(verdict) ||
      failOn.includes(reason) ||
      (verdict === 'unprotected' && failOn.includes(ANY)),
  );
  return failing ? FINDINGS_EXIT_CODE : 0;
}

function printed({ output }: Settings<'audit'>, report: AuditReport, version: string): string {
  switch (output) {
    case 'sarif':
      return `${JSON.stringify(sarif(report, version), undefined, 2)}\n`;
    case 'github':
      return github(report);
    case 'junit':
      return junit(report);
    case 'markdown':
      return markdown(report);
    default:
      return rendered(output, report, (wide) => renderAudit(report, wide));
  }
}

/** The workloads of manifests, among the Services and routes that stand beside them. */
async function manifestsOf(settings: Settings<'audit'>, surroundings: Surroundings) {
  const { kubeconfig, context, namespace = 'default' } = settings;
  const reading = { ...settings, namespace };
  const asked = kubeconfig !== undefined || context !== undefined;
  const cluster = asked ? await knownCluster(settings, surroundings) : undefined;
  const inputs = await readInputs(reading, surroundings.stdin);
  const world = await worldFor(inputs, reading, cluster);
  const subjects: AuditSubject[] = [];
  const objects: unknown[] = [];
  let failed = false;
  const passOver = (message: string, why: string) => {
    failed ||= why === 'unreadable';
    surroundings.warn(`linger: ${message}\n`);
  };
  for (const given of inputs)
    for (const document of readDocuments(given.text, given.name)) {
      for (const object of document.objects())
        if (!(object instanceof ManifestError)) objects.push(object.value);
      for (const found of workloadsIn(document, given, reading, passOver)) {
        const { decision, workload } = planOf(found, world);
        const { line, value } = found.object;
        const where = { file: given.name, line };
        subjects.push({
          ...{ workload, namespace: found.namespace, request: requestOf(found), decision },
          ...{ object: value, ...where },
        });
      }
    }
  return { input: { subjects, world, neighbours: neighboursIn(objects, namespace) }, failed };
}

/** Only who asks a cluster carries what that takes. */
async function knownCluster(settings: Settings<'audit'>, surroundings: Surroundings): Promise<KnownCluster> {
  const { connectAsKubectl } = await import('./connect.ts');
  const { readCluster } = await import('./read-cluster.ts');
  return readCluster(await connectAsKubectl(settings, surroundings), settings, surroundings.warn);
}

async function clusterInput(settings: Settings<'audit'>, surroundings: Surroundings): Promise<AuditInput> {
  const { namespace, allNamespaces, modeLimit, policies } = settings;
  if (namespace !== undefined && allNamespaces)
    throw new LingerError('settings-invalid', '--namespace and --all-namespaces: give one of them');
  const { connectAsKubectl } = await import('./connect.ts');
  const { readCluster, readWorkloads } = await import('./read-cluster.ts');
  const connection = await connectAsKubectl(settings, surroundings);
  const known = await readCluster(connection, settings, surroundings.warn);
  const files = policies === undefined ? known.files : await readPolicies(policies);
  const world = worldOf({ ...NO_SOURCES, modeLimit, files, cluster: known, lags: known.lags });
  const { workloads, neighbours } = await readWorkloads(connection, settings, surroundings.warn);
  const subjects = function* (): Generator<AuditSubject> {
    for (const found of workloads) {
      const { decision, workload } = planOf(found, world);
      const { namespace: own, object, running } = found;
      yield {
        workload,
        namespace: own,
        request: requestOf(found),
        decision,
        object,
        running,
      };
    }
  };
  return { subjects: subjects(), world, neighbours };
}

/** One screen first, then the list: the unprotected first. */
function renderAudit({ findings, summary }: AuditReport, wide: boolean): string {
  const workloads = Map.groupBy(findings, (finding) => subjectOf(finding));
  const shown = [...workloads]
    .filter(([, [own, ...more]]) => wide || own?.verdict !== 'skipped' || more.length > 0)
    .toSorted(([, [a]], [, [b]]) => orderOf(a) - orderOf(b));
  const rows = shown.flatMap(([subject, all]) => {
    const [own] = all;
    if (own === undefined) return [];
    const { verdict, waitSeconds, graceSeconds, exposureSeconds } = own;
    const reasons = all.map(({ reason }) => reason).join(', ');
    return [
      [verdict, subject, seconds(waitSeconds), seconds(graceSeconds), seconds(exposureSeconds), reasons],
    ];
  });
  const header = ['VERDICT', 'WORKLOAD', 'WAIT', 'GRACE', 'OPEN FOR', 'REASONS'];
  const texts = shown.flatMap(([subject, all]) =>
    all
      .filter(
        ({ verdict, reason }) =>
          wide || verdict === 'unknown' || reason in AUDIT_FINDINGS || verdict === 'unprotected',
      )
      .map(({ reason, text }) => `${subject}: ${reason}: ${text}`),
  );
  return paragraphs(
    summaryLines(summary),
    rows.length === 0 ? [] : columns([header, ...rows], ALIGNMENT),
    texts,
  );
}

function subjectOf({ kind, namespace, name }: AuditFinding): string {
  return `${kind} ${namespace}/${name}`;
}

function orderOf(finding: AuditFinding | undefined): number {
  return ['unprotected', 'unknown', 'protected', 'skipped'].indexOf(finding?.verdict ?? '');
}

const ALIGNMENT = ['left', 'left', 'right', 'right', 'right', 'left'] as const;

function seconds(value: number | null): string {
  return value === null ? '-' : `${value}s`;
}

function summaryLines({ workloads, verdicts, wouldBe, skipped, rolloutSeconds, drainSeconds }: AuditSummary) {
  const share = (count: number) => `${count} of ${workloads}`;
  const why = Object.entries(skipped).map(([reason, count]) => `${count} ${reason}`);
  return columns([
    ['protected', share(verdicts.protected)],
    [
      'lose requests today',
      share(verdicts.unprotected),
      wouldBe === 0 ? '' : `${wouldBe} of them would be protected by mode Enforce`,
    ],
    ['not known', share(verdicts.unknown)],
    ['skipped', share(verdicts.skipped), why.join(', ')],
    [
      'the waits add',
      minutes(rolloutSeconds),
      'to rollouts that replace pods one after the other, all together',
    ],
    ['', minutes(drainSeconds), 'to the drain of a node, at most'],
  ]);
}

function minutes(value: number): string {
  return value < 120 ? `${value}s` : `${(value / 60).toFixed(1)} min`;
}
