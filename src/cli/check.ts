import {
  type Check,
  type CheckState,
  checkBefore,
  checkInstallation,
  inquire,
  overviewOf,
} from '../check/index.ts';
import { type NamespaceRecord, NO_LABELS } from '../core/api/index.ts';
import {
  effectivePolicy,
  holdObstacle,
  NO_DOCUMENTS,
  shadowedPolicies,
  snapshotOf,
  wantsHold,
} from '../core/decision/index.ts';
import { problemsIn } from '../policy-files/index.ts';
import { FAILURE_EXIT_CODE } from './command-line.ts';
import type { Settings } from './commands.ts';
import { connectToLinger } from './connect.ts';
import { usageError } from './flags.ts';
import { sourcesFor } from './manifests.ts';
import { readCluster } from './read-cluster.ts';
import { rendered } from './rendering.ts';
import { statusHeadline } from './status.ts';
import { columns, exitCodeFor, paragraphs, type Surroundings } from './terminal.ts';

/**
 * `linger check`: with paths, reports every policy document that `serve` could not use; without any, whether Linger works in
 * the cluster, or with --pre, whether it can be installed there. The exit code is 1 if something cannot be used or does not
 * work.
 */
export async function check(settings: Settings<'check'>, surroundings: Surroundings): Promise<number> {
  const { policies, operands, pre } = settings;
  const paths = policies === undefined ? operands : [policies, ...operands];
  if (paths.length === 0) return checkCluster(settings, surroundings);
  if (pre || settings.failOn !== undefined)
    throw usageError('--pre and --fail-on check a cluster; leave out the paths');
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
  const lines = [
    ...problems.map(({ code, message }) => `${message} [${code}]`),
    ...shadowed.map(({ policy, by }) => `${policy} has no effect: ${by.join(', ')} wins in every field`),
  ];
  const table = () => (lines.length === 0 ? '' : paragraphs(lines));
  print(rendered(output, { problems, usable, shadowed }, table));
  warn(`${usable} documents valid, ${problems.length} invalid`);
  return problems.length === 0 ? 0 : FAILURE_EXIT_CODE;
}

async function checkCluster(settings: Settings<'check'>, surroundings: Surroundings): Promise<number> {
  const { pre, namespace: tryIn, webhookConfiguration, output, failOn } = settings;
  const { print, warn, now } = surroundings;
  // It will be installed in the given namespace, or in that of deploy/.
  const asked = pre ? { ...settings, lingerNamespace: settings.lingerNamespace ?? 'linger' } : settings;
  const { connection, lingerNamespace } = await connectToLinger(asked, surroundings, webhookConfiguration);
  const options = {
    connection,
    namespace: lingerNamespace,
    configuration: webhookConfiguration,
    tryIn,
    now: now(),
  };
  const readInForce = async () => {
    // Other checks report these warnings, and the returned members say what is wrong with files.
    const place = { lingerNamespace, policies: undefined, namespace: tryIn };
    const warnings: string[] = [];
    const known = await readCluster(connection, place, (text) => warnings.push(text));
    const inForce = { namespace: tryIn, policies: undefined, modeLimit: 'Enforce' } as const;
    const snapshot = snapshotOf(await sourcesFor(NO_DOCUMENTS, inForce, known));
    const wanting = [...snapshot.namespaces.values()].filter((each) => wantsHold(snapshot.policies, each));
    const policyIn = (namespace: NamespaceRecord) =>
      effectivePolicy(
        snapshot.policies,
        { namespace, labels: NO_LABELS, annotations: NO_LABELS },
        snapshot.modeLimit,
      ).policy;
    const namespace = snapshot.namespaces.get(tryIn);
    const obstacles = wanting.map((each) => {
      const why = holdObstacle(each.name, policyIn(each)['hold.delivery'].value, snapshot);
      return { namespace: each.name, why };
    });
    return {
      wantingHold: obstacles,
      policiesUnread: warnings.find((text) => /terminationpolicies|TerminationPolicy/.test(text)),
      holdDigest: snapshot.hold !== undefined && 'digest' in snapshot.hold ? snapshot.hold.digest : undefined,
      files: known.files.clusterPolicies.length + known.files.policies.length,
      fileProblems: known.fileProblems,
      filesUnread: known.filesUnread,
      mode: namespace && policyIn(namespace).mode,
    };
  };
  let reading: ReturnType<typeof readInForce> | undefined;
  const inForce = () => (reading ??= readInForce());
  surroundings.progress(pre ? 'checking the cluster' : 'checking Linger in the cluster');
  const { checks, headline } = await inquire(options, async (inquiry) => {
    if (pre) return { checks: await checkBefore(inquiry), headline: [] };
    const senders = async () => (await import('./discover-consumers.ts')).sendersOf(connection, options);
    const found = await checkInstallation(inquiry, inForce, senders);
    const isReached = !found.some(({ code, state }) => code === 'ApiServer' && state === 'failure');
    return { checks: found, headline: isReached ? [statusHeadline(await overviewOf(inquiry))] : [] };
  });
  print(
    rendered(output, { ...(headline.length > 0 && { headline: headline[0] }), checks }, () =>
      renderChecks(checks, headline),
    ),
  );
  const states = checks.map(({ state }) => state);
  const times = (state: CheckState) => states.filter((each) => each === state).length;
  const found = `${times('ok')} ok, ${times('warning')} warnings, ${times('failure')} failures`;
  warn(`${found}, ${times('unknown')} not checked`);
  return states.includes('failure') ? FAILURE_EXIT_CODE : exitCodeFor(failOn, states);
}

/** One line for each check, followed by what to do. */
function renderChecks(checks: readonly Check[], headline: readonly string[]): string {
  const rows = checks.flatMap(({ code, state, text, cure }) => [
    [state.padEnd('warning'.length), code, text],
    ...(cure === undefined ? [] : [['', '', `→ ${cure}`]]),
  ]);
  return paragraphs(headline, columns(rows));
}
