import {
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
  UserError,
} from '../api/index.ts';
import {
  asFailure,
  type FailureReason,
  type KubeConnection,
  KubeFailure,
  type RawObject,
} from '../cluster/index.ts';
import { atLeast, fleetOf, parseVersion, supportsNativeSleep } from '../decision/index.ts';
import { nodesResource } from '../informers/index.ts';
import { count } from './amounts.ts';
import { ApiReader, type Json, messageOf, oneLine } from './controller-observation.ts';
import installed from './installed.json' with { type: 'json' };

/** What is checked before and after installation, in the order of the report. */
export const CHECKS = {
  ApiServer: 'The API server answers, and is new enough.',
  Rights: 'You may create and change what an installation consists of.',
  Kubelets: 'Every kubelet knows the native sleep hook.',
  Admission: 'A pod with a hook, as Linger’s own are, is admitted and keeps it.',
  CustomResources: 'The API server serves the kinds of linger.dev.',
  Webhook: 'The webhook configuration leads to Linger, and leaves out its own pods.',
  Certificate: 'The caBundle fits the serving certificate, and that is valid.',
  Replicas: 'All replicas are ready, on more than one node.',
  Ports: 'Each Service of Linger leads to a port that its containers listen on.',
  Answer: 'A pod that is created reaches Linger, and its answer reaches the pod.',
  OtherWebhooks: 'No webhook of others keeps the replicas from starting.',
  NetworkPolicy: 'NetworkPolicies let API servers and helpers in, and Linger out to API servers.',
  Leader: 'One of the replicas leads.',
  Watches: 'Each replica follows the cluster.',
  Canary: 'The canary measures.',
  Consumers: 'The lag of every consumer is known.',
  Policies: 'Every policy is in force.',
  HoldHelper: 'The helper is where policies ask for hook Hold.',
} as const satisfies Record<string, string>;

export type CheckCode = keyof typeof CHECKS;

/** `unknown`: it could not be checked. */
export type CheckState = 'ok' | 'warning' | 'failure' | 'unknown';

export interface Judgement {
  readonly state: CheckState;
  /** What was seen. */
  readonly text: string;
  /** What to do. */
  readonly cure?: string | undefined;
}

export interface Check extends Judgement {
  readonly code: CheckCode;
}

export const ok = (text: string): Judgement => ({ state: 'ok', text });
export const warning = (text: string, cure: string): Judgement => ({ state: 'warning', text, cure });
export const failure = (text: string, cure: string): Judgement => ({ state: 'failure', text, cure });
export const unknown = (text: string, cure?: string): Judgement => ({ state: 'unknown', text, cure });

export interface CheckOptions {
  readonly connection: KubeConnection;
  /** Linger's own namespace, or the one that it will be installed in. */
  readonly namespace: string;
  /** The name of its webhook configuration. */
  readonly configuration: string;
  /** The namespace for the dry-run pod. */
  readonly tryIn: string;
  /** Seconds since the epoch. */
  readonly now: number;
}

/** An object of a list; what lies deeper than its metadata is not validated. */
type Listed = RawObject & Json;

/** A check's requests to the cluster; equal requests to read are sent once. Every method throws KubeFailure. */
export class Inquiry extends ApiReader {
  readonly options: CheckOptions;
  readonly #texts = new Map<string, Promise<string>>();
  readonly #lists = new Map<string, Promise<readonly Listed[]>>();

  constructor(options: CheckOptions) {
    super(options.connection);
    this.options = options;
  }

  override text(path: string): Promise<string> {
    const known = this.#texts.get(path) ?? super.text(path);
    this.#texts.set(path, known);
    return known;
  }

  /** @returns undefined if there is no such object */
  find(path: string): Promise<Json | undefined> {
    return unlessNotServed(this.json(path));
  }

  items(path: string, labelSelector?: string): Promise<readonly Listed[]> {
    const query = labelSelector === undefined ? {} : { labelSelector };
    const key = `${path} ${labelSelector}`;
    const known = this.#lists.get(key) ?? this.list({ path, query, project: (raw) => raw as Listed });
    this.#lists.set(key, known);
    return known;
  }

  /** Creates a pod without storing it: admission and validation run as for any other. */
  tryPod(namespace: string, pod: object) {
    return this.pose(`/api/v1/namespaces/${namespace}/pods?dryRun=All`, pod);
  }
}

/** @returns undefined if there is no such object, or none of its kind */
export async function unlessNotServed<T>(answer: Promise<T>): Promise<T | undefined> {
  try {
    return await answer;
  } catch (thrown) {
    if (asFailure(thrown).reason === 'NotServed') return undefined;
    throw thrown;
  }
}

