import { asFailure, callApi, type KubeConnection } from '../cluster/index.ts';
import { API_VERSION } from '../core/api/index.ts';
import { CLUSTER_TERMINATION_POLICIES } from '../informers/index.ts';
import type { Leadership, OwnReplica } from '../manager/index.ts';
import { type Logger, LogOnce } from '../telemetry/index.ts';
import { Schedule } from '../timing/index.ts';
import type { ElectionClock } from './election.ts';
import { FIELD_MANAGER } from './status-publisher.ts';
import { readConfigMap } from './store.ts';

export const BUILT_IN_POLICY_NAME = 'built-in';

/** Records that the policy has been created once, so that it is not created again after it has been deleted. */
export const BUILT_IN_RECORD = 'linger-built-in-policy';

interface BuiltInPolicyOptions extends Pick<ElectionClock, 'clock' | 'random' | 'pause'> {
  readonly connection: KubeConnection;
  readonly place: OwnReplica;
  readonly logger: Logger;
  /** Whether to create it: the cluster's policies have been listed, there is none, and no file has one of this name. */
  readonly wanted: () => boolean;
}

const PACE = { everyMs: 60_000, firstPauseMs: 2_000, longestPauseMs: 300_000 };
const TICK_MS = 1_000;
const REQUEST_MS = 10_000;

/**
 * Creates a policy in a cluster that has never had one, so that `kubectl get ctp` shows what applies from the first day. Its
 * spec is empty: it changes no decision, and a new version's built-in values show in its status. It cannot be a manifest in
 * the same file as its CRD, because the first `kubectl apply` would fail.
 * @returns resolves once it exists, or is no longer wanted; never rejects
 */
export async function createBuiltInPolicy(
  leadership: Leadership,
  options: BuiltInPolicyOptions,
): Promise<void> {
  const { wanted, logger, clock, random, pause } = options;
  const schedule = new Schedule(PACE, clock(), random);
  const once = new LogOnce(logger);
  do {
    if (!leadership.holds() || !schedule.due(clock()) || !wanted()) continue;
    try {
      if (await create(options, leadership.signal))
        logger.info({ policy: BUILT_IN_POLICY_NAME }, 'built-in policy created');
      return;
    } catch (thrown) {
      if (leadership.signal.aborted) return;
      const { reason, message: problem, retryAfterMs } = asFailure(thrown);
      const pauseMs = Math.round(schedule.failed(clock(), retryAfterMs));
      const members = { policy: BUILT_IN_POLICY_NAME, reason, problem, pauseMs };
      once.warn(
        BUILT_IN_POLICY_NAME,
        members,
        'creating the built-in policy failed; retrying, decisions do not depend on it',
      );
    }
  } while (await pause(TICK_MS, leadership.signal));
}

/** @returns whether this call created it */
async function create({ connection, place }: BuiltInPolicyOptions, signal: AbortSignal): Promise<boolean> {
  const { namespace } = place;
  const call = { signal, withinMs: REQUEST_MS };
  if ((await readConfigMap(connection, namespace, BUILT_IN_RECORD, call)) !== undefined) return false;
  // With server-side apply, which RBAC can limit to one name. Not forced, so that a user’s policy of this name stays.
  const created = await unlessThere(
    callApi(connection, 'CustomObjectsApi', { ...call, patch: 'apply-patch' }, (api) =>
      api.patchClusterCustomObject({ ...RESOURCE, body: POLICY, fieldManager: FIELD_MANAGER }),
    ),
  );
  // Written last: if a leader stops in between, the next one finds the policy and writes this record.
  const body = { metadata: { name: BUILT_IN_RECORD, labels: LABELS } };
  await unlessThere(
    callApi(connection, 'CoreV1Api', call, (api) => api.createNamespacedConfigMap({ namespace, body })),
  );
  return created;
}

const LABELS = { 'app.kubernetes.io/name': 'linger', 'app.kubernetes.io/managed-by': 'linger' };
const [, , group = '', version = '', plural = ''] = CLUSTER_TERMINATION_POLICIES.path.split('/');
const RESOURCE = { group, version, plural, name: BUILT_IN_POLICY_NAME };
const POLICY = {
  apiVersion: API_VERSION,
  kind: CLUSTER_TERMINATION_POLICIES.kind,
  metadata: {
    name: BUILT_IN_POLICY_NAME,
    labels: LABELS,
    annotations: {
      'kubernetes.io/description':
        'Created once by Linger. It sets nothing; its status shows what applies to pods that no other policy selects.',
    },
  },
  // Below all others, so that what is set here is only a default.
  spec: { priority: -1_000_000 },
};

/** @returns whether the object was written; false: another one exists */
async function unlessThere(written: Promise<unknown>): Promise<boolean> {
  try {
    await written;
    return true;
  } catch (thrown) {
    const { reason } = asFailure(thrown);
    if (reason === 'AlreadyExists' || reason === 'Conflict') return false;
    throw thrown;
  }
}
