import { asFailure, callApi, type KubeFailure } from '../cluster/index.ts';
import { API_VERSION, inTurns, isRecord, objectKey, parseDuration, recordsAt } from '../core/api/index.ts';
import { inPieces, Schedule } from '../timing/index.ts';
import { type PublishContext, STATUS_KINDS, type StatusObject } from './publish-context.ts';

/** Owns the fields of statuses that Linger applies. Conditions of other types belong to others and are left alone. */
export const FIELD_MANAGER = 'linger';

/** A metav1.Time, which has whole seconds. */
export function statusTime(epochSeconds: number): string {
  return new Date(Math.floor(epochSeconds) * 1000).toISOString().replace('.000Z', 'Z');
}

/** The latest known state of an object of one of Linger's own kinds. */
export interface StatusTarget {
  /** Empty or absent where the kind is cluster-scoped. */
  readonly namespace?: string;
  readonly name: string;
  readonly resourceVersion: string;
  readonly generation: number | undefined;
  readonly status: unknown;
}

export interface Condition {
  readonly type: string;
  readonly status: 'True' | 'False' | 'Unknown';
  readonly reason: string;
  readonly message: string;
  /** Since when the condition has had its status, for objects that do not say. Seconds since the epoch. */
  readonly since: number;
}

export interface Statement<Status extends object = object> {
  readonly target: StatusTarget;
  /** The status without its conditions. */
  readonly content: Omit<Status, 'observedGeneration' | 'conditions'>;
  /** The first condition is always present. Others are removed from the object when they are no longer stated. */
  readonly conditions: readonly [Condition, ...Condition[]];
}

/** The types of Linger's own conditions. */
const OWN_TYPES: readonly string[] = ['Ready', 'HoldUsable', 'Measured'];

export interface StatusSource {
  readonly object: StatusObject;
  /** The desired statuses of all known objects. */
  statements(): readonly Statement[] | Promise<readonly Statement[]>;
}

/** The pause after a conflict, until the watch has delivered the other writer's change. */
const CHANGED_MEANWHILE_MS = 5_000;

/** How long only conditions are written after it turned out that the CRD is of an older version. */
const OLDER_CRD_MS = 600_000;

/**
 * Writes the statuses of one kind by server-side apply while this replica leads: each when it has changed, at most once a
 * minute, and only a few a second in all. Changes are found by comparing with the object itself, so that a new leader does
 * not rewrite what is already there.
 */
export class StatusPublisher {
  readonly #context: PublishContext;
  readonly #source: StatusSource;
  /** The backoff after failures, which affect all objects of the kind. */
  readonly #schedule: Schedule;
  #waiting: Statement[] = [];
  #lookAt: number;
  readonly #begunAt: number;
  /** Milliseconds of the monotonic clock, by object. */
  readonly #known = new Map<string, { readonly writtenAt?: number; readonly notBefore: number }>();
  /** Until when only conditions are written, because the CRD is of an older version. */
  #bareUntil = Number.NEGATIVE_INFINITY;

  constructor(context: PublishContext, source: StatusSource, firstAt: number) {
    this.#context = context;
    this.#source = source;
    this.#schedule = new Schedule({ everyMs: 0, ...context.limits }, firstAt, context.time.random);
    this.#begunAt = context.time.clock();
    this.#lookAt = firstAt;
  }