/** The result of a check: a judgement for each line of the report. */
export type Seen = Judgement | readonly Judgement[];
type LookAt = (inquiry: Inquiry) => Promise<Seen>;

/** Does work with an inquiry of its own. */
export async function inquire<T>(options: CheckOptions, work: (inquiry: Inquiry) => Promise<T>): Promise<T> {
  const inquiry = new Inquiry(options);
  try {
    return await work(inquiry);
  } finally {
    inquiry.close();
  }
}

/** Runs the checks one after the other; one that cannot be done becomes a line that says so. */
export async function checked(
  inquiry: Inquiry,
  looks: Partial<Readonly<Record<CheckCode, LookAt>>>,
): Promise<readonly Check[]> {
  const checks: Check[] = [];
  for (const code of CHECK_CODES) {
    const seen = (await looks[code]?.(inquiry).catch(unseen)) ?? [];
    const judgements = [seen].flat();
    checks.push(...judgements.map((judgement) => ({ code, ...judgement })));
    if (code === 'ApiServer' && judgements.some(({ state }) => state === 'failure')) break;
  }
  return checks;
}

const CHECK_CODES = Object.keys(CHECKS) as readonly CheckCode[];

export function unseen(thrown: unknown): Judgement {
  if (!(thrown instanceof KubeFailure) && !(thrown instanceof UserError)) throw thrown;
  const text = `could not be looked at: ${messageOf(thrown)}`;
  const denied = thrown instanceof KubeFailure && thrown.reason === 'Forbidden';
  return unknown(text, denied ? 'Ask with an account that has this right.' : undefined);
}

/** What can be known before Linger is installed. */
export function checkBefore(inquiry: Inquiry): Promise<readonly Check[]> {
  return checked(inquiry, {
    ApiServer: apiServer,
    Rights: rights,
    Kubelets: kubelets,
    Admission: admission,
    Webhook: otherInstallation,
    OtherWebhooks: otherWebhooks,
  });
}

/**
 * matchConditions are on by default from 1.28, the rules of CRDs (x-kubernetes-validations) from 1.25. Source: KEP-3716,
 * KEP-2876.
 */
const MATCH_CONDITIONS = { major: 1, minor: 28 };
const CRD_RULES = { major: 1, minor: 25 };

export async function apiServer(inquiry: Inquiry): Promise<Seen> {
  const { connection } = inquiry.options;
  let text: string;
  try {
    text = String((await inquiry.json('/version')).gitVersion);
  } catch (thrown) {
    const { reason, message } = asFailure(thrown);
    if (reason === 'Forbidden') throw thrown;
    const cure = 'Is it the right kubeconfig, and is there a way to that address?';
    return failure(`${connection.server.href}: ${oneLine(message)}`, cure);
  }
  const seen = `${connection.server.href} is ${text}`;
  const version = parseVersion(text);
  if (version === undefined || atLeast(version, MATCH_CONDITIONS)) return ok(seen);
  const dropped = atLeast(version, CRD_RULES) ? 'matchConditions' : 'matchConditions and the rules of CRDs';
  return warning(
    `${seen}, which drops ${dropped}: Linger is also asked about pods that it then skips`,
    'Keep failurePolicy: Ignore; policies are checked by `linger check PATH` before they are applied.',
  );
}

/** What an installation does with each of its objects: server-side apply. */
const INSTALLING = ['get', 'create', 'patch'] as const;

/** What it takes to apply deploy/. */
export function accessesToInstall(namespace: string): readonly Access[] {
  return installed.objects.flatMap((object) => {
    const [, resource = '', group = '', namespaced] = /^(\w+)\.?(\S*)( namespaced)?$/.exec(object) ?? [];
    const place = namespaced === undefined ? {} : { namespace };
    return INSTALLING.map((verb) => ({ group, resource, verb, ...place }));
  });
}

async function rights(inquiry: Inquiry): Promise<Seen> {
  const { namespace } = inquiry.options;
  const asked = accessesToInstall(namespace);
  const missing = await missingOf(inquiry, asked);
  if (missing.length > 0)
    return failure(
      `an installation needs what you may not do: ${missing.join(', ')}`,
      'Install with cluster-admin, or have these rights given to you.',
    );
  const granted = ok(`you may do all ${asked.length} things that an installation takes`);
  // RBAC refuses to grant rights that the granter lacks. Source: k8s.io/kubernetes pkg/registry/rbac (escalation check).
  const escalate = { group: 'rbac.authorization.k8s.io', resource: 'clusterroles', verb: 'escalate' };
  if ((await mayDo(inquiry, escalate)) || (await mayDo(inquiry, { group: '*', resource: '*', verb: '*' })))
    return granted;
  return [
    granted,
    warning(
      'you may not escalate: the API server takes only Roles that give away no more than you have',
      'Have the rights of deploy/rbac*.yaml and deploy/role-*.yaml yourself, or install with cluster-admin.',
    ),
  ];
}

