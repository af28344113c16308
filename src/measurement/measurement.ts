import {
  type Acknowledged,
  BUILT_IN_ENOUGH,
  type ClusterEvent,
  type Consumer,
  ConsumerEstimator,
  type ConsumerLag,
  type Direction,
  type DiscardCounts,
  ENDPOINT_SOURCES,
  type EndpointChange,
  type EndpointGroup,
  type EndpointSource,
  type Enough,
  type HeartbeatStream,
  type HistoryPart,
  LagEstimator,
  LagRecorder,
  type LagSource,
  type MeasuredLag,
  type MeasurementState,
  NONE_YET,
  NOTHING_PLANNED,
  nextPlanned,
  type Period,
  type PlannedTable,
  type PodKey,
  plannedLags,
  type RemovalSample,
  type StageSample,
  type TerminatingPod,
  type UnresolvedRemoval,
  type UnseenPods,
} from '../core/lag/index.ts';
import { Listeners } from '../manager/index.ts';
import { stepsOnLoop } from '../telemetry/index.ts';
import { inPieces } from '../timing/index.ts';

/** Removals that have begun and not ended. */
export interface Waiting {
  readonly count: number;
  /** 0 if there are none. */
  readonly oldestSeconds: number;
}

export type WaitingByStage = Readonly<Record<EndpointSource, Waiting>>;

interface WaitingService extends Waiting {
  readonly stage: EndpointSource;
  readonly namespace: string;
  readonly name: string;
}

/** @param now milliseconds, by the clock of the removals' instants */
export function waitingByStage(removals: Iterable<UnresolvedRemoval>, now: number): WaitingByStage {
  const unresolved = Map.groupBy(removals, ({ stage }) => stage);
  const waiting = ENDPOINT_SOURCES.map((stage) => [stage, waitingOf(unresolved.get(stage) ?? [], now)]);
  return Object.fromEntries(waiting) as WaitingByStage;
}

/** The Services in order of their oldest open removals. */
function waitingByService(
  removals: Iterable<UnresolvedRemoval>,
  now: number,
  most: number,
): readonly WaitingService[] {
  const services = Map.groupBy(removals, ({ stage, namespace, name }) => `${stage}/${namespace}/${name}`);
  return [...services.values()]
    .flatMap((of) => {
      const [first] = of;
      if (first === undefined) return [];
      const { stage, namespace, name } = first;
      return [{ stage, namespace, name, ...waitingOf(of, now) }];
    })
    .toSorted((a, b) => b.oldestSeconds - a.oldestSeconds)
    .slice(0, most);
}

function waitingOf(removals: readonly UnresolvedRemoval[], now: number): Waiting {
  const ages = removals.map(({ since }) => (now - since) / 1000);
  return { count: removals.length, oldestSeconds: ages.reduce((oldest, age) => Math.max(oldest, age), 0) };
}

/** The resourceVersion of the event's object. @returns undefined if the object was found missing */
function versionOf(event: ClusterEvent): string | undefined {
  if (event.type === 'Slice') return event.slice.version;
  if (event.type === 'Endpoints') return event.endpoints.version;
  return 'version' in event ? event.version : undefined;
}

interface ConsumerSample {
  readonly consumer: string;
  readonly direction: Direction;
  /** Seconds from the control plane's change until the consumer followed it. */
  readonly lag: number;
}

/**
 * The measurement of consumers, which runs on the replica that leads; the others follow what it publishes. Canary, reports
 * and inspection deliver the samples and their own state.
 */
export class ConsumerMeasurement {
  readonly #epochSeconds: () => number;
  /** The lags of consumers. New samples arrive through {@link record}. */
  readonly estimator = new ConsumerEstimator();
  readonly #states = new Map<string, MeasurementState>();
  readonly #unseen = new Map<string, UnseenPods>();
  readonly #notDeregistered = new Map<string, string>();
  readonly #samples: Listeners<[ConsumerSample]>;

  constructor(epochSeconds: () => number, onListenerError?: OnListenerError) {
    this.#epochSeconds = epochSeconds;
    this.#samples = new Listeners(onListenerError);
  }

  get onSample() {
    return this.#samples.add;
  }

