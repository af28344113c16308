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
          "Less than a quarter of the serving certificate's life is left; once it has expired, every pod is created without a hook.",
        cure: "`linger check`, line `Certificate`. [Linger's own](../operations.md#certificates) should have been renewed at two thirds: the log says what it may not write. [One of yours](../operations.md#a-certificate-of-your-own): renew it.",
      },
      LingerNotTrusted: {
        why: 'Restored within seconds, unless Linger has no right to, or something overwrites it again and again.',
        expr: 'min(linger_certificate_trusted) == 0',
        for: '1m',
        severity: 'critical',
        means:
          "The webhook configuration does not trust a replica's serving certificate; pods are created without a hook.",
        cure: 'Linger writes its caBundle within seconds. The log says why it cannot; otherwise find out what else writes it (`kubectl get mutatingwebhookconfiguration linger --show-managed-fields --output yaml`).',
      },
      LingerNotConfigured: {
        why: "With your own certificate the leader's audits notice it, every ten minutes; otherwise each replica does at once.",
        expr: 'min(linger_webhook_configured) == 0',
        for: '1m',
        severity: 'critical',
        means: "Linger's MutatingWebhookConfiguration does not exist; every pod is created without a hook.",
        cure: '`kubectl apply --kustomize deploy/`, or `helm upgrade`, restores it, and Linger writes its caBundle. Then restart what was created meanwhile: `linger audit` lists it (`NotInjected`).',
      },
      LingerCertificatesContested: {
        expr: 'sum by (object, reason) (increase(linger_certificate_writes_total{reason!~"Absent|Expiring|AuthorityExpiring|Retired|Rotated"}[1h])) > 5',
        severity: 'warning',
        means: "Something repeatedly overwrites Linger's certificates or its caBundle; Linger restores them.",
        cure: 'Often a GitOps tool with a `caBundle` in its manifest: remove it there.',
      },
      LingerAbsent: {
        expr: 'absent(linger_build_info)',
        for: '10m',
        severity: 'warning',
        means: 'No replica is scraped; pods may be created without a hook.',
        cure: '`linger check` says whether Linger runs: if not, [when the webhook is down](../operations.md#when-the-webhook-is-down); if it does, look at what Prometheus scrapes, and at [port 8080](../operations.md#ports).',
      },
      LingerPolicyRefused: {
        why: 'Of files, or objects that a newer or older CRD has accepted.',
        expr: 'min(linger_policy_last_reload_successful) == 0 or max(linger_watch_refused_objects{resource=~".*policies"}) > 0',
        for: '1m',
        severity: 'warning',
        means:
          'Some policies, of files or objects, cannot be used: their last valid versions are in force, or mode `Audit` where none is known.',
        cure: '`linger check`, line `Policies`, names them, and the log the field.',
      },
      LingerCertificateRefused: {
        why: 'Every attempt counts, each 8 s after the last or sooner; an API server that restarts makes some of them fail.',
        expr: 'increase(linger_certificate_reloads_total{result="failure"}[5m]) > 0',
        for: '5m',
        severity: 'warning',
        means:
          'For five minutes, a new serving certificate has been refused, or the Secret or the caBundle could not be read or written; the last valid one stays in use.',
        cure: 'The log says why, with a [code](errors.md#certificate-codes).',
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
        means: 'A part of Linger, such as the canary or the audit, keeps failing; all others continue.',
        cure: 'Report it, with the stack from the log (`runnable failed`).',
      },
      LingerSlow: {
        why: 'The API server gives up after timeoutSeconds (2 s in deploy/webhook.yaml) and creates the pod without a hook.',
        expr: 'histogram_quantile(0.99, sum by (le) (rate(linger_admission_duration_seconds_bucket[5m]))) > 0.1',
        for: '10m',
        severity: 'warning',
        means:
          '1 % of the reviews take more than 100 ms. The API server gives up after 2 s (`timeoutSeconds`) and creates the pod without a hook.',
        cure: 'Check for CPU throttling, or too few replicas.',
      },
      LingerRefusesReviews: {
        expr: 'sum(rate(linger_http_responses_total{code=~"4.."}[15m])) > 0',
        for: '30m',
        severity: 'info',
        means: 'Requests arrive that are not AdmissionReviews.',
        cure: 'Find out what connects to port 8443: [threat model](../threat-model.md#the-network).',
      },
      LingerInvalidAnnotations: {
        expr: 'sum by (annotation) (increase(linger_invalid_annotations_total[1h])) > 0',
        severity: 'info',
        means: 'Pods carry an annotation of Linger’s that does not parse; it is ignored.',
        cure: 'Tell their owners: [annotations](annotations.md).',
      },
      LingerWaitsShrunk: {
        expr: 'increase(linger_notes_total{code=~"WaitShrunk|HookWithdrawn"}[1h]) > 0',
        severity: 'info',
        means: 'Pods get shorter waits than the policy asks for, because their grace or hooks leave no room.',
        cure: 'Raise `grace.max`, or find the webhook that cuts graces: [notes](reasons.md#notes).',
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
          'A terminating pod has been listed as ready for more than a minute: it gets traffic while it is being stopped, whatever its wait.',
        cure: '`linger diagnose` says why; [`/estimates`](../operations.md#what-is-the-lag-and-why-this-wait) shows which Services. Postpone rollouts until it is over.',
      },
      LingerLagBeyondWait: {
        why: "Only for measured waits; others are an operator's choice. A lag counts for five minutes: a single late removal in a quiet cluster is over by the time that anybody looks.",
        expr: 'max(linger_lag_now_seconds{quantile="0.99"}) > max(linger_default_wait_seconds{why=~"measured|storm"})',
        for: '10m',
        severity: 'warning',
        means:
          "For ten minutes, 1 % of the removals have taken longer than pods wait for them. Only where the wait is measured: a fixed one is the operator's choice.",
        cure: '`linger diagnose` says why. Waits of existing pods do not change; postpone rollouts until it is over.',
      },
      LingerStormNotCovered: {
        expr: 'max(linger_default_wait_coverage{why="storm"}) < 0.99',
        for: '1h',
        severity: 'info',
        means: 'Lags are longer than `wait.max`, so waits do not cover them.',
        cure: 'Make the controllers faster, or raise `wait.max`; see the note `StormNotCovered`.',
      },
      LingerClusterNotRead: {
        expr: 'min(linger_cluster_synced) == 0',
        for: '5m',
        severity: 'warning',
        means:
          'A replica has not been able to read the cluster since it started; it decides without Services and Namespaces.',
        cure: '`linger_watch_restarts_total` and the log say [why](#why-a-watch-restarts).',
      },
      LingerWatchBehind: {
        expr: 'min by (resource) (linger_watch_current) == 0',
        for: '10m',
        severity: 'warning',
        means: 'A watch is not current: nothing is measured, and decisions follow what was known.',
        cure: '`linger_watch_restarts_total` and the log say [why](#why-a-watch-restarts).',
      },
      LingerForbidden: {
        why: 'Repeated every 45 s or sooner while it lasts. An API server that starts also refuses everything for some seconds.',
        expr: 'sum by (resource) (increase(linger_watch_restarts_total{reason=~"Forbidden|Unauthorized"}[5m])) > 0',
        for: '10m',
        severity: 'warning',
        means:
          'The API server has refused a list or a watch for ten minutes: what Linger knows of that kind is out of date, or nothing.',
        cure: '`kubectl apply --kustomize deploy/`, or `helm upgrade`, restores the rights: those of `configmaps` are in `deploy/role-publish.yaml`, of `secrets` and `mutatingwebhookconfigurations` in `deploy/role-certificates.yaml`, of `holdconfigmaps` in `deploy/rbac-hold.yaml`, of all others in `deploy/rbac.yaml`.',
      },
      LingerWatchStalls: {
        expr: 'sum by (resource) (increase(linger_watch_stalls_total[1h])) > 3',
        severity: 'info',
        means: 'Connections to the API server repeatedly die silently.',
        cure: 'Look for idle timeouts on the path.',
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
        means: 'No replica leads: waits stay as they are, and measurements are not saved.',
        cure: '`linger_publish_failures_total{object="lease"}` says [why publishing fails](#why-publishing-fails).',
      },
      LingerPublishedRefused: {
        expr: 'max by (object, reason) (linger_published_refused) == 1',
        for: '10m',
        severity: 'warning',
        means: 'What the leader publishes cannot be used; waits stay as they are, or are `initial`.',
        cure: 'The label `reason` says [why it is refused](#why-what-is-published-is-refused).',
      },
      LingerPublishFails: {
        why: 'Half an hour of failures are 6 or more, even at the longest pause of 5 minutes; so are two short outages of the API server, but then there are none of late. The Lease has its own alert.',
        expr: 'sum by (object) (increase(linger_publish_failures_total{object!="lease", reason!~"Conflict|AlreadyExists"}[30m])) > 5 and sum by (object) (increase(linger_publish_failures_total{object!="lease", reason!~"Conflict|AlreadyExists"}[10m])) > 0',
        for: '5m',
        severity: 'warning',
        means: 'Measurements could not be written for half an hour.',
        cure: 'The label `reason` of `linger_publish_failures_total` says [why publishing fails](#why-publishing-fails).',
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
        means: 'The lag of a consumer is no longer measured; waits use its last known lag.',
        cure: '`linger consumers` says [what is wrong](consumers.md#conditions).',
      },
      LingerStaleUpstream: {
        why: 'Two pages have listed it already.',
        expr: 'max by (consumer, instance) (linger_inspect_stale_upstreams) > 0',
        severity: 'warning',
        means:
          'An instance still sends to an address that no EndpointSlice lists: requests to it fail, or reach another pod.',
        cure: 'Restart that instance; `linger consumers` names it and the address. [How that is found](../measuring.md#dead-addresses).',
      },
      LingerReportsRefused: {
        why: 'NotLeader is normal: gateways follow a change of leader by it.',
        expr: 'sum by (consumer, result) (increase(linger_reports_total{result=~"NoToken|TokenRefused|NotAllowed|NotByReports|NoVerdict|ForeignCursor|UsedCursor"}[15m])) > 10',
        for: '15m',
        severity: 'warning',
        means: "A gateway's reports have been refused for half an hour: waits do not follow its lag.",
        cure: '[Answers to reports](consumers.md#answers-to-reports) says why.',
      },
      LingerCanaryMeasuresNothing: {
        why: 'The metrics do not exist if the canary is off. One hour if flips are made but time nothing: they then become as rare as one in ten minutes. Six hours if there are no flips, whatever the reason, although there is something to time, now and five hours ago; a --canary-every over 45m needs a longer window.',
        expr: '(sum(increase(linger_canary_flips_total[1h])) > 3 unless sum(increase(linger_canary_flips_total{result="Measured"}[1h])) > 0) or (max(linger_canary_consumers) > 0 and max(linger_canary_consumers offset 5h) > 0 unless sum(increase(linger_canary_flips_total{result="Measured"}[6h])) > 0)',
        for: '10m',
        severity: 'warning',
        means:
          'The canary has timed no consumer for an hour, or has not flipped for six; not if it is off, or has nothing to time.',
        cure: '[How flips end](consumers.md#how-a-flip-ends) says why, and what to do. Without any flip, check that a replica leads (`linger_leader`); the log says what stopped the canary.',
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
        means:
          'Pods that waited as Linger planned got SIGTERM while endpoints still listed them; requests may have been lost. Not pods without a plan, such as all in mode `Audit`: [`linger audit`](commands.md#audit) lists their workloads.',
        cure: '`linger audit --since 1h` names the workloads and [why](commands.md#termination-review): restart those whose waits are older than the lag, raise `wait.max`, or use [Hold](../concepts.md#hold).',
      },
      LingerUndeclaredConsumer: {
        expr: 'increase(linger_termination_findings_total{reason="UndeclaredConsumer"}[1h]) > 0',
        severity: 'info',
        means: 'Held pods got connections after every known consumer had stopped sending.',
        cure: '`linger audit --since 1h` says from where. Declare it as a [DiscoveryConsumer](../concepts.md#consumers).',
      },
      LingerHoldUnavailable: {
        why: 'The helper comes seconds after a namespace, and after an upgrade. The second part is for Hold that is off.',
        expr: 'max(linger_hold_namespaces_lacking) > 0 or (sum(increase(linger_notes_total{code="HoldUnavailable"}[1h])) > 0 unless max(linger_hold_namespaces_lacking))',
        for: '10m',
        severity: 'warning',
        means:
          'For ten minutes, namespaces whose policies say `Hold` have lacked the helper or its Service, or pods have asked for it although it is off: they get a static wait. Not what a single pod lacks: the finding and note `HoldUnavailable` say that.',
        cure: '`linger check`, line `HoldHelper`, names the namespaces and [what is missing](policies.md#what-hold-needs).',
      },
      LingerHoldTrialFailed: {
        why: 'Pods that may run on such nodes get no Hold.',
        expr: 'max(linger_hold_node_kinds{result="failed"}) > 0',
        for: '15m',
        severity: 'warning',
        means: "Linger's helper fails on some kind of node; pods that may run there get a static wait.",
        cure: 'The log and `linger check` name the node and the failure: [the helper of Hold](../operations.md#the-helper-of-hold).',
      },
      LingerHoldUnreachable: {
        expr: 'increase(linger_termination_findings_total{reason="HoldUnreachable"}[1h]) > 0',
        severity: 'warning',
        means: 'A pod with hook Hold ended without calling the Hold Service.',
        cure: "Allow egress to port 8445 of Linger's namespace; check that the helper's ConfigMap is in the pod's namespace: [termination review](commands.md#termination-review).",
      },
      LingerHoldMax: {
        why: "Tolerates one or two that a user's --grace-period has cut.",
        expr: 'sum(increase(linger_hold_released_total{reason="Max"}[1h])) > 2 and sum(increase(linger_hold_released_total{reason="Max"}[1h])) / sum(increase(linger_hold_released_total[1h])) > 0.1',
        severity: 'warning',
        means: 'More than a tenth of held pods reached `hold.max` before every consumer had stopped sending.',
        cure: 'The log line of each release names the consumer: slow (raise `hold.max` and the grace), or one that never drops pods.',
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
        means: 'The API server could not reach Linger and created pods without a hook.',
        cure: '[Why did my pod not get a hook](../operations.md#why-did-my-pod-not-get-a-hook), from step 5. Then restart what was created meanwhile: `linger audit` lists it (`NotInjected`).',
      },
      LingerFloorFails: {
        why: 'Errors in its expressions; a ConfigMap that is missing is not counted by the API server.',
        expr: 'sum(increase(apiserver_mutating_admission_policy_check_total{policy="linger-floor",error_type!="no_error"}[10m])) > 0',
        severity: 'warning',
        means:
          'The API server could not evaluate [the floor](../when-linger-is-down.md#the-floor): new pods would get no hook while Linger is down.',
        cure: '`linger check`, line `Floor`. If it persists, delete the policy `linger-floor`; nothing else depends on it.',
      },
      LingerPodsRefused: {
        why: 'Only with failurePolicy Fail, and where the answer cannot be applied. Not while the endpoint of a lost node is withdrawn: controllers create refused pods again.',
        expr: 'sum(increase(apiserver_admission_webhook_rejection_count{name="pods.linger.dev"}[5m])) > 0',
        for: '7m',
        severity: 'critical',
        means:
          'With [failurePolicy Fail](../operations.md#no-pod-without-linger), the API server has refused pods for minutes, because it cannot reach Linger.',
        cure: '`linger check` says what is wrong. `kubectl delete mutatingwebhookconfiguration linger` lets pods through at once, without a hook.',
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
# Alert rules for Prometheus; docs/reference/metrics.md has the same sentences with links. Thresholds are starting points.
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
