import {
  everyOne,
  gather,
  type Kind,
  type LiveWorkload,
  listWebhooks,
  liveWorkload,
  objectsIn,
  POD,
  pathOf,
  pluralOf,
  type RunningPods,
  type TerminationRecord,
  TRUNCATED,
  terminationsIn,
  truncatedInWords,
  WORKLOAD_KINDS,
  type WorkloadKind,
} from '../audit/index.ts';
import {
  asFailure,
  callApi,
  type FailureReason,
  type KubeConnection,
  KubeFailure,
  kubeVersion,
  type RawObject,
  type Resource,
} from '../cluster/index.ts';
import {
  EVERYTHING,
  formatDuration,
  isRecord,
  isStringMap,
  type Labels,
  LingerError,
  memberAt,
  NAMESPACE_NAME_LABEL,
  type NamespaceRecord,
  NO_LABELS,
  namespaceRecord,
  type ServiceIndex,
  type ServiceRecord,
  selects,
  serviceIndex,
} from '../core/api/index.ts';
import {
  type ClusterView,
  type Documents,
  fleetOf,
  NO_DOCUMENTS,
  templateReferenceOf,
  workloadKey,
  workloadOf,
} from '../core/decision/index.ts';
import {
  additionsIn,
  KnownPods,
  type PodsOf,
  type RelatedObjects,
  type RunningPod,
} from '../core/judge/index.ts';
import { type ConsumerTable, type LagSource, NONE_YET, plannedLags } from '../core/lag/index.ts';
import { policiesOfMap } from '../core/manifest/index.ts';
import {
  CLUSTER_TERMINATION_POLICIES,
  type CustomKind,
  type CustomObject,
  customKey,
  customResource,
  DISCOVERY_CONSUMERS,
  namespaceExists,
  namespacesResource,
  nodesResource,
  ownersOf,
  servicesResource,
  TERMINATION_POLICIES,
} from '../informers/index.ts';
import {
  readConfigMap,
  readConsumers,
  readHold,
  readPlanned,
  readShortfalls,
  SHARED_NAMES,
} from '../leader/index.ts';
import type { Settings } from './commands.ts';
import { asked, nameOf } from './connect.ts';
import { usageError } from './flags.ts';
import type { Surroundings, Terminal } from './terminal.ts';

/** Longer than any list takes, because a user is waiting. */
const CLUSTER_WITHIN_MS = 60_000;

/** The time for one or two objects. */
const OBJECT_WITHIN_MS = 30_000;

const ANSWER_MS = 10_000;

const KEPT =
  'the history behind the waits was lost or is unreadable: they stay as they were, and rise with longer lags, until as much is known again';

export interface KnownCluster extends ClusterView, KnownFiles, Pick<RelatedObjects, 'additions'> {
  readonly lags: LagSource;
}

interface KnownFiles {
  /** The policies and consumers from files that apply. */
  readonly files: Documents;
  /** The problems in these files. */
  readonly fileProblems: readonly string[];
  /** Why the files cannot be read; undefined: they can, or there are none. */
  readonly filesUnread: KubeFailure | undefined;
}

const NO_FILES: KnownFiles = { files: NO_DOCUMENTS, fileProblems: [], filesUnread: undefined };

/**
 * A snapshot of what decisions need of a cluster. Missing parts of Linger itself are reported by `warn`.
 * @throws LingerError `cluster-unreachable`, `cluster-denied`
 */
