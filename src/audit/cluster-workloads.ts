import {
  asFailure,
  type KubeConnection,
  type KubeFailure,
  listOnce,
  type RawObject,
  type Resource,
} from '../cluster/index.ts';
import { inTurns, Shares } from '../core/api/index.ts';
import { templateReferenceOf, withTemplate, workloadKey, workloadOf } from '../core/decision/index.ts';
import { ROUTING_KINDS, reduced } from '../core/discovery/index.ts';
import type { AuditSubject, KnownPods, RunningPod } from '../core/judge/index.ts';
import { RELATED_KINDS, type RelatedObjects, relating, WEBHOOK_KIND } from '../core/judge/index.ts';
import { stepsOnLoop } from '../telemetry/index.ts';
import { inPieces } from '../timing/index.ts';
import { type Kind, objectsIn, POD, WORKLOAD_KINDS } from './kinds.ts';

/**
 * How many objects of each kind are read, workloads and others. A namespace may take no more room than it leaves for all
 * others.
 */
export const MOST_OBJECTS = 20_000;
/** How many times as many are listed, so that a namespace with very many objects does not hide others. */
const LISTED = 5;
/** Characters of what is kept while workloads are judged one after the other: some 100 MB at worst. */
const MOST_KEPT = 32 * 1024 ** 2;
/** Few, because they are read one by one. */
const MOST_BARE_PODS = 200;
const BARE_AT_ONCE = 10;

/** The message in the leader's log. */
export const TRUNCATED = 'audit incomplete; objects beyond the limit of their kind are left out';

/** The pods of a cluster that are running and not terminating. */
export interface RunningPods {
  /** By {@link workloadKey}. */
  readonly byWorkload: ReadonlyMap<string, readonly RunningPod[]>;
  /** The pods without a controller. */
  readonly bare: readonly { readonly namespace: string; readonly name: string }[];
  /** All of them by their labels, for what Services and budgets select. */
  readonly labelled: KnownPods;
}

export interface Gathering {
  readonly signal: AbortSignal;
  readonly pods: RunningPods;
  /** undefined: all namespaces. */
  readonly namespace?: string | undefined;
  /** The name of the only MutatingWebhookConfiguration that counts; undefined: any that contains Linger's webhook. */
  readonly configuration?: string;
  readonly mostObjects?: number | undefined;
  /** Characters of what is kept; default: the usual number. */
  readonly mostKept?: number | undefined;
}

/** The objects around workloads, and which of them are missing or incomplete. */
export interface Gathered {
  readonly related: RelatedObjects;
  /** Whether Linger's webhook is configured; undefined: configurations may not be listed. */
  readonly configured: boolean | undefined;
  /** The kinds that have more objects than are read, and how many are read. */
  readonly truncated: ReadonlyMap<string, number>;
  /** The kinds of workloads that may not be listed. */
  readonly denied: readonly KubeFailure[];
  /** The kinds of related objects that may not be listed. */
  readonly unlisted: readonly string[];
}

/**
 * Reads the workloads of a cluster or of a namespace, and the objects around them. Each workload is passed on as it arrives,
 * so that thousands of templates do not have to be in memory together.
 * @throws KubeFailure, also if no kind of workload may be listed, because such an audit must not look like one without
 * findings
 */
export async function gather(
  connection: KubeConnection,
  {
    signal,
    pods,
    namespace,
    configuration,
    mostObjects: most = MOST_OBJECTS,
    mostKept = MOST_KEPT,
  }: Gathering,
  onWorkload: (subject: LiveWorkload, related: RelatedObjects) => void,
): Promise<Gathered> {
  const truncated = new Map<string, number>();
  const kept = new Shares();
  const unread = new Map<string, Set<string>>();
  const leaveOut = (of: string, kind: string) => void unread.set(of, (unread.get(of) ?? new Set()).add(kind));
  /** @returns whether the object may be kept; if not, what it says about its namespace is unknown */
  const isKept = (object: LiveObject, value: unknown): boolean => {
    const of = ownerOf(object);
    const weight = value === undefined ? Number.POSITIVE_INFINITY : JSON.stringify(value).length;
    const fits = kept.hasRoomFor(of, weight, mostKept);
    if (fits) kept.add(of, weight);
    else leaveOut(of, object.kind);
    return fits;
  };
  /** @returns why the kind may not be listed; undefined: it may */
  const list = async (
    kind: Kind,
    onObject: (object: LiveObject) => void,
    within = namespace,
  ): Promise<KubeFailure | undefined> => {
    const shares = new Shares();
    const onEach = (object: LiveObject) => {
      const of = ownerOf(object);
      const hasRoom = of === within || of === '' ? shares.total < most : shares.hasRoomFor(of, 1, most);
      if (!hasRoom) {
        truncated.set(kind.kind, most);
        return;
      }
      shares.add(of, 1);
      onObject(object);
    };
    const asked = { signal, namespace: within, most: LISTED * most };
    const { isWhole, denied } = await listKind(kind, connection, asked, onEach);
    if (!isWhole) truncated.set(kind.kind, most);
    return denied;
  };
  const surrounding: Readonly<Record<string, unknown>>[] = [];
  const surrounds = (object: LiveObject) => {
    const part = reduced(object);
    if (isKept(object, part) && part !== undefined) surrounding.push(part);
  };
  const unlisted: string[] = [];
  for (const kind of RELATED_KINDS)
    if (await list(kind, surrounds, kind.ofCluster ? undefined : namespace)) unlisted.push(kind.kind);
  // These are cluster-wide. Without the right to list them, findings name the route instead of whose it is.
  for (const kind of ROUTING_KINDS) await list(kind, surrounds, undefined);
  const configurations = await listWebhooks(connection, signal, configuration);
  const steps = relating(surrounding, 'default', configurations);
  const found = await inPieces(stepsOnLoop('audit', steps));
  for (const [of, kinds] of found.unread) for (const kind of kinds) leaveOut(of, kind);
  const related = { ...found, pods: pods.labelled, unread };

  const denied: KubeFailure[] = [];
  const referring: { readonly object: LiveObject; readonly key: string }[] = [];
  const templates = new Map<string, unknown>();
  const pass = (object: LiveObject, template?: unknown) => {
    const found = liveWorkload(object, pods, template);
    if (found !== undefined) onWorkload(found, related);
  };
  const audited = WORKLOAD_KINDS.filter((each) => each.audited);
  // Kinds that may refer to others come first, so that only templates to which they refer are kept.
  for (const kind of audited.toSorted((a, b) => Number(b.refers ?? false) - Number(a.refers ?? false))) {
    const failure = await list(kind, (object) => {
      const key = workloadKey(object.kind, object.metadata.namespace ?? '', object.metadata.name);
      const own = templates.has(key) ? workloadOf(object)?.pod : undefined;
      if (own !== undefined && isKept(object, own)) templates.set(key, own);
      const reference = templateReferenceOf(object);
      if (reference === undefined || !isKept(object, object)) return pass(object);
      referring.push({ object, key: reference.key });
      templates.set(reference.key, undefined);
    });
    if (failure !== undefined) denied.push(failure);
  }
  const [first] = denied;
  if (first !== undefined && denied.length === audited.length) throw first;
  const passing = function* () {
    for (const { object, key } of referring) {
      pass(object, templates.get(key));
      yield;
    }
  };
  await inPieces(stepsOnLoop('audit', passing()));
  if (pods.bare.length > MOST_BARE_PODS) truncated.set('Pod without a controller', MOST_BARE_PODS);
  for await (const pod of barePods(connection, pods, signal)) pass(pod);
  return {
    related,
    configured: configurations && related.configured,
    truncated,
    denied,
    unlisted: unlisted.toSorted(),
  };
}

