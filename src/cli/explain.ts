import { existsSync } from 'node:fs';
import { ANNOTATION } from '../core/api/index.ts';
import {
  BUILT_IN,
  type ExplainedField,
  type Explanation,
  explain as explanationOf,
  NO_DOCUMENTS,
  parsePlan,
  SKIP_REASONS,
  shareInWords,
  snapshotOf,
} from '../core/decision/index.ts';
import { isFinding } from '../core/judge/index.ts';
import {
  EXPLAINED,
  explanationsIn,
  type FloorShown,
  floorShown,
  type ManifestExplanation,
  planOfRunning,
  type WorkloadExplanation,
} from '../core/report/index.ts';
import type { ExplainReport } from '../dashboard/index.ts';
import type { Settings } from './commands.ts';
import { usageError } from './flags.ts';
import {
  askCluster,
  type ManifestSettings,
  readGivenManifests,
  readingOf,
  type SnapshotSettings,
  sourcesFor,
} from './manifests.ts';
import type { KnownCluster } from './read-cluster.ts';
import { rendered } from './rendering.ts';
import { checkFailOn, columns, exitCodeFor, paragraphs, type Surroundings } from './terminal.ts';

/** An explanation with either the place of its workload, or the plans of its pods in the cluster. */
type LocatedExplanation = ManifestExplanation | (WorkloadExplanation & { readonly live: LivePods });

/** `linger explain`: prints the decision for the pods of each workload, with the origin of every field. */
export async function explain(settings: Settings<'explain'>, surroundings: Surroundings): Promise<number> {
  const { failOn, output, kubeconfig, context } = settings;
  const { print, warn } = surroundings;
  // `skip` is an outcome, and matches every skip reason.
  const known = ['skip', ...Object.keys(SKIP_REASONS), ...EXPLAINED];
  const ofAudit = failOn?.find((word) => isFinding(word) && !known.includes(word));
  if (ofAudit !== undefined)
    throw usageError(`--fail-on: explain never reports ${ofAudit}: use linger audit --fail-on ${ofAudit}`);
  checkFailOn(failOn, known);
  const named = settings.operands.filter((word) => LIVE_NAME.test(word) && !existsSync(word));
  const files = settings.operands.filter((word) => !named.includes(word));
  if (
    settings.operands.length === 0 &&
    settings.filename === undefined &&
    surroundings.stdin.isTTY === true
  ) {
    const live = 'or a workload of a cluster (deployment/web)';
    throw usageError(`no manifests: name files or folders (-f FILE), - for standard input, ${live}`);
  }
  const asks = named.length > 0 || kubeconfig !== undefined || context !== undefined;
  const cluster = asks ? await askCluster(settings, surroundings) : undefined;
  const hasFloor = cluster !== undefined && (await standsIn(cluster, surroundings));
  const placed = { ...settings, namespace: settings.namespace ?? 'default' };
  const ofManifests = named.length === 0 || files.length > 0 || settings.filename !== undefined;
  const { plans: located, failed } = ofManifests
    ? await explainManifests({ ...placed, operands: files }, surroundings, cluster?.known, hasFloor)
    : { plans: [], failed: false };
  const live = cluster === undefined ? [] : await explainLive(named, settings, cluster, hasFloor);
  const plans = [...located, ...live];
  const report: ExplainReport = { plans };
  print(rendered(output, report, (wide) => renderTable(plans, wide)));
  if (plans.length === 0) warn('no Pod or workload in the input');
  if (failed) return 1;
  const codes = plans.flatMap(({ outcome, reason, notes }) => [
    outcome,
    reason,
    ...notes.map(({ code }) => code),
  ]);
  return exitCodeFor(failOn, codes);
}

/** `failed`: whether a document could not be read, which was reported by `warn`. */
export async function explainManifests(
  settings: ManifestSettings & SnapshotSettings,
  surroundings: Pick<Surroundings, 'stdin' | 'warn'>,
  cluster?: KnownCluster,
  hasFloor = false,
): Promise<{ readonly plans: readonly LocatedExplanation[]; readonly failed: boolean }> {
  const manifests = await readGivenManifests(settings, surroundings);
  const snapshot = snapshotOf(await sourcesFor(manifests.documents, settings, cluster));
  const reading = readingOf(surroundings.warn, manifests);
  const plans = explanationsIn(manifests.inputs, manifests, snapshot, settings, reading, hasFloor);
  return { plans, failed: reading.failed };
}