export async function readCluster(
  connection: KubeConnection,
  {
    lingerNamespace,
    policies,
    namespace,
  }: Pick<Settings<'explain'>, 'policies'> & {
    readonly lingerNamespace: string;
    readonly namespace?: string | undefined;
  },
  warn: Terminal['warn'],
): Promise<KnownCluster> {
  const signal = AbortSignal.timeout(CLUSTER_WITHIN_MS);
  const read = { connection, signal, namespace, warn };
  const [namespaces, services, nodes, version] = await asked(
    connection,
    Promise.all([
      namespacesSeen(read),
      asFarAsAllowed(servicesResource(), read, 'assuming that pods of other namespaces receive traffic'),
      asFarAsAllowed(nodesResource(), read, 'assuming that all kubelets know the native sleep'),
      kubeVersion(connection, signal),
    ]),
  );
  const declared = await Promise.all([
    objectsOf(DISCOVERY_CONSUMERS, read),
    objectsOf(CLUSTER_TERMINATION_POLICIES, read),
    objectsOf(TERMINATION_POLICIES, read),
  ]);
  for (const problem of declared.flatMap(({ problems }) => problems)) warn(`${problem}; ignored`);
  const place = [lingerNamespace, SHARED_NAMES.planned] as const;
  const planned = await readPublished(connection, place, signal, readPlanned).catch(refused(...place));
  if ('none' in planned) warn(`no published lags (${planned.none}); assuming wait.initial`);
  else if (planned.value.cluster?.kept) warn(KEPT);
  const call = { signal, withinMs: ANSWER_MS };
  const shared = await readConfigMap(connection, lingerNamespace, SHARED_NAMES.consumers, call).catch(
    (thrown) => {
      warn(`${asFailure(thrown).message}; ${HOLD_ASSUMED}`);
      return null;
    },
  );
  const files = policies === undefined && (await readPolicyMap(connection, lingerNamespace, signal, warn));
  const hold = readHold(
    shared ?? undefined,
    namespaces.map((each) => each.name),
  );
  const { files: ofFiles } = files || NO_FILES;
  const policiesInForce = [
    ...declared[1].values,
    ...declared[2].values,
    ...ofFiles.clusterPolicies,
    ...ofFiles.policies,
  ];
  const asking = policiesInForce.some(({ spec }) => spec.hook === 'Hold');
  if (hold === undefined && shared !== null && asking)
    warn(
      `nothing is published about hook Hold (in ${lingerNamespace}/${SHARED_NAMES.consumers}); ${HOLD_ASSUMED}`,
    );
  return {
    namespaces: new Map(namespaces.map((each) => [each.name, each])),
    services: servicesSeen(services, namespace),
    fleet: fleetOf(version, nodes.items),
    consumers: declared[0].values,
    clusterPolicies: declared[1].values,
    policies: declared[2].values,
    hold,
    additions: additionsOf(shared),
    lags: 'none' in planned ? NONE_YET : plannedLags(planned.value),
    ...(files || NO_FILES),
  };
}

function additionsOf(shared: Parameters<typeof readConsumers>[0] | null | undefined) {
  const read = shared ? readConsumers(shared) : undefined;
  return additionsIn(read?.outcome === 'read' ? read.value.consumers : []);
}

const HOLD_ASSUMED = 'assuming that hook Hold is available';

interface ClusterReads {
  readonly connection: KubeConnection;
  readonly signal: AbortSignal;
  /** The namespace to list instead if listing the whole cluster is forbidden; undefined: none. */
  readonly namespace: string | undefined;
  readonly warn: Terminal['warn'];
}

interface Allowed<T> {
  readonly items: readonly T[];
  /** `namespace`: only objects of the one namespace. */
  readonly scope: 'cluster' | 'namespace' | 'none';
}

/** Lists all objects or, if that is forbidden, those of one namespace; `warn` reports what is assumed about the others. */
async function asFarAsAllowed<T>(
  resource: Resource<T>,
  { connection, signal, namespace, warn }: ClusterReads,
  assumed: string,
): Promise<Allowed<T>> {
  try {
    return { items: await everyOne(resource, connection, signal), scope: 'cluster' };
  } catch (thrown) {
    const { reason, message } = asFailure(thrown);
    if (reason !== 'Forbidden') throw thrown;
    warn(`${message}; ${assumed}`);
    if (namespace === undefined || NOT_NAMESPACED.test(resource.path)) return { items: [], scope: 'none' };
    const path = resource.path.replace(/[^/]+$/, `namespaces/${namespace}/$&`);
    const items = await everyOne({ ...resource, path }, connection, signal).catch(noneIf('Forbidden'));
    return items === undefined ? { items: [], scope: 'none' } : { items, scope: 'namespace' };
  }
}

