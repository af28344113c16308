import { createHash } from 'node:crypto';
import { setNewest } from '../core/api/index.ts';
import { type Logger, LogOnce } from '../telemetry/index.ts';
import { RateLimit } from '../timing/index.ts';
import { callApi } from './client.ts';
import type { KubeConnection } from './connection.ts';
import { asFailure } from './failure.ts';
import { newAgent } from './request.ts';

/** An Event about an object, as shown by `kubectl describe` and `kubectl get events`. */
export interface ObjectEvent {
  readonly object: {
    readonly kind: string;
    readonly namespace: string;
    readonly name: string;
    /** Optional: `kubectl describe` also finds the Event by kind and name. */
    readonly uid?: string | undefined;
  };
  readonly type: 'Normal' | 'Warning';
  /** One word. */
  readonly reason: string;
  /** What was done, in one word. */
  readonly action: string;
  readonly note: string;
}

interface ObjectEventsOptions {
  readonly connection: KubeConnection;
  readonly identity: string;
  readonly logger: Logger;
  readonly clock: () => number;
  readonly signal: AbortSignal;
}

const REQUEST_MS = 5_000;
/** Limits the rate, because thousands of pods may end at once; the log and the metrics cover all of them. */
const ALLOWANCE = { perSecond: 5, atOnce: 25 };
const MOST_WAITING = 500;
/** For this long, no second Event is written for the same object and reason. Milliseconds. */
const SAME_AGAIN_MS = 60_000;
const MOST_REMEMBERED = 5_000;
/** The limit of `note` in events.k8s.io/v1. */
const LONGEST_NOTE = 1_000;

const GROUPS: Readonly<Record<string, string>> = {
  Pod: 'v1',
  Service: 'v1',
  Rollout: 'argoproj.io/v1alpha1',
};

/** Writes Events at a limited rate: they are meant for people, and must not load the API server in a storm. */
export class ObjectEvents {
  readonly #options: ObjectEventsOptions;
  /** Not the shared connections, because Events must not delay the renewal of the leader's Lease. */
  readonly #agent: ReturnType<typeof newAgent>;
  readonly #once: LogOnce;
  readonly #waiting: ObjectEvent[] = [];
  readonly #toldAt = new Map<string, number>();
  readonly #rate: RateLimit;
  #sending = false;

  constructor(options: ObjectEventsOptions) {
    this.#options = options;
    this.#agent = newAgent(options.connection, 1, options.signal);
    this.#once = new LogOnce(options.logger);
    this.#rate = new RateLimit(ALLOWANCE, options.clock());
  }

  /** Writes an Event; never throws or waits. Events beyond the rate, and repetitions within a minute, are dropped. */
  tell(event: ObjectEvent): void {
    const { object, reason } = event;
    const key = `${object.kind}/${object.namespace}/${object.name}/${reason}`;
    const now = this.#options.clock();
    if (now - (this.#toldAt.get(key) ?? Number.NEGATIVE_INFINITY) < SAME_AGAIN_MS) return;
    setNewest(this.#toldAt, key, now, MOST_REMEMBERED);
    if (this.#waiting.length < MOST_WAITING) this.#waiting.push(event);
    void this.#send();
  }

  async #send(): Promise<void> {
    if (this.#sending) return;
    this.#sending = true;
    for (;;) {
      const allowed = this.#waiting.length > 0 && this.#rate.take(this.#options.clock());
      const event = allowed ? this.#waiting.shift() : undefined;
      if (event === undefined) break;
      try {
        await this.#write(event);
        this.#once.over('events', {}, 'writing Events recovered');
      } catch (thrown) {
        // The same Event exists already, from an earlier process or another replica.
        if (asFailure(thrown).reason === 'Conflict') continue;
        if (this.#options.signal.aborted) break;
        this.#once.warn('events', { problem: String(thrown) }, 'writing an Event failed, Event dropped');
      }
    }
    // Dropped rather than queued, because they would be stale later.
    this.#waiting.length = 0;
    this.#sending = false;
  }

  async #write(event: ObjectEvent): Promise<void> {
    const { object, type, reason, action, note } = event;
    const { connection, identity, signal } = this.#options;
    const { kind, namespace, name, uid } = object;
    const call = { signal, withinMs: REQUEST_MS, agent: this.#agent };
    const involvedObject = {
      apiVersion: GROUPS[kind] ?? 'apps/v1',
      kind,
      namespace,
      name,
      ...(uid && { uid }),
    };
    const message = note.length > LONGEST_NOTE ? `${note.slice(0, LONGEST_NOTE - 3)}...` : note;
    await callApi(connection, 'CoreV1Api', call, (core) =>
      core.createNamespacedEvent({
        namespace,
        body: {
          metadata: { name: `${name.slice(0, 200)}.${idOf(event)}`, namespace },
          involvedObject,
          type,
          reason,
          action,
          message,
          // A MicroTime has six decimal places, a Date only three.
          eventTime: new Date().toISOString().replace('Z', '000Z') as never,
          reportingComponent: 'linger.dev/linger',
          reportingInstance: identity,
        },
      }),
    );
  }
}

/** The same name for the same Event, so that the API server keeps only one however often replicas restart. */
function idOf({ object, type, reason, action, note }: ObjectEvent): string {
  const text = JSON.stringify([object.kind, object.uid, type, reason, action, note]);
  return createHash('sha256').update(text).digest('hex').slice(0, 16);
}
