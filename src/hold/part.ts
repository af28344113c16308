import { watchReportingOf } from '../cluster/index.ts';
import { clusterPart } from '../informers/index.ts';
import { publishingPart } from '../leader/index.ts';
import { type PartContext, part } from '../manager/index.ts';
import {
  deregistrationPart,
  inspectionPart,
  instancesPart,
  measurementPart,
  reportsPart,
} from '../measurement/index.ts';
import { tick } from '../timing/index.ts';
import { Delivery, type DeliverySettings } from './delivery.ts';
import type { Release } from './holds.ts';
import { NodeShutdowns } from './node-shutdown.ts';
import { type HoldSettings, startHold } from './start.ts';

interface HoldOptions {
  /** undefined: no pod gets hook Hold. */
  readonly hold: (DeliverySettings & HoldSettings) | undefined;
}

/** Delivers the helper to namespaces, if replicas share a Service that helpers can call. */
export const holdDeliveryPart = part({
  name: 'hold delivery',
  needs: {},
  start(_, context: PartContext<HoldOptions>) {
    const { options, place, snapshot, logger } = context;
    if (place === undefined) return { provides: undefined };
    if (options.hold === undefined) {
      snapshot.apply({ kind: 'hold', hold: { why: 'Hold is off (--hold-port=0)' } });
      return { provides: undefined };
    }
    const delivery = new Delivery({
      ...context,
      ...watchReportingOf('holdconfigmaps', logger),
      pause: tick,
      place,
      settings: options.hold,
    });
    return { provides: undefined, runnables: delivery.runnables, read: delivery.read };
  },
});

/** Finds nodes that are shutting down, and how much time they leave their pods. */
export const nodeShutdownsPart = part({
  name: 'node shutdowns',
  needs: {},
  start(_, context: PartContext<HoldOptions & { readonly deleteOnNodeShutdown: boolean }>) {
    const { options, place, manager, connection, logger, clock, random } = context;
    const found = manager.listeners<[uid: string, budget: number | undefined]>('node-shutdown');
    const deletes = options.deleteOnNodeShutdown;
    const shutdowns = new NodeShutdowns({
      connection,
      logger,
      clock,
      random,
      deletes,
      onPod: found.call,
    });
    const isUsed = place !== undefined && (deletes || options.hold !== undefined);
    return {
      provides: { budgetOf: shutdowns.budgetOf, onPod: found.add },
      runnables: isUsed ? [shutdowns] : [],
    };
  },
});

/** The Hold Service. It needs the Lease, without which replicas could not agree which of them holds pods. */
export const holdPart = part({
  name: 'hold',
  needs: {
    cluster: clusterPart,
    measurement: measurementPart,
    inspection: inspectionPart,
    instances: instancesPart,
    deregistrations: deregistrationPart,
    reports: reportsPart,
    sharing: publishingPart,
    nodes: nodeShutdownsPart,
  },
  start(
    { cluster, measurement, inspection, instances, deregistrations, reports, sharing, nodes },
    context: PartContext<HoldOptions>,
  ) {
    const { options, place, snapshot, sync, manager } = context;
    const released = manager.listeners<[Release]>('hold');
    const { pods, endpointslices, endpoints } = cluster.watches;
    if (place === undefined || options.hold === undefined) return { provides: undefined };
    const hold = startHold({
      ...context,
      ...options.hold,
      measurement,
      inspecting: inspection,
      instances,
      deregistrations,
      snapshot: snapshot.current,
      current: () =>
        sync.state !== 'reading' && pods.current && endpointslices.current && endpoints?.current !== false,
      leader: sharing.leader,
      nodeBudgetOf: nodes.budgetOf,
      onRelease: released.call,
    });
    reports.onSynced(hold.heard);
    nodes.onPod(hold.nodeShutsDown);
    return {
      provides: {
        server: hold.server,
        list: hold.list,
        pod: hold.pod,
        /** Called with each pod whose hook has ended. */
        onRelease: released.add,
      },
      runnables: [hold.runnable],
    };
  },
});
