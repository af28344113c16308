import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { onTestFinished, vi } from 'vitest';
import type { SigningKeys } from '../../src/certs/index.ts';
import { serviceIndex } from '../../src/core/api/index.ts';
import {
  type ClusterSnapshot,
  type HoldPlan,
  NO_SOURCES,
  renderPlan,
  snapshotOf,
} from '../../src/core/decision/index.ts';
import {
  type Consumer,
  type EndpointGroup,
  HEARTBEAT_STREAMS,
  type PodMetadata,
} from '../../src/core/lag/index.ts';
import { HOLD_LIMITS, type HoldLimits, type Route } from '../../src/hold/caller.ts';
import { HeldPods } from '../../src/hold/held-pods.ts';
import { type HoldSources, Holds, type PodState, type Release } from '../../src/hold/holds.ts';
import { HoldService } from '../../src/hold/service.ts';
import {
  consumerInstances,
  type Inspection,
  inspectedInstances,
  reportingInstances,
} from '../../src/measurement/index.ts';
import { createLogger } from '../../src/telemetry/index.ts';
import { pass } from './simulated-time.ts';

let stalled = 0;

/** Monotonic milliseconds. */
export const clock = () => performance.now() + stalled;

/** As if the process had got no processor for so long: nothing runs meanwhile. */
export function stall(milliseconds: number): void {
  stalled += milliseconds;
  onTestFinished(() => {
    stalled = 0;
  });
}

/** Long enough for a busy machine, and short enough to fail soon when the awaited event never comes. */
const PATIENCE_MS = 10_000;

/** A helper that records what it hears, and when. */
export class FakeHelper {
  readonly socket: Socket;
  readonly heard: { readonly word: string; readonly at: number }[] = [];
  closedAt: number | undefined;
  #text = '';

  constructor(port: number, host = '127.0.0.1', localAddress?: string) {
    this.socket = connect({ port, host, ...(localAddress !== undefined && { localAddress }) });
    this.socket.setEncoding('latin1').on('data', (chunk: string) => {
      const lines = (this.#text + chunk).split('\n');
      this.#text = lines.pop() ?? '';
      for (const word of lines) this.heard.push({ word, at: clock() });
    });
    this.socket.on('error', () => undefined);
    this.socket.on('close', () => (this.closedAt = clock()));
    onTestFinished(() => void this.socket.destroy());
  }

  greet(token: string, age = ''): this {
    this.socket.write(`linger-hold/1 ${token}${age}\n`);
    return this;
  }

  get words(): readonly string[] {
    return this.heard.map(({ word }) => word);
  }

  /** @returns when the word came */
  async hears(word: string): Promise<number> {
    return until(`a helper to hear ${word}`, () => this.heard.find((each) => each.word === word)?.at);
  }

  async closes(): Promise<number> {
    return until('a connection to close', () => this.closedAt);
  }
}

export async function until<T>(what: string, look: () => T | undefined | false): Promise<T> {
  const deadline = clock() + PATIENCE_MS;
  for (;;) {
    const found = look();
    if (found !== undefined && found !== false) return found;
    if (clock() > deadline) throw new Error(`waited in vain for ${what}`);
    await (vi.isFakeTimers() ? pass(2) : sleep(2));
  }
}

/** What replicas sign with. */
export const REPLICAS_OWN = Buffer.from('the replicas’ own');

export interface ArenaOptions {
  readonly limits?: Partial<HoldLimits>;
  /** Default: the same in every arena. */
  readonly keys?: () => SigningKeys;
  readonly route?: () => Route;
  readonly snapshot?: ClusterSnapshot;
  readonly lookUp?: HoldSources['lookUp'];
  readonly reports?: Parameters<typeof reportingInstances>[0];
  readonly usersOf?: Inspection['usersOf'];
  readonly skipped?: readonly string[];
  readonly onRelease?: () => void;
  readonly outAt?: HoldSources['deregistrations']['outAt'];
  readonly current?: boolean;
  /** By how much this replica's clock is ahead. Milliseconds. */
  readonly ahead?: number;
  /** When each of the watches had finished its list; default: long ago. */
  readonly readAt?: number;
  /** They are not followed. */
  readonly endpoints?: 'Ignore';
}

export const SERVICE = {
  namespace: 'shop',
  name: 'web',
  labels: {},
  selector: { app: 'web' },
  headless: false,
  externalName: false,
};
/** One Service with a ClusterIP; nothing has been measured, so cluster-ip lets go after `initial`. */
export function snapshotWith(change: Partial<ClusterSnapshot> = {}): ClusterSnapshot {
  return { ...snapshotOf(NO_SOURCES), services: serviceIndex([SERVICE], true), ...change };
}

export const SLICES: EndpointGroup = {
  stage: 'EndpointSlice',
  namespace: 'shop',
  service: 'web',
  mirrored: false,
  overCapacity: false,
};

/** A consumer of all Services whose instances report what they have applied. */
export const REPORTING: Consumer = {
  name: 'edge',
  lagKey: 'edge',
  builtIn: false,
  namespaceSelector: {},
  serviceSelector: {},
  podSelector: undefined,
  services: 'all',
  measure: { kind: 'reports' },
  declared: undefined,
  observed: false,
};

const TERMS: HoldPlan = { min: 0, max: 60, percentile: 99, initial: 0, probes: 0 };

/** The annotations of a pod that was admitted with this token. */
export function holdOf(token: string, wait = 1, hold = TERMS): Pick<PodMetadata, 'hold' | 'plan'> {
  const plan = renderPlan({
    wait,
    grace: 90,
    baseGrace: 30,
    hook: 'Hold',
    containers: ['app'],
    policy: 'built-in',
    why: 'initial',
    hold,
  });
  const hash = createHash('sha256').update(token).digest('hex');
  return { hold: { token: hash, created: '2026-11-22T10:00:00Z' }, plan };
}

/** A Hold Service on loopback, with a simulated cluster. */
export class Arena {
  readonly pods: HeldPods;
  readonly holds: Holds;
  readonly service: HoldService;
  readonly released: Release[] = [];
  readonly asked: string[] = [];
  readonly strangers: string[] = [];
  /** The pods that inspected consumers are asked about. */
  readonly wanted = new Set<string>();
  current: boolean;
  leads = true;
  readonly #listing = new Map<string, EndpointGroup[]>();
  readonly #objects = new Map<string, PodMetadata>();