/**
 * A user who may not list Namespaces may still be allowed to get their own. If not even that, it is assumed to have no
 * labels.
 */
async function namespacesSeen(read: ClusterReads): Promise<readonly NamespaceRecord[]> {
  const { connection, signal, namespace: name } = read;
  const assumed = 'ignoring labels and annotations of namespaces';
  const { items, scope } = await asFarAsAllowed(namespacesResource(), read, assumed);
  if (scope === 'cluster' || name === undefined) return items;
  try {
    const call = { signal, withinMs: ANSWER_MS };
    const { metadata } = await callApi(connection, 'CoreV1Api', call, (core) => core.readNamespace({ name }));
    return [namespaceRecord(name, metadata?.labels ?? NO_LABELS, metadata?.annotations ?? NO_LABELS)];
  } catch (thrown) {
    const { reason } = asFailure(thrown);
    if (reason === 'NotFound') return [];
    if (reason !== 'Forbidden') throw thrown;
    return [namespaceRecord(name, { [NAMESPACE_NAME_LABEL]: name }, NO_LABELS)];
  }
}

const NOT_NAMESPACED = /\/(namespaces|nodes|clusterterminationpolicies|discoveryconsumers)$/;

function noneIf(reason: FailureReason): (thrown: unknown) => undefined {
  return (thrown) => {
    if (asFailure(thrown).reason !== reason) throw thrown;
  };
}

function servicesSeen({ items, scope }: Allowed<ServiceRecord>, namespace = ''): ServiceIndex {
  const index = serviceIndex(items, scope === 'cluster');
  // Needed even if all its Services were listed and there are none.
  const own = scope === 'namespace' && !index.byNamespace.has(namespace);
  return own ? { ...index, byNamespace: new Map([...index.byNamespace, [namespace, []]]) } : index;
}

/**
 * The workloads of a cluster or of one namespace, with the metadata of their pods, and the objects around them. Templates
 * are kept, statuses are not: 1,000 Deployments take some 10 MB.
 * @throws LingerError `cluster-unreachable`, `cluster-denied`
 */
export async function readWorkloads(
  connection: KubeConnection,
  { namespace, selector = EVERYTHING, serverDryRun }: Settings<'audit'>,
  { warn, progress }: Pick<Surroundings, 'warn' | 'progress'>,
): Promise<{
  readonly workloads: readonly LiveWorkload[];
  readonly related: RelatedObjects;
  /** Whether some are missing, which was reported. */
  readonly incomplete: boolean;
}> {
  const signal = AbortSignal.timeout(CLUSTER_WITHIN_MS);
  progress('reading pods');
  const onPod = (count: number) => progress('reading pods', count);
  const pods = await readPods(connection, namespace, signal, onPod).catch((thrown: unknown): RunningPods => {
    if (!(thrown instanceof LingerError) || thrown.code !== 'cluster-denied') throw thrown;
    warn(`${thrown.message}; running pods are not audited`);
    return NO_PODS;
  });
  progress('reading routes, autoscalers and budgets');
  const workloads: LiveWorkload[] = [];
  const gathered = gather(connection, { signal, namespace, pods }, (each) => {
    if (!selects(selector, labelsOf(each.object))) return;
    if (!serverDryRun) dropUnread(each.workload.pod);
    workloads.push(each);
    progress('reading workloads', workloads.length);
  });
  const { related, configured, truncated, denied, unlisted } = await asked(connection, gathered);
  for (const { message } of denied) warn(`${message}; workloads of this kind are not audited`);
  if (unlisted.length > 0)
    warn(`listing related objects is forbidden; findings that need them are missing: ${unlisted.join(', ')}`);
  if (configured === undefined)
    warn('listing mutatingwebhookconfigurations is forbidden; assuming that Linger’s webhook is there');
  if (truncated.size > 0) warn(`${TRUNCATED}: ${truncatedInWords(truncated)}`);
  return { workloads, related, incomplete: denied.length > 0 || truncated.size > 0 };
}

