import type { X509Certificate } from 'node:crypto';
import { basename } from 'node:path/posix';
import {
  API_VERSION,
  fewOf,
  HOLD_SERVICE,
  holdConfigMap,
  isRecord,
  isSelected,
  isString,
  type LabelSelector,
  type Labels,
  listOf,
  memberAt,
  NO_LABELS,
  recordsAt,
  selects,
} from '../api/index.ts';
import { isTrusted, parseCertificates, renewalTime } from '../certs/index.ts';
import { asFailure, KubeFailure, type RawObject } from '../cluster/index.ts';
import { readHelperObject } from '../hold/index.ts';
import {
  CLUSTER_TERMINATION_POLICIES,
  DISCOVERY_CONSUMERS,
  TERMINATION_POLICIES,
} from '../informers/index.ts';
import { readConsumers, SHARED_NAMES } from '../leader/index.ts';
import { count, span } from './amounts.ts';
import {
  type Access,
  apiServer,
  type Check,
  type CheckOptions,
  checked,
  endpointSlices,
  failure,
  hasReadyEndpoint,
  type Inquiry,
  isAskedAboutPods,
  type Judgement,
  kubelets,
  missingOf,
  namespaceLabels,
  OWN_LABELS,
  ok,
  otherWebhooks,
  ownWebhook,
  refusalOf,
  type Seen,
  triedPod,
  unknown,
  unlessNotServed,
  unseen,
  warning,
} from './checks.ts';
import { type Exposition, MalformedExposition, parseExposition } from './controller-metrics.ts';
import { type Json, oneLine } from './controller-observation.ts';
import installed from './installed.json' with { type: 'json' };

/** What policies, of objects and of files, come to. */
export interface InForce {
  /** The namespaces whose pods may get hook Hold, and why those get none that can run on any node. */
  readonly wantingHold: readonly { readonly namespace: string; readonly why: string | undefined }[];
  /** Why some policies could not be read; undefined: all were. */
  readonly policiesUnread: string | undefined;
  /** Of the helper that the leader delivers; undefined: not known. */
  readonly holdDigest: string | undefined;
  /** How many policies are of files. */
  readonly files: number;
  /** What is invalid in files. */
  readonly fileProblems: readonly string[];
  /** Why files cannot be read. */
  readonly filesUnread: KubeFailure | undefined;
  /** Of a pod without labels in the namespace that is tried; undefined: there is no such namespace. */
  readonly mode: { readonly value: string; readonly origin: string } | undefined;
}

/** Whether an installed Linger works. */
export function checkInstallation(
  inquiry: Inquiry,
  inForce: () => Promise<InForce>,
): Promise<readonly Check[]> {
  return checked(inquiry, {
    ApiServer: apiServer,
    Kubelets: kubelets,
    CustomResources: customResources,
    Rights: replicaRights,
    Webhook: webhook,
    Certificate: certificate,
    Replicas: replicas,
    Ports: ports,
    Answer: answer,
    OtherWebhooks: otherWebhooks,
    NetworkPolicy: async () => [
      ...[await networkPolicies(inquiry)].flat(),
      ...(await helperEgress(inquiry, await inForce().catch(() => undefined)).catch((thrown) => [
        unseen(thrown),
      ])),
    ],
    Leader: leader,
    Watches: watches,
    Canary: canary,
    Consumers: consumers,
    Policies: async () => policies(inquiry, await inForce().catch(() => undefined)),
    HoldHelper: async () => holdHelper(inquiry, await inForce()),
  });
}

const LINGER_KINDS = [CLUSTER_TERMINATION_POLICIES, DISCOVERY_CONSUMERS, TERMINATION_POLICIES].map(
  ({ path }) => basename(path),
);
const APPLY = 'kubectl apply --kustomize deploy/, or helm upgrade.';

async function customResources(inquiry: Inquiry): Promise<Seen> {
  const served = recordsAt(await inquiry.find(`/apis/${API_VERSION}`), 'resources').map(({ name }) => name);
  const missing = LINGER_KINDS.filter((plural) => !served.includes(plural));
  if (missing.length === 0) return ok(LINGER_KINDS.join(', '));
  const text = `not served: ${missing.join(', ')}; only what files say of them is in force`;
  return warning(text, APPLY);
}

async function webhook(inquiry: Inquiry): Promise<Seen> {
  const { configuration, namespace } = inquiry.options;
  const own = await ownWebhook(inquiry);
  if (own === undefined)
    return failure(
      `there is no MutatingWebhookConfiguration ${configuration}: pods are created without Linger`,
      `${APPLY} --webhook-configuration says another name.`,
    );
  const failsClosed = own.failurePolicy === 'Fail';
  const labels = await namespaceLabels(inquiry, namespace);
  const conditions = JSON.stringify(own.matchConditions ?? []);
  const started = ['DaemonSet', 'system-node-critical', 'system-cluster-critical'];
  const holdsUpStart = failsClosed && !started.every((word) => conditions.includes(word));
  const wrong = [
    ...(await wayIn(own, inquiry)),
    !isAskedAboutPods(own) && failure(`the rules of ${configuration} have no creation of pods`, APPLY),
    (await leavesOutAll(own, inquiry)) &&
      failure(
        `the namespaceSelector of ${configuration} leaves out every namespace: Linger is asked about no pod`,
        `Label a namespace as it says, or restore it: ${APPLY}`,
      ),
    isSelected(own, labels, OWN_LABELS) &&
      (failsClosed ? failure : warning)(
        'it is asked about its own replicas: neither a label of theirs nor their namespace leaves them out',
        `Label the namespace app.kubernetes.io/name=linger, or restore the selectors: ${APPLY}`,
      ),
    holdsUpStart &&
      failure(
        'it fails closed and is asked about DaemonSets or the system’s priority classes: a cluster that starts from nothing would wait for itself',
        'Set failurePolicy by the chart, or with deploy/fail-closed; an API server before 1.28 must fail open.',
      ),
    !holdsUpStart &&
      conditions === '[]' &&
      warning(
        'it has no matchConditions: the API server has dropped them (before 1.28), or they have been removed',
        APPLY,
      ),
    own.reinvocationPolicy === 'Never' &&
      warning(
        'reinvocationPolicy is Never: containers that later webhooks add get no hook',
        `Set IfNeeded: ${APPLY}`,
      ),
  ].filter((each) => each !== false);
  if (wrong.length > 0) return wrong;
  const away = failsClosed ? 'refused' : 'created without a hook';
  const policy = `${configuration}, failurePolicy ${String(own.failurePolicy)}`;
  return ok(`${policy}: pods are ${away} while Linger is away`);
}

