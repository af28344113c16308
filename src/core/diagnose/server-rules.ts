import { count, percent, span, thousands } from './amounts.ts';
import { meanOf } from './controller-activity.ts';
import type { Facts } from './facts.ts';
import { type Finding, finding } from './findings.ts';
import { FEWEST_REQUESTS, SLOW_MEAN_SECONDS, SLOW_SHARE } from './thresholds.ts';

/** Rules about the API server, as its client sees it, and about writes that fail. */

export function apiServerSlow({ controller }: Facts): Finding | undefined {
  const server = controller?.server;
  const mean = meanOf(server) ?? 0;
  if (controller?.seconds === undefined || server === undefined || server.count < FEWEST_REQUESTS) return;
  const slowShare = server.overSecond / server.count;
  if (mean < SLOW_MEAN_SECONDS && slowShare < SLOW_SHARE) return undefined;
  return finding(
    'ApiServerSlow',
    `The API server took ${span(mean)} for a write of the controller-manager, on average, and over a second for ${percent(slowShare)} of them.`,
    [
      `rest_client_request_duration_seconds, without the wait for the client’s own limiter: mean ${span(mean)} over ${count(server.count, 'write')} in ${span(controller.seconds)}; ${thousands(server.overSecond)} over 1 s`,
    ],
    [
      'Look at the API server and etcd: etcd_disk_wal_fsync_duration_seconds, apiserver_request_duration_seconds, apiserver_admission_webhook_admission_duration_seconds for webhooks on endpoints.',
      'More workers hide it for as long as the API server can take them.',
    ],
  );
}

export function apiServerRejects({ controller, priority }: Facts): Finding | undefined {
  const evidence = [...answerEvidence(controller), ...priorityEvidence(priority)];
  if (evidence.length === 0) return undefined;
  return finding(
    'ApiServerRejects',
    'The API server turns requests of the controller-manager away, fails, or lets them wait for a seat; client-go comes back after the Retry-After that it is told, 1 s as a rule.',
    evidence,
    [
      'kubectl get --raw /debug/api_priority_and_fairness/dump_priority_levels shows which priority level is full, dump_requests who fills it.',
      'kubectl get events --all-namespaces and the API server’s log say more of 5xx answers.',
    ],
  );
}

function answerEvidence(controller: Facts['controller']): readonly string[] {
  const { answers, seconds } = controller ?? {};
  if (answers === undefined || seconds === undefined) return [];
  const bad = answers.tooMany + answers.serverErrors + answers.unanswered;
  // One 5xx may be anybody's: a webhook's, a deleted namespace's.
  if (answers.tooMany === 0 && (bad < 2 || bad < SLOW_SHARE * answers.total)) return [];
  return [
    `rest_client_requests_total in ${span(seconds)}: ${thousands(answers.tooMany)} with code 429, ${thousands(answers.serverErrors)} with 5xx, ${thousands(answers.unanswered)} without an answer, of ${thousands(answers.total)}`,
  ];
}

function priorityEvidence(priority: Facts['priority']): readonly string[] {
  if (priority === undefined) return [];
  const { level, waiting, rejected, timedOut } = priority;
  if (waiting + rejected + timedOut === 0) return [];
  return [
    `priority level ${level}: ${count(waiting, 'request')} waiting now, ${thousands(rejected)} rejected and ${thousands(timedOut)} timed out meanwhile`,
  ];
}

export function syncErrors({ controller }: Facts): Finding | undefined {
  const { failedSyncs, seconds, queues = [] } = controller ?? {};
  if (failedSyncs === undefined || seconds === undefined) return undefined;
  const done = queues.find(({ name }) => name === 'endpoint_slice')?.done ?? 0;
  if (failedSyncs < 2 || failedSyncs < SLOW_SHARE * done) return undefined;
  return finding(
    'SyncErrors',
    `${count(failedSyncs, 'sync')} of EndpointSlices failed, or found the controller’s cache behind, and are tried again: a second later, then twice as long each time.`,
    [
      `endpoint_slice_controller_syncs{result!="success"} +${thousands(failedSyncs)} in ${span(seconds)}, with ${count(done, 'sync')} done`,
    ],
    [
      'The controller-manager’s log names the Services and the errors ("Error syncing endpoint slices for service").',
      'kubectl get events --all-namespaces --field-selector reason=FailedToUpdateEndpointSlices',
    ],
  );
}