/** Drops what is often most of a template, but on which no decision depends. */
function dropUnread(pod: unknown): void {
  const containers = memberAt(pod, ['spec', 'containers']);
  for (const each of Array.isArray(containers) ? containers : [])
    if (isRecord(each)) for (const name of ['env', 'resources']) delete each[name];
}

function labelsOf(object: unknown): Labels {
  const labels = memberAt(object, ['metadata', 'labels']);
  return isStringMap(labels) ? labels : NO_LABELS;
}

/** The configurations of webhooks; undefined if they may not be listed. @throws LingerError */
export function readWebhooks(connection: KubeConnection) {
  return asked(connection, listWebhooks(connection, AbortSignal.timeout(CLUSTER_WITHIN_MS)));
}

/**
 * A single workload of the cluster, named as for kubectl: `pod/web-1`, `deployment/web`, `deployment.apps/web`.
 * @throws LingerError `settings-invalid` for a kind that creates no pods, `not-found`, `cluster-unreachable`,
 * `cluster-denied`
 */
export async function readNamedWorkload(
  connection: KubeConnection,
  named: string,
  namespace: string,
): Promise<LiveWorkload> {
  const [type = '', name = ''] = named.split('/');
  const word = type.split('.')[0]?.toLowerCase() ?? '';
  const wordsFor = (each: WorkloadKind) => [each.kind.toLowerCase(), each.short ?? []].flat();
  const kind = WORKLOAD_KINDS.find((each) => [...wordsFor(each), pluralOf(each)].includes(word));
  if (kind === undefined) {
    const words = WORKLOAD_KINDS.flatMap(wordsFor).join(', ');
    throw usageError(`${named}: expected one of ${words}`);
  }
  const signal = AbortSignal.timeout(CLUSTER_WITHIN_MS);
  const read = async (each: Kind, which: string) => {
    const found = everyOne(objectsIn(namespace, each, which), connection, signal);
    // If the cluster does not serve the kind, there are no objects of it.
    return (await asked(connection, found.catch(noneIf('NotServed'))))?.[0];
  };
  const object = await read(kind, name);
  const reference = templateReferenceOf(object);
  const of = WORKLOAD_KINDS.find((each) => each.kind === reference?.kind);
  const template = of && reference && workloadOf(await read(of, reference.name))?.pod;
  const pods = object === undefined || kind === POD ? NO_PODS : await readPods(connection, namespace, signal);
  const found = object && liveWorkload(object, pods, template);
  if (found !== undefined) return found;
  throw new LingerError(
    'not-found',
    `${nameOf(connection)}: there is no ${kind.kind} ${name} in namespace ${namespace}; -n names another`,
  );
}

const NO_PODS: RunningPods = { byWorkload: new Map(), bare: [], labelled: new KnownPods(new Map()) };

/** Mirror pods belong to their Node. */
async function readPods(
  connection: KubeConnection,
  within: string | undefined,
  signal: AbortSignal,
  onPod: (count: number) => void = () => undefined,
): Promise<RunningPods> {
  let count = 0;
  const byWorkload = new Map<string, RunningPod[]>();
  const bare: { readonly namespace: string; readonly name: string }[] = [];
  const labelled = new Map<string, Map<string, PodsOf>>();
  const project = ({ metadata }: RawObject) => {
    count += 1;
    onPod(count);
    const { namespace = '', name, annotations = NO_LABELS, labels = NO_LABELS, deletionTimestamp } = metadata;
    const { owner } = ownersOf(metadata);
    if (deletionTimestamp !== undefined) return;
    const key = owner?.replace('/', `/${namespace}/`) ?? workloadKey('Pod', namespace, name);
    countPod(labelled, namespace, {
      of: key,
      by: owner?.replace('/', ' ') ?? `Pod ${name}`,
      labels: sharedLabels(labels),
    });
    if (owner === undefined) return void bare.push({ namespace, name });
    const known = byWorkload.get(key);
    if (known === undefined) byWorkload.set(key, [{ annotations }]);
    else known.push({ annotations });
  };
  await asked(
    connection,
    everyOne({ path: pathOf(POD, within), metadataOnly: true, project }, connection, signal),
  );
  const found = [...labelled].map(([namespace, groups]) => [namespace, [...groups.values()]] as const);
  return { byWorkload, bare, labelled: new KnownPods(new Map(found)) };
}