/** What keeps reviews from the replicas. */
async function wayIn(own: Json, inquiry: Inquiry): Promise<readonly Judgement[]> {
  const { configuration, namespace } = inquiry.options;
  const called = memberAt(own, ['clientConfig', 'service']);
  const { namespace: place, name, port = 443 } = isRecord(called) ? called : {};
  if (place !== namespace)
    return [
      failure(
        `${configuration} leads to namespace ${String(place)}, and not to ${namespace}`,
        '--linger-namespace says where Linger runs.',
      ),
    ];
  if (!isString(name)) return [];
  const what = `Service ${namespace}/${name}`;
  const service = await inquiry.find(`/api/v1/namespaces/${namespace}/services/${name}`);
  if (service === undefined) return [failure(`it leads to ${what}, which is not there`, APPLY)];
  const ports = recordsAt(service, 'spec', 'ports').map((each) => each.port);
  if (!ports.includes(port))
    return [failure(`it calls port ${String(port)} of ${what}, which has ${ports.join(', ')}`, APPLY)];
  const isReady = (await replicaPods(inquiry)).some(({ ready }) => ready);
  if (!isReady || (await hasReadyEndpoint(inquiry, namespace, name))) return [];
  const selector = JSON.stringify(memberAt(service, ['spec', 'selector']));
  return [
    failure(
      `${what} leads to no replica, though some are ready: it selects ${selector}. Connections that API servers have go on for a while`,
      APPLY,
    ),
  ];
}

async function leavesOutAll({ namespaceSelector }: Json, inquiry: Inquiry): Promise<boolean> {
  // Who may not list them may still see the rest.
  const all = await inquiry.items('/api/v1/namespaces').catch(() => []);
  const isLeftOut = ({ metadata: { labels = NO_LABELS } }: RawObject) =>
    !isSelected({ namespaceSelector }, labels, NO_LABELS);
  return all.length > 0 && all.every(isLeftOut);
}

/** What fails without the rights of a manifest. */
interface Consequence {
  readonly without: string;
  /** The missing rights without which Linger does not work; undefined: none. */
  readonly grave?: RegExp;
  /** Whether the flags of the Deployment use them; undefined: always. */
  readonly used?: (flag: Flags) => boolean;
}

const CONSEQUENCES: Readonly<Record<string, Consequence>> = {
  'deploy/rbac.yaml': {
    grave: /^(list|watch) /,
    without:
      'watches fail when they are opened again, reports are refused, or statuses and Events are missing',
  },
  'deploy/role-publish.yaml': { grave: /./, without: 'no replica leads, or measurements are not kept' },
  'deploy/role-pods.yaml': {
    without: 'the canary measures nothing, and the Service linger-reports has no endpoint',
  },
  'deploy/role-certificates.yaml': {
    grave: /./,
    without: 'the certificate expires within a week, and the caBundle is not restored',
    used: (flag) => flag('certs-secret') !== undefined,
  },
  'deploy/rbac-audit.yaml': {
    without: 'the leader audits nothing, or less',
    used: (flag) => !isZero(flag('audit-every')),
  },
  'deploy/rbac-hold.yaml': {
    without: 'pods get Sleep where policies ask for hook Hold',
    used: (flag) => !isZero(flag('hold-port')),
  },
  'deploy/rbac-node-shutdown.yaml': {
    without: 'the pods of a node that shuts down are not deleted',
    used: (flag) => flag('delete-on-node-shutdown') !== undefined,
  },
  'deploy/rbac-policy-reports.yaml': {
    without: 'reports of findings are not written',
    used: (flag) => (flag('policy-reports') ?? 'off') !== 'off',
  },
};

/** Rights that only an installation uses whose leader delivers the helper; `linger hold manifest` does without. */
const OPTIONAL_ROLE = /-delivery$/;

/** The rights that the manifests of this version give to the ServiceAccount, as far as these flags use them; by manifest. */
export function declaredRights(
  flag: Flags,
  { namespace, configuration }: Pick<CheckOptions, 'namespace' | 'configuration'>,
): ReadonlyMap<string, readonly Access[]> {
  const renamed = (resource: string, name: string) => {
    if (resource === 'secrets') return flag('certs-secret') ?? name;
    return resource === 'mutatingwebhookconfigurations' ? configuration : name;
  };
  const rights = new Map<string, readonly Access[]>();
  for (const { manifest, name: role, namespaced, rules } of installed.roles as readonly InstalledRole[]) {
    if (OPTIONAL_ROLE.test(role) || CONSEQUENCES[manifest]?.used?.(flag) === false) continue;
    const place = namespaced ? { namespace } : {};
    const accesses = rules.flatMap(({ apiGroups, resources, resourceNames = [undefined], verbs }) =>
      apiGroups.flatMap((group) =>
        resources.flatMap((resource) =>
          resourceNames.flatMap((name) => {
            const named = name === undefined ? {} : { name: renamed(resource, name) };
            return verbs.map((verb) => ({ group, resource, ...named, verb, ...place }));
          }),
        ),
      ),
    );
    const reports = flag('policy-reports');
    const asked = accesses.filter(({ resource, group }) => !/reports$/.test(resource) || group === reports);
    rights.set(manifest, [...(rights.get(manifest) ?? []), ...asked]);
  }
  return rights;
}