  /**
   * Sets the current consumers.
   * @param all whether the list is certainly complete; if so, samples of all other consumers are forgotten. Until the first
   * complete list, what is published about consumers does not change
   */
  keep(consumers: readonly Consumer[], all = true): void {
    const measured = new Set(
      consumers.filter(({ declared }) => declared === undefined).map(({ name }) => name),
    );
    this.estimator.keep(measured, all);
    if (!all) return;
    for (const known of [this.#states, this.#unseen])
      for (const name of known.keys()) if (!measured.has(name)) known.delete(name);
  }

  /** @throws RangeError for a negative lag or NaN */
  record(sample: ConsumerSample): void {
    const { consumer, direction, lag } = sample;
    this.estimator.record(consumer, direction, lag, this.#epochSeconds());
    this.#samples.call(sample);
  }

  /**
   * Records that a held pod to which the consumer applies was released. @param seen whether one of its instances connected to
   * the pod
   */
  held(consumer: string, seen: boolean): void {
    const { since = this.#epochSeconds(), pods = 0 } = this.#unseen.get(consumer) ?? {};
    if (seen) this.#unseen.delete(consumer);
    else this.#unseen.set(consumer, { since, pods: pods + 1 });
  }

  /** Takes over what an earlier leader counted, unless this one has counted since. */
  restoreUnseen(consumer: string, unseen: UnseenPods): void {
    if (!this.#unseen.has(consumer)) this.#unseen.set(consumer, unseen);
  }

  unseen(consumer: string): UnseenPods | undefined {
    return this.#unseen.get(consumer);
  }

  /** Sets the state of a consumer's measurement. */
  report(consumer: string, state: MeasurementState): void {
    this.#states.set(consumer, state);
  }

  /** Sets whether a consumer's registry removes pods. @param why it does not; undefined: it does */
  deregistering(consumer: string, why: string | undefined): void {
    if (why === undefined) this.#notDeregistered.delete(consumer);
    else this.#notDeregistered.set(consumer, why);
  }

  notDeregistered(consumer: string): string | undefined {
    return this.#notDeregistered.get(consumer);
  }

  /** Forgets all states, because this replica no longer measures. */
  idle(): void {
    this.#unseen.clear();
    this.#notDeregistered.clear();
    this.#states.clear();
  }

  /** undefined: this replica does not measure it. */
  state(consumer: string): MeasurementState | undefined {
    return this.#states.get(consumer);
  }

  /** The lag of the last week, before smoothing. @returns undefined if there is no sample */
  measured(consumer: string, direction: Direction): ConsumerLag | undefined {
    return this.estimator.measured(consumer, direction, this.#epochSeconds());
  }
}

type OnListenerError = ConstructorParameters<typeof Listeners>[0];

interface MeasurementOptions {
  readonly heartbeats?: boolean;
  readonly asked?: () => readonly Enough[];
  readonly onListenerError?: OnListenerError;
  readonly onLeftOut?: OnLeftOut;
  readonly trusted?: string | undefined;
  readonly onUpkeep?: (maintained: boolean) => void;
}

type OnLeftOut = (pod: TerminatingPod) => void;

interface MeasurementClocks {
  /** Monotonic milliseconds: the clock of the events' instants. */
  readonly clock: () => number;
  /** Seconds since the Unix epoch, because slots of histories must be the same for all replicas and across restarts. */
  readonly epochSeconds: () => number;
}

/**
 * The measurement: events of the watches go in; samples, estimates and planned lags come out. It is the only writer of
 * these, and works synchronously.
 */
export class Measurement {
  readonly #clocks: MeasurementClocks;
  readonly #asked: () => readonly Enough[];
  readonly #recorder: LagRecorder;
  readonly #onLeftOut: OnLeftOut | undefined;
  readonly #onUpkeep: MeasurementOptions['onUpkeep'];
  readonly #estimator = new LagEstimator();
  readonly #samples: Listeners<[StageSample]>;
  readonly #removals: Listeners<[RemovalSample]>;
  readonly #changes: Listeners<[change: EndpointChange, at: number, version: string | undefined]>;
  readonly #planned: Listeners<[LagSource]>;
  #table: PlannedTable = NOTHING_PLANNED;
  #lags: LagSource = NONE_YET;
  /** Whether the known Services may be outdated. If so, a Service that never withdraws its pods could give samples. */
  #servicesInDoubt = true;
  #inDoubt = 0;

  /** The measurement of consumers, which runs on the replica that leads. */
  readonly consumers: ConsumerMeasurement;
  /** One sample for each withdrawal. */
  readonly onSample: Listeners<[StageSample]>['add'];
  /** One sample for each removed pod. */
  readonly onRemoval: Listeners<[RemovalSample]>['add'];
  /** Every change of an endpoint's state, with its instant and the resourceVersion with which it came. */
  readonly onChange: Listeners<[change: EndpointChange, at: number, version: string | undefined]>['add'];
  /** Called with the lags that decisions use, whenever they change. */
  readonly onLags: Listeners<[LagSource]>['add'];

  /**
   * @param options.heartbeats whether a leader writes heartbeats, by which late streams are recognised
   * @param options.asked the thresholds of all current policies
   * @param options.onListenerError called with what a listener throws, which affects neither the measurement nor other
   * listeners
   * @param options.onLeftOut called with a pod whose removals are not followed, because its namespace has used up its room
   * @param options.trusted the only namespace whose slices may prove that no controller maintains Endpoints; undefined: any
   * @param options.onUpkeep called when Endpoints turn out not to be maintained, and when they are again
   */
  constructor(
    clocks: MeasurementClocks,
    {
      heartbeats = false,
      asked = () => [BUILT_IN_ENOUGH],
      onListenerError,
      onLeftOut,
      trusted,
      onUpkeep,
    }: MeasurementOptions = {},
  ) {
    this.#samples = new Listeners(onListenerError);
    this.#removals = new Listeners(onListenerError);
    this.#changes = new Listeners(onListenerError);
    this.#planned = new Listeners(onListenerError);
    this.onSample = this.#samples.add;
    this.onRemoval = this.#removals.add;
    this.onChange = this.#changes.add;
    this.onLags = this.#planned.add;
    this.#recorder = new LagRecorder({ heartbeats, trusted });
    this.#onLeftOut = onLeftOut;
    this.#onUpkeep = onUpkeep;
    this.#clocks = clocks;
    this.#asked = asked;
    this.consumers = new ConsumerMeasurement(clocks.epochSeconds, onListenerError);
  }

  /** Processes an event of a watch, and emits the resulting changes and samples. */
  apply(event: ClusterEvent): void {
    if ('stream' in event && event.stream === 'services') this.#trustServices(event.type);
    const { TooMany: before } = this.#recorder.discarded;
    const maintained = this.maintainsEndpoints;
    const { stages, removals, changes } = this.#recorder.apply(event);
    if (this.maintainsEndpoints !== maintained) this.#onUpkeep?.(!maintained);
    if (this.#recorder.discarded.TooMany > before && 'pod' in event) this.#onLeftOut?.(event.pod);
    for (const change of changes) this.#changes.call(change, event.at, versionOf(event));
    if (stages.length === 0 && removals.length === 0) return;
    if (this.#servicesInDoubt) {
      this.#inDoubt += stages.length;
      return;
    }
    // A sample may be emitted some seconds after its instant.
    const { clock, epochSeconds } = this.#clocks;
    const epochAt = (at: number) => epochSeconds() - Math.max(0, clock() - at) / 1000;
    for (const sample of stages) {
      this.#estimator.recordStage(sample, epochAt(sample.at));
      this.#samples.call(sample);
    }
    for (const sample of removals) {
      this.#estimator.record(sample, epochAt(sample.at));
      this.#removals.call(sample);
    }
  }

  /** Whether the slices or the Endpoints of a Service list the pod as ready. */
  isReady(uid: string, group: Pick<EndpointGroup, 'stage' | 'namespace' | 'service'>): boolean {
    return this.#recorder.isReady(uid, group);
  }

  /** The groups that list the pod as ready now, without those that never withdraw terminating pods. */
  listing(pod: PodKey): readonly EndpointGroup[] {
    return this.#recorder.listing(pod).filter((group) => this.#recorder.withdraws(group));
  }

  /** Whether a controller seems to maintain Endpoints; if not, they do not count. */
  get maintainsEndpoints(): boolean {
    return this.#recorder.maintainsEndpoints;
  }

  /** Whether some endpoints of the namespace are unknown because Linger had no room for them. */
  hasUnread(namespace: string): boolean {
    return this.#recorder.hasUnread(namespace);
  }

  /** Whether the group withdraws terminating pods. */
  withdraws(group: EndpointGroup): boolean {
    return this.#recorder.withdraws(group);
  }

  /** Whether this replica should write heartbeats now; see the recorder. */
  wantsHeartbeat(life: string, silentMs: number): boolean {
    return this.#recorder.wantsHeartbeat(this.#clocks.clock(), life, silentMs);
  }

  heartbeatWritten(life: string, stream: HeartbeatStream, acknowledged: Acknowledged): void {
    this.#recorder.heartbeatWritten(life, stream, acknowledged);
  }

  unresolved(): WaitingByStage {
    return waitingByStage(this.#recorder.unresolved(), this.#clocks.clock());
  }

  unresolvedServices(most: number): readonly WaitingService[] {
    return waitingByService(this.#recorder.unresolved(), this.#clocks.clock(), most);
  }

  /** The lag of the last minutes including open removals, of a namespace or (undefined) of the cluster. */
  now(namespace?: string): MeasuredLag | undefined {
    const { clock, epochSeconds } = this.#clocks;
    const now = { instant: clock(), epochSeconds: epochSeconds() };
    return this.#estimator.now(namespace, now, this.#recorder.unresolved());
  }

  /** The lag of the last week before smoothing, by stage. Takes some milliseconds. */
  week(namespace?: string): MeasuredLag | undefined {
    return this.#estimator.measured(namespace, this.#clocks.epochSeconds());
  }

  get table(): PlannedTable {
    return this.#table;
  }

  /** The planned lags, on which decisions are based; a new object after each change of the table. */
  lags(): LagSource {
    return this.#lags;
  }

  /** Computes the next table to publish, or returns the same one. Waits follow it only after {@link adopt}. */
  async next(table: PlannedTable, epochSeconds: number): Promise<PlannedTable> {
    const { cluster, namespaces } = this.#estimator;
    const measured = { cluster, namespaces, consumers: this.consumers.estimator.removals };
    const steps = nextPlanned(table, measured, epochSeconds, this.#asked());
    return inPieces(stepsOnLoop('curves', steps));
  }

  /** For a replica without others: bases its waits on its own latest measurements. */
  async replan(epochSeconds: number): Promise<PlannedTable> {
    this.adopt(await this.next(this.#table, epochSeconds));
    return this.#table;
  }

  /** Bases waits on this table from now on. */
  adopt(table: PlannedTable): void {
    if (table === this.#table) return;
    this.#table = table;
    this.#lags = plannedLags(table);
    this.#planned.call(this.#lags);
  }

  /** The histories to store, most important first. */
  *parts(now: number): Generator<HistoryPart> {
    let consumers: Iterable<HistoryPart> = this.consumers.estimator.parts(now);
    for (const part of this.#estimator.parts(now)) {
      if (part.key.startsWith('namespace/')) {
        yield* consumers;
        consumers = [];
      }
      yield part;
    }
    yield* consumers;
  }

  /** Merges a stored part; idempotent. @returns false for anything else */
  restorePart(json: unknown, now: number): boolean {
    return this.#estimator.restorePart(json, now) || this.consumers.estimator.restorePart(json, now);
  }

  /**
   * Removes a period from the history of a consumer, of a namespace, or of the cluster and all namespaces. @returns how many
   * lags were removed
   */
  forget(
    period: Period,
    { namespace, consumer }: { readonly namespace?: string; readonly consumer?: string } = {},
  ): number {
    return consumer === undefined
      ? this.#estimator.forget(namespace, period)
      : this.consumers.estimator.forget(consumer, period);
  }

  /** How many removals gave no sample, by reason. */
  get discarded(): DiscardCounts {
    const { discarded } = this.#recorder;
    return { ...discarded, Reconnect: discarded.Reconnect + this.#inDoubt };
  }

  /** How many removals of terminating pods are not followed, by namespace. */
  get leftOut(): LagRecorder['leftOut'] {
    return this.#recorder.leftOut;
  }

  /** How much is kept in memory, for gauges. */
  get size(): LagRecorder['size'] {
    return this.#recorder.size;
  }

  #trustServices(change: ClusterEvent['type']): void {
    if (change === 'StreamBroken' || change === 'ListBegins') this.#servicesInDoubt = true;
    if (change === 'StreamCurrent') this.#servicesInDoubt = false;
  }
}