/** Labels that differ between pods of one workload. */
const OWN_LABELS: ReadonlySet<string> = new Set([
  ...[
    'pod-template-hash',
    'controller-revision-hash',
    'rollouts-pod-template-hash',
    'pod-template-generation',
  ],
  ...['statefulset.kubernetes.io/pod-name', 'apps.kubernetes.io/pod-index'],
]);

function sharedLabels(labels: Labels): Labels {
  return Object.fromEntries(Object.entries(labels).filter(([key]) => !OWN_LABELS.has(key)));
}

function countPod(
  known: Map<string, Map<string, PodsOf>>,
  namespace: string,
  pod: Omit<PodsOf, 'count'>,
): void {
  const groups = known.get(namespace) ?? new Map<string, PodsOf>();
  known.set(namespace, groups);
  const key = `${pod.of} ${JSON.stringify(pod.labels)}`;
  groups.set(key, { ...pod, count: (groups.get(key)?.count ?? 0) + 1 });
}

/** None if the CRD is not installed; `problems`: why some could not be read. */
async function objectsOf<T>(kind: CustomKind<T>, read: ClusterReads) {
  const { signal } = read;
  let objects: readonly CustomObject<T>[];
  try {
    objects = (await asFarAsAllowed(customResource(kind), read, 'ignoring those that cannot be read')).items;
  } catch (thrown) {
    signal.throwIfAborted();
    const { reason, message } = asFailure(thrown);
    return { values: [], problems: reason === 'NotServed' ? [] : [`${kind.kind} objects: ${message}`] };
  }
  const sorted = objects.toSorted((a, b) => (customKey(a) < customKey(b) ? -1 : 1));
  return {
    values: sorted.flatMap(({ value }) => (value === undefined ? [] : [value])),
    problems: sorted.flatMap((each) =>
      each.problem === undefined ? [] : [`${kind.kind} ${customKey(each)}: ${each.problem}`],
    ),
  };
}

/** @throws LingerError `not-found`; not if the right to check that is missing */
export async function checkNamespace(connection: KubeConnection, name: string): Promise<void> {
  if (!(await namespaceExists(name, connection, AbortSignal.timeout(OBJECT_WITHIN_MS))))
    throw new LingerError('not-found', `there is no namespace ${name} in this cluster`);
}

type Published<T> = { readonly value: T } | { readonly none: string };

/** As returned by the readers in leader/. */
type Shared<T> =
  | { readonly outcome: 'read'; readonly value: T }
  | { readonly outcome: 'refused'; readonly problem: string }
  | { readonly outcome: 'empty' };

/** @throws KubeFailure */
async function readPublished<T>(
  connection: KubeConnection,
  [namespace, map]: readonly [namespace: string, map: string],
  signal: AbortSignal,
  read: (object: object) => Shared<T>,
): Promise<Published<T>> {
  const name = `ConfigMap ${namespace}/${map}`;
  const object = await readConfigMap(connection, namespace, map, { signal, withinMs: ANSWER_MS });
  if (object === undefined) return { none: `there is no ${name}` };
  const shared = read(object);
  if (shared.outcome === 'read') return shared;
  return { none: shared.outcome === 'empty' ? `${name} is empty` : `${name}: ${shared.problem}` };
}