interface InstalledRole {
  readonly manifest: string;
  readonly name: string;
  readonly namespaced: boolean;
  readonly rules: readonly {
    readonly apiGroups: readonly string[];
    readonly resources: readonly string[];
    readonly resourceNames?: readonly string[];
    readonly verbs: readonly string[];
  }[];
}

/** The API server checks rights only when a watch is opened, and others not until they are needed. */
async function replicaRights(inquiry: Inquiry): Promise<Seen> {
  const { namespace } = inquiry.options;
  const declared = await deployment(inquiry);
  if (declared === undefined) return [];
  const account = memberAt(declared, ['spec', 'template', 'spec', 'serviceAccountName']);
  const name = isString(account) ? account : 'default';
  const judged: Judgement[] = [];
  let asked = 0;
  const rights = declaredRights(flagsOf(declared), inquiry.options);
  for (const [manifest, accesses] of rights) {
    asked += accesses.length;
    const missing = await missingOf(inquiry, accesses, { namespace, name });
    if (missing.length === 0) continue;
    const { without, grave } = CONSEQUENCES[manifest] ?? { without: 'what they are for fails' };
    const isGrave = grave !== undefined && missing.some((right) => grave.test(right));
    const text = `ServiceAccount ${namespace}/${name} may not ${fewOf(missing)}: ${without}`;
    judged.push((isGrave ? failure : warning)(text, `The role and its binding are in ${manifest}: ${APPLY}`));
  }
  return judged.length > 0
    ? judged
    : ok(`ServiceAccount ${name} has all ${asked} rights that its flags need`);
}

/** The value of a flag of `serve`; undefined: its default. */
export type Flags = (name: string) => string | undefined;

/** What the Deployment says: flags over the environment, and the last of one flag. */
function flagsOf(declared: Json | undefined): Flags {
  const containers = recordsAt(declared, 'spec', 'template', 'spec', 'containers');
  const args = containers.flatMap((each) => listOf(each.args)).filter(isString);
  const env = containers.flatMap((each) => recordsAt(each, 'env'));
  return (name) => {
    const at = args.findLastIndex((each) => each === `--${name}` || each.startsWith(`--${name}=`));
    if (at >= 0) return args[at]?.includes('=') ? args[at].slice(name.length + 3) : (args[at + 1] ?? '');
    const variable = `LINGER_${name.replaceAll('-', '_').toUpperCase()}`;
    const value = env.find((each) => each.name === variable)?.value;
    return isString(value) ? value : undefined;
  };
}

/** Of a number or a duration. */
function isZero(value: string | undefined): boolean {
  return value !== undefined && /^0+[a-z]*$/.test(value);
}

/** The Deployment of deploy/. */
async function deployment(inquiry: Inquiry): Promise<Json | undefined> {
  return inquiry.find(`/apis/apps/v1/namespaces/${inquiry.options.namespace}/deployments/linger`);
}

/** The Secret that the replicas serve from: the one that they make, or their user's, which is mounted. */
async function certificateSecret(
  inquiry: Inquiry,
): Promise<{ readonly name: string; readonly isTheirs: boolean; readonly cure: string }> {
  const declared = await deployment(inquiry);
  const volumes = recordsAt(declared, 'spec', 'template', 'spec', 'volumes');
  const mounted = volumes.map((each) => memberAt(each, ['secret', 'secretName']));
  const made = flagsOf(declared)('certs-secret');
  const theirs = made === undefined ? mounted.find(isString) : undefined;
  const [name, cure] =
    theirs === undefined
      ? [made ?? 'linger-certificates', 'A replica that runs makes it: look at their log.']
      : [theirs, 'It is your own: make it, with tls.crt and tls.key; replicas wait for it.'];
  return { name, isTheirs: theirs !== undefined, cure };
}

const NO_BUNDLE = 'the webhook configuration has no caBundle: no API server trusts Linger';
const BUNDLE_CURE =
  'Replicas put it back within 10 s where the Role linger-certificates lets them; look at their log. Where the certificate is yours, patch clientConfig.caBundle.';

async function certificate(inquiry: Inquiry): Promise<Seen> {
  const { namespace, now } = inquiry.options;
  const own = await ownWebhook(inquiry);
  const encoded = memberAt(own, ['clientConfig', 'caBundle']);
  const bundle = isString(encoded) ? decoded(encoded) : '';
  const noBundle = own !== undefined && parseCertificates(bundle).length === 0;
  const unbundled = noBundle ? [failure(NO_BUNDLE, BUNDLE_CURE)] : [];
  const { name, isTheirs, cure } = await certificateSecret(inquiry);
  const secret = await inquiry.find(`/api/v1/namespaces/${namespace}/secrets/${name}`);
  const text = memberAt(secret, ['data', 'tls.crt']);
  const chain = isString(text) ? decoded(text) : '';
  const [leaf] = parseCertificates(chain);
  const what = `the certificate in Secret ${namespace}/${name}`;
  if (leaf === undefined) {
    const lacking =
      secret === undefined ? `there is no Secret ${namespace}/${name}` : `${what} cannot be read`;
    return [...unbundled, failure(lacking, cure)];
  }
  const date = new Date(now * 1000);
  const notAfter = leaf.validToDate;
  const expired = notAfter <= date;
  const host = `linger.${namespace}.svc`;
  const wrong = [
    ...unbundled,
    expired &&
      failure(
        `${what} expired on ${notAfter.toISOString()}`,
        'A replica that runs renews it at once: look at their log. Where it is yours, renew it.',
      ),
    !expired &&
      own !== undefined &&
      !noBundle &&
      !isTrusted(chain, bundle, date) &&
      failure(`the caBundle of the webhook configuration does not fit ${what}`, BUNDLE_CURE),
    // Go, and so an API server, looks at no common name.
    leaf.checkHost(host, { subject: 'never' }) === undefined &&
      failure(
        `${what} is not for ${host}, which API servers call`,
        'Add that name: --cert-names, or your own certificate’s.',
      ),
  ].filter((each) => each !== false);
  if (wrong.length > 0) return wrong;
  const left = `valid for ${span((notAfter.getTime() - date.getTime()) / 1000)}, until ${notAfter.toISOString()}`;
  if (isTheirs && endsSoon(leaf, date))
    return warning(`${what} ends soon; ${left}`, 'It is your own: renew it.');
  // Replicas renew within a minute; a third of its life remains.
  if (!isTheirs && renewalTime(leaf).getTime() + HOUR_MS < date.getTime())
    return warning(
      `${what} should have been renewed; ${left}`,
      'The log of the replicas says why it was not.',
    );
  if (own === undefined)
    return unknown(`${what} is ${left}; without a webhook configuration nothing says who trusts it`);
  return ok(`${what} is trusted and ${left}`);
}