/**
 * `pod/web-1`, `deployment.apps/web`: kubectl's names for objects in the cluster, unless a file of that name exists. The
 * path of a missing manifest does not match.
 */
const LIVE_NAME = /^[A-Za-z.]+\/(?!.*\.(ya?ml|json)$)[a-z0-9]([-a-z0-9.]*[a-z0-9])?$/;

/** What pods of a running workload would get today, and what its current pods got when they were created. */
async function explainLive(
  names: readonly string[],
  settings: Settings<'explain'>,
  { connection, known }: Awaited<ReturnType<typeof askCluster>>,
  hasFloor: boolean,
): Promise<readonly LocatedExplanation[]> {
  if (names.length === 0) return [];
  const { readNamedWorkload } = await import('./read-cluster.ts');
  const { namespace: within = connection.namespace ?? 'default' } = settings;
  const snapshot = snapshotOf(await sourcesFor(NO_DOCUMENTS, { ...settings, namespace: within }, known));
  const found: LocatedExplanation[] = [];
  for (const name of names) {
    const { workload, namespace, running } = await readNamedWorkload(connection, name, within);
    const live = livePods(running);
    const planned = planOfRunning({ workload, namespace }, snapshot);
    const floor = hasFloor ? floorShown(planned, snapshot) : undefined;
    found.push({ ...explanationOf(planned, live.plans), ...(floor !== undefined && { floor }), live });
  }
  return found;
}

/** Whether the floor is installed in the cluster. A user who may not read that is shown nothing of the floor. */
async function standsIn(
  { connection, lingerNamespace }: Awaited<ReturnType<typeof askCluster>>,
  { now }: Surroundings,
): Promise<boolean> {
  const { floorState, inquire } = await import('../check/index.ts');
  const about = { connection, namespace: lingerNamespace, configuration: 'linger', tryIn: 'default' };
  const state = await inquire({ ...about, now: now() }, floorState).catch(() => undefined);
  return state?.bound === true && state.validUntil !== null;
}

function floorInWords(floor: FloorShown | null): string {
  if (floor === null) return 'no hook';
  const { hook, waitSeconds, laterSeconds } = floor;
  const after = laterSeconds === waitSeconds ? '' : `, after an hour ${laterSeconds}s`;
  return `${hook} ${waitSeconds}s at most${after} (the floor)`;
}

type LivePods = ReturnType<typeof livePods>;

/** The running pods of a workload, and their plans, each with its number of pods, most frequent first. */
function livePods(running: readonly { readonly annotations: Readonly<Record<string, string>> }[]) {
  const texts = running.flatMap(({ annotations }) => annotations[ANNOTATION.plan] ?? []);
  const plans = [...Map.groupBy(texts, (text) => text)]
    .toSorted(([, a], [, b]) => b.length - a.length)
    .flatMap(([text, { length }]) => {
      const plan = parsePlan(text);
      return plan === undefined ? [] : [{ ...plan, pods: length }];
    });
  const carrying = plans.reduce((sum, { pods }) => sum + pods, 0);
  return { pods: running.length, withoutPlan: running.length - carrying, plans };
}

/** @param now the digest of the current policy */
function liveRows(
  { pods, withoutPlan: without, plans }: LivePods,
  now: string | null,
): readonly (readonly string[])[] {
  const said = plans.map(({ pods: count, wait, grace, hook, why, policy, coverage, samples, digest }) => {
    const covers = coverage === undefined ? '' : `, covered ${shareInWords(coverage)} of ${samples}`;
    const then =
      digest === undefined || digest === now ? '' : `; the policy was different (${digest}, now ${now})`;
    return `${count} with ${wait}s (${hook}, ${why}${covers}; ${policy}), grace ${grace}s${then}`;
  });
  const all = without === 0 ? said : [...said, `${without} without a wait`];
  return all.map((text, index) => [index === 0 ? `pods ${pods}` : '', text]);
}

function renderTable(plans: readonly LocatedExplanation[], wide: boolean): string {
  const subject = ({ kind, namespace, name }: Explanation | LocatedExplanation) =>
    `${kind} ${namespace}/${name}`;
  const bySubject = Map.groupBy(plans, subject);
  const lines = plans.map((plan) => planLines(plan, wide, (bySubject.get(subject(plan))?.length ?? 0) > 1));
  return plans.length === 0 ? '' : paragraphs(...lines, [totals(plans)]);
}

