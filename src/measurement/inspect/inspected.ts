import {
  fewOf,
  type InspectSpec,
  MOST_CLUSTERS,
  objectKey,
  type PageEndpoint,
  type PageFindings,
  type ServiceRecord,
  Shares,
  setNewest,
} from '../../core/api/index.ts';
import type { Departed, MeasurementState, PodAddress, PodKey, ServiceName } from '../../core/lag/index.ts';
import type { Problem, Resolved } from '../requests/probe.ts';
import { endpointsOf } from './page-request.ts';
import { StaleUpstreams } from './stale-upstreams.ts';

/** How many endpoints of one consumer are asked about at most, answered or not. */
export const MOST_QUESTIONS = 10_000;
/** Hold stops waiting for an instance that has kept this many held pods in a row, long after each withdrawal. */
export const MOST_STALE_HOLDS = 3;
/** How many pods are remembered as having been on an instance's page. */
const MOST_SHOWN = 1_000;

/**
 * An inspected consumer. Either its instances serve pages, or it gets its endpoints from a source that Linger follows as
 * well (istiod, the copies in another cluster). In the latter case, the state of that source, held in memory, takes the
 * place of a page.
 */
export type Inspected = { readonly name: string } & (
  | { readonly inspect: InspectSpec; readonly followed?: undefined }
  | {
      readonly inspect: Pick<InspectSpec, 'every' | 'syncInterval'> & {
        readonly format?: undefined;
        readonly url?: undefined;
      };
      readonly followed: Followed;
    }
);

/** How conditions describe the source that takes the place of pages. */
export interface Followed {
  /** The words before its name: `copies in`. */
  readonly what: string;
  readonly limits: readonly string[];
}

/** An instance whose page is read. */
export interface PageInstance {
  /** Its unique name for display: a pod's `NAMESPACE/NAME`, or an address. */
  readonly name: string;
  readonly address: string;
  readonly url: URL;
}

/** The instances of a consumer. */
export interface InstanceList {
  readonly pages: readonly PageInstance[];
  /** Whether there are no other instances. */
  readonly isWhole: boolean;
  /** Addresses to which this host has no route. */
  readonly unrouted?: readonly string[];
}

export const NONE: InstanceList = { pages: [], isWhole: true };

export function firstOf(pages: readonly PageInstance[], most: number): InstanceList {
  return { pages: pages.slice(0, most), isWhole: pages.length <= most };
}

/** The instances of a discovery service: one at each address of its host. */
export function instancesAt(url: URL, { addresses, unrouted }: Resolved, most: number): InstanceList {
  const pages = addresses.map((address) => ({ name: address, address, url }));
  return { ...firstOf(pages, most), unrouted };
}

export interface PageToRead {
  readonly url: URL;
  /** The endpoints to look for. */
  readonly wanted: readonly PageEndpoint[];
  /** The Services of the endpoints in question. */
  readonly services: readonly ServiceName[];
}

/** A source of endpoints that Linger follows, and looks up in place of pages. */
export interface Source {
  /** Never rejects. */
  readonly instances: (signal: AbortSignal) => Promise<InstanceList | Problem>;
  readonly find: (instance: PageInstance, page: PageToRead) => PageFindings | Problem;
  /** Sets the Services to which the consumer applies. */
  readonly follow?: (services: readonly ServiceRecord[]) => void;
}

/** One instance's answer about one pod. */
export interface Verdict {
  readonly state: 'unknown' | 'using' | 'notUsing';
  /** Whether its page has ever shown the pod; otherwise its absence means nothing. */
  readonly shown: boolean;
  /** Whether an unfiltered page has been read for this answer. */
  readonly whole: boolean;
  /** The time of the first of the latest pages that lack the pod. */
  readonly since: number;
  /** When the latest page was requested. */
  readonly askedAt: number;
}

/** A terminating or held pod that a consumer sends traffic to. */
export class Question {
  readonly namespace: string;
  readonly uid: string;
  readonly endpoints: readonly PageEndpoint[];
  readonly services: readonly ServiceName[];
  /** By Service, when the pod became ready; −Infinity: it has not been seen ready. */
  readonly readyAt = new Map<string, number>();
  readonly openedAt: number;
  readonly verdicts = new Map<string, Verdict>();
  /**
   * By instance: when it dropped the endpoint. Set once listeners have been notified that the syncInterval after that is
   * over.
   */
  readonly waited = new Map<string, number>();
  /** When slices stopped listing it as ready. */
  hotSince: number | undefined;
  /** When all groups had withdrawn it. */
  withdrawnAt: number | undefined;
  goneAt: number | undefined;
  /** Whether its sample has been recorded or abandoned. */
  closed: boolean;

