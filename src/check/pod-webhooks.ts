import type { Json, RawObject } from '../cluster/index.ts';
import {
  count,
  isCalledForPods,
  isRecord,
  isSelected,
  isString,
  isStringMap,
  type Labels,
  listOf,
  memberAt,
  NAMESPACE_NAME_LABEL,
  NO_LABELS,
  recordsAt,
} from '../core/api/index.ts';
import { WEBHOOK } from '../core/judge/index.ts';
import { failure, type Inquiry, type Judgement, ok, problemsOr, type Seen, warning } from './checks.ts';
import { APPLY, replicaPods } from './replicas.ts';

const CONFIGURATIONS = '/apis/admissionregistration.k8s.io/v1';

/** The labels by which Linger's own pods are excluded. */
export const OWN_LABELS: Labels = { 'app.kubernetes.io/name': 'linger', 'linger.dev/inject': 'false' };

/** Linger's own webhook, if the configuration exists and contains it. */
export async function ownWebhook(inquiry: Inquiry): Promise<Json | undefined> {
  const { configuration } = inquiry.options;
  const object = await inquiry.find(`${CONFIGURATIONS}/mutatingwebhookconfigurations/${configuration}`);
  return recordsAt(object, 'webhooks')[0];
}

/** Linger's own webhook, even if its configuration has another name; that is found only if configurations may be listed. */
export async function anyOwnWebhook(inquiry: Inquiry): Promise<Json | undefined> {
  const own = await ownWebhook(inquiry);
  if (own !== undefined) return own;
  const all = await inquiry.items(`${CONFIGURATIONS}/mutatingwebhookconfigurations`).catch(() => []);
  return all.flatMap(({ webhooks }) => recordsAt(webhooks)).find(({ name }) => name === WEBHOOK);
}

/** Cluster-wide objects have the same names in every namespace, so a second Linger would take them from the first. */
export async function otherInstallation(inquiry: Inquiry): Promise<Seen> {
  const { namespace, configuration } = inquiry.options;
  const own = await ownWebhook(inquiry);
  const place = memberAt(own, ['clientConfig', 'service', 'namespace']);
  if (own === undefined) return ok(`there is no MutatingWebhookConfiguration ${configuration} yet`);
  if (place === namespace) return ok(`${configuration} already points at namespace ${namespace}`);
  return failure(
    `${configuration} points at ${isString(place) ? `namespace ${place}` : 'no Service'}: an installation in namespace ${namespace} takes over its webhook and its permissions`,
    'Upgrade that installation (--linger-namespace), or remove it first.',
  );
}

export async function webhook(inquiry: Inquiry): Promise<Seen> {
  const { configuration, namespace } = inquiry.options;
  const own = await ownWebhook(inquiry);
  if (own === undefined)
    return failure(
      `there is no MutatingWebhookConfiguration ${configuration}: pods are created without Linger`,
      `${APPLY} For another name: --webhook-configuration.`,
    );
  const failsClosed = own.failurePolicy === 'Fail';
  const labels = await namespaceLabels(inquiry, namespace);
  const conditions = JSON.stringify(own.matchConditions ?? []);
  const started = ['DaemonSet', 'system-node-critical', 'system-cluster-critical'];
  const holdsUpStart = failsClosed && !started.every((word) => conditions.includes(word));
  const whileDown = failsClosed ? 'rejected' : 'created without a hook';
  return problemsOr(
    [
      ...(await obstaclesTo(own, inquiry)),
      isSelected(own, labels, OWN_LABELS) &&
        (failsClosed ? failure : warning)(
          `${configuration} is called for Linger’s own pods: neither their labels nor their namespace exclude them`,
          `Label the namespace app.kubernetes.io/name=linger, or restore the selectors: ${APPLY}`,
        ),
      holdsUpStart &&
        failure(
          `${configuration} fails closed and is called for DaemonSets or system priority classes: a cluster that starts from scratch deadlocks`,
          'Set failurePolicy through the chart or deploy/fail-closed. An API server before 1.28 needs failurePolicy: Ignore.',
        ),
      !holdsUpStart &&
        conditions === '[]' &&
        warning(
          `${configuration} has no matchConditions: the API server is older than 1.28 and drops them, or they were removed`,
          APPLY,
        ),
      own.reinvocationPolicy === 'Never' &&
        warning(
          `${configuration} has reinvocationPolicy: Never, so containers that later webhooks add get no hook`,
          `Set IfNeeded: ${APPLY}`,
        ),
    ],
    ok(
      `${configuration} has failurePolicy ${String(own.failurePolicy)}: pods are ${whileDown} while Linger is down`,
    ),
  );
}