const HOUR_MS = 3_600_000;

/** Whether less than a quarter of its life is left, as the alert LingerCertificateExpires has it. */
function endsSoon({ validFromDate, validToDate }: X509Certificate, now: Date): boolean {
  const life = validToDate.getTime() - validFromDate.getTime();
  return validToDate.getTime() - now.getTime() < life / 4;
}

function decoded(base64: string): string {
  return Buffer.from(base64, 'base64').toString();
}

/** The pods of the Deployment that are not being deleted, and why one is not ready. */
export async function replicaPods(inquiry: Inquiry) {
  const { namespace } = inquiry.options;
  const pods = await inquiry.items(`/api/v1/namespaces/${namespace}/pods`, 'app.kubernetes.io/name=linger');
  return pods
    .filter(({ metadata }) => metadata.deletionTimestamp === undefined)
    .map(({ metadata: { name }, spec, status }) => {
      const conditions = recordsAt(status, 'conditions');
      const ready = conditions.find(({ type }) => type === 'Ready');
      const unscheduled = conditions.find((each) => each.type === 'PodScheduled' && each.status === 'False');
      const states = recordsAt(status, 'containerStatuses');
      const waiting = states.map((each) => memberAt(each, ['state', 'waiting'])).find(isRecord);
      const { reason, message } = waiting ?? unscheduled ?? ready ?? {};
      return {
        name,
        node: String(memberAt(spec, ['nodeName']) ?? ''),
        ready: ready?.status === 'True',
        trouble: [reason, message].filter(isString).map(oneLine).join(': ') || 'not ready',
      };
    });
}

async function replicas(inquiry: Inquiry): Promise<Seen> {
  const { namespace } = inquiry.options;
  const declared = await deployment(inquiry);
  if (declared === undefined)
    return failure(
      `there is no Deployment linger in namespace ${namespace}`,
      `${APPLY} --linger-namespace says another namespace.`,
    );
  const pods = await replicaPods(inquiry);
  const wanted = Number(memberAt(declared, ['spec', 'replicas']) ?? 1);
  const ready = pods.filter((pod) => pod.ready);
  const nodes = [...new Set(ready.map(({ node }) => node))];
  const text = `${ready.length} of ${wanted} ready${ready.length === 0 ? '' : `, on ${nodes.join(', ')}`}`;
  // What keeps pods from being created at all, such as a webhook that fails closed, only the Deployment says.
  const refused = recordsAt(declared, 'status', 'conditions').filter(
    ({ type, status }) => type === 'ReplicaFailure' && status === 'True',
  );
  const troubles = refused.map(({ message }) => oneLine(String(message)));
  for (const { name, trouble } of pods.filter((pod) => !pod.ready))
    troubles.push([`${name}: ${trouble}`, await unmounted(name, inquiry)].flat().join(': '));
  const why = troubles.length === 0 ? '' : `; ${troubles.join('; ')}`;
  const log = `kubectl --namespace ${namespace} describe pods; kubectl --namespace ${namespace} logs deployment/linger`;
  if (wanted === 0)
    return failure(
      'the Deployment linger asks for no replica',
      `kubectl --namespace ${namespace} scale deployment/linger --replicas=2`,
    );
  if (ready.length === 0) return failure(`${text}${why}`, log);
  if (ready.length < wanted) return warning(`${text}${why}`, log);
  // An update that is stuck leaves the replicas of before.
  if (troubles.length > 0) return warning(`${text}, but not what an update brings${why}`, log);
  if (wanted === 1)
    return warning(`${text}: while it is replaced, pods are created without Linger`, 'Two replicas.');
  // Where nodes may not be listed, that of the replicas is all there is to say.
  const page = await inquiry.json('/api/v1/nodes?limit=2').catch(() => undefined);
  if (nodes.length === 1 && recordsAt(page, 'items').length > 1)
    return warning(
      `${text} alone: with that node all of them are gone`,
      'Is there room on another node? kubectl delete pod of one of them.',
    );
  return ok(text);
}

/** Why a pod's volumes cannot be mounted: its status does not say. */
async function unmounted(pod: string, inquiry: Inquiry): Promise<string[]> {
  const query = encodeURIComponent(`involvedObject.name=${pod},reason=FailedMount`);
  const path = `/api/v1/namespaces/${inquiry.options.namespace}/events?fieldSelector=${query}`;
  const events = recordsAt(await inquiry.find(path).catch(() => undefined), 'items');
  return events.slice(-1).map(({ message }) => oneLine(String(message)));
}

/** What no wait is: whatever the mode, Linger says so in a warning, and only Linger does. */
const NO_WAIT = { 'linger.dev/wait': 'check' };