  /** Call this periodically; it writes at most a few statuses. Never throws. */
  async tick(signal: AbortSignal): Promise<void> {
    const { limits, time, leadership } = this.#context;
    const begun = time.clock();
    if (begun >= this.#lookAt) await this.#look(begun);
    for (let left = limits.statusesATick; left > 0; left -= 1) {
      const now = time.clock();
      // A slow API server must not keep the leader from publishing the curves on which waits depend.
      if (!this.#schedule.due(now) || now - begun > limits.slowMs || !leadership.holds()) return;
      const next = this.#waiting.shift();
      if (next === undefined || signal.aborted) return;
      await this.#write(next, signal);
    }
  }

  /**
   * Queues changed statuses. In each namespace, objects without any status come first, then those that have waited longest.
   */
  async #look(now: number): Promise<void> {
    const { limits, time } = this.#context;
    const statements = await this.#source.statements();
    const waiting = await inPieces(this.#news(statements, now));
    const urgency = ({ target, conditions }: Statement) =>
      isOf(target, conditions[0].type) ? (this.#known.get(objectKey(target))?.writtenAt ?? 0) : -1;
    const urgent = waiting.toSorted((a, b) => urgency(a) - urgency(b));
    this.#waiting = [...inTurns(urgent, ({ target }) => target.namespace ?? '')];
    this.#forget(statements);
    // Comparing thousands of policies takes a while: use at most a twentieth of the leader's time.
    const done = time.clock();
    this.#lookAt = done + Math.max(limits.statusLookMs, 20 * (done - now));
  }

  *#news(statements: readonly Statement[], now: number): Generator<undefined, readonly Statement[]> {
    const waiting: Statement[] = [];
    for (const each of statements) {
      yield;
      const statement = { ...each, content: known(each.content) };
      if (this.#isDue(statement, now) && this.#saysMore(statement, now)) waiting.push(statement);
    }
    return waiting;
  }

  /** A changed spec is due at once, because its author looks at the status a moment later. */
  #isDue({ target, conditions }: Statement, now: number): boolean {
    const { writtenAt = Number.POSITIVE_INFINITY, notBefore = 0 } = this.#known.get(objectKey(target)) ?? {};
    const hasNewSpec = !isOf(target, conditions[0].type);
    return now >= notBefore || (hasNewSpec && now >= writtenAt + CHANGED_MEANWHILE_MS);
  }

  #forget(statements: readonly Statement[]): void {
    if (this.#known.size <= 2 * statements.length) return;
    const present = new Set(statements.map(({ target }) => objectKey(target)));
    for (const key of this.#known.keys()) if (!present.has(key)) this.#known.delete(key);
  }

  /** Whether the desired status differs from the object's by more than a drift of numbers. */
  #saysMore({ target, content, conditions }: Statement, now: number): boolean {
    const { status } = target;
    if (!isRecord(status) || !isOf(target, conditions[0].type)) return true;
    const differs = OWN_TYPES.some((type) => {
      const [before, after] = [conditionIn(status, type), conditions.find((each) => each.type === type)];
      return CONDITION.some((member) => before?.[member] !== after?.[member]);
    });
    if (differs) return true;
    if (now < this.#bareUntil) return false;
    const { observedGeneration: _g, conditions: _c, ...said } = status;
    const difference = differenceOf(said, { ...content });
    if (difference !== 'drift') return difference === 'news';
    const since = this.#known.get(objectKey(target))?.writtenAt ?? this.#begunAt;
    return now - since >= this.#context.limits.statusAgainMs;
  }

  async #write(statement: Statement, signal: AbortSignal): Promise<void> {
    const { time, limits, reporting } = this.#context;
    const key = objectKey(statement.target);
    try {
      await this.#apply(statement, signal);
      const now = time.clock();
      this.#known.set(key, { writtenAt: now, notBefore: now + limits.consumersEveryMs });
      this.#schedule.done(now);
      reporting.succeeded(this.#source.object);
      reporting.written(this.#source.object);
    } catch (thrown) {
      if (!signal.aborted) this.#failed(key, thrown);
    }
  }

  async #apply(statement: Statement, signal: AbortSignal): Promise<void> {
    const now = this.#context.time.clock();
    if (now < this.#bareUntil) return this.#patch(statement, {}, signal);
    try {
      await this.#patch(statement, statement.content, signal);
    } catch (thrown) {
      if (!isOlderCrd(asFailure(thrown, 'Malformed'))) throw thrown;
      this.#bareUntil = now + OLDER_CRD_MS;
      this.#context.reporting.olderCrd(this.#source.object);
      await this.#patch(statement, {}, signal);
    }
  }

  async #patch({ target, conditions }: Statement, content: object, signal: AbortSignal): Promise<void> {
    const { connection, limits } = this.#context;
    const { kind, path } = STATUS_KINDS[this.#source.object];
    const { namespace = '', name, resourceVersion, generation } = target;
    const observed = generation === undefined ? {} : { observedGeneration: generation };
    const said = conditions.map(({ since: now, ...condition }) => {
      // The status may have been the same since before this replica led.
      const before = conditionIn(target.status, condition.type);
      const same = before?.status === condition.status;
      const since = (same && Date.parse(String(before.lastTransitionTime)) / 1000) || now;
      return { ...condition, lastTransitionTime: statusTime(since), ...observed };
    });
    const body = {
      apiVersion: API_VERSION,
      kind,
      // With the resourceVersion, so that one write fails if there are two leaders, or if the spec has changed.
      metadata: { name, ...(namespace === '' ? {} : { namespace }), resourceVersion },
      status: { ...observed, ...content, conditions: said },
    };
    const call = { signal, withinMs: limits.requestMs, patch: 'apply-patch' } as const;
    const [group = '', version = '', plural = ''] = path.split('/').slice(2);
    const resource = { group, version, plural, name, body, fieldManager: FIELD_MANAGER, force: true };
    await callApi(connection, 'CustomObjectsApi', call, (api) =>
      namespace === ''
        ? api.patchClusterCustomObjectStatus(resource)
        : api.patchNamespacedCustomObjectStatus({ ...resource, namespace }),
    );
  }

  #failed(key: string, thrown: unknown): void {
    const { time, reporting } = this.#context;
    const failure = asFailure(thrown, 'Malformed');
    const now = time.clock();
    if (failure.reason === 'Conflict' || failure.reason === 'NotFound')
      this.#known.set(key, { ...this.#known.get(key), notBefore: now + CHANGED_MEANWHILE_MS });
    else reporting.failed(this.#source.object, failure, this.#schedule.failed(now, failure.retryAfterMs));
  }
}

/** Source: sigs.k8s.io/structured-merge-diff typed/validate.go. */
function isOlderCrd({ message }: KubeFailure): boolean {
  return message.includes('field not declared in schema');
}

const CONDITION = ['status', 'reason', 'message'] as const;

function isOf({ generation, status }: StatusTarget, type: string): boolean {
  return (
    isRecord(status) && status.observedGeneration === generation && conditionIn(status, type) !== undefined
  );
}

/** Measured numbers; a change of them counts only if it is more than noise. */
const MEASURED = new Set(['p50', 'p99', 'pods']);
const MOVED = 0.05;
/**
 * Values that change all the time, so an occasional write suffices. If a wait is chosen in another way, other members change
 * as well.
 */
const GROWING = new Set(['samples', 'lastSample', 'why']);

/** `drift`: only growing numbers differ, or measured ones that have hardly changed. */
type Difference = 'none' | 'drift' | 'news';

type Members = Readonly<Record<string, unknown>>;

function differenceOf(was: Members, is: Members): Difference {
  let result: Difference = 'none';
  for (const member of new Set([...Object.keys(was), ...Object.keys(is)])) {
    const difference = memberDifference(member, was[member], is[member]);
    if (difference === 'news') return 'news';
    if (difference === 'drift') result = 'drift';
  }
  return result;
}

function memberDifference(member: string, was: unknown, is: unknown): Difference {
  if (isRecord(was) && isRecord(is)) return differenceOf(was, is);
  if (JSON.stringify(was) === JSON.stringify(is)) return 'none';
  if (was === undefined || is === undefined) return 'news';
  if (GROWING.has(member)) return 'drift';
  if (!MEASURED.has(member)) return 'news';
  const [a, b] = [amountOf(was), amountOf(is)];
  return Math.abs(a - b) > MOVED * Math.max(a, b) ? 'news' : 'drift';
}

function amountOf(value: unknown): number {
  return typeof value === 'number' ? value : (parseDuration(String(value)) ?? Number.POSITIVE_INFINITY);
}

/** The content without members that JSON cannot represent: undefined ones, and numbers that are not finite. */
function known(content: object): object {
  const isKnown = (value: unknown) =>
    value !== undefined && (typeof value !== 'number' || Number.isFinite(value));
  const members = Object.entries(content).filter(([, value]) => isKnown(value));
  return Object.fromEntries(members.map(([name, value]) => [name, isRecord(value) ? known(value) : value]));
}

function conditionIn(status: unknown, type: string): Members | undefined {
  return recordsAt(status, 'conditions').find((each) => each.type === type);
}