/** Why the API server never calls the replicas. */
export async function obstaclesTo(own: Json, inquiry: Inquiry): Promise<readonly Judgement[]> {
  const { configuration } = inquiry.options;
  const found = [
    ...(await wayIn(own, inquiry)),
    !isCalledForPods(own) &&
      failure(
        `the rules of ${configuration} do not cover the creation of pods: Linger is never called`,
        APPLY,
      ),
    (await excludesAll(own, inquiry)) &&
      failure(
        `the namespaceSelector of ${configuration} matches no namespace: Linger is never called`,
        `Label a namespace to match, or restore the selector: ${APPLY}`,
      ),
  ];
  return found.filter((each) => each !== false);
}

/** What prevents reviews from reaching the replicas. */
async function wayIn(own: Json, inquiry: Inquiry): Promise<readonly Judgement[]> {
  const { configuration, namespace } = inquiry.options;
  const called = memberAt(own, ['clientConfig', 'service']);
  // A replica outside the cluster.
  if (called === undefined && isString(memberAt(own, ['clientConfig', 'url']))) return [];
  const { namespace: place, name, port = 443 } = isRecord(called) ? called : {};
  if (place !== namespace)
    return [
      failure(
        `${configuration} points at namespace ${String(place)} instead of ${namespace}`,
        'Name the namespace of Linger with --linger-namespace.',
      ),
    ];
  if (!isString(name)) return [];
  const what = `Service ${namespace}/${name}`;
  const service = await inquiry.find(`/api/v1/namespaces/${namespace}/services/${name}`);
  if (service === undefined)
    return [failure(`${configuration} points at ${what}, which does not exist`, APPLY)];
  const ports = recordsAt(service, 'spec', 'ports').map((each) => each.port);
  if (!ports.includes(port))
    return [
      failure(`${configuration} calls port ${String(port)} of ${what}, which has ${ports.join(', ')}`, APPLY),
    ];
  const isReady = (await replicaPods(inquiry)).some(({ ready }) => ready);
  if (!isReady || (await hasReadyEndpoint(inquiry, namespace, name))) return [];
  const selector = JSON.stringify(memberAt(service, ['spec', 'selector']));
  return [
    failure(
      `${what} has no ready endpoint although replicas are ready: it selects ${selector}. API servers keep the connections that they have for a while`,
      APPLY,
    ),
  ];
}

async function excludesAll({ namespaceSelector }: Json, inquiry: Inquiry): Promise<boolean> {
  // An account that may not list namespaces still gets the other checks.
  const all = await inquiry.items('/api/v1/namespaces').catch(() => []);
  const isExcluded = ({ metadata: { labels = NO_LABELS } }: RawObject) =>
    !isSelected({ namespaceSelector }, labels, NO_LABELS);
  return all.length > 0 && all.every(isExcluded);
}

interface PodWebhook {
  readonly configuration: string;
  readonly webhook: Json;
  /** The name for messages. */
  readonly name: string;
}

