import { randomBytes } from 'node:crypto';
import type { FactsOf } from '../core/api/index.ts';
import { holdPart } from '../hold/index.ts';
import { clusterPart } from '../informers/index.ts';
import { publishingPart } from '../leader/index.ts';
import { type PartContext, part } from '../manager/index.ts';
import { consumersPart, measurementPart } from '../measurement/index.ts';
import { ClusterAudit, type ClusterAuditSettings } from './cluster-audit.ts';
import { TerminationReview } from './termination-review.ts';
import { TerminationLog } from './terminations.ts';

/**
 * Reviews how pods have ended. It must get the event of a pod's end before Hold, because it asks Hold about the pod, which
 * Hold then forgets.
 */
export const terminationReviewPart = part({
  name: 'termination review',
  needs: { measurement: measurementPart, sharing: publishingPart, hold: holdPart },
  start({ measurement, sharing, hold }, context: PartContext<{ readonly drain: number }>) {
    const { snapshot, manager, place, options } = context;
    const log = new TerminationLog(randomBytes(6).toString('base64url'));
    sharing.share(log);
    const review = new TerminationReview({
      ...context,
      log,
      leadsSince: manager.leadsSince,
      snapshot: snapshot.current,
      listed: (pod) => measurement.listing(pod).length > 0,
      held: (uid) => hold?.pod(uid),
      // Linger itself: while it drains, it accepts connections and answers.
      drainOf: ({ namespace, owner }) =>
        namespace === place?.namespace && owner === 'Deployment/linger' ? options.drain : undefined,
    });
    hold?.onRelease((release) => void review.released(release));
    measurement.onRemoval((sample) => void review.removed(sample));
    return {
      provides: undefined,
      runnables: [{ name: 'termination review', onPod: (event) => review.pod(event) }],
    };
  },
});

interface AuditOptions extends Pick<ClusterAuditSettings, 'policyReports'> {
  /** Seconds between two audits; 0: no audits. */
  readonly auditEvery: number;
  /** The name of Linger's MutatingWebhookConfiguration. */
  readonly webhookConfiguration: string;
  /** Whether that configuration exists; undefined: not known. */
  readonly configured: () => boolean | undefined;
  /** Whether the configuration trusts the certificate of this replica; undefined: not known. */
  readonly trusted: () => boolean | undefined;
}

/** The leader's audit of the workloads. */
export const clusterAuditPart = part({
  name: 'audit',
  needs: { cluster: clusterPart, consumers: consumersPart },
  start({ cluster, consumers }, context: PartContext<AuditOptions>) {
    const { options, snapshot, sync } = context;
    const audit = new ClusterAudit({
      ...context,
      settings: {
        every: options.auditEvery,
        policyReports: options.policyReports,
        configuration: options.webhookConfiguration,
        configured: options.configured,
        trusted: options.trusted,
      },
      snapshot: snapshot.current,
      consumers: () => consumers.all,
      synced: () => sync.state === 'synced',
      pods: cluster.pods,
      barePods: cluster.barePods,
    });
    const status = (): FactsOf<'audit'> => ({ audit: audit.latest() });
    return { provides: undefined, runnables: [{ name: 'audit', status, lead: (term) => audit.lead(term) }] };
  },
});
