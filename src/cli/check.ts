import { shadowedPolicies, wantsHold, worldOf } from '../decision/index.ts';
import { type Check, type CheckState, checkBefore, checkInstallation } from '../diagnose/index.ts';
import { problemsIn } from '../manifest/index.ts';
import type { Settings } from './commands.ts';
import { connectAsKubectl } from './connect.ts';
import { usageError } from './flags.ts';
import { sourcesFor } from './manifests.ts';
import { readCluster } from './read-cluster.ts';
import { FINDINGS_EXIT_CODE, rendered, type Surroundings } from './terminal.ts';

const FAILURE_EXIT_CODE = 1;

/**
 * `linger check`: with paths, every document of policies that `serve` could not use; without any, whether Linger works in
 * the cluster, or with --pre whether it can be installed there. 1 where something cannot be used or does not work.
 */
export async function check(settings: Settings<'check'>, surroundings: Surroundings): Promise<number> {
  const { policies, operands, pre } = settings;
  const paths = policies === undefined ? operands : [policies, ...operands];
  if (paths.length === 0) return checkCluster(settings, surroundings);
  if (pre || settings.failOn !== undefined)
    throw usageError('--pre and --fail-on: expected no paths, as they are about a cluster');
  return checkPolicies(paths, settings, surroundings);
}

async function checkPolicies(
  paths: readonly string[],
  { output }: Settings<'check'>,
  { print, warn }: Surroundings,
): Promise<number> {
  const found = await Promise.all(paths.map(problemsIn));
  const problems = found.flatMap((each) => each.problems.map(({ code, message }) => ({ code, message })));
  const usable = found.reduce((sum, each) => sum + each.usable, 0);
  const policies = found.flatMap(({ documents }) => [...documents.clusterPolicies, ...documents.policies]);
  const shadowed = shadowedPolicies(policies);
  const table = () =>
    [
      ...problems.map(({ code, message }) => `${message} [${code}]\n`),
      ...shadowed.map(({ policy, by }) => `${policy} has no effect: ${by.join(', ')} wins in every field\n`),
    ].join('');
  print(rendered(output, { problems, usable, shadowed }, table));
  warn(`${usable} documents can be used, ${problems.length} cannot\n`);
  return problems.length === 0 ? 0 : FAILURE_EXIT_CODE;
}

async function checkCluster(settings: Settings<'check'>, surroundings: Surroundings): Promise<number> {
  const { pre, namespace: tryIn, lingerNamespace, webhookConfiguration, output, failOn = [] } = settings;
  const { print, warn, now } = surroundings;
  const connection = await connectAsKubectl(settings, surroundings);
  const options = {
    connection,
    namespace: lingerNamespace,
    configuration: webhookConfiguration,
    tryIn,
    now: now(),
  };
  const wantingHold = async () => {
    // Its problems are reported by other checks.
    const known = await readCluster(connection, { lingerNamespace, policies: undefined }, () => undefined);
    const inForce = { namespace: tryIn, policies: undefined, modeLimit: 'Enforce' } as const;
    const world = worldOf(await sourcesFor([], inForce, known));
    const wanting = [...world.namespaces.values()].filter((each) => wantsHold(world.policies, each));
    return wanting.map(({ name }) => name);
  };
  const checks = await (pre ? checkBefore(options) : checkInstallation({ ...options, wantingHold }));
  print(rendered(output, { checks }, () => renderChecks(checks)));
  const times = (state: CheckState) => checks.filter((each) => each.state === state).length;
  const words = { ok: 'ok', warning: 'warnings', failure: 'failures', unknown: 'not looked at' };
  warn(
    `${Object.entries(words)
      .map(([state, word]) => `${times(state as CheckState)} ${word}`)
      .join(', ')}\n`,
  );
  if (times('failure') > 0) return FAILURE_EXIT_CODE;
  return failOn.some((state) => times(state) > 0) ? FINDINGS_EXIT_CODE : 0;
}

/** A line for each check, followed by what to do. */
function renderChecks(checks: readonly Check[]): string {
  const width = Math.max(...checks.map(({ code }) => code.length));
  const lines = checks.flatMap(({ code, state, text, cure }) => [
    `${state.padEnd('warning'.length)}  ${code.padEnd(width)}  ${text}`,
    ...(cure === undefined ? [] : [`${' '.repeat('warning'.length + width + 4)}→ ${cure}`]),
  ]);
  return `${lines.join('\n')}\n`;
}
