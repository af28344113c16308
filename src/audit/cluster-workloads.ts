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

/** The most objects of each kind, workloads or what surrounds them. One namespace has at most as much room as all others have left. */
export const MOST_OBJECTS = 20_000;
/** How many times as many are listed, so that those of a namespace with a great number do not hide the others. */
const LISTED = 5;
/** Characters of what is kept while workloads are judged, one after the other: some 100 MB at worst. */
const MOST_KEPT = 32 * 1024 ** 2;
/** They are read one by one. */
const MOST_BARE_PODS = 200;
const BARE_AT_ONCE = 10;

/** As the leader's log says it. */
export const TRUNCATED = 'audit incomplete; objects beyond the limit of their kind are left out';

/** The pods of a cluster that run and do not terminate. */
export interface RunningPods {
  /** By {@link workloadKey}. */
  readonly byWorkload: ReadonlyMap<string, readonly RunningPod[]>;
  /** Those without a controller. */
  readonly bare: readonly { readonly namespace: string; readonly name: string }[];
  /** The same by their labels: what Services and budgets select. */
  readonly labelled: KnownPods;
}

export interface Gathering {
  readonly signal: AbortSignal;
  readonly pods: RunningPods;
  /** undefined: all. */
  readonly namespace?: string | undefined;
  /** The one MutatingWebhookConfiguration that counts; undefined: any that has Linger's webhook. */
  readonly configuration?: string;
  readonly mostObjects?: number | undefined;
  /** Characters of what is kept, if not the usual number. */
  readonly mostKept?: number | undefined;
}

/** The objects around workloads, and what is missing or incomplete. */
export interface Gathered {
  readonly related: RelatedObjects;
  /** Whether there is Linger's webhook; undefined: configurations may not be listed. */
  readonly configured: boolean | undefined;
  /** The kinds with more objects than are read, and how many are. */
  readonly truncated: ReadonlyMap<string, number>;
  /** The kinds of workloads that may not be listed. */
  readonly denied: readonly KubeFailure[];
  /** The kinds of related objects that may not be listed. */
  readonly unlisted: readonly string[];
}

/**
 * Reads the workloads of a cluster or of a namespace, and what surrounds them. Each workload is passed on as it arrives, so
 * that thousands of templates need not be in memory together.
 * @throws KubeFailure, also where no kind of workload may be listed: such an audit must not pass as one that finds nothing
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
  /** @returns whether it may be kept; otherwise it is not known what it says of its namespace */
  const isKept = (object: LiveObject, value: unknown): boolean => {
    const of = ownerOf(object);
    const weight = value === undefined ? Number.POSITIVE_INFINITY : JSON.stringify(value).length;
    const fits = kept.hasRoomFor(of, weight, mostKept);
    if (fits) kept.add(of, weight);
    else leaveOut(of, object.kind);
    return fits;
  };
  /** @returns why the kind may not be listed */
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
  // Not of the namespace alone. Without the right, findings name the route instead of whose it is.
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
  // First, what may refer to the others: only the templates that are referred to are kept.
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

/** Whose share an object counts to: what a Namespace says is written by its owners. */
function ownerOf({ kind, metadata: { namespace = '', name } }: LiveObject): string {
  return kind === 'Namespace' ? name : namespace;
}

/** `Deployment (20000), Pod without a controller (200)` */
export function truncatedInWords(truncated: Gathered['truncated']): string {
  return [...truncated].map(([kind, most]) => `${kind} (${most})`).join(', ');
}

/**
 * Lists a kind as far as that is allowed. One that is not served has no objects.
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

/** The configurations of webhooks; undefined where they may not be listed. @throws KubeFailure */
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

/** Some of each namespace, so that one with many does not take the place of the others'. */
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

/** A workload of the cluster; of a Pod, itself is what runs. */
export type LiveWorkload = AuditSubject & { readonly running: readonly RunningPod[] };

/** @param template what the object refers to, where its own pods' template stands there; undefined: it was not found */
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