async function answer(inquiry: Inquiry): Promise<Seen> {
  const { tryIn } = inquiry.options;
  const own = await ownWebhook(inquiry);
  if (own === undefined) return [];
  const labels = await namespaceLabels(inquiry, tryIn);
  const pod = triedPod(NO_WAIT, NO_LABELS);
  if (!isSelected(own, labels, NO_LABELS))
    return unknown(
      `the selectors of the webhook leave out namespace ${tryIn}`,
      '--namespace names one in which a pod can be tried.',
    );
  const begun = performance.now();
  const tried = await inquiry.tryPod(tryIn, pod).catch(refusalOf);
  const tookSeconds = (performance.now() - begun) / 1000;
  if ('refused' in tried) return judgeRefusal(tried.refused, own, inquiry);
  const plan = memberAt(tried.answer, ['metadata', 'annotations', 'linger.dev/plan']);
  if (!isString(plan) && !tried.warnings.includes('linger: '))
    return failure(
      `a pod in namespace ${tryIn} was admitted without Linger’s answer${await waySeen(inquiry)}`,
      'The lines above and below say what is wrong with the way; the API server’s own log has its words (failed calling webhook).',
    );
  const took = `a pod in namespace ${tryIn} came back from Linger in ${span(tookSeconds)} (a dry run)`;
  if (!isString(plan)) return ok(`${took}, unchanged: skipped, or the mode is Audit or Off (line Policies)`);
  const containers = recordsAt(tried.answer, 'spec', 'containers');
  if (containers.some((each) => memberAt(each, ['lifecycle', 'preStop']) !== undefined))
    return ok(`${took}, with its hook`);
  return failure(
    `a pod in namespace ${tryIn} has Linger’s plan and no hook: a webhook or a policy of others takes it out`,
    'Look at the webhooks that are asked after Linger, and have them leave lifecycle alone.',
  );
}

function judgeRefusal(refused: string, own: Json, { options }: Inquiry): Judgement {
  const { tryIn, configuration } = options;
  if (refused.includes(`failed calling webhook "${String(own.name)}"`))
    return failure(
      `pods are refused, since Linger cannot be reached: ${refused}`,
      `The lines above and below say what is wrong with the way. Until then: kubectl delete mutatingwebhookconfiguration ${configuration}.`,
    );
  const dryRun = /does not support dry run/.test(refused);
  return unknown(
    `a pod could not be tried in namespace ${tryIn}: ${refused}`,
    dryRun
      ? 'Create a real pod, and look for the annotation linger.dev/plan.'
      : '--namespace names one in which a pod can be tried.',
  );
}

/** How far the API server gets by its own proxy, which asks for no certificate. */
async function waySeen(inquiry: Inquiry): Promise<string> {
  const { namespace } = inquiry.options;
  try {
    await inquiry.text(`/api/v1/namespaces/${namespace}/services/https:linger:webhook/proxy/mutate`);
    return '';
  } catch (thrown) {
    const { reason, message } = asFailure(thrown);
    if (reason === 'Forbidden') return '';
    // Linger's own answer to whatever is no POST.
    if (message.startsWith('405'))
      return '; its Service can be reached, so the certificate or the caBundle is in doubt';
    return `; the way to its Service: ${oneLine(message)}`;
  }
}

/** The ports of the containers: their names, the flag of each, and where it listens without that flag. */
const LISTENING = [
  ['webhook', 'port', 8443],
  ['admin', 'admin-port', 8080],
  ['canary', 'canary-port', 8081],
  ['hold', 'hold-port', 8445],
] as const;

/** Connections to a Service end at its targetPort, whatever its own port is. */
async function ports(inquiry: Inquiry): Promise<Seen> {
  const { namespace } = inquiry.options;
  const declared = await deployment(inquiry);
  if (declared === undefined) return [];
  const flag = flagsOf(declared);
  const listens = new Map<string, number>(
    LISTENING.map(([name, of, usual]) => [name, Number(flag(of) ?? usual)]),
  );
  const containers = recordsAt(declared, 'spec', 'template', 'spec', 'containers');
  const named = new Map(
    containers.flatMap((each) => recordsAt(each, 'ports')).map((each) => [each.name, each.containerPort]),
  );
  const labels = memberAt(declared, ['spec', 'template', 'metadata', 'labels']);
  const services = await inquiry.items(`/api/v1/namespaces/${namespace}/services`);
  const own = services.filter(({ spec }) => {
    const selector = memberAt(spec, ['selector']);
    return isRecord(selector) && isRecord(labels) && Object.keys(selector).some((key) => key in labels);
  });
  const wrong = own.flatMap(({ metadata: { name }, spec }) =>
    recordsAt(spec, 'ports').flatMap(({ port, targetPort = port }) => {
      const at = isString(targetPort) ? named.get(targetPort) : targetPort;
      const what = `Service ${namespace}/${name}, port ${String(port)}`;
      const judge = name === 'linger' ? failure : warning;
      if (at === undefined)
        return judge(
          `${what} leads to ${String(targetPort)}, a port that no container of the Deployment has`,
          APPLY,
        );
      if ([...listens.values()].some((each) => each === at)) return [];
      const usual = [...listens].map(([each, number]) => `${each} ${number}`).join(', ');
      return judge(
        `${what} leads to ${String(at)}, where no replica listens (by its flags: ${usual})`,
        APPLY,
      );
    }),
  );
  if (wrong.length > 0) return wrong;
  return ok(`${count(own.length, 'Service')} of Linger, each to a port where replicas listen`);
}

/** Whether helpers get out of the namespaces that want Hold: NetworkPolicies see the port of the replicas. */
async function helperEgress(inquiry: Inquiry, inForce: InForce | undefined): Promise<readonly Judgement[]> {
  const { namespace } = inquiry.options;
  const wanting = new Set(inForce?.wantingHold.map((each) => each.namespace));
  const port = await portOf(inquiry, 'hold-port', LISTENING[3][2]);
  if (wanting.size === 0 || port === 0) return [];
  const labels = await namespaceLabels(inquiry, namespace);
  const all = await inquiry.items('/apis/networking.k8s.io/v1/networkpolicies');
  const restricting = all.filter(({ metadata, spec }) => {
    const isEgress = listOf(memberAt(spec, ['policyTypes'])).includes('Egress');
    return isEgress && wanting.has(metadata.namespace ?? '');
  });
  const selectorOf = (spec: unknown) => JSON.stringify(memberAt(spec, ['podSelector']) ?? {});
  const opens = ({ metadata, spec }: (typeof all)[number]) =>
    recordsAt(spec, 'egress').some((rule) => {
      const [open, to] = [listOf(rule.ports), recordsAt(rule, 'to')];
      if (open.length > 0 && !open.some((each) => reaches(each, [port, 'hold']))) return false;
      return (
        to.length === 0 || to.some((peer) => mayBeLinger(peer, metadata.namespace === namespace, labels))
      );
    });
  // What one policy forbids another may allow to the same pods, or to all.
  const shut = restricting.filter(
    (policy) =>
      !restricting.some(
        (other) =>
          other.metadata.namespace === policy.metadata.namespace &&
          ['{}', selectorOf(policy.spec)].includes(selectorOf(other.spec)) &&
          opens(other),
      ),
  );
  const names = shut.map(({ metadata }) => `${metadata.namespace}/${metadata.name}`);
  if (names.length === 0) return [];
  const text = `NetworkPolicy ${fewOf(names)}: its pods may not call port ${port} of namespace ${namespace}, so hooks (Hold) reach nobody and wait as long as Sleep would`;
  const cure = `Open egress to port ${port}, TCP, of the pods app.kubernetes.io/name: linger in namespace ${namespace}.`;
  return [warning(text, cure)];
}

