import { Counter, Histogram, type Registry } from '@prometheus-io/client';
import type { ObjectEvents } from '../cluster/index.ts';
import { type Logger, numberAtScrape } from '../telemetry/index.ts';
import type { Release } from './holds.ts';
import { RELEASE_REASONS, type ReleaseReason, type WaitingFor } from './release-rules.ts';

const BUCKETS = [0.5, 1, 2, 3, 5, 7.5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 600];

/** Reasons for which a pod is released although something may still send to it. */
const CUT: ReadonlySet<string> = new Set<ReleaseReason>(['Max', 'NodeShutdown']);

const SHOWN = 5;

/** Each gauge reads the number of such pods. */
export function registerHoldMetrics(
  registry: Registry,
  { held, unreached }: Readonly<Record<'held' | 'unreached', () => number>>,
) {
  const released = new Counter({
    name: 'linger_hold_released_total',
    help: 'Pods whose hooks (Hold) this replica has released, by reason.',
    reference:
      'Pods (and restarted containers) that this replica has released, by [reason](reasons.md#why-a-held-pod-is-released).',
    labelNames: ['reason'] as const,
    registers: [registry],
  });
  for (const reason of Object.keys(RELEASE_REASONS)) released.inc({ reason }, 0);
  const seconds = new Histogram({
    name: 'linger_hold_seconds',
    help: 'From the deletion of a pod (or the call of its hook without one) until its hooks were released.',
    labelNames: ['reason'] as const,
    buckets: BUCKETS,
    registers: [registry],
  });
  numberAtScrape(registry, {
    name: 'linger_hold_pods',
    help: 'Pods that this replica holds now. Only the leader holds pods.',
    read: held,
  });
  numberAtScrape(registry, {
    name: 'linger_hold_pods_unreached',
    help: 'Pods whose hooks (Hold) call an address where the Service of Hold is not.',
    reference:
      'Running pods whose hooks (`Hold`) call [an address that the Service of Hold no longer has](operations.md#the-address-of-hold): they wait for their static time. The same on all replicas.',
    read: unreached,
  });
  const strangers = new Counter({
    name: 'linger_hold_stranger_lines_total',
    help: 'Lines about a pod’s connections that were ignored because an address other than the pod’s sent them.',
    reference:
      "Lines about a held pod's connections from another address than the pod's: a stolen token, or a network that [translates addresses](../threat-model.md#the-helper-and-its-token).",
    registers: [registry],
  });
  return { released, seconds, strangers };
}

/** Reports a release: metrics, a log line, an Event on the pod. */
export function reportRelease(
  release: Release,
  metrics: ReturnType<typeof registerHoldMetrics>,
  { logger, events }: { readonly logger: Logger; readonly events: ObjectEvents },
): void {
  const { pod, reason, heldMs, waitingFor, skipped, open, undeclared, lag } = release;
  const { namespace, name } = pod;
  metrics.released.inc({ reason });
  metrics.seconds.observe({ reason }, heldMs / 1000);
  const members = {
    namespace,
    pod: name,
    reason,
    seconds: Math.round(heldMs) / 1000,
    ...(waitingFor.length > 0 && { [CUT.has(reason) ? 'waitingFor' : 'last']: waitingFor.map(inWords) }),
    ...(skipped.length > 0 && { notWaitedFor: skipped.map(inWords) }),
    ...(lag !== undefined && { lag: Math.round(lag * 1000) / 1000 }),
    ...(open !== undefined && open > 0 && { open }),
    ...(undeclared && { undeclared: undeclared.connections, from: undeclared.remotes.slice(0, SHOWN) }),
  };
  if (CUT.has(reason)) logger.warn(members, 'pod released while consumers may still send to it');
  else logger.info(members, 'pod released');
  events.tell({
    object: { kind: 'Pod', namespace, name, uid: pod.uid },
    type: CUT.has(reason) || reason === 'Unsure' ? 'Warning' : 'Normal',
    reason: `Hold${reason}`,
    action: 'Release',
    note: noteOf(release),
  });
}

function noteOf({ reason, heldMs, waitingFor, skipped, open, undeclared }: Release): string {
  const parts = [`Released after ${(heldMs / 1000).toFixed(1)}s. ${RELEASE_REASONS[reason].means}`];
  if (waitingFor.length > 0)
    parts.push(
      `${CUT.has(reason) ? 'Still waiting' : 'Last waited'} for: ${waitingFor.slice(0, SHOWN).map(inWords).join('; ')}.`,
    );
  if (skipped.length > 0)
    parts.push(
      `Not waited for, as stale in three holds in a row: ${skipped.slice(0, SHOWN).map(inWords).join('; ')}.`,
    );
  if (undeclared !== undefined)
    parts.push(
      `${undeclared.connections} connections came after every known consumer had dropped the pod, from ${undeclared.remotes.slice(0, SHOWN).join(', ') || 'addresses not known'}.`,
    );
  if (open !== undefined && open > 0) parts.push(`${open} connections were open.`);
  return parts.join(' ');
}

function inWords({ consumer, instances = [] }: WaitingFor): string {
  const more = instances.length > SHOWN ? ` and ${instances.length - SHOWN} more` : '';
  return instances.length === 0 ? consumer : `${consumer}: ${instances.slice(0, SHOWN).join(', ')}${more}`;
}