  constructor(
    { namespace, uid }: PodKey,
    addresses: readonly PodAddress[],
    services: readonly ServiceName[],
    now: number,
    closed: boolean,
  ) {
    this.closed = closed;
    this.namespace = namespace;
    this.uid = uid;
    this.endpoints = endpointsOf(addresses);
    this.services = services;
    this.openedAt = now;
    this.see(addresses);
  }

  /** @param pods the pod, once for each Service whose slices list it now */
  see(pods: readonly PodAddress[]): void {
    for (const each of pods) {
      const service = objectKey(each.service);
      const before = this.readyAt.get(service) ?? Number.NEGATIVE_INFINITY;
      this.readyAt.set(service, Math.max(before, readyAt(each)));
    }
  }
}

export class Instance {
  readonly page: PageInstance;
  asking = false;
  askedAt: number | undefined;
  /** When it was last asked about departed addresses. */
  restedAt = Number.NEGATIVE_INFINITY;
  /** It is due to be asked about departed addresses. */
  resting = false;
  /** How many held pods in a row it has kept. Each of them was withdrawn only after the previous one was counted. */
  staleHolds = 0;
  staleHoldAt = Number.NEGATIVE_INFINITY;
  /** undefined: the last page could be used. */
  failing: { readonly trouble: Problem; readonly since: number; readonly times: number } | undefined;
  /** The names of Envoy clusters that list the addresses in question. */
  readonly clusters = new Set<string>();
  /** By pod, when the latest page that showed it was requested; most recent last. */
  readonly #shownAt = new Map<string, number>();

  constructor(page: PageInstance) {
    this.page = page;
  }

  learn(clusters: Iterable<string>): void {
    for (const name of clusters) if (this.clusters.size <= MOST_CLUSTERS) this.clusters.add(name);
  }

  /** Records that a page requested at this instant shows the pod. */
  shows({ service, uid }: PodAddress, at: number): void {
    setNewest(this.#shownAt, `${service.namespace}/${uid}`, at, MOST_SHOWN);
  }

  /** Whether it has shown the pod since the pod last became ready. */
  hasShown({ namespace, uid, readyAt: since }: Question): boolean {
    const at = this.#shownAt.get(`${namespace}/${uid}`);
    return at !== undefined && at >= Math.max(...since.values());
  }
}

export class Asked {
  readonly consumer: Inspected;
  readonly instances = new Map<string, Instance>();
  readonly questions = new Map<string, Question>();
  readonly shares = new Shares();
  readonly stale = new StaleUpstreams();
  /** How long an address may be unlisted before it counts as dead, and when that was determined. */
  patience: { readonly ms: number; readonly at: number } | undefined;
  /**
   * Pods that are settled or abandoned, but not deleted yet, so that their further events open no new question. Oldest
   * first.
   */
  readonly settled = new Set<string>();
  /** When its instances were last listed; infinite while they are being listed. */
  listedAt = Number.NEGATIVE_INFINITY;
  isWhole = true;
  unrouted: readonly string[] = [];
  /** Since when listing them has failed. */
  unlistableSince: number | undefined;
  /** Why listing them fails, once it has done so for a while. */
  trouble: Problem | undefined;
  /**
   * How many pages have been read for open questions, and about how many pods, while none of them has listed one; undefined
   * once one has.
   */
  unlisted: readonly [pages: number, pods: number] | undefined = [0, 0];

  constructor(consumer: Inspected) {
    this.consumer = consumer;
  }

  /** Whether there are no instances besides those that are asked. */
  get knowsAll(): boolean {
    return this.isWhole && this.trouble === undefined;
  }

  settle({ namespace, uid, goneAt }: Question): void {
    if (this.questions.delete(uid)) this.shares.add(namespace, -1);
    if (goneAt !== undefined) return;
    const [oldest = uid] = this.settled;
    if (this.settled.size >= MOST_QUESTIONS) this.settled.delete(oldest);
    this.settled.add(uid);
  }