  constructor(options: ArenaOptions = {}) {
    const snapshot = options.snapshot ?? snapshotWith();
    this.current = options.current ?? true;
    this.pods = new HeldPods({
      clock,
      wall: () => Date.now() + (options.ahead ?? 0),
      onChange: ({ uid }) => this.holds.touch(uid),
    });
    const { readAt: at = Number.NEGATIVE_INFINITY } = options;
    for (const stream of HEARTBEAT_STREAMS)
      if (stream !== 'Endpoints' || options.endpoints !== 'Ignore')
        this.pods.observe({ type: 'ListEnds', at, stream });
    this.holds = new Holds({
      clock,
      leads: () => this.leads,
      snapshot: () => snapshot,
      measurement: {
        listing: ({ uid }) => this.#listing.get(uid) ?? [],
        withdraws: () => true,
        hasUnread: () => false,
      },
      pods: this.pods,
      current: () => this.current,
      instances: consumerInstances({
        reports: reportingInstances(options.reports ?? (() => undefined)),
        inspection: inspectedInstances({
          usersOf: options.usersOf ?? (() => undefined),
          want: ({ uid }) => void this.wanted.add(uid),
          done: (uid) => void this.wanted.delete(uid),
          skipped: () => options.skipped ?? [],
        }),
      }),
      deregistrations: { outAt: options.outAt ?? (() => undefined) },
      isReplica: (address) => address === '10.9.9.9',
      lookUp: (pod) => {
        this.asked.push(pod.name);
        return options.lookUp?.(pod) ?? new Promise<PodState>(() => undefined);
      },
      onRelease: (release) => {
        this.released.push(release);
        options.onRelease?.();
      },
      onStranger: (_, { source }) => void this.strangers.push(source),
    });
    this.service = new HoldService({
      holds: this.holds,
      pods: this.pods,
      clock,
      logger: createLogger('silent', process.stdout),
      route: options.route ?? (() => 'here'),
      keys: options.keys ?? (() => [REPLICAS_OWN]),
      limits: { ...HOLD_LIMITS, ...options.limits },
    });
  }

  async start(host = '127.0.0.1'): Promise<this> {
    this.service.server.listen(0, host);
    await once(this.service.server, 'listening');
    onTestFinished(() => {
      this.holds.end();
      this.service.close();
    });
    return this;
  }

  get port(): number {
    return (this.service.server.address() as AddressInfo).port;
  }

  call(token: string, localAddress?: string): FakeHelper {
    return new FakeHelper(this.port, '127.0.0.1', localAddress).greet(token);
  }

  /** A pod that the Service lists. @returns its token */
  admit(name: string, terms: Partial<HoldPlan & { wait: number }> = {}): string {
    const token = randomBytes(16).toString('base64url');
    const { wait = 1, ...hold } = terms;
    this.put(name, holdOf(token, wait, { ...TERMS, ...hold }));
    this.list(name);
    return token;
  }

  /** A slice shows the pod's address. */
  address(name: string, address: string): void {
    const endpoints = [{ targetUid: name, addresses: [address], ready: true }];
    const slice = {
      namespace: 'shop',
      name: 'web-x',
      addressType: 'IPv4',
      endpoints,
      managedBy: 'endpointslice-controller.k8s.io',
    };
    this.pods.observe({ type: 'Slice', at: clock(), slice });
  }

  put(name: string, held: ReturnType<typeof holdOf>, deleted?: { readonly grace: number }): void {
    const deadline = deleted && new Date(Date.now() + deleted.grace * 1000).toISOString();
    const object: PodMetadata = {
      uid: name,
      namespace: 'shop',
      name,
      labels: { app: 'web' },
      heartbeat: undefined,
      ...held,
      deletionTimestamp: deadline,
      deletionGracePeriodSeconds: deleted?.grace,
    };
    this.#objects.set(name, object);
    const identity = { namespace: 'shop', name, uid: name };
    this.pods.apply({ type: 'modified', listed: false, at: clock(), identity, object });
  }

  /** @returns when */
  delete(name: string, grace = 90): number {
    const { hold, plan } = this.#objects.get(name) as PodMetadata;
    this.put(name, { hold, plan }, { grace });
    return clock();
  }

  list(name: string): void {
    this.#listing.set(name, [SLICES]);
    const change = {
      uid: name,
      group: SLICES,
      before: undefined,
      after: 'ready',
      address: undefined,
    } as const;
    this.pods.changed(change, clock(), '100');
  }

  /** Withdraws the pod without showing it, as if before the watches began. */
  forget(name: string): void {
    this.#listing.delete(name);
  }

  /** @returns when */
  withdraw(name: string, version: string | undefined = '200'): number {
    this.#listing.delete(name);
    const change = {
      uid: name,
      group: SLICES,
      before: 'ready',
      after: 'terminating',
      address: undefined,
    } as const;
    const at = clock();
    this.pods.changed(change, at, version);
    return at;
  }
}
