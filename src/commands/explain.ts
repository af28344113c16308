import { stringify } from 'yaml';
import { LingerError } from '../core/catalog/errors.ts';
import { NOTES } from '../core/catalog/notes.ts';
import { SKIP_REASONS } from '../core/catalog/reasons.ts';
import { NONE_YET, plannedLags } from '../core/lag/planned-lags.ts';
import { type Explanation, explain as explanationOf } from '../render/explanation.ts';
import { renderTable } from '../render/table.ts';
import type { ExplainSettings, OutputFormat } from '../settings/commands.ts';
import type { KubeEnvironment } from '../settings/kube-environment.ts';
import { type KnownCluster, planManifests } from './manifests.ts';
import type { Terminal } from './terminal.ts';

const FINDINGS_EXIT_CODE = 3;
const ANY_SKIP = 'skip';

/**
 * `linger explain`: the decision for the pods of each workload, with the origin of every field.
 * @returns the exit code: 3 when a decision has one of the codes of --fail-on
 * @throws LingerError
 */
export async function explain(
  settings: ExplainSettings,
  kube: KubeEnvironment,
  terminal: Terminal,
): Promise<number> {
  checkCodes(settings.failOn);
  const asked = settings.kubeconfig !== undefined || settings.context !== undefined;
  const cluster = asked ? await askCluster(settings, kube, terminal) : undefined;
  const { planned } = await planManifests(settings, cluster);
  const plans = planned.map(explanationOf);
  terminal.print(RENDERERS[settings.output](plans));
  if (planned.length === 0) terminal.warn('no Pod and no workload among the objects given\n');
  return plans.some((plan) => isFinding(plan, settings.failOn)) ? FINDINGS_EXIT_CODE : 0;
}

/** Longer than any list takes; somebody is waiting. */
const CLUSTER_WITHIN_MS = 60_000;

async function askCluster(
  settings: ExplainSettings,
  kube: KubeEnvironment,
  { warn }: Terminal,
): Promise<KnownCluster> {
  // Only who asks a cluster carries what it takes.
  const { connectAsKubectl, first } = await import('./as-kubectl.ts');
  const { readCluster, readDeclaredConsumers, readPlannedLags } = await import('../sources/cluster-once.ts');
  const connection = await connectAsKubectl(settings, kube, process.stdin.isTTY);
  const signal = AbortSignal.timeout(CLUSTER_WITHIN_MS);
  const known = await first(connection, () => readCluster(connection, signal));
  const { consumers, problems } = await readDeclaredConsumers(connection, signal);
  for (const problem of problems) warn(`${problem}; it is left out\n`);
  const table = await readPlannedLags(connection, settings.lingerNamespace, signal);
  if ('none' in table) {
    warn(`no planned lags: ${table.none}; waits are those of before anything is measured\n`);
    return { ...known, consumers, lags: NONE_YET };
  }
  return { ...known, consumers, lags: plannedLags(table) };
}

const RENDERERS: Readonly<Record<OutputFormat, (plans: readonly Explanation[]) => string>> = {
  table: renderTable,
  json: (plans) => `${JSON.stringify({ plans }, undefined, 2)}\n`,
  yaml: (plans) => stringify({ plans }),
};

/** A misspelt code would never be found, and the check that was meant would pass for ever. */
function checkCodes(codes: readonly string[] = []): void {
  const known = [ANY_SKIP, ...Object.keys(SKIP_REASONS), ...Object.keys(NOTES)];
  const unknown = codes.find((code) => !known.includes(code));
  if (unknown === undefined) return;
  throw new LingerError(
    'settings-invalid',
    `--fail-on: expected some of ${known.join(', ')}, got "${unknown}"`,
  );
}

function isFinding({ outcome, reason, notes }: Explanation, codes: readonly string[] = []): boolean {
  if (outcome === 'skip' && codes.includes(ANY_SKIP)) return true;
  return (reason !== null && codes.includes(reason)) || notes.some(({ code }) => codes.includes(code));
}
