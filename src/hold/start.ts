import type { Registry } from '@prometheus-io/client';
import type { SigningKeys } from '../certs/index.ts';
import type { KubeConnection, ObjectEvents } from '../cluster/index.ts';
import { canonicalAddress, type FactsOf } from '../core/api/index.ts';
import { witnessName } from '../core/lag/index.ts';
import type { Leadership, Runnable } from '../manager/index.ts';
import type { Deregistrations, Inspection, Measurement } from '../measurement/index.ts';
import { type Logger, LogOnce } from '../telemetry/index.ts';
import { connectionLimits, HOLD_LIMITS, type Route } from './caller.ts';
import { HeldPods } from './held-pods.ts';
import { type HoldSources, Holds, RECONNECTED_MS } from './holds.ts';
import { PodLookup } from './pod-lookup.ts';
import { registerHoldMetrics, reportRelease } from './release-reporting.ts';
import { HoldService } from './service.ts';

/** The operator's settings of the Hold Service. */
export interface HoldSettings {
  readonly relay: {
    /** Where other replicas reach this replica's Hold Service: `10.0.3.7:8445` or `[fd00::7]:8445`. */
    readonly address: string;
    /** The keys with which relaying replicas authenticate; all replicas have the same. */
    readonly keys: () => SigningKeys;
  };
  /** The largest number of connections of helpers. */
  readonly connections: number;
}

interface HoldContext
  extends HoldSettings,
    Pick<HoldSources, 'snapshot' | 'current' | 'instances' | 'onRelease' | 'clock'> {
  readonly connection: KubeConnection;
  readonly inspecting: Pick<Inspection, 'onChange' | 'onConnect' | 'seenAmong'>;
  readonly measurement: HoldSources['measurement'] & Pick<Measurement, 'onChange' | 'consumers'>;
  readonly deregistrations: HoldSources['deregistrations'] & Pick<Deregistrations, 'onSettled'>;
  readonly events: ObjectEvents;
  /** The leader's address for relayed connections, read from the Lease. */
  readonly leader: () => string | undefined;
  /** How many seconds a node leaves its pods; undefined: it is not shutting down. */
  readonly nodeBudgetOf: (node: string) => number | 'unread' | undefined;
  readonly registry: Registry;
  readonly logger: Logger;
  readonly signal: AbortSignal;
}

export function startHold(context: HoldContext) {
  const { registry, measurement, clock, logger, leader } = context;
  const { address, keys } = context.relay;
  const limits = { ...HOLD_LIMITS, ...connectionLimits(context.connections) };
  const wall = Date.now;
  const once = new LogOnce(logger);
  const lookup = new PodLookup(context);
  const unreached = () => pods.unreached(context.snapshot().hold);
  const metrics = registerHoldMetrics(registry, { held: () => holds.size, unreached });
  const pods = new HeldPods({ clock, wall, onChange: ({ uid }) => holds.touch(uid) });
  let leads: Leadership | undefined;
  /** The latest leader that this replica has relayed to. */
  let led = '';
  const isLeading = () => leads?.holds() === true;
  const holds: Holds = new Holds({
    ...context,
    pods,
    leads: isLeading,
    // Only the leader's addresses matter, now and before: no other replica asks inspected instances.
    isReplica: (source) =>
      [address, led].some((each) => source === canonicalAddress(hostAndPort(each)?.host ?? '')),
    lookUp: (pod) => lookup.ask(pod),
    onRelease: (release) => {
      reportRelease(release, metrics, context);
      context.onRelease(release);
      const { pod, lag, remotes } = release;
      const groups = pod.withdrawals.map(({ group: { namespace, service } }) => ({
        namespace,
        name: service,
      }));
      for (const [consumer, seen] of remotes ? context.inspecting.seenAmong(groups, remotes) : [])
        measurement.consumers.held(consumer, seen);
      if (lag === undefined) return;
      const services = pod.withdrawals.map(({ group }) => witnessName(group.namespace, group.service));
      for (const consumer of new Set(services))
        measurement.consumers.record({ consumer, direction: 'removal', lag });
    },
    onStranger: ({ namespace, name: pod }, { source }) => {
      metrics.strangers.inc();
      once.warn(
        'strangers',
        { namespace, pod, source },
        'helper called from an address that is not its pod’s; its counters are ignored',
      );
    },
  });
  measurement.onChange(pods.changed.bind(pods));
  context.inspecting.onChange((uid) => holds.touch(uid));
  context.deregistrations.onSettled((uid) => holds.touch(uid));
  context.inspecting.onConnect((address) => holds.connected(address));

  const route = (): Route => {
    if (isLeading()) return 'here';
    const other = leader();
    led = other ?? led;
    // A Lease that has this replica's own address was written by an earlier process.
    return other === undefined || other === address ? undefined : hostAndPort(other);
  };
  const service = new HoldService({ holds, pods, route, keys, clock, logger, limits });
  let ledSince = clock();
  const lead = (leadership: Leadership): void => {
    leads = leadership;
    ledSince = clock();
    const over = () => {
      if (leads === leadership) leads = undefined;
      holds.end();
      // Disconnected helpers call again and are relayed to the next leader.
      service.hangUp();
    };
    leadership.signal.addEventListener('abort', over, { once: true });
    // From now on, pods are held here, so relayed helpers must reconnect. Those that wait for a leader have found it.
    service.hangUp(({ state }) => state === 'Relayed');
  };
  /**
   * Whether the list of held pods is complete: this replica leads, and helpers have had time to call it after it began to.
   */
  const knowsHeld = () => isLeading() && clock() - ledSince >= RECONNECTED_MS;
  return {
    /** It does not listen yet. */
    server: service.server,
    runnable: {
      name: 'hold',
      status: (): FactsOf<'hold'> => ({ held: knowsHeld() ? holds.size : null, unreached: unreached() }),
      onPod: pods.apply.bind(pods),
      onEvent: pods.observe.bind(pods),
      lead,
      close: () => service.close(),
    } satisfies Runnable,
    /** A pod with hook Hold; undefined once the watch has shown that it is gone. */
    pod: pods.withUid.bind(pods),
    /** Sets how many seconds the pod has left because its node is shutting down; undefined: the node no longer is. */
    nodeShutsDown: (uid: string, budget: number | undefined) => {
      const pod = pods.withUid(uid);
      if (pod !== undefined) pod.nodeBudget = budget;
      holds.touch(uid);
    },
    /** Records that an instance of the consumer has reported what it has applied. */
    heard: holds.heard.bind(holds),
    /** undefined: not known. */
    list: () => (knowsHeld() ? holds.list() : undefined),
  };
}

/** `10.0.3.7:8445` or `[fd00::7]:8445`. @returns undefined for anything else */
function hostAndPort(address: string): Exclude<Route, 'here'> {
  const [, six, four, port] = /^(?:\[([\da-f:.]+)\]|([\d.]+)):(\d{1,5})$/i.exec(address) ?? [];
  const host = six ?? four;
  return host === undefined ? undefined : { host, port: Number(port) };
}