/** Whether the peer of a rule may be a replica. Addresses are not compared. */
function mayBeLinger(peer: Json, isOwn: boolean, labels: Labels): boolean {
  const { ipBlock, namespaceSelector, podSelector } = peer;
  if (ipBlock !== undefined) return true;
  const inNamespace = isRecord(namespaceSelector)
    ? selects(namespaceSelector as LabelSelector, labels)
    : isOwn;
  return inNamespace && (!isRecord(podSelector) || selects(podSelector as LabelSelector, OWN_LABELS));
}

async function networkPolicies(inquiry: Inquiry): Promise<Seen> {
  const { namespace } = inquiry.options;
  const all = await inquiry.items(`/apis/networking.k8s.io/v1/namespaces/${namespace}/networkpolicies`);
  const ours = all.filter((policy) => {
    const selector = memberAt(policy, ['spec', 'podSelector']);
    return !isRecord(selector) || selects(selector as LabelSelector, OWN_LABELS);
  });
  if (ours.length === 0) return ok('none selects the replicas: everybody may call their ports');
  const names = ours.map(({ metadata }) => metadata.name).join(', ');
  const restricts = (type: string) =>
    ours.some((policy) => listOf(memberAt(policy, ['spec', 'policyTypes'])).includes(type));
  const opening = (direction: 'ingress' | 'egress', ...wanted: readonly (number | string)[]) =>
    ours
      .flatMap((policy) => recordsAt(policy, 'spec', direction))
      .filter(({ ports }) => {
        const all = listOf(ports);
        return all.length === 0 || all.some((port) => reaches(port, wanted));
      });
  const port = await portOf(inquiry, 'port', LISTENING[0][2]);
  const inward = opening('ingress', port, 'webhook');
  const others = await Promise.all(
    LISTENING.filter(([name]) => name !== 'webhook' && name !== 'canary').map(async ([name, flag, usual]) => {
      const at = await portOf(inquiry, flag, usual);
      return at === 0 || opening('ingress', at, name).length > 0 ? undefined : ([name, at] as const);
    }),
  );
  const served = await apiServerPorts(inquiry);
  const wrong = [
    restricts('Ingress') &&
      inward.length === 0 &&
      failure(
        `${names}: nothing may call port ${port}, so no API server can`,
        'See deploy/networkpolicy.yaml.',
      ),
    restricts('Ingress') &&
      inward.length > 0 &&
      inward.every((rule) => listOf(rule.from).length > 0) &&
      ok(
        `${names}: port ${port} is open to some only. API servers have no labels: the addresses of all of them must be among these (the line Answer speaks of one)`,
      ),
    ...(restricts('Ingress') && inward.length > 0
      ? others.flatMap((each) =>
          each === undefined
            ? []
            : warning(
                `${names}: nothing may call port ${each[1]} (${each[0]}): ${SHUT_OUT[each[0]]}`,
                'See deploy/networkpolicy.yaml.',
              ),
        )
      : []),
    restricts('Egress') &&
      opening('egress', ...served).length === 0 &&
      failure(
        `${names}: replicas may not call port ${served.join(' or ')}, where API servers are`,
        'Open it in egress: deploy/networkpolicy.yaml.',
      ),
  ].filter((each) => each !== false);
  return wrong.length > 0 ? wrong : ok(`${names}: API servers may call in, and be called`);
}

const SHUT_OUT: Readonly<Record<string, string>> = {
  admin: 'kubelets cannot probe the replicas, and nothing can scrape their metrics',
  hold: 'hooks (Hold) reach nobody and wait as long as Sleep would',
};

/** Where connections to the Service kubernetes end: NetworkPolicies see that port, and not the Service's. */
async function apiServerPorts(inquiry: Inquiry): Promise<readonly number[]> {
  const slices = await endpointSlices(inquiry, 'default', 'kubernetes').catch(() => []);
  const ports = slices.flatMap((slice) => recordsAt(slice, 'ports')).map(({ port }) => Number(port));
  return ports.length > 0 ? [...new Set(ports)] : [443, 6443];
}

/** Whether a port of a NetworkPolicy (a number, a range, a name, or all of a protocol) is one of these. */
function reaches(port: unknown, wanted: readonly (number | string)[]): boolean {
  if (!isRecord(port) || (port.protocol ?? 'TCP') !== 'TCP') return false;
  const { port: first, endPort: last = first } = port;
  if (typeof first !== 'number') return first === undefined || wanted.some((each) => each === first);
  return wanted.some((each) => Number(each) >= first && Number(each) <= Number(last));
}

/** The metrics of a replica, by way of the API server. */
export function metricsPath(namespace: string, pod: string, port: number): string {
  return `/api/v1/namespaces/${namespace}/pods/${pod}:${port}/proxy/metrics`;
}

/** Where replicas serve their metrics. */
export function adminPort(inquiry: Inquiry): Promise<number> {
  return portOf(inquiry, 'admin-port', LISTENING[1][2]);
}

async function portOf(inquiry: Inquiry, flag: string, usual: number): Promise<number> {
  return Number(flagsOf(await deployment(inquiry))(flag) ?? usual);
}

