import { stringify } from 'yaml';
import {
  BUILT_IN,
  type ExplainedField,
  type Explanation,
  explain as explanationOf,
  NO_DOCUMENTS,
  NOTES,
  SKIP_REASONS,
} from '../decision/index.ts';
import { NONE_YET, plannedLags } from '../lag/index.ts';
import { readDocuments } from '../manifest/index.ts';
import type { ExplainSettings, OutputFormat } from './commands.ts';
import type { KubeEnvironment } from './flags.ts';
import {
  type KnownCluster,
  type ManifestSettings,
  planOf,
  readInputs,
  type WorldSettings,
  workloadsIn,
  worldFor,
} from './manifests.ts';
import { checkFailOn, columns, FINDINGS_EXIT_CODE, type Terminal } from './terminal.ts';

/** An explanation, and where its workload stands. */
export interface LocatedExplanation extends Explanation {
  readonly file: string;
  /** From 1. */
  readonly line: number;
}

/** Explanations for people: a block for each workload, and how many there are of each outcome and reason. */
export function renderTable(plans: readonly Explanation[], wide = false): string {
  return [...plans.map((plan) => renderPlan(plan, wide)), totals(plans)].join('\n');
}

function renderPlan(plan: Explanation, wide: boolean): string {
  const lines = [`${plan.kind} ${plan.namespace}/${plan.name}`, ...rows(outcomeRows(plan))];
  const said = plan.fields.filter(
    ({ origin, ignored }) => wide || origin !== BUILT_IN || ignored !== undefined,
  );
  if (said.length > 0) lines.push('  policy', ...rows(said.map(fieldRow), '    '));
  if (plan.fields.length > said.length)
    lines.push(`  ${said.length > 0 ? 'all other fields' : 'all fields'} are built-in`);
  for (const { code, text } of plan.notes) lines.push(`  note ${code}: ${text}`);
  return `${lines.join('\n')}\n`;
}

/** `4 workloads: 2 inject, 2 skip (1 Job, 1 NotServing)` */
function totals(plans: readonly Explanation[]): string {
  if (plans.length === 0) return '';
  const skipped = plans.filter(({ outcome }) => outcome === 'skip');
  const reasons = Map.groupBy(skipped, ({ reason }) => String(reason));
  const shown = [...reasons].map(([reason, { length }]) => `${length} ${reason}`).join(', ');
  const injected = plans.filter(({ outcome }) => outcome === 'inject');
  const audit = injected.filter(({ mode }) => mode === 'Audit').length;
  const parts = [
    `${injected.length} inject${audit === 0 ? '' : ` (${audit} Audit)`}`,
    `${skipped.length} skip${skipped.length === 0 ? '' : ` (${shown})`}`,
  ];
  return `${plans.length} ${plans.length === 1 ? 'workload' : 'workloads'}: ${parts.join(', ')}\n`;
}

function outcomeRows(plan: Explanation): readonly (readonly string[])[] {
  const outcome =
    plan.reason === null
      ? [['outcome', plan.mode === 'Audit' ? 'would inject (mode Audit: not applied)' : 'inject']]
      : [
          ['outcome', `skip: ${plan.reason}`],
          ['why', SKIP_REASONS[plan.reason]],
        ];
  // A pod that carries its plan already is skipped, and waits all the same.
  if (plan.waitSeconds === null) return outcome;
  return [
    ...outcome,
    ['wait', `${plan.waitSeconds}s (${WAIT_SENTENCES[plan.why ?? ''] ?? plan.why})`],
    ...(plan.estimate === null ? [] : [['estimate', plan.estimate.text]]),
    ['grace', `${plan.baseGraceSeconds}s → ${plan.graceSeconds}s`],
    ['hook', `${plan.hook} in ${plan.containers.join(', ')}`],
  ];
}

const WAIT_SENTENCES: Readonly<Record<string, string>> = {
  fixed: 'fixed by policy or annotation',
  initial: 'initial: not enough has been measured yet',
  measured: 'measured',
  storm: 'measured; the tail lies beyond wait.max',
};

function fieldRow({ field, value, origin, ignored = [] }: ExplainedField): readonly string[] {
  const refused = ignored.map((each) => `${show(each.value)} from ${each.origin} ignored: ${each.because}`);
  return [field, show(value), [origin, ...refused].join('; ')];
}

function show(value: unknown): string {
  if (!Array.isArray(value)) return String(value);
  return value.length === 0 ? '(none)' : value.join(', ');
}