/** Treats a ConfigMap that cannot be read as absent, for commands that can work without it. */
function refused(
  namespace: string,
  map: string,
): (error: unknown) => { readonly none: string; readonly failure: KubeFailure } {
  return (error) => {
    if (!(error instanceof KubeFailure)) throw error;
    return { none: `ConfigMap ${namespace}/${map}: ${error.message}`, failure: error };
  };
}

/**
 * What the leader in a namespace has published about consumers.
 * @throws LingerError `not-published`, `cluster-denied`, `cluster-unreachable`
 */
export async function readConsumerTable(
  connection: KubeConnection,
  namespace: string,
): Promise<ConsumerTable> {
  const signal = AbortSignal.timeout(OBJECT_WITHIN_MS);
  const place = [namespace, SHARED_NAMES.consumers] as const;
  const published = await asked(connection, readPublished(connection, place, signal, readConsumers));
  if ('value' in published) return published.value;
  throw notPublished(connection, published.none);
}

/** Twice the 5 minutes within which the leader publishes, plus some for a change of leader. Seconds. */
const OLD_SECONDS = 900;

/** Why what the leader has published is too old to describe the present. @param now seconds since the epoch */
export function stalenessOf({ asOf }: Pick<ConsumerTable, 'asOf'>, now: number): string | undefined {
  const age = now - asOf;
  if (age <= OLD_SECONDS) return undefined;
  return `last published ${formatDuration(Math.round(age))} ago; probably no replica of Linger leads`;
}

/**
 * What the leader in a namespace has recorded about how pods ended.
 * @throws LingerError `not-published`, `cluster-denied`, `cluster-unreachable`
 */
export async function readTerminations(
  connection: KubeConnection,
  namespace: string,
  signal = AbortSignal.timeout(OBJECT_WITHIN_MS),
): Promise<TerminationRecord> {
  const read = (name: string) =>
    asked(connection, readConfigMap(connection, namespace, name, { signal, withinMs: ANSWER_MS }));
  const shared = readShortfalls(await read(SHARED_NAMES.shortfalls), terminationsIn);
  if (shared.outcome === 'read') return shared.value;
  const place = `ConfigMap ${namespace}/${SHARED_NAMES.shortfalls}`;
  if (shared.outcome === 'refused') throw notPublished(connection, `${place}: ${shared.problem}`);
  // If Linger has never published anything, it has never measured anything.
  if ((await read(SHARED_NAMES.planned)) === undefined)
    throw notPublished(connection, `there is neither ${place} nor ${SHARED_NAMES.planned}`);
  return { findings: [], ended: [], incompleteBefore: 0, terminations: [] };
}

export function notPublished(connection: KubeConnection, problem: string): LingerError {
  return new LingerError(
    'not-published',
    `${nameOf(connection)}: ${problem}; is Linger running there with a leader? --linger-namespace names another namespace`,
  );
}

const POLICY_MAP = 'linger-policies';

/** The policies that replicas in a namespace follow, if these come from the ConfigMap that deploy/ installs. */
async function readPolicyMap(
  connection: KubeConnection,
  namespace: string,
  signal: AbortSignal,
  warn: Terminal['warn'],
): Promise<KnownFiles> {
  const place = [namespace, POLICY_MAP] as const;
  const read = ({ data = {} }: { readonly data?: Readonly<Record<string, string>> }) => {
    const value = policiesOfMap(data, `ConfigMap ${place.join('/')}`);
    return { outcome: 'read' as const, value };
  };
  const published = await readPublished(connection, place, signal, read).catch(refused(...place));
  if ('none' in published) {
    warn(`no policies found (${published.none}); assuming the built-in policy; --policies names others`);
    return 'failure' in published ? { ...NO_FILES, filesUnread: published.failure } : NO_FILES;
  }
  const { documents: files, problems } = published.value;
  const fileProblems = problems.map(({ message }) => message);
  for (const problem of fileProblems)
    warn(`${problem}; replicas keep their last valid version, which may differ`);
  return { ...NO_FILES, files, fileProblems };
}