/** @param isSeveral whether others have the same kind, namespace and name */
function planLines(plan: LocatedExplanation, wide: boolean, isSeveral: boolean): readonly string[] {
  const now =
    'live' in plan ? [...liveRows(plan.live, plan.digest), ...outcomeRows(plan)] : outcomeRows(plan);
  const place = 'file' in plan && isSeveral ? ` (${plan.file}:${plan.line})` : '';
  const lines = [`${plan.kind} ${plan.namespace}/${plan.name}${place}`, ...rows(now)];
  const said = plan.fields.filter(
    ({ origin, ignored }) => wide || origin !== BUILT_IN || ignored !== undefined,
  );
  if (said.length > 0) lines.push('  policy', ...rows(said.map(fieldRow), '    '));
  if (plan.fields.length > said.length)
    lines.push(`  ${said.length > 0 ? 'all other fields' : 'all fields'} are built-in`);
  for (const { code, text } of plan.notes) lines.push(`  note ${code}: ${text}`);
  return lines;
}

/** `4 workloads: 2 inject, 2 skip (1 Job, 1 NotServing)` */
function totals(plans: readonly LocatedExplanation[]): string {
  const skipped = plans.filter(({ outcome }) => outcome === 'skip');
  const reasons = Map.groupBy(skipped, ({ reason }) => String(reason));
  const shown = [...reasons].map(([reason, { length }]) => `${length} ${reason}`).join(', ');
  const injected = plans.filter(({ outcome }) => outcome === 'inject');
  const unknown = plans.length - skipped.length - injected.length;
  const audit = injected.filter(({ mode }) => mode === 'Audit').length;
  const parts = [
    `${injected.length} inject${audit === 0 ? '' : ` (${audit} Audit)`}`,
    `${skipped.length} skip${skipped.length === 0 ? '' : ` (${shown})`}`,
    ...(unknown === 0 ? [] : [`${unknown} unknown`]),
  ];
  return `${plans.length} ${plans.length === 1 ? 'workload' : 'workloads'}: ${parts.join(', ')}`;
}

function outcomeRows(plan: LocatedExplanation): readonly (readonly string[])[] {
  if (plan.outcome === 'unknown') return [['outcome', 'unknown']];
  const outcome =
    plan.reason === null
      ? [['outcome', plan.mode === 'Audit' ? 'would inject (mode Audit: not applied)' : 'inject']]
      : [
          ['outcome', `skip: ${plan.reason}`],
          ['why', SKIP_REASONS[plan.reason].means],
        ];
  // A pod that already carries its plan is skipped, but waits nevertheless.
  if (plan.waitSeconds === null) return outcome;
  return [
    ...outcome,
    ['wait', `${plan.waitSeconds}s (${basisInWords(plan)})`],
    ...(plan.estimate === null ? [] : [['estimate', plan.estimate.text]]),
    ['grace', `${plan.baseGraceSeconds}s → ${plan.graceSeconds}s`],
    ['hook', `${plan.hook} in ${plan.containers.join(', ')}`],
    ...(plan.hold === null ? [] : [['hold', holdInWords(plan.hold)]]),
    ...(plan.observers.length === 0
      ? []
      : [['observed', `${plan.observers.join(', ')} (mode Observe: no wait considers them)`]]),
    ...(plan.floor === undefined ? [] : [['if Linger is down', floorInWords(plan.floor)]]),
    ...(plan.admitted === null ? [] : [['admitted', `${plan.admitted} (what the webhook gives its pods)`]]),
  ];
}

function holdInWords({ minSeconds, maxSeconds, observe }: NonNullable<Explanation['hold']>): string {
  const span = `${minSeconds}s to ${maxSeconds}s, depending on consumers`;
  return observe ? `only watched; otherwise ${span}` : span;
}

function basisInWords({ why, evidence }: LocatedExplanation): string {
  if (evidence === null) return `${why} when it was created`;
  return why === 'storm' ? `${evidence.text}; the tail lies beyond wait.max` : evidence.text;
}

function fieldRow({ field, value, origin, ignored = [] }: ExplainedField): readonly string[] {
  const refused = ignored.map((each) => `${show(each.value)} from ${each.origin} ignored: ${each.because}`);
  return [field, show(value), [origin, ...refused].join('; ')];
}

function show(value: unknown): string {
  if (!Array.isArray(value)) return String(value);
  return value.length === 0 ? '(none)' : value.join(', ');
}

function rows(cells: readonly (readonly string[])[], indent = '  '): readonly string[] {
  return columns(cells).map((line) => indent + line);
}