async function podWebhooks(
  inquiry: Inquiry,
  kind: 'MutatingWebhookConfiguration' | 'ValidatingWebhookConfiguration',
): Promise<readonly PodWebhook[]> {
  const objects = await inquiry.items(`${CONFIGURATIONS}/${kind.toLowerCase()}s`);
  return objects.flatMap(({ metadata: { name: configuration }, webhooks }) =>
    recordsAt(webhooks)
      .filter(isCalledForPods)
      .map((each) => ({ configuration, webhook: each, name: `${each.name} of ${kind} ${configuration}` })),
  );
}

/** The labels of a namespace; if it does not exist yet, those that deploy/ gives to Linger's namespace. */
export async function namespaceLabels(inquiry: Inquiry, name: string): Promise<Labels> {
  const object = await inquiry.find(`/api/v1/namespaces/${name}`);
  const labels = memberAt(object, ['metadata', 'labels']);
  if (object !== undefined) return isStringMap(labels) ? labels : NO_LABELS;
  return { [NAMESPACE_NAME_LABEL]: name, 'app.kubernetes.io/name': 'linger' };
}

export async function otherWebhooks(inquiry: Inquiry): Promise<Seen> {
  const { namespace, configuration } = inquiry.options;
  const all = await podWebhooks(inquiry, 'MutatingWebhookConfiguration');
  const mutating = all.filter((each) => each.configuration !== configuration);
  const others = [...mutating, ...(await podWebhooks(inquiry, 'ValidatingWebhookConfiguration'))];
  const labels = await namespaceLabels(inquiry, namespace);
  const judgements: Judgement[] = [];
  for (const each of others)
    if (each.webhook.failurePolicy !== 'Ignore' && isSelected(each.webhook, labels, OWN_LABELS))
      judgements.push(await judgeBlocking(each, inquiry));
  // Webhooks of one kind are called in the order of their configurations' names. Source: k8s.io/apiserver
  // pkg/admission/configuration (mutatingWebhookConfigurationManager).
  const after = new Set(mutating.map((each) => each.configuration).filter((name) => name > configuration));
  if (after.size > 0)
    judgements.push(
      ok(
        `called after Linger: ${[...after].join(', ')}. If one of them changes a pod, Linger is called again; the line Admission names those that take its hook or grace`,
      ),
    );
  return problemsOr(
    judgements,
    ok(
      others.length === 0
        ? 'no other webhook is called for pods'
        : `${count(others.length, 'other webhook')}, none of which can keep Linger’s pods from starting`,
    ),
  );
}

async function judgeBlocking({ webhook, name: who }: PodWebhook, inquiry: Inquiry): Promise<Judgement> {
  const { namespace } = inquiry.options;
  const conditional = listOf(webhook.matchConditions).length > 0;
  const unless = conditional ? ', unless its matchConditions exclude them' : '';
  const called = `${who} fails closed and is called for pods of namespace ${namespace}${unless}`;
  const cure = `Exclude namespace ${namespace} in its namespaceSelector.`;
  const service = memberAt(webhook, ['clientConfig', 'service']);
  if (isRecord(service)) {
    const [place, name] = [String(service.namespace), String(service.name)];
    // An account that may not read endpoints gets the warning below.
    if (!(await hasReadyEndpoint(inquiry, place, name).catch(() => true)))
      return failure(
        `${called}, and its Service ${place}/${name} has no ready endpoint: no replica can start`,
        `${cure} Or repair what is behind ${place}/${name}.`,
      );
  }
  return warning(`${called}: while it is down, no replica can start`, cure);
}

export function endpointSlices(inquiry: Inquiry, namespace: string, name: string) {
  const path = `/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices`;
  return inquiry.items(path, `kubernetes.io/service-name=${name}`);
}

async function hasReadyEndpoint(inquiry: Inquiry, namespace: string, name: string): Promise<boolean> {
  const slices = await endpointSlices(inquiry, namespace, name);
  const endpoints = slices.flatMap((slice) => recordsAt(slice, 'endpoints'));
  return endpoints.some((endpoint) => memberAt(endpoint, ['conditions', 'ready']) !== false);
}
