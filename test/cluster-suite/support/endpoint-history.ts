import { type AuditEvent, instantOf } from '../../testbed/cluster.ts';

/**
 * What really happened to endpoints, by API servers' audit logs alone: no line of it comes from Linger's code.
 * Instants are milliseconds since the epoch, of the API server's answer to the writer.
 */
export interface TrueRemoval {
  readonly stage: 'EndpointSlice' | 'Endpoints';
  readonly service: string;
  readonly pod: string;
  /** The pod's uid in the endpoints; undefined where no logged write before the withdrawal lists the pod. */
  readonly uid: string | undefined;
  /** The answer to the deletion of the pod. */
  readonly start: number;
  /** The answer to the write that withdrew it; undefined: none did. */
  readonly end: number | undefined;
  /** Milliseconds that the lag has at least and at most: what is logged happened between request and answer. */
  readonly bounds: readonly [least: number, most: number];
}

/** Which pods an object lists as ready from an instant on: their uids by their names. */
interface Write {
  readonly group: string;
  readonly object: string;
  readonly received: number;
  readonly at: number;
  readonly ready: Ready;
}

type Ready = ReadonlyMap<string, string | undefined>;

interface Target {
  readonly targetRef?: { readonly kind?: string; readonly name?: string; readonly uid?: string };
}

interface SliceBody {
  readonly metadata: { readonly labels?: Readonly<Record<string, string>> };
  readonly addressType: string;
  readonly endpoints?: readonly (Target & { readonly conditions?: { readonly ready?: boolean } })[] | null;
}

interface EndpointsBody {
  readonly subsets?: readonly { readonly addresses?: readonly Target[] }[] | null;
}

const NOBODY: Ready = new Map();

/** The removals of one namespace, in the order of their starts; the events may be of several servers' logs. */
export function trueRemovals(events: readonly AuditEvent[]): readonly TrueRemoval[] {
  const accepted = events
    .filter(({ responseStatus }) => succeeded(responseStatus))
    .sort((a, b) => instantOf(a.stageTimestamp) - instantOf(b.stageTimestamp));
  const groups = Map.groupBy(writesOf(accepted), ({ group }) => group);
  return deletions(accepted)
    .flatMap(({ pod, received, at }) =>
      [...groups].flatMap(([group, writes]) => {
        const found = withdrawal(writes, pod, received);
        if (found === 'notListed') return [];
        const { end, uid } = found;
        const [stage = '', service = ''] = group.split('/');
        const bounds = [(end?.received ?? 0) - at, (end?.at ?? 0) - received] as const;
        const removal = { service, pod, uid, start: at, end: end?.at, bounds };
        return [{ stage: stage as TrueRemoval['stage'], ...removal }];
      }),
    )
    .sort((a, b) => a.start - b.start);
}

function succeeded(status: AuditEvent['responseStatus']): boolean {
  return status !== undefined && status.code < 300;
}

/** The first deletion of each pod: a kubelet's second one, at the end, withdraws nothing. */
function deletions(events: readonly AuditEvent[]) {
  const first = new Map<string, { pod: string; received: number; at: number }>();
  for (const { verb, objectRef, requestReceivedTimestamp, stageTimestamp } of events) {
    const { resource, subresource, name } = objectRef;
    if (verb !== 'delete' || resource !== 'pods' || subresource !== undefined || name === undefined) continue;
    if (first.has(name)) continue;
    const received = instantOf(requestReceivedTimestamp);
    first.set(name, { pod: name, received, at: instantOf(stageTimestamp) });
  }
  return [...first.values()];
}

function writesOf(events: readonly AuditEvent[]): readonly Write[] {
  const groups = new Map<string, string>();
  return events.flatMap((event) => {
    const { resource, name } = event.objectRef;
    if (resource !== 'endpoints' && resource !== 'endpointslices') return [];
    if (event.verb === 'patch') throw new Error(`a patch of ${resource} ${name}: its result is not logged`);
    const body = event.verb === 'delete' ? undefined : event.requestObject;
    const object = `${resource}/${name ?? nameIn(event.responseObject)}`;
    const group = body === undefined ? groups.get(object) : groupOf(resource, object, body);
    if (group === undefined) return [];
    groups.set(object, group);
    const ready = body === undefined ? NOBODY : readyIn(resource, body);
    const received = instantOf(event.requestReceivedTimestamp);
    return [{ group, object, received, at: instantOf(event.stageTimestamp), ready }];
  });
}

function nameIn(body: unknown): string {
  return (body as { metadata: { name?: string } }).metadata.name ?? '';
}

/** The slices of one Service and address family withdraw a pod together. */
function groupOf(resource: string, object: string, body: unknown): string {
  if (resource === 'endpoints') return `Endpoints/${object.split('/')[1]}`;
  const { metadata, addressType } = body as SliceBody;
  return `EndpointSlice/${metadata.labels?.['kubernetes.io/service-name']}/${addressType}`;
}

function readyIn(resource: string, body: unknown): Ready {
  const targets: readonly Target[] =
    resource === 'endpoints'
      ? ((body as EndpointsBody).subsets ?? []).flatMap(({ addresses = [] }) => addresses)
      : ((body as SliceBody).endpoints ?? []).filter(({ conditions }) => conditions?.ready !== false);
  return new Map(
    targets.flatMap(({ targetRef: { kind, name = '', uid } = {} }) =>
      kind === 'Pod' ? [[name, uid] as const] : [],
    ),
  );
}

/** When the last of a group's objects ceased to list the pod as ready, for the first time after its deletion. */
function withdrawal(
  writes: readonly Write[],
  pod: string,
  deleted: number,
): { readonly end: Write | undefined; readonly uid: string | undefined } | 'notListed' {
  const listing = new Set<string>();
  let uid: string | undefined;
  for (const write of writes) {
    const { object, at, ready } = write;
    const before = listing.size > 0;
    if (ready.has(pod)) {
      listing.add(object);
      uid = ready.get(pod);
    } else listing.delete(object);
    if (before && listing.size === 0 && at >= deleted) return { end: write, uid };
  }
  return listing.size > 0 ? { end: undefined, uid } : 'notListed';
}