function rows(cells: readonly (readonly string[])[], indent = '  '): readonly string[] {
  const width = Math.max(0, ...cells.map((row) => row.length));
  return columns(cells, Array<'left'>(width).fill('left')).map((line) => indent + line);
}

const ANY_SKIP = 'skip';

export interface ExplainContext extends Terminal {
  readonly kube: KubeEnvironment;
  /** Whether someone could answer the question of a credential plugin. */
  readonly interactive: boolean;
  readonly stdin: NodeJS.ReadableStream;
}

/**
 * `linger explain`: the decision for the pods of each workload, with the origin of every field.
 * @returns the exit code: 1 when a document could not be read, 3 when a decision has one of the codes of --fail-on
 * @throws LingerError
 */
export async function explain(settings: ExplainSettings, terminal: ExplainContext): Promise<number> {
  checkFailOn(settings.failOn, [ANY_SKIP, ...Object.keys(SKIP_REASONS), ...Object.keys(NOTES)]);
  const asked = settings.kubeconfig !== undefined || settings.context !== undefined;
  const cluster = asked ? await askCluster(settings, terminal) : undefined;
  const { plans, failed } = await explainManifests(settings, terminal, cluster);
  terminal.print(RENDERERS[settings.output](plans));
  if (plans.length === 0) terminal.warn('no Pod and no workload among the objects given\n');
  if (failed) return 1;
  return plans.some((plan) => isFinding(plan, settings.failOn)) ? FINDINGS_EXIT_CODE : 0;
}

/** The explanation of each workload; `failed`: a document could not be read, which `warn` has said. */
export async function explainManifests(
  settings: ManifestSettings & WorldSettings,
  { stdin, warn }: Pick<ExplainContext, 'stdin' | 'warn'>,
  cluster?: KnownCluster,
): Promise<{ readonly plans: readonly LocatedExplanation[]; readonly failed: boolean }> {
  const inputs = await readInputs(settings, stdin);
  const world = await worldFor(inputs, settings, cluster);
  const plans: LocatedExplanation[] = [];
  let failed = false;
  for (const input of inputs) {
    for (const document of readDocuments(input.text, input.name)) {
      for (const found of workloadsIn(document, input, settings)) {
        if (found.kind === 'workload') {
          const explanation = explanationOf(planOf(found, input, world));
          plans.push({ ...explanation, file: input.name, line: found.object.line });
        } else {
          failed ||= found.kind === 'unreadable';
          warn(`linger: ${found.message}\n`);
        }
      }
    }
  }
  return { plans, failed };
}

/** Longer than any list takes; a person is waiting. */
const CLUSTER_WITHIN_MS = 60_000;

async function askCluster(
  settings: ExplainSettings,
  { kube, interactive, warn }: ExplainContext,
): Promise<KnownCluster> {
  // Only who asks a cluster carries what it takes.
  const { connectAsKubectl, first } = await import('./connect.ts');
  const read = await import('./read-cluster.ts');
  const connection = await connectAsKubectl(settings, kube, interactive);
  const signal = AbortSignal.timeout(CLUSTER_WITHIN_MS);
  const known = await first(connection, () => read.readCluster(connection, signal));
  const { declared, problems } = await read.readDeclared(connection, signal);
  for (const problem of problems) warn(`${problem}; it is left out\n`);
  const table = await read.readPlannedLags(connection, settings.lingerNamespace, signal);
  if ('none' in table)
    warn(`no planned lags: ${table.none}; waits are those of before anything is measured\n`);
  const lags = 'none' in table ? NONE_YET : plannedLags(table);
  const policies =
    settings.policies === undefined
      ? await read.readPolicyMap(connection, settings.lingerNamespace, signal)
      : { documents: NO_DOCUMENTS, problems: [] };
  for (const problem of policies.problems) warn(`${problem}\n`);
  return { ...known, ...declared, lags, files: policies.documents };
}

const RENDERERS: Readonly<Record<OutputFormat, (plans: readonly LocatedExplanation[]) => string>> = {
  table: (plans) => renderTable(plans),
  wide: (plans) => renderTable(plans, true),
  json: (plans) => `${JSON.stringify({ plans }, undefined, 2)}\n`,
  yaml: (plans) => stringify({ plans }),
};

function isFinding({ outcome, reason, notes }: Explanation, codes: readonly string[] = []): boolean {
  if (outcome === 'skip' && codes.includes(ANY_SKIP)) return true;
  return (reason !== null && codes.includes(reason)) || notes.some(({ code }) => codes.includes(code));
}
