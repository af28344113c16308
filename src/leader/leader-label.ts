import type { KubeFailure, PodLabels } from '../cluster/index.ts';
import type { Leadership } from '../manager/index.ts';
import { type Logger, LogOnce } from '../telemetry/index.ts';
import { Schedule } from '../timing/index.ts';
import type { ElectionClock } from './election.ts';

/** The label of the pod that leads, which the Service `linger-reports` selects. */
export const LEADER_LABEL = 'linger.dev/leader';
const LEADS = 'true';
/** Selects all replicas, as deploy/ labels them. */
const REPLICAS = 'app.kubernetes.io/name=linger';

interface LeaderLabelOptions extends Pick<ElectionClock, 'clock' | 'random' | 'pause'> {
  readonly pods: PodLabels;
  readonly identity: string;
  readonly logger: Logger;
}

/** Users can change labels, so they are checked once a minute; nothing is written while they are right. */
const PACE = { everyMs: 60_000, firstPauseMs: 1_000, longestPauseMs: 60_000 };
const TICK_MS = 1_000;
/** A replica that is shutting down has only seconds left. */
const TAKE_OFF_WITHIN_MS = 3_000;

/**
 * Keeps the label on this replica’s pod, and off all others, while this replica leads; removes it at the end. If that fails,
 * the next leader removes it, and until then this replica refuses reports because it no longer leads.
 * @returns resolves once the term is over and the label is removed; never rejects
 */
export async function labelLeader(leadership: Leadership, options: LeaderLabelOptions): Promise<void> {
  const { identity, logger, clock, random, pause } = options;
  const schedule = new Schedule(PACE, clock(), random);
  const once = new LogOnce(logger);
  do {
    if (!leadership.holds() || !schedule.due(clock())) continue;
    try {
      const found = await settle(options, leadership.signal);
      schedule.done(clock());
      if (found) once.over(LEADER_LABEL, { label: LEADER_LABEL }, 'leader label set again');
      else
        once.info(
          LEADER_LABEL,
          { identity },
          'own pod not found; the Service linger-reports has no endpoint',
        );
    } catch (thrown) {
      if (leadership.signal.aborted) break;
      const pauseMs = Math.round(schedule.failed(clock(), (thrown as KubeFailure).retryAfterMs));
      once.warn(
        LEADER_LABEL,
        { label: LEADER_LABEL, problem: String(thrown), pauseMs },
        'labelling the leader’s pod failed; retrying, reports may not reach it',
      );
    }
  } while (await pause(TICK_MS, leadership.signal));
  await takeOff(options);
}

/** @returns whether this replica is among the pods */
async function settle({ pods, identity }: LeaderLabelOptions, signal: AbortSignal): Promise<boolean> {
  const replicas = await pods.list(REPLICAS, signal);
  const own = replicas.find(({ name }) => name === identity);
  for (const pod of replicas) {
    const from = pod.labels[LEADER_LABEL];
    const to = pod === own ? LEADS : undefined;
    if (from !== to) await pods.change({ pod, label: LEADER_LABEL, from, to }, signal);
  }
  return own !== undefined;
}

async function takeOff({ pods, identity }: LeaderLabelOptions): Promise<void> {
  const signal = AbortSignal.timeout(TAKE_OFF_WITHIN_MS);
  try {
    const labelled = await pods.list(`${LEADER_LABEL}=${LEADS}`, signal);
    const own = labelled.find(({ name }) => name === identity);
    if (own !== undefined)
      await pods.change({ pod: own, label: LEADER_LABEL, from: LEADS, to: undefined }, signal);
  } catch {
    // The next leader removes it.
  }
}