/** A leader renews every two seconds; the rest is what clocks differ by. */
const LEASE_SECONDS = 60;
/** More than synchronised clocks differ by. */
const AHEAD_SECONDS = 10;

/** Who holds the lease, and for how many seconds it has not been renewed (NaN: it does not say); undefined: nobody. */
export async function leaseOf(inquiry: Inquiry) {
  const { namespace, now } = inquiry.options;
  const lease = await inquiry.find(`/apis/coordination.k8s.io/v1/namespaces/${namespace}/leases/linger`);
  const name = memberAt(lease, ['spec', 'holderIdentity']);
  if (!isString(name) || name === '') return undefined;
  const renewedSeconds = now - Date.parse(String(memberAt(lease, ['spec', 'renewTime']))) / 1000;
  return { name, renewedSeconds };
}

async function leader(inquiry: Inquiry): Promise<Seen> {
  const cure =
    'Usual for half a minute after a start; else the log of the replicas says why, and deploy/role-publish.yaml which rights it takes.';
  const lease = await leaseOf(inquiry);
  if (lease === undefined) return warning('no replica leads: nothing that is measured is published', cure);
  const { name: holder, renewedSeconds: age } = lease;
  const renewed = Number.isNaN(age)
    ? 'which does not say when it was renewed'
    : `renewed ${span(Math.max(0, age))} ago by its clock`;
  if (age < -AHEAD_SECONDS)
    return warning(
      `${holder} leads, and its clock is ${span(-age)} ahead of this machine’s: holds and the ages of Leases are off by that`,
      'Check NTP on its node, and on this machine.',
    );
  if (!(age < LEASE_SECONDS)) return warning(`the Lease is ${holder}’s, ${renewed}`, cure);
  // A pod's name, and what tells it from itself after a restart.
  const known = (await replicaPods(inquiry)).some(({ name }) => holder.startsWith(`${name}_`));
  if (!known)
    return warning(
      `${holder} leads, ${renewed}, and is no pod of this installation`,
      'A process outside of it follows this cluster and publishes waits: end it, or give it another --namespace. After a pod was deleted by force, wait a minute.',
    );
  return ok(`${holder}, ${renewed}`);
}

const WATCH = 'linger_watch_current';
const SYNCED = 'linger_cluster_synced';
const FLIPS = 'linger_canary_flips_total';
const WANTED = new Set([WATCH, SYNCED, FLIPS]);

/** Looks at the metrics of each ready replica, by its name. That takes the right to get pods/proxy. */
function byMetrics(judge: (said: ReadonlyMap<string, Exposition>) => Seen) {
  return async (inquiry: Inquiry): Promise<Seen> => {
    const { namespace } = inquiry.options;
    const said = new Map<string, Exposition>();
    const port = await adminPort(inquiry);
    try {
      for (const { name, ready } of await replicaPods(inquiry)) {
        const path = metricsPath(namespace, name, port);
        if (ready) said.set(name, parseExposition(await inquiry.text(path), WANTED));
      }
    } catch (thrown) {
      if (!(thrown instanceof KubeFailure) && !(thrown instanceof MalformedExposition)) throw thrown;
      const denied = thrown instanceof KubeFailure && thrown.reason === 'Forbidden';
      return unknown(
        `the metrics of a replica cannot be read by way of the API server: ${oneLine(thrown.message)}`,
        denied
          ? `It takes the right to get pods/proxy in namespace ${namespace}.`
          : `Port ${port} must be open to API servers (deploy/networkpolicy.yaml), or ask your Prometheus.`,
      );
    }
    if (said.size === 0) return unknown('no replica is ready, so none can be asked for its metrics');
    return judge(said);
  };
}

const watches = byMetrics((said) => {
  const behind = [...said].flatMap(([name, metrics]) => {
    const idle = (metrics.get(WATCH) ?? []).filter(({ value }) => value !== 1);
    const resources = idle.map(({ labels }) => labels.get('resource') ?? '');
    const unread = (metrics.get(SYNCED) ?? []).some(({ value }) => value !== 1);
    if (metrics.get(SYNCED) === undefined) return [`${name} follows no cluster`];
    if (resources.length === 0 && !unread) return [];
    const lacking = resources.length > 0 ? ` lacks ${resources.join(', ')}` : '';
    return [`${name}${unread ? ' has not read the cluster yet' : ''}${lacking}`];
  });
  if (behind.length === 0) return ok(`current on ${count(said.size, 'replica')}`);
  const cure =
    'For some seconds after a start this is usual; else linger_watch_restarts_total and the log say why.';
  return warning(behind.join('; '), cure);
});

const canary = byMetrics((said) => {
  const flips = new Map<string, number>();
  for (const metrics of said.values())
    for (const { labels, value } of metrics.get(FLIPS) ?? []) {
      const result = labels.get('result') ?? '';
      flips.set(result, (flips.get(result) ?? 0) + value);
    }
  const results = [...flips].filter(([, times]) => times > 0).toSorted(([, a], [, b]) => b - a);
  const text = results.map(([result, times]) => `${times} ${result}`).join(', ');
  if (results.length === 0) return ok('no flip has ended yet, or it is off (--canary-every=0)');
  if ((flips.get('Measured') ?? 0) > 0) return ok(`flips: ${text}`);
  const cure = 'docs/reference.md, “How a flip ends”, says what to do about each.';
  return warning(`no flip has measured anything: ${text}`, cure);
});

async function consumers(inquiry: Inquiry): Promise<Seen> {
  const { namespace } = inquiry.options;
  const map = `${namespace}/${SHARED_NAMES.consumers}`;
  const object = await inquiry.find(`/api/v1/namespaces/${namespace}/configmaps/${SHARED_NAMES.consumers}`);
  const shared = object === undefined ? undefined : readConsumers(object);
  if (shared === undefined || shared.outcome !== 'read') {
    const problem = shared?.outcome === 'refused' ? shared.problem : 'there is none yet';
    const text = `ConfigMap ${map}: ${problem}`;
    return warning(text, 'The leader writes it within a minute of a start; is there one?');
  }
  const views = shared.value.consumers;
  const bad = views.filter(({ condition }) => condition.status === 'False');
  if (bad.length === 0)
    return ok(views.map(({ name, condition }) => `${name} ${condition.reason}`).join(', '));
  return bad.map(({ name, condition }) =>
    warning(
      `${name}: ${condition.reason}: ${oneLine(condition.message)}`,
      'linger consumers shows all of them; docs/reference.md has each reason.',
    ),
  );
}

