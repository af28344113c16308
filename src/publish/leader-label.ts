import type { KubeFailure } from '../kube/failure.ts';
import type { Logger } from '../telemetry/logs.ts';
import type { Lead } from './leadership.ts';
import { Schedule } from './schedule.ts';

/** On the pod that leads: the Service `linger-reports` selects it. */
export const LEADER_LABEL = 'linger.dev/leader';
const LEADS = 'true';
/** All replicas, as deploy/ labels them. */
const REPLICAS = 'app.kubernetes.io/name=linger';

/** A pod of Linger's own. */
export interface OwnPod {
  readonly name: string;
  readonly uid: string;
  readonly labels: Readonly<Record<string, string>>;
}

/** Labels of Linger's own pods. Both throw KubeFailure. */
export interface OwnPodLabels {
  list(selector: string, signal: AbortSignal): Promise<readonly OwnPod[]>;
  /** @param change `from` undefined: whatever it is; `to` undefined: none */
  change(
    change: {
      readonly pod: OwnPod;
      readonly label: string;
      readonly from: string | undefined;
      readonly to: string | undefined;
    },
    signal: AbortSignal,
  ): Promise<void>;
}

export interface LeaderLabelOptions {
  readonly pods: OwnPodLabels;
  /** This replica's pod. */
  readonly identity: string;
  readonly logger: Logger;
  readonly clock: () => number;
  readonly random: () => number;
  /** Resolves with false once the signal has aborted. */
  readonly pause: (milliseconds: number, signal: AbortSignal) => Promise<boolean>;
}

/**
 * Somebody may take the label off, or put it on another pod: it is looked after. One list a minute, and no write where all
 * is as it should be.
 */
const PACE = { everyMs: 60_000, firstPauseMs: 1_000, longestPauseMs: 60_000 };
const TICK_MS = 500;
/** How long the last word may take: a replica that ends has some seconds left. */
const TAKE_OFF_WITHIN_MS = 3_000;

/**
 * Keeps the label on this replica's pod, and off all others, while it leads; takes it off at the end. Where that fails
 * the next leader does it: whoever still finds this replica meanwhile is told that it does not lead.
 * @returns resolves when that is over; never rejects
 */
export async function labelLeader(lead: Lead, options: LeaderLabelOptions): Promise<void> {
  const { identity, logger, clock, random, pause } = options;
  const schedule = new Schedule(PACE, clock(), random);
  let failing = false;
  do {
    if (!lead.holds() || !schedule.due(clock())) continue;
    try {
      const found = await settle(options, lead.signal);
      schedule.done(clock());
      if (!found && !failing) {
        logger.info({ identity }, 'no pod of that name: the Service linger-reports does not lead here');
      } else if (failing) logger.info({ label: LEADER_LABEL }, 'the leader’s pod is labelled again');
      failing = !found;
    } catch (thrown) {
      if (lead.signal.aborted) break;
      const pauseMs = Math.round(schedule.failed(clock(), (thrown as KubeFailure<string>).retryAfterMs));
      if (!failing) {
        logger.warn(
          { label: LEADER_LABEL, problem: String(thrown), pauseMs },
          'the leader’s pod cannot be labelled for now: reports may not find it',
        );
      }
      failing = true;
    }
  } while (await pause(TICK_MS, lead.signal));
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
    // The next leader does it.
  }
}
