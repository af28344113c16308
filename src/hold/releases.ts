import { Counter, Histogram, type Registry } from '@prometheus-io/client';
import { callApi, type KubeConnection, newAgent } from '../cluster/index.ts';
import { type Logger, LogOnce, numberAtScrape } from '../telemetry/index.ts';
import type { Release } from './holds.ts';
import { RELEASE_REASONS, type WaitingFor } from './release-rules.ts';

interface ReleasesOptions {
  readonly connection: KubeConnection;
  readonly registry: Registry;
  readonly logger: Logger;
  /** Of this replica, for Events. */
  readonly identity: string;
  /** How many pods are held. */
  readonly held: () => number;
  readonly clock: () => number;
  readonly signal: AbortSignal;
}

const BUCKETS = [0.5, 1, 2, 3, 5, 7.5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 600];

const REQUEST_MS = 5_000;
/** A release of thousands at once is told in the log and the metrics; of Events there are this many. */
const EVENTS_PER_SECOND = 5;
const EVENTS_AT_ONCE = 25;
const MOST_WAITING = 500;
const LONGEST_NOTE = 1_000;
const SHOWN = 5;

/** @param held how many pods are */
export function registerHoldMetrics(registry: Registry, held: () => number) {
  const released = new Counter({
    name: 'linger_hold_released_total',
    help: 'Pods whose hooks (Hold) this replica has let go, by reason.',
    labelNames: ['reason'] as const,
    registers: [registry],
  });
  for (const reason of Object.keys(RELEASE_REASONS)) released.inc({ reason }, 0);
  const seconds = new Histogram({
    name: 'linger_hold_seconds',
    help: 'From the deletion of a pod (or the call of its hook where there is none) until its hooks were let go.',
    labelNames: ['reason'] as const,
    buckets: BUCKETS,
    registers: [registry],
  });
  numberAtScrape(registry, {
    name: 'linger_hold_pods',
    help: 'Pods that this replica holds now; only the leader holds any.',
    read: held,
  });
  return { released, seconds };
}

/** Tells of each release: a number, a line of the log, an Event of the pod. */
export class Releases {
  readonly #options: ReleasesOptions;
  readonly #agent: ReturnType<typeof newAgent>;
  readonly #once: LogOnce;
  readonly #metrics: ReturnType<typeof registerHoldMetrics>;
  readonly #events: Release[] = [];
  #sending = false;
  #tokens = EVENTS_AT_ONCE;
  #tokensAt = 0;

  constructor(options: ReleasesOptions) {
    const { registry, connection, logger, signal, held } = options;
    this.#options = options;
    this.#agent = newAgent(connection, 1);
    this.#once = new LogOnce(logger);
    signal.addEventListener('abort', () => this.#agent.destroy(), { once: true });
    this.#metrics = registerHoldMetrics(registry, held);
  }

  tell(release: Release): void {
    const { pod, reason, heldMs, waitingFor, open, undeclared } = release;
    const { logger } = this.#options;
    const { namespace, name } = pod;
    const seconds = heldMs / 1000;
    this.#metrics.released.inc({ reason });
    this.#metrics.seconds.observe({ reason }, seconds);
    const members = {
      ...{ namespace, pod: name, reason, seconds: Math.round(heldMs) / 1000 },
      ...(waitingFor.length > 0 && { waitingFor: waitingFor.map(inWords) }),
      ...(open !== undefined && open > 0 && { open }),
      ...(undeclared && { undeclared: undeclared.connections, from: undeclared.remotes.slice(0, SHOWN) }),
    };
    if (reason === 'Max') logger.warn(members, 'a pod is let go before everything had let go of it');
    else logger.info(members, 'a pod is let go');
    if (this.#events.length < MOST_WAITING) this.#events.push(release);
    void this.#send();
  }

  async #send(): Promise<void> {
    if (this.#sending) return;
    this.#sending = true;
    for (;;) {
      const release = this.#mayWrite() ? this.#events.shift() : undefined;
      if (release === undefined) break;
      try {
        await this.#write(release);
        this.#once.over('events', {}, 'Events of pods are written again');
      } catch (thrown) {
        if (this.#options.signal.aborted) break;
        this.#once.warn('events', { problem: String(thrown) }, 'an Event of a pod could not be written');
      }
    }
    // What exceeds the rate is not told later: by then it would be news of long ago.
    this.#events.length = 0;
    this.#sending = false;
  }

  #mayWrite(): boolean {
    const now = this.#options.clock();
    const refilled = this.#tokens + ((now - this.#tokensAt) / 1000) * EVENTS_PER_SECOND;
    this.#tokens = Math.min(EVENTS_AT_ONCE, refilled);
    this.#tokensAt = now;
    if (this.#tokens < 1) return false;
    this.#tokens -= 1;
    return true;
  }

  async #write(release: Release): Promise<void> {
    const { connection, identity, signal } = this.#options;
    const { pod, reason } = release;
    const { namespace, name, uid } = pod;
    const call = { signal, withinMs: REQUEST_MS, agent: this.#agent };
    await callApi(connection, 'CoreV1Api', call, (core) =>
      core.createNamespacedEvent({
        namespace,
        body: {
          metadata: { generateName: `${name.slice(0, 200)}.hold-`, namespace },
          involvedObject: { apiVersion: 'v1', kind: 'Pod', namespace, name, uid },
          type: reason === 'Max' || reason === 'Unsure' ? 'Warning' : 'Normal',
          reason: `Hold${reason}`,
          action: 'Release',
          message: noteOf(release),
          eventTime: new Date().toISOString().replace('Z', '000Z') as never,
          reportingComponent: 'linger.dev/hold',
          reportingInstance: identity,
        },
      }),
    );
  }
}

function noteOf({ reason, heldMs, waitingFor, open, undeclared }: Release): string {
  const parts = [`Let go after ${(heldMs / 1000).toFixed(1)}s. ${RELEASE_REASONS[reason]}`];
  if (waitingFor.length > 0)
    parts.push(`Still waited for: ${waitingFor.slice(0, SHOWN).map(inWords).join('; ')}.`);
  if (undeclared !== undefined)
    parts.push(
      `${undeclared.connections} connections came after every known consumer had let go, from ${undeclared.remotes.slice(0, SHOWN).join(', ') || 'addresses not known'}.`,
    );
  if (open !== undefined && open > 0) parts.push(`${open} connections were open.`);
  return parts.join(' ').slice(0, LONGEST_NOTE);
}

function inWords({ consumer, instances = [] }: WaitingFor): string {
  const more = instances.length > SHOWN ? ` and ${instances.length - SHOWN} more` : '';
  return instances.length === 0 ? consumer : `${consumer}: ${instances.slice(0, SHOWN).join(', ')}${more}`;
}
