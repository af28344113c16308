import { LingerError } from '../core/api/index.ts';
import { NO_DOCUMENTS, type SnapshotHolder } from '../core/decision/index.ts';
import type { PolicyState } from '../core/manifest/index.ts';
import { followPolicyFiles } from '../policy-files/index.ts';
import { type Logger, type Metrics, stepsOnLoop } from '../telemetry/index.ts';
import { inPieces, serialize } from '../timing/index.ts';
import type { ServerContext } from './context.ts';

/** @returns a function that applies policies, one change after the other, and logs which policies of files are overridden */
export function policyChanges(snapshot: SnapshotHolder, logger: Logger): ServerContext['changePolicies'] {
  const sayShadowed = shadowReporting(snapshot, logger);
  return serialize(async (change) => {
    await inPieces(stepsOnLoop('policies', snapshot.applying(change)));
    sayShadowed();
  });
}

const SHADOWED_SAID = 10;

/** @returns a function that logs which policies of files are overridden, whenever that has changed */
function shadowReporting(snapshot: SnapshotHolder, logger: Logger): () => void {
  let said = '';
  return () => {
    const hidden = snapshot.shadowedPolicies();
    if (hidden.join() === said) return;
    said = hidden.join();
    const members = { policies: hidden.slice(0, SHADOWED_SAID), count: hidden.length };
    if (hidden.length > 0) logger.warn(members, 'policies from files overridden by objects of the same name');
  };
}

/**
 * Follows the policy files; with `--strict`, throws their first problem.
 * @returns a function that returns their current problems
 */
export async function startPolicies({ options, logger, metrics, changePolicies, signal }: ServerContext) {
  const path = options.policies;
  let problems: PolicyState['problems'] = [];
  const take = async (state: PolicyState) => {
    await changePolicies({ kind: 'documents', documents: state.documents });
    const known = new Set(problems.map(({ message }) => message));
    for (const { message: problem } of state.problems) {
      if (known.has(problem)) continue;
      if (state.unknown)
        logger.error(
          { path, problem },
          'policies unreadable; every pod is kept in Audit until they can be read',
        );
      else logger.error({ path, problem }, 'policy document rejected; its last good version stays in force');
    }
    problems = state.problems;
    showPolicies(state, metrics);
  };
  const onChange = async (state: PolicyState) => {
    await take(state);
    metrics.policyReloads.inc({ result: state.problems.length === 0 ? 'success' : 'failure' });
    logger.info({ path, problems: problems.length }, 'policies reloaded');
  };
  const first =
    path === undefined
      ? { documents: NO_DOCUMENTS, problems, unknown: false }
      : await followPolicyFiles(path, onChange, signal);
  const [problem] = first.problems;
  if (options.strict && problem !== undefined) throw new LingerError(problem.code, problem.message);
  await take(first);
  return () => problems.map(({ message }) => message);
}

function showPolicies({ documents, problems, unknown }: PolicyState, metrics: Metrics): void {
  metrics.policyReloadSuccessful.set(problems.length === 0 ? 1 : 0);
  metrics.policyProblems.set(problems.length);
  if (problems.length === 0) metrics.policyLastSuccess.setToCurrentTime();
  const counts = {
    // Not one of the operator’s: it is the policy that keeps pods in Audit while the operator's are unknown.
    ClusterTerminationPolicy: documents.clusterPolicies.length - (unknown ? 1 : 0),
    TerminationPolicy: documents.policies.length,
    DiscoveryConsumer: documents.consumers.length,
    Namespace: documents.namespaces.length,
    Service: documents.services.length,
  };
  for (const [kind, count] of Object.entries(counts)) metrics.policyDocuments.set({ kind }, count);
}
