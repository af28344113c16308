import { Document, isScalar, visit } from 'yaml';
import type { Curable } from '../../src/core/api/index.ts';

/** An alert rule: its `means` is the summary, its `cure` the description, both without links. */
export interface Alert extends Curable {
  /** Why the rule is as it is: a comment in deploy/alerts.yaml. */
  readonly why?: string;
  readonly expr: string;
  /** How long it must hold, in Prometheus' format. */
  readonly for?: string;
  readonly severity: 'critical' | 'warning' | 'info';
}

interface AlertGroup {
  readonly name: string;
  readonly about?: string;
  readonly alerts: Readonly<Record<string, Alert>>;
}

/** In the order of deploy/alerts.yaml and of the reference. */
const ALERT_GROUPS: readonly AlertGroup[] = [
  {
    name: 'linger',
    alerts: {
      LingerCertificateExpires: {
        why: 'Renewal is due at two thirds of its life: after 4.7 days for a week, after 60 for 90 days.',
        expr: 'min((linger_certificate_expiry_timestamp_seconds - time()) / (linger_certificate_expiry_timestamp_seconds - linger_certificate_issued_timestamp_seconds)) < 0.25',
        severity: 'warning',
        means:
          "Under a quarter of the serving certificate's life is left; once it has expired, pods get no hook.",
        cure: '`linger check`, line `Certificate`. Linger renews its own at two thirds: the log says what it may not write. [Yours](operations.md#a-certificate-of-your-own): renew it.',
      },
      LingerNotTrusted: {
        why: 'Restored within seconds, unless Linger has no right to, or something overwrites it again and again.',
        expr: 'min(linger_certificate_trusted) == 0',
        for: '1m',
        severity: 'critical',
        means: "The webhook configuration does not trust a replica's certificate; pods get no hook.",
        cure: 'The log says why Linger cannot write its caBundle. Else something overwrites it: `kubectl get mutatingwebhookconfiguration linger --show-managed-fields -o yaml`.',
      },
      LingerNotConfigured: {
        why: "With your own certificate the leader's audits notice it, every ten minutes; otherwise each replica does at once.",
        expr: 'min(linger_webhook_configured) == 0',
        for: '1m',
        severity: 'critical',
        means: 'The MutatingWebhookConfiguration does not exist; pods get no hook.',
        cure: '`kubectl apply --kustomize deploy/`, or `helm upgrade`. Then restart what `linger audit` lists (`NotInjected`).',
      },
      LingerCertificatesContested: {
        expr: 'sum by (object, reason) (increase(linger_certificate_writes_total{reason!~"Absent|Expiring|AuthorityExpiring|Retired|Rotated"}[1h])) > 5',
        severity: 'warning',
        means: 'Something repeatedly overwrites the certificates or the caBundle.',
        cure: 'Mostly a GitOps tool with a `caBundle` in its manifest: remove it there.',
      },
      LingerAbsent: {
        expr: 'absent(linger_build_info)',
        for: '10m',
        severity: 'warning',
        means: 'No replica is scraped.',
        cure: "`linger check`: if replicas are down, line `Replicas` says why. If not: Prometheus' targets, [port 8080](operations.md#ports).",
      },
      LingerPolicyRefused: {
        why: 'Of files, or objects that a newer or older CRD has accepted.',
        expr: 'min(linger_policy_last_reload_successful) == 0 or max(linger_watch_refused_objects{resource=~".*policies"}) > 0',
        for: '1m',
        severity: 'warning',
        means: 'Policies cannot be used; their last valid versions are in force, or mode `Audit`.',
        cure: '`linger check`, line `Policies`, names them; the log the field.',
      },
      LingerCertificateRefused: {
        why: 'Every attempt counts, each 8 s after the last or sooner; an API server that restarts makes some of them fail.',
        expr: 'increase(linger_certificate_reloads_total{result="failure"}[5m]) > 0',
        for: '5m',
        severity: 'warning',
        means:
          'For five minutes a new certificate was refused, or Secret or caBundle not read or written; the last valid one stays.',
        cure: 'The log has a [code](errors.md#certificate-codes).',
      },
      LingerInternalErrors: {
        why: '500: before or after the decision; the API server counts that as not reached.',
        expr: 'increase(linger_decisions_total{reason="InternalError"}[15m]) > 0 or increase(linger_http_responses_total{code="500"}[15m]) > 0',
        severity: 'warning',
        means: 'Linger failed on a pod and let it pass unchanged.',
        cure: 'Report it, with the stack from the log.',
      },
      LingerRunnableFails: {
        why: 'A single failure is not seen: the series begins with it.',
        expr: 'sum by (runnable) (increase(linger_runnable_failures_total[15m])) > 0',
        severity: 'warning',
        means: 'A part of Linger keeps failing; all others continue.',
        cure: 'Report it, with the stack from the log.',
      },
      LingerSlow: {
        why: 'The API server gives up after timeoutSeconds (2 s in deploy/webhook.yaml) and creates the pod without a hook.',
        expr: 'histogram_quantile(0.99, sum by (le) (rate(linger_admission_duration_seconds_bucket[5m]))) > 0.1',
        for: '10m',
        severity: 'warning',
        means:
          '1 % of the reviews take over 100 ms. After 2 s the API server gives up, and the pod gets no hook.',
        cure: 'More CPU (throttling?) or replicas: `kubectl --namespace linger top pods`.',
      },
      LingerRefusesReviews: {
        expr: 'sum(rate(linger_http_responses_total{code=~"4.."}[15m])) > 0',
        for: '30m',
        severity: 'info',
        means: 'Requests arrive that are not AdmissionReviews.',
        cure: 'Find what connects to [port 8443](../threat-model.md#the-network). With `--client-ca`: an expired client certificate of the API server.',
      },
      LingerInvalidAnnotations: {
        expr: 'sum by (annotation) (increase(linger_invalid_annotations_total[1h])) > 0',
        severity: 'info',
        means: 'Pods carry a `linger.dev` annotation that does not parse; it is ignored.',
        cure: '`linger audit` names them (`InvalidAnnotation`); tell their owners the [values](annotations.md).',
      },
      LingerWaitsShrunk: {
        expr: 'increase(linger_notes_total{code=~"WaitShrunk|HookWithdrawn"}[1h]) > 0',
        severity: 'info',
        means: "Grace or hooks leave no room for the policy's wait.",
        cure: '`linger audit` names the workloads (`WaitShrunk`), `--server-dry-run` what cuts the grace. Exempt them there, or raise `grace.max`.',
      },
    },
  },
  {
    name: 'linger-lag',
    about: 'About the cluster that Linger follows.',
    alerts: {
      LingerEndpointsStuck: {
        why: 'Traffic goes to pods that are being stopped; shorter waits do not help them. A replica that no longer hears from the API server finds out after 70 s, and until then takes everything for stuck that was under way.',
        expr: 'max by (stage) (linger_removals_oldest_unresolved_seconds > 60 and on (job, instance) linger_watch_current{resource="endpointslices"} == 1)',
        for: '1m',
        severity: 'critical',
        means:
          'A terminating pod has been listed as ready for over a minute: it gets traffic while it stops.',
        cure: '`linger diagnose` says why and which flags to set. Postpone rollouts.',
      },
      LingerLagBeyondWait: {
        why: "Only for measured waits; others are an operator's choice. A lag counts for five minutes: a single late removal in a quiet cluster is over by the time that anybody looks.",
        expr: 'max(linger_lag_now_seconds{quantile="0.99"}) > max(linger_default_wait_seconds{why=~"measured|storm"})',
        for: '10m',
        severity: 'warning',
        means: 'For ten minutes, 1 % of removals took longer than pods wait (measured waits only).',
        cure: '`linger diagnose`. Existing pods keep their wait: postpone rollouts.',
      },
      LingerStormNotCovered: {
        expr: 'max(linger_default_wait_coverage{why="storm"}) < 0.99',
        for: '1h',
        severity: 'info',
        means: 'Lags are longer than `wait.max`.',
        cure: '`linger diagnose`; faster controllers, a larger `wait.max`, or [`Hold`](../concepts.md#hold).',
      },
      LingerClusterNotRead: {
        expr: 'min(linger_cluster_synced) == 0',
        for: '5m',
        severity: 'warning',
        means:
          'A replica has not read the cluster since it started; it decides without Services and Namespaces.',
        cure: '`linger check`, line `Watches`; [reason](metrics.md#why-a-watch-restarts) in the log.',
      },
      LingerWatchBehind: {
        expr: 'min by (resource) (linger_watch_current) == 0',
        for: '10m',
        severity: 'warning',
        means: 'A watch is not current: nothing is measured.',
        cure: '`linger check`, line `Watches`; [reason](metrics.md#why-a-watch-restarts) in the log.',
      },
      LingerForbidden: {
        why: 'Repeated every 45 s or sooner while it lasts. An API server that starts also refuses everything for some seconds.',
        expr: 'sum by (resource) (increase(linger_watch_restarts_total{reason=~"Forbidden|Unauthorized"}[5m])) > 0',
        for: '10m',
        severity: 'warning',
        means: 'The API server has refused a list or watch for ten minutes.',
        cure: '`linger check`, line `Rights`. `kubectl apply --kustomize deploy/`, or `helm upgrade`.',
      },
      LingerWatchStalls: {
        expr: 'sum by (resource) (increase(linger_watch_stalls_total[1h])) > 3',
        severity: 'info',
        means: 'Connections to the API server die silently.',
        cure: 'Idle timeouts on the path.',
      },
      LingerWatchErrors: {
        expr: 'increase(linger_watch_handler_errors_total[15m]) > 0',
        severity: 'warning',
        means: 'Linger failed on a cluster event and dropped it.',
        cure: 'Report it, with the stack from the log.',
      },
      LingerNoLeader: {
        why: 'Leaders change within 20 s.',
        expr: 'max(linger_leader) == 0',
        for: '5m',
        severity: 'warning',
        means: 'No replica leads: waits stay as they are, measurements are not saved.',
        cure: '`linger check`, line `Leader`; [reason](metrics.md#why-publishing-fails) of `lease` in the log.',
      },
      LingerPublishedRefused: {
        expr: 'max by (object, reason) (linger_published_refused) == 1',
        for: '10m',
        severity: 'warning',
        means: 'What the leader publishes cannot be used; waits stay, or are `initial`.',
        cure: 'The log has the [reason](metrics.md#why-what-is-published-is-refused).',
      },
      LingerPublishFails: {
        why: 'Half an hour of failures are 6 or more, even at the longest pause of 5 minutes; so are two short outages of the API server, but then there are none of late. The Lease has its own alert.',
        expr: 'sum by (object) (increase(linger_publish_failures_total{object!="lease", reason!~"Conflict|AlreadyExists"}[30m])) > 5 and sum by (object) (increase(linger_publish_failures_total{object!="lease", reason!~"Conflict|AlreadyExists"}[10m])) > 0',
        for: '5m',
        severity: 'warning',
        means: 'Measurements were not written for half an hour.',
        cure: 'The log has the [reason](metrics.md#why-publishing-fails).',
      },
    },
  },
  {
    name: 'linger-consumers',
    about: 'About consumers, which find endpoints and send traffic to them.',
    alerts: {
      LingerConsumerNotMeasured: {
        why: 'Not while it is too early to say, nor if the canary is off. By maximum over replicas, since only the leader exposes it. Not by reason: one that changes now and then would begin the time anew.',
        expr: 'max by (consumer) (linger_consumer_measured{reason!~"Waiting|NotMeasuring|StaleUpstream"}) == 0',
        for: '15m',
        severity: 'warning',
        means: "A consumer's lag is no longer measured; its last one counts.",
        cure: '`linger consumers` says [why](consumers.md#conditions).',
      },
      LingerStaleUpstream: {
        why: 'Two pages have listed it already.',
        expr: 'max by (consumer, instance) (linger_inspect_stale_upstreams) > 0',
        severity: 'warning',
        means:
          'A gateway instance still sends to an address that no slice lists: requests fail, or reach another pod.',
        cure: '`linger consumers` names instance and address: restart that instance.',
      },
      LingerReportsRefused: {
        why: 'NotLeader is normal: gateways follow a change of leader by it.',
        expr: 'sum by (consumer, result) (increase(linger_reports_total{result=~"NoToken|TokenRefused|NotAllowed|NotByReports|NoVerdict|ForeignCursor|UsedCursor"}[15m])) > 10',
        for: '15m',
        severity: 'warning',
        means: "A gateway's reports have been refused for half an hour.",
        cure: '`linger consumers`; [reason](consumers.md#answers-to-reports). Mind the [authority](operations.md#certificates), which changes about every eight months.',
      },
      LingerCanaryMeasuresNothing: {
        why: 'The metrics do not exist if the canary is off. One hour if flips are made but time nothing: they then become as rare as one in ten minutes. Six hours if there are no flips, whatever the reason, although there is something to time, now and five hours ago; a --canary-every over 45m needs a longer window.',
        expr: '(sum(increase(linger_canary_flips_total[1h])) > 3 unless sum(increase(linger_canary_flips_total{result="Measured"}[1h])) > 0) or (max(linger_canary_consumers) > 0 and max(linger_canary_consumers offset 5h) > 0 unless sum(increase(linger_canary_flips_total{result="Measured"}[6h])) > 0)',
        for: '10m',
        severity: 'warning',
        means: 'The canary timed nothing for an hour, or has not flipped for six.',
        cure: '`linger check`, line `Canary`; [how flips end](consumers.md#how-a-flip-ends). Without any flip, check that a replica leads.',
      },
    },
  },
  {
    name: 'linger-terminations',
    about: 'About how pods ended, and whether Hold works.',
    alerts: {
      LingerStoppedTooEarly: {
        why: 'Not pods without a plan, such as all in mode Audit: linger audit says which workloads have no wait.',
        expr: 'increase(linger_termination_findings_total{reason="StoppedTooEarly",planned="true"}[15m]) > 0',
        severity: 'warning',
        means: 'Pods that waited as planned got SIGTERM while endpoints still listed them.',
        cure: '`linger audit --since 1h` names workloads and [why](commands.md#termination-review): restart those with old waits, raise `wait.max`, or use [`Hold`](../concepts.md#hold).',
      },
      LingerUndeclaredConsumer: {
        expr: 'increase(linger_termination_findings_total{reason="UndeclaredConsumer"}[1h]) > 0',
        severity: 'info',
        means: 'Held pods got connections after every known consumer had stopped.',
        cure: '`linger audit --since 1h` says from where: [declare it](../gateways.md#find-the-consumers).',
      },
      LingerHoldUnavailable: {
        why: 'The helper comes seconds after a namespace, and after an upgrade. The second part is for Hold that is off.',
        expr: 'max(linger_hold_namespaces_lacking) > 0 or (sum(increase(linger_notes_total{code="HoldUnavailable"}[1h])) > 0 unless max(linger_hold_namespaces_lacking))',
        for: '10m',
        severity: 'warning',
        means:
          'For ten minutes, namespaces with `Hold` have lacked its helper or Service: pods wait statically.',
        cure: '`linger check`, line `HoldHelper`, says [what is missing](policies.md#what-hold-needs).',
      },
      LingerHoldTrialFailed: {
        why: 'Pods that may run on such nodes get no Hold.',
        expr: 'max(linger_hold_node_kinds{result="failed"}) > 0',
        for: '15m',
        severity: 'warning',
        means: 'The helper fails on some kind of node; pods there wait statically.',
        cure: '`linger check` names node and failure: [the helper](operations.md#the-helper-of-hold).',
      },
      LingerHoldUnreachable: {
        expr: 'increase(linger_termination_findings_total{reason="HoldUnreachable"}[1h]) > 0',
        severity: 'warning',
        means: 'A pod with `Hold` ended without calling Linger.',
        cure: "Allow its namespace egress to port 8445 of Linger's; `linger check`, lines `NetworkPolicy`, `HoldHelper`.",
      },
      LingerHoldMax: {
        why: "Tolerates one or two that a user's --grace-period has cut.",
        expr: 'sum(increase(linger_hold_released_total{reason="Max"}[1h])) > 2 and sum(increase(linger_hold_released_total{reason="Max"}[1h])) / sum(increase(linger_hold_released_total[1h])) > 0.1',
        severity: 'warning',
        means: 'Over a tenth of held pods reached `hold.max`.',
        cure: '`linger hold list`, or the release in the log, names the consumer: slow (raise `hold.max`), or one that never drops pods (repair it).',
      },
    },
  },
  {
    name: 'linger-from-outside',
    about:
      'From the API server, which alone knows whether it reaches Linger. Its metrics have stability ALPHA (checked in Kubernetes 1.36).',
    alerts: {
      LingerNotReached: {
        why: 'The second part covers a new series: `increase` does not count the value that it begins with. Not where all series are new, because Prometheus itself was away.',
        expr: 'increase(apiserver_admission_webhook_fail_open_count{name="pods.linger.dev"}[10m]) > 0 or (apiserver_admission_webhook_fail_open_count{name="pods.linger.dev"} unless apiserver_admission_webhook_fail_open_count{name="pods.linger.dev"} offset 10m and on (job, instance) up offset 10m == 1) > 0',
        severity: 'warning',
        means: 'The API server could not reach Linger; pods got no hook.',
        cure: '`linger check`, lines `Answer`, `NetworkPolicy`; [why a pod got no hook](../on-call.md#why-did-my-pod-not-get-a-hook), step 5. Then restart what `linger audit` lists.',
      },
      LingerFloorFails: {
        why: 'Errors in its expressions; a ConfigMap that is missing is not counted by the API server.',
        expr: 'sum(increase(apiserver_mutating_admission_policy_check_total{policy="linger-floor",error_type!="no_error"}[10m])) > 0',
        severity: 'warning',
        means: 'The API server cannot evaluate [the floor](../when-linger-is-down.md#the-floor).',
        cure: '`linger check`, line `Floor`. If it persists, delete the policy `linger-floor`; nothing else depends on it.',
      },
      LingerPodsRefused: {
        why: 'Only with failurePolicy Fail, and where the answer cannot be applied. Not while the endpoint of a lost node is withdrawn: controllers create refused pods again.',
        expr: 'sum(increase(apiserver_admission_webhook_rejection_count{name="pods.linger.dev"}[5m])) > 0',
        for: '7m',
        severity: 'critical',
        means: 'With failurePolicy `Fail`, pods are refused, because Linger is not reached.',
        cure: '`linger check`. `kubectl delete mutatingwebhookconfiguration linger` [lets pods through](../on-call.md#switch-linger-off) at once.',
      },
    },
  },
];

