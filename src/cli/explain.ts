import {
  BUILT_IN,
  type ExplainedField,
  type Explanation,
  explain as explanationOf,
  NOTES,
  SKIP_REASONS,
} from '../decision/index.ts';
import { readDocuments } from '../manifest/index.ts';
import type { Settings } from './commands.ts';
import {
  type KnownCluster,
  type ManifestSettings,
  planOf,
  readInputs,
  type WorldSettings,
  workloadsIn,
  worldFor,
} from './manifests.ts';
import { checkFailOn, columns, FINDINGS_EXIT_CODE, rendered, type Surroundings } from './terminal.ts';

/** An explanation, and where its workload stands; lines from 1. */
type LocatedExplanation = Explanation & { readonly file: string; readonly line: number };

const ANY_SKIP = 'skip';

/** `linger explain`: the decision for the pods of each workload, with the origin of every field. */
export async function explain(settings: Settings<'explain'>, surroundings: Surroundings): Promise<number> {
  const { failOn = [], output, kubeconfig, context } = settings;
  const { print, warn } = surroundings;
  checkFailOn(failOn, [ANY_SKIP, ...Object.keys(SKIP_REASONS), ...Object.keys(NOTES)]);
  const cluster =
    kubeconfig === undefined && context === undefined ? undefined : await askCluster(settings, surroundings);
  const { plans, failed } = await explainManifests(settings, surroundings, cluster);
  print(rendered(output, { plans }, (wide) => renderTable(plans, wide)));
  if (plans.length === 0) warn('no Pod and no workload among the objects given\n');
  if (failed) return 1;
  const failing = plans.some(({ outcome, reason, notes }) => {
    const codes = [reason, ...notes.map(({ code }) => code), outcome === 'skip' ? ANY_SKIP : ''];
    return failOn.some((code) => codes.includes(code));
  });
  return failing ? FINDINGS_EXIT_CODE : 0;
}

/** The explanation of each workload; `failed`: a document could not be read, which `warn` has said. */
export async function explainManifests(
  settings: ManifestSettings & WorldSettings,
  { stdin, warn }: Pick<Surroundings, 'stdin' | 'warn'>,
  cluster?: KnownCluster,
): Promise<{ readonly plans: readonly LocatedExplanation[]; readonly failed: boolean }> {
  const inputs = await readInputs(settings, stdin);
  const world = await worldFor(inputs, settings, cluster);
  const plans: LocatedExplanation[] = [];
  let failed = false;
  const passOver = (message: string, why: string) => {
    failed ||= why === 'unreadable';
    warn(`linger: ${message}\n`);
  };
  for (const input of inputs)
    for (const document of readDocuments(input.text, input.name))
      for (const found of workloadsIn(document, input, settings, passOver))
        plans.push({ ...explanationOf(planOf(found, world)), file: input.name, line: found.object.line });
  return { plans, failed };
}

/** Only who asks a cluster carries what that takes. */
async function askCluster(settings: Settings<'explain'>, surroundings: Surroundings): Promise<KnownCluster> {
  const { connectAsKubectl } = await import('./connect.ts');
  const { readCluster } = await import('./read-cluster.ts');
  return readCluster(await connectAsKubectl(settings, surroundings), settings, surroundings.warn);
}

/** Explanations for people: a block for each workload, and how many there are of each outcome and reason. */
function renderTable(plans: readonly Explanation[], wide: boolean): string {
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
    ...(plan.hold === null ? [] : [['hold', holdInWords(plan.hold)]]),
  ];
}

function holdInWords({ minSeconds, maxSeconds, observe }: NonNullable<Explanation['hold']>): string {
  const span = `${minSeconds}s to ${maxSeconds}s, by what consumers say`;
  return observe ? `only watched; otherwise ${span}` : span;
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
  return columns(cells).map((line) => indent + line);
}