/** Lines or names of one trouble; more of them say no more. */
const MOST_SHOWN = 5;

/** @param inForce undefined: not known, which the next check says */
async function policies(inquiry: Inquiry, inForce: InForce | undefined): Promise<Seen> {
  let objects = 0;
  const { files, fileProblems = [], filesUnread, mode } = inForce ?? {};
  const broken: Judgement[] = filesUnread === undefined ? [] : [unseen(filesUnread)];
  for (const problem of fileProblems)
    broken.push(
      warning(`not in force: ${oneLine(problem)}`, 'Mend it; replicas keep what was valid before.'),
    );
  for (const { kind, path } of [CLUSTER_TERMINATION_POLICIES, TERMINATION_POLICIES])
    for (const { metadata, status } of (await unlessNotServed(inquiry.items(path))) ?? []) {
      objects += 1;
      const ready = recordsAt(status, 'conditions').find(({ type }) => type === 'Ready');
      if (ready?.status !== 'False') continue;
      const { namespace, name } = metadata;
      const who = `${kind} ${namespace === undefined ? '' : `${namespace}/`}${name}`;
      const why = `${String(ready.reason)}: ${oneLine(String(ready.message))}`;
      const cure = 'docs/reference.md, “Status of a policy”, has each reason.';
      broken.push(warning(`${who} is not in force: ${why}`, cure));
    }
  const limit = flagsOf(await deployment(inquiry))('mode-limit') ?? 'Enforce';
  const where = mode && `; mode of pods in ${inquiry.options.tryIn}: ${mode.value} (${mode.origin})`;
  const said = `policies: ${files ?? '?'} of files, ${objects} of the cluster, none broken${where ?? ''}`;
  if (broken.length === 0) return ok(limit === 'Enforce' ? said : `${said}, --mode-limit=${limit}`);
  if (broken.length <= MOST_SHOWN) return broken;
  const more = warning(
    `and ${broken.length - MOST_SHOWN} more`,
    'kubectl get ctp,tp --all-namespaces; of files, linger check FILE.',
  );
  return [...broken.slice(0, MOST_SHOWN), more];
}

/** Kubernetes is made for no more. */
const MOST_NAMESPACES = 10_000;

async function holdHelper(
  inquiry: Inquiry,
  { wantingHold, holdDigest, policiesUnread }: InForce,
): Promise<Seen> {
  if (wantingHold.length === 0 && policiesUnread !== undefined)
    return unknown(`whether a policy asks for hook Hold is not known: ${oneLine(policiesUnread)}`);
  if (wantingHold.length === 0) return ok('no policy asks for hook Hold');
  const wanted = wantingHold.map(({ namespace }) => namespace);
  const { namespace } = inquiry.options;
  const flag = flagsOf(await deployment(inquiry));
  const service = `/api/v1/namespaces/${namespace}/services/${HOLD_SERVICE}`;
  const off = isZero(flag('hold-port')) && 'Hold is off (--hold-port=0)';
  const unled = flag('hold-address') === undefined && (await inquiry.find(service)) === undefined;
  const why = off || (unled && `there is no Service ${namespace}/${HOLD_SERVICE}`);
  if (why !== false)
    return warning(
      `${why}: pods that ask for it get Sleep, in ${fewOf(wanted)}`,
      'hold.enabled=true in the chart; else take --hold-port=0 away, and apply deploy/service-hold.yaml.',
    );
  const name = holdDigest === undefined ? readHelperObject().name : holdConfigMap(holdDigest);
  // By their metadata: each has 60 kB of helpers.
  const helpers = {
    path: '/api/v1/configmaps',
    query: { fieldSelector: `metadata.name=${name}` },
    metadataOnly: true,
    project: ({ metadata }: RawObject) => metadata,
  };
  const found = await inquiry.list(helpers, MOST_NAMESPACES);
  const present = new Set(found.map((each) => each.namespace));
  const missing = wanted.filter((each) => !present.has(each));
  const ending = found.filter(({ deletionTimestamp }) => deletionTimestamp !== undefined);
  const others = Map.groupBy(
    wantingHold.filter(({ namespace: each, why: other }) => other !== undefined && present.has(each)),
    ({ why: other }) => other,
  );
  const judged = [
    missing.length > 0 &&
      warning(
        `ConfigMap ${name} is missing in ${count(missing.length, 'namespace')} (${fewOf(missing)}): new pods there get Sleep, and those that mount it lose their hook when their kubelet restarts`,
        'The leader brings it, with the rights of deploy/rbac-hold.yaml; or: linger hold manifest -n NAMESPACE | kubectl apply -f -',
      ),
    ending.length > 0 &&
      warning(
        `ConfigMap ${name} is being deleted in ${fewOf(ending.map((each) => each.namespace ?? ''))}: once it is gone, pods that mount it lose their hook when their kubelet restarts`,
        'Let it go by removing its finalizers, and the leader brings it again; or: linger hold manifest -n NAMESPACE | kubectl apply -f -',
      ),
    ...[...others]
      .slice(0, MOST_SHOWN)
      .map(([other, places]) =>
        warning(
          `pods get Sleep instead of Hold in ${fewOf(places.map((each) => each.namespace))}: ${other}`,
          `linger explain pod/NAME says it of one pod. Where a trial failed, the annotation linger.dev/hold-tried of ConfigMap ${namespace}/${name} says why.`,
        ),
      ),
  ].filter((each) => each !== false);
  return judged.length > 0 ? judged : ok(`ConfigMap ${name} is in ${count(wanted.length, 'namespace')}`);
}