/** Every alert. Links are relative to docs/reference. */
export const ALERTS: Readonly<Record<string, Alert>> = Object.assign(
  {},
  ...ALERT_GROUPS.map(({ alerts }) => alerts),
) as Readonly<Record<string, Alert>>;

const HEADER = `# Generated from deploy/generate/alerts.ts by \`npm run generate\`: change that.
# Alert rules for Prometheus; docs/on-call.md has the same sentences with links. Thresholds are starting points.
# For the Prometheus operator, put \`groups\` under the spec of a PrometheusRule. Not part of the kustomization, since not
# every cluster has Prometheus.
`;

export function alertsText(): string {
  const groups = ALERT_GROUPS.map(({ name, alerts }) => ({
    name,
    rules: Object.entries(alerts).map(ruleOf),
  }));
  const document = new Document({ groups }, { version: '1.1' });
  const comments = new Map<string, string | undefined>([
    ...ALERT_GROUPS.map(({ name, about }) => [name, about] as const),
    ...Object.entries(ALERTS).map(([name, { why }]) => [name, why] as const),
  ]);
  visit(document, {
    Map(_, map) {
      const name = map.get('alert') ?? map.get('name');
      const comment = isScalar(name) ? undefined : comments.get(String(name));
      if (comment !== undefined) map.commentBefore = commentLines(comment);
    },
  });
  return HEADER + document.toString({ lineWidth: 0 });
}

function ruleOf([alert, { expr, for: hold, severity, means, cure }]: readonly [string, Alert]) {
  return {
    alert,
    expr,
    ...(hold !== undefined && { for: hold }),
    labels: { severity },
    annotations: { summary: plain(means), description: plain(cure) },
  };
}

/** Markdown as a pager shows it. */
function plain(markdown: string): string {
  return markdown.replaceAll(/\[([^\]]+)\]\([^)]+\)/g, '$1').replaceAll('`', '');
}

/** In lines of 110 characters. */
function commentLines(text: string): string {
  return text.replaceAll(/(?<line>.{1,108})(?: +|$)/g, ' $<line>\n').trimEnd();
}
