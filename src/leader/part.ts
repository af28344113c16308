import { PodLabels, watchReportingOf } from '../cluster/index.ts';
import { clusterPart, declaredPart } from '../informers/index.ts';
import { type Leadership, type OwnReplica, type PartContext, part } from '../manager/index.ts';
import { consumersPart, type Measurement, measurementPart } from '../measurement/index.ts';
import { pause, tick } from '../timing/index.ts';
import { BUILT_IN_POLICY_NAME, createBuiltInPolicy } from './built-in-policy.ts';
import { FloorWriter } from './floor.ts';
import { labelLeader } from './leader-label.ts';
import { policyStatuses } from './policy-statuses.ts';
import { registerPublishMetrics } from './publish-context.ts';
import { type PublishingOptions, type SharedShortfalls, startPublishing } from './publishing.ts';
import { followPublished } from './store.ts';

interface SharingOptions {
  /** The address on which this replica's Hold Service accepts other replicas; undefined: it has none. */
  readonly hold: { readonly relay: { readonly address: string } } | undefined;
}

/** What replicas share, and which of them leads. */
interface Sharing {
  /** Whether the stored state has been read, or has been waited for long enough. */
  readonly warm: () => boolean;
  /** The leader’s address for relayed connections; undefined: not known. */
  readonly leader: () => string | undefined;
  /** Publishes this record, too, from now on. */
  readonly share: (record: SharedShortfalls) => void;
  /** Gives up leading; resolves once another replica can take over, or that has failed, within 15 s. */
  readonly leave: () => Promise<void>;
}

/** Publishes what this replica measures while it leads, and adopts what another publishes otherwise. */
export const publishingPart = part({
  name: 'publishing',
  needs: {
    cluster: clusterPart,
    declared: declaredPart,
    measurement: measurementPart,
    consumers: consumersPart,
  },
  start({ cluster, declared, measurement, consumers }, context: PartContext<SharingOptions>) {
    const { options, place, snapshot, sync, logger, clock, epochSeconds } = context;
    if (place === undefined) {
      logger.info('own namespace unknown; measuring alone, sharing nothing with other replicas');
      return alone(measurement, epochSeconds);
    }
    return shareIn(place, context, {
      measurement,
      consumers: {
        views: () => consumers.all,
        hold: () => snapshot.current().hold,
        since: (consumer) => consumers.since(consumer),
        targets: declared.consumers.objects,
      },
      statuses: policyStatuses({
        snapshot: () => snapshot.current(),
        clusterPolicies: declared.clusterPolicies.objects,
        policies: declared.policies.objects,
        pods: cluster.pods,
        shadowed: () => snapshot.shadowedPolicies(),
        clock,
        epochSeconds,
      }),
      address: options.hold?.relay.address,
      ready: () => sync.state !== 'reading',
    });
  },
});

const ALONE_EVERY_MS = 5_000;

function alone(measurement: Measurement, epochSeconds: () => number) {
  const run = async (signal: AbortSignal) => {
    while (await tick(ALONE_EVERY_MS, signal)) await measurement.replan(epochSeconds());
  };
  const sharing: Sharing = {
    warm: () => true,
    leader: () => undefined,
    share: () => undefined,
    leave: () => Promise.resolve(),
  };
  return { provides: sharing, runnables: [{ name: 'publishing', run }] };
}

/** After this time, a replica becomes ready without the stored state, and answers with `initial`. */
const WARM_WITHIN_MS = 5_000;

function shareIn(
  { namespace, identity }: OwnReplica,
  context: PartContext<SharingOptions>,
  shared: Pick<PublishingOptions, 'measurement' | 'consumers' | 'statuses' | 'address' | 'ready'>,
) {
  const { connection, manager, logger, clock, epochSeconds, random, signal } = context;
  const leaving = new AbortController();
  let record: SharedShortfalls | undefined;
  const published = startPublishing({
    ...shared,
    shortfalls: {
      get text() {
        return record?.text ?? '';
      },
      restore: (json) => record?.restore(json),
    },
    connection,
    namespace,
    identity,
    onLeading: manager.lead,
    logger,
    time: { clock, random, pause: tick, wallMicroseconds: () => Date.now() * 1000 },
    epochSeconds,
    signal: AbortSignal.any([signal, leaving.signal]),
  });
  const handlers = { onObject: published.saw, ...watchReportingOf('configmaps', logger) };
  const watch = followPublished(connection, namespace, handlers, { signal, clock, random });
  let warm = false;
  const read = Promise.all([watch.read, published.restored]);
  void Promise.race([read, pause(WARM_WITHIN_MS, signal)]).then(() => {
    warm = true;
  });
  const sharing: Sharing = {
    warm: () => warm,
    leader: () => published.status.address,
    share: (shortfalls) => {
      record = shortfalls;
    },
    leave: () => {
      leaving.abort();
      return published.ended;
    },
  };
  const runnable = {
    name: 'publishing',
    metrics: () => registerPublishMetrics(context.registry, published.status),
    watches: () => ({ configmaps: watch.stats }),
  };
  return { provides: sharing, runnables: [runnable] };
}

const LABEL_REQUEST_MS = 5_000;

/** Labels the pod that leads, so that reports reach it. Needs replicas that are pods. */
export const leaderLabelPart = part({
  name: 'leader label',
  needs: {},
  start(_, { connection, place, logger, clock, random }: PartContext<unknown>) {
    if (place === undefined) return { provides: undefined };
    const { namespace, identity } = place;
    const lead = (leadership: Leadership) => {
      const pods = new PodLabels({ connection, namespace, requestMs: LABEL_REQUEST_MS });
      return labelLeader(leadership, { pods, identity, logger, clock, random, pause: tick });
    };
    return { provides: undefined, runnables: [{ name: 'leader label', lead }] };
  },
});

/** Writes what pods get while Linger is down. */
export const floorPart = part({
  name: 'floor',
  needs: { sharing: publishingPart },
  start({ sharing }, context: PartContext<unknown>) {
    const { place, snapshot, sync, connection, logger, clock, epochSeconds, random } = context;
    if (place === undefined) return { provides: undefined };
    const current = () => (sync.state === 'synced' && sharing.warm() ? snapshot.current() : undefined);
    const writing = {
      connection,
      place,
      snapshot: current,
      logger,
      clock,
      epochSeconds,
      random,
      pause: tick,
    };
    return { provides: undefined, runnables: [new FloorWriter(writing)] };
  },
});

/** Creates the policy that shows the built-in values if there is no other policy. */
export const builtInPolicyPart = part({
  name: 'built-in policy',
  needs: { declared: declaredPart },
  start({ declared }, { connection, place, snapshot, logger, clock, random }: PartContext<unknown>) {
    if (place === undefined) return { provides: undefined };
    const { clusterPolicies } = declared;
    // Not if a file has a policy of this name, since the object would take its place; nor if the kind is not served.
    const wanted = () =>
      clusterPolicies.served() === true &&
      clusterPolicies.objects().length === 0 &&
      !snapshot.current().policies.cluster.some(({ name }) => name === BUILT_IN_POLICY_NAME);
    const lead = (leadership: Leadership) =>
      createBuiltInPolicy(leadership, { connection, place, wanted, logger, clock, random, pause: tick });
    return { provides: undefined, runnables: [{ name: 'built-in policy', lead }] };
  },
});