export interface Access {
  readonly group: string;
  /** With its subresource, if any: `pods/status`. */
  readonly resource: string;
  readonly name?: string;
  readonly verb: string;
  readonly namespace?: string;
}

/** @returns the names of the rights that are missing */
export async function missingOf(
  inquiry: Inquiry,
  asked: readonly Access[],
  account?: Account,
): Promise<readonly string[]> {
  const may = await Promise.all(asked.map((access) => mayDo(inquiry, access, account)));
  return asked
    .filter((_, index) => !may[index])
    .map(({ verb, group, resource, name }) =>
      [verb, `${resource}${group === '' ? '' : `.${group}`}`, name ?? []].flat().join(' '),
    );
}

/** The ServiceAccount in question; absent: the current user. */
type Account = { readonly namespace: string; readonly name: string } | undefined;

async function mayDo(inquiry: Inquiry, access: Access, account?: Account): Promise<boolean> {
  const [resource, subresource] = access.resource.split('/');
  const resourceAttributes = { ...access, resource, subresource };
  const kind = account === undefined ? 'SelfSubjectAccessReview' : 'SubjectAccessReview';
  const everyone = ['system:authenticated', 'system:serviceaccounts'];
  const { answer } = await inquiry.pose(`/apis/authorization.k8s.io/v1/${kind.toLowerCase()}s`, {
    apiVersion: 'authorization.k8s.io/v1',
    kind,
    spec: {
      resourceAttributes,
      ...(account !== undefined && {
        user: `system:serviceaccount:${account.namespace}:${account.name}`,
        groups: [...everyone, `system:serviceaccounts:${account.namespace}`],
      }),
    },
  });
  return memberAt(answer, ['status', 'allowed']) === true;
}

/** More nodes than Kubernetes supports. */
const MOST_NODES = 20_000;
/** How many names of nodes are shown. */
const EXAMPLES = 3;

export async function kubelets(inquiry: Inquiry): Promise<Seen> {
  const nodes = await inquiry.list(nodesResource(), MOST_NODES);
  const real = nodes.filter(({ virtual }) => !virtual);
  const sleepless = real.filter((node) => !supportsNativeSleep(fleetOf('', [node])));
  const versions = [...new Set(real.map(({ kubeletVersion }) => kubeletVersion))].toSorted();
  const text = `${count(real.length, 'node')} with kubelet ${versions.join(', ')}`;
  if (real.length === 0) return warning('there is no node to run on', 'Add one: replicas cannot start.');
  if (sleepless.length === 0) return ok(text);
  const examples = sleepless.slice(0, EXAMPLES).map(({ name }) => name);
  return warning(
    `${text}: ${count(sleepless.length, 'node')} older than 1.30 (${examples.join(', ')}) would ignore the native sleep`,
    'Once Linger has seen them for 10 minutes, hook: Auto means Exec, which needs a `sleep` in every image, until they are gone. Upgrade these nodes.',
  );
}

/** Linger's own webhook, if there is a configuration with one. */
export async function ownWebhook(inquiry: Inquiry): Promise<Json | undefined> {
  const { configuration } = inquiry.options;
  const object = await inquiry.find(`${CONFIGURATIONS}/mutatingwebhookconfigurations/${configuration}`);
  return recordsAt(object, 'webhooks')[0];
}

/** The names of what the whole cluster has do not follow the namespace: a second Linger takes them from the first. */
async function otherInstallation(inquiry: Inquiry): Promise<Seen> {
  const { namespace, configuration } = inquiry.options;
  const own = await ownWebhook(inquiry);
  const place = memberAt(own, ['clientConfig', 'service', 'namespace']);
  if (own === undefined) return ok(`there is no MutatingWebhookConfiguration ${configuration} yet`);
  if (place === namespace) return ok(`${configuration} leads to namespace ${namespace} already`);
  return failure(
    `${configuration} leads to ${isString(place) ? `namespace ${place}` : 'no Service'}: an installation in namespace ${namespace} takes its webhook and its rights away`,
    'Upgrade that one (--linger-namespace), or remove it first.',
  );
}

const TRIED_GRACE = 90;