/** To whose share an object counts. What a Namespace says is written by its owners, so it counts to itself. */
function ownerOf({ kind, metadata: { namespace = '', name } }: LiveObject): string {
  return kind === 'Namespace' ? name : namespace;
}

/** `Deployment (20000), Pod without a controller (200)` */
export function truncatedInWords(truncated: Gathered['truncated']): string {
  return [...truncated].map(([kind, most]) => `${kind} (${most})`).join(', ');
}

/**
 * Lists a kind, as far as that is allowed. A kind that is not served has no objects.
 * @returns whether these were all; `denied`: why they may not be listed
 * @throws KubeFailure
 */
export async function listKind(
  kind: Kind,
  connection: KubeConnection,
  { signal, namespace, most = MOST_OBJECTS }: Pick<Gathering, 'signal' | 'namespace'> & { most?: number },
  onObject: (object: LiveObject) => void,
): Promise<{ readonly isWhole: boolean; readonly denied?: KubeFailure }> {
  try {
    return await listOnce(objectsIn(namespace, kind), connection, { signal, most }, onObject);
  } catch (thrown) {
    const failure = asFailure(thrown);
    if (failure.reason === 'Forbidden') return { isWhole: true, denied: failure };
    if (failure.reason !== 'NotServed') throw thrown;
    return { isWhole: true };
  }
}

/** The configurations of webhooks; undefined if they may not be listed. @throws KubeFailure */
export async function listWebhooks(connection: KubeConnection, signal: AbortSignal, name?: string) {
  try {
    return await everyOne(objectsIn(undefined, WEBHOOK_KIND, name), connection, signal);
  } catch (thrown) {
    const { reason } = asFailure(thrown);
    if (reason !== 'Forbidden' && reason !== 'NotServed') throw thrown;
    return undefined;
  }
}

/** All objects of a collection. @throws KubeFailure */
export async function everyOne<T>(
  resource: Resource<T>,
  connection: KubeConnection,
  signal: AbortSignal,
): Promise<readonly T[]> {
  const found: T[] = [];
  await listOnce(resource, connection, { signal }, (item) => found.push(item));
  return found;
}

/** Pods without a controller: some of each namespace, so that one with many does not displace others. */
async function* barePods(
  connection: KubeConnection,
  { bare }: RunningPods,
  signal: AbortSignal,
): AsyncGenerator<LiveObject> {
  const read = inTurns(bare, ({ namespace }) => namespace).slice(0, MOST_BARE_PODS);
  for (let at = 0; at < read.length; at += BARE_AT_ONCE) {
    const some = read.slice(at, at + BARE_AT_ONCE);
    const found = some.map((pod) => everyOne(objectsIn(pod.namespace, POD, pod.name), connection, signal));
    yield* (await Promise.all(found)).flat();
  }
}

type LiveObject = RawObject & Kind;

/** A workload of the cluster. If it is a Pod, it is itself the running pod. */
export type LiveWorkload = AuditSubject & { readonly running: readonly RunningPod[] };

/** @param template the template to which the object refers, if it has none of its own; undefined: it was not found */
export function liveWorkload(
  object: LiveObject,
  { byWorkload }: Pick<RunningPods, 'byWorkload'>,
  template?: unknown,
): LiveWorkload | undefined {
  const { kind } = object;
  const { namespace = '', name, annotations = {} } = object.metadata;
  const reference = templateReferenceOf(object);
  const own = workloadOf(object);
  const found =
    reference === undefined ? own && { workload: own } : withTemplate(object, reference, template);
  if (found === undefined) return undefined;
  const running =
    kind === 'Pod' ? [{ annotations }] : (byWorkload.get(workloadKey(kind, namespace, name)) ?? []);
  return { ...found, namespace, object, running };
}