  /** How long clients of a discovery service may keep an address. Milliseconds. */
  get syncMs(): number {
    return (this.consumer.inspect.syncInterval ?? 0) * 1000;
  }
}

export function isSkipped({ staleHolds }: Instance): boolean {
  return staleHolds >= MOST_STALE_HOLDS;
}

export function readyAt({ readyAt: at }: PodAddress): number {
  return at ?? Number.NEGATIVE_INFINITY;
}

/** Whether a page that was requested after the withdrawal shows the pod as not used. */
export function isSettled({ withdrawnAt }: Question, { state, askedAt }: Verdict): boolean {
  return state === 'notUsing' && withdrawnAt !== undefined && askedAt >= withdrawnAt;
}

const LIMITS = [
  'Removals are timed only where every instance could say: one whose page has shown neither the pod nor one of its Service that became ready later says nothing.',
  'It is known to the interval of asking: a lag counts until the first page that no longer shows the pod in use.',
  'What is in flight, or kept alive, outlives the page.',
];

/** If this many pages contain none of its pods, the page or the pods are wrong. */
const PAGES_UNLISTED = 10;

/** The state of inspection, in the condition's words. */
export function inspectionStateOf(
  { consumer, instances, isWhole, unrouted, trouble: listing, unlisted = [0, 0], stale }: Asked,
  departed: ReadonlyMap<string, Departed>,
): MeasurementState {
  const skipped = [...instances.values()].filter(isSkipped).map(({ page }) => page.name);
  const skips =
    skipped.length === 0
      ? []
      : [`Hold does not wait for ${fewOf(skipped)}: it did not drop three held pods in a row.`];
  const family =
    unrouted.length === 0
      ? []
      : [`Not asked, nor waited for: ${fewOf(unrouted)}. Nothing leads from here to such addresses.`];
  const state = {
    instances: instances.size,
    limits: [...skips, ...family, ...(consumer.followed?.limits ?? LIMITS)],
  };
  const [kept] = stale.kept(departed);
  if (kept !== undefined) {
    const [instance, addresses] = kept;
    const named = fewOf(
      addresses.map(({ address, service }) => `${address} (of Service ${objectKey(service)})`),
    );
    const message = `${instance} still sends to ${named}, which no slice lists: restart it, and see why it does not follow.`;
    return { ...state, trouble: { reason: 'StaleUpstream', message } };
  }
  const failing = [...instances.values()].flatMap(({ page: { name }, failing: { trouble } = {} }) =>
    trouble === undefined ? [] : [{ name, ...trouble }],
  );
  const [first] = failing;
  if (first !== undefined) {
    const { reason, message } = first;
    const names = fewOf(failing.filter((each) => each.message === message).map(({ name }) => name));
    const what = consumer.followed?.what ?? 'page of';
    return { ...state, trouble: { reason, message: `The ${what} ${names} ${message}.` } };
  }
  if (unlisted[0] >= PAGES_UNLISTED) {
    // Rounded down; otherwise the status would be rewritten with each page.
    const [pages, pods] = unlisted.map((count) => String(count).replace(/(?<=.)./g, '0'));
    const page = consumer.followed === undefined ? 'format, port and path, and ' : '';
    const message = `Asked ${pages} times, it has listed none of ${pods} terminating pods: check ${page}that it sends traffic to the Services of appliesTo.`;
    return { ...state, trouble: { reason: 'ListsNothing', message } };
  }
  if (listing !== undefined) {
    const unknown =
      instances.size === 0 ? 'Its instances are not known' : 'Its current instances are not known';
    return {
      ...state,
      trouble: { reason: listing.reason, message: `${unknown}: the query for them ${listing.message}.` },
    };
  }
  if (!isWhole) {
    const message = `There are more than the ${instances.size} instances that are asked: when the others drop a pod is not known, so it is not measured, and Hold waits for the estimate or wait.initial. Select fewer with each DiscoveryConsumer, or declare a lag.`;
    return { ...state, trouble: { reason: 'TooManyInstances', message } };
  }
  if (instances.size > 0) return { ...state, trouble: undefined };
  const message = 'No running pod is selected, or none has been looked for yet.';
  return { ...state, trouble: { reason: 'NoInstances', message } };
}