/** The start of the names of pods that are tried, which deploy/annotation-policy.yaml knows them by. */
export const TRIED_NAME = 'linger-check-';

/** Conforms to Pod Security's level restricted, with a hook and a grace as Linger sets them. */
export function triedPod(annotations: Labels, labels: Labels) {
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { generateName: TRIED_NAME, annotations, labels },
    spec: {
      automountServiceAccountToken: false,
      terminationGracePeriodSeconds: TRIED_GRACE,
      securityContext: { runAsNonRoot: true, runAsUser: 65532, seccompProfile: { type: 'RuntimeDefault' } },
      containers: [
        {
          name: 'app',
          image: 'registry.example/never-pulled',
          ports: [{ containerPort: 8080 }],
          resources: { requests: { cpu: '10m', memory: '16Mi' }, limits: { cpu: '100m', memory: '64Mi' } },
          securityContext: {
            allowPrivilegeEscalation: false,
            readOnlyRootFilesystem: true,
            capabilities: { drop: ['ALL'] },
          },
        },
      ],
    },
  };
}

/** Of deploy/deployment.yaml. */
const OWN_RESOURCES = { requests: { cpu: '50m', memory: '128Mi' }, limits: { memory: '512Mi' } };

/** The labels that exclude Linger's own pods. */
export const OWN_LABELS: Labels = { 'app.kubernetes.io/name': 'linger', 'linger.dev/inject': 'false' };

async function admission(inquiry: Inquiry): Promise<Seen> {
  const { namespace, tryIn } = inquiry.options;
  const own = await inquiry.find(`/api/v1/namespaces/${namespace}`);
  const places = own === undefined ? [tryIn] : new Set([namespace, tryIn]);
  const judged: Judgement[] = [];
  for (const where of places) judged.push(await admissionIn(where, own, inquiry));
  return judged;
}

/** In Linger's namespace, as of its own pods; in another, once there is that one, as of those that it changes. */
async function admissionIn(where: string, own: Json | undefined, inquiry: Inquiry): Promise<Judgement> {
  const { namespace } = inquiry.options;
  const like =
    own === undefined || where === namespace ? 'a pod like Linger’s own' : 'a pod with a hook of Linger’s';
  const { spec, ...pod } = triedPod({}, OWN_LABELS);
  const [container] = spec.containers;
  // What other namespaces have of quotas and limits says nothing about Linger's.
  const resources = where === namespace ? OWN_RESOURCES : container?.resources;
  const hooked = { ...container, resources, lifecycle: { preStop: { sleep: { seconds: 5 } } } };
  const place = `namespace ${where}${own === undefined ? ` (there is no ${namespace} yet)` : ''}`;
  const tried = await inquiry
    .tryPod(where, { ...pod, spec: { ...spec, containers: [hooked] } })
    .catch(refusalOf);
  if ('refused' in tried) {
    // Source: k8s.io/kubernetes pkg/apis/core/validation (validateHandler): the field was dropped, and nothing is left.
    if (tried.refused.includes('handler type'))
      return warning(
        'the API server drops the native sleep: it is older than 1.30, or its gate PodLifecycleSleepAction is off',
        'Set hook: Exec in a ClusterTerminationPolicy, and have a `sleep` in every image.',
      );
    if (own !== undefined && where !== namespace)
      return warning(
        `${like} is refused in ${place}: ${tried.refused}`,
        'So would be those of applications there, unless it is for another reason: linger audit --server-dry-run tries each.',
      );
    return failure(
      `${like} is refused in ${place}: ${tried.refused}`,
      'Replicas would be refused, too: make that policy, quota or webhook leave out Linger’s namespace, or give the replicas what it asks for (resources of the Deployment, and of the chart).',
    );
  }
  const [first] = recordsAt(tried.answer, 'spec', 'containers');
  const seconds = memberAt(first, ['lifecycle', 'preStop', 'sleep', 'seconds']);
  const grace = memberAt(tried.answer, ['spec', 'terminationGracePeriodSeconds']);
  const enforced =
    where === namespace && memberAt(own, ['metadata', 'labels', 'pod-security.kubernetes.io/enforce']);
  const level = isString(enforced) ? `, which enforces Pod Security ${enforced}` : '';
  const undone = [
    seconds !== 5 && 'its hook is gone',
    grace !== TRIED_GRACE && `its grace of ${TRIED_GRACE} s has become ${String(grace)} s`,
  ].filter((each) => each !== false);
  if (undone.length === 0) return ok(`${like} is admitted in ${place}${level}, and keeps hook and grace`);
  return warning(
    `of a pod in ${place} ${undone.join(', and ')}: a webhook or a policy of others changes it`,
    'Find it among the webhooks below and the MutatingAdmissionPolicies, and have it leave hooks and graces alone.',
  );
}

/** The refusal of admission or validation; any other failure is thrown. @throws KubeFailure */
export function refusalOf(thrown: unknown): { readonly refused: string } {
  const failure = asFailure(thrown);
  // Quotas and Pod Security answer 403 as well. Source: k8s.io/apiserver endpoints/handlers/responsewriters
  // (ForbiddenMessage).
  const answered = failure.reason === 'Forbidden' && !/ cannot \w+ resource /.test(failure.message);
  if (!answered && !ANSWERED.has(failure.reason)) throw failure;
  return { refused: oneLine(failure.message) };
}

const ANSWERED: ReadonlySet<FailureReason> = new Set(['Refused', 'ServerError', 'Conflict']);

const CONFIGURATIONS = '/apis/admissionregistration.k8s.io/v1';

/** A webhook that is called when a pod is created. */
interface PodWebhook {
  readonly configuration: string;
  readonly webhook: Json;
  /** For people. */
  readonly who: string;
}

async function podWebhooks(
  inquiry: Inquiry,
  kind: 'MutatingWebhookConfiguration' | 'ValidatingWebhookConfiguration',
): Promise<readonly PodWebhook[]> {
  const objects = await inquiry.items(`${CONFIGURATIONS}/${kind.toLowerCase()}s`);
  return objects.flatMap(({ metadata: { name: configuration }, webhooks }) =>
    recordsAt(webhooks)
      .filter(isAskedAboutPods)
      .map((webhook) => ({ configuration, webhook, who: `${webhook.name} of ${kind} ${configuration}` })),
  );
}

/** Whether its rules include the creation of pods. */
export function isAskedAboutPods({ rules }: Json): boolean {
  const has = (list: unknown, ...words: string[]) => words.some((word) => listOf(list).includes(word));
  return recordsAt(rules).some(
    ({ apiGroups, resources, operations, scope }) =>
      has(apiGroups, '', '*') &&
      has(resources, 'pods', '*', '*/*') &&
      has(operations, 'CREATE', '*') &&
      scope !== 'Cluster',
  );
}

/** The labels of a namespace; if it does not exist yet, those that deploy/ gives to Linger's. */
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
  // Those of one kind are asked in the order of their configurations' names. Source: k8s.io/apiserver
  // pkg/admission/configuration (mutatingWebhookConfigurationManager).
  const after = new Set(mutating.map((each) => each.configuration).filter((name) => name > configuration));
  if (after.size > 0) {
    const text = `asked about pods after Linger: ${[...after].join(', ')}. When one of them changes a pod, Linger is asked once more; what they change cannot be known from here`;
    judgements.push(ok(text));
  }
  if (judgements.length > 0) return judgements;
  if (others.length === 0) return ok('none of others is asked about pods');
  return ok(`${count(others.length, 'webhook')} of others, none of which can keep Linger’s pods out`);
}

async function judgeBlocking({ webhook, who }: PodWebhook, inquiry: Inquiry): Promise<Judgement> {
  const { namespace } = inquiry.options;
  const conditional = listOf(webhook.matchConditions).length > 0;
  const unless = conditional ? ', unless its matchConditions say otherwise' : '';
  const asked = `${who} fails closed and is asked about pods of namespace ${namespace}${unless}`;
  const cure = `Have its namespaceSelector leave out namespace ${namespace}.`;
  const service = memberAt(webhook, ['clientConfig', 'service']);
  if (isRecord(service)) {
    const [place, name] = [String(service.namespace), String(service.name)];
    if (!(await hasReadyEndpoint(inquiry, place, name)))
      return failure(
        `${asked}, and its Service ${place}/${name} has no ready endpoint: no replica can start`,
        `${cure} Or mend what is behind ${place}/${name}.`,
      );
  }
  return warning(`${asked}: while it is away, no replica can start`, cure);
}

export function endpointSlices(inquiry: Inquiry, namespace: string, name: string) {
  const path = `/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices`;
  return inquiry.items(path, `kubernetes.io/service-name=${name}`);
}

/** Whether a Service has an endpoint that is ready. */
export async function hasReadyEndpoint(inquiry: Inquiry, namespace: string, name: string): Promise<boolean> {
  const slices = await endpointSlices(inquiry, namespace, name);
  const endpoints = slices.flatMap((slice) => recordsAt(slice, 'endpoints'));
  return endpoints.some((endpoint) => memberAt(endpoint, ['conditions', 'ready']) !== false);
}
