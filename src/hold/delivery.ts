import { isDeepStrictEqual } from 'node:util';
import type { CoreV1Api, V1Pod } from '@kubernetes/client-node';
import type { Registry } from '@prometheus-io/client';
import {
  asFailure,
  CONCERNS_ONE_NAMESPACE,
  callApi,
  type KubeConnection,
  type KubeFailure,
  type Resource,
  unlessNotFound,
  type WatchHandlers,
  type WatchStats,
  watchResource,
} from '../cluster/index.ts';
import {
  GROUP,
  HOLD_HELPER,
  HOLD_MOUNT,
  HOLD_SERVICE,
  HOLD_VOLUME,
  holdKey,
  isRecord,
  isString,
  jsonIn,
  NEVER_ASKED,
} from '../core/api/index.ts';
import {
  type HoldAbsence,
  type HoldSupply,
  type NodeFacts,
  nodeKind,
  type SnapshotHolder,
  wantsHold,
} from '../core/decision/index.ts';
import type { Leadership, OwnReplica, Runnable } from '../manager/index.ts';
import { gaugeAtScrape, type Logger, LogOnce, numberAtScrape, samplesBy } from '../telemetry/index.ts';
import { Schedule, throttle } from '../timing/index.ts';
import { HELPER_ARCHITECTURES, readHelperObject } from './helper-object.ts';

/** The operator's settings for delivering the helper. */
export interface DeliverySettings {
  /** The port that helpers connect to. */
  readonly port: number;
  /** The address that helpers connect to; undefined: the ClusterIP of the Service. */
  readonly address: string | undefined;
  /** The image of pods that test the helper; undefined: the image of this replica's own pod. */
  readonly testImage: string | undefined;
  /** The image with the helpers, for policies with `hold.delivery: Image`. */
  readonly image: string | undefined;
}

interface DeliveryOptions extends Required<Pick<WatchHandlers<unknown>, 'onFailure' | 'onHandlerError'>> {
  readonly connection: KubeConnection;
  readonly place: OwnReplica;
  readonly settings: DeliverySettings;
  readonly snapshot: SnapshotHolder;
  readonly logger: Logger;
  readonly registry: Registry;
  readonly signal: AbortSignal;
  /** Monotonic milliseconds. */
  readonly clock: () => number;
  readonly random: () => number;
  /** Resolves with false once the signal has aborted. */
  readonly pause: (milliseconds: number, signal: AbortSignal) => Promise<boolean>;
  readonly onCurrent: () => void;
}

/** Stores what the trials on nodes have shown: on the ConfigMap in Linger's own namespace, which all replicas watch. */
export const TRIED_ANNOTATION = `${GROUP}/hold-tried`;

/** The result of a trial, by the kind of node: `''` if the helper worked, else why it did not. */
type Trials = ReadonlyMap<string, string>;

/**
 * More kinds of node than any cluster has. Beyond it the oldest results are dropped, and tested again if nodes of their kind
 * exist.
 */
const MOST_KINDS = 100;
const LONGEST_REASON = 300;

/** @returns an empty record for any other text, so that everything is tried again */
export function readTrials(text: string | undefined): Trials {
  const value = jsonIn(text ?? '{}');
  const entries = Object.entries(isRecord(value) ? value : {}).filter((entry): entry is [string, string] =>
    isString(entry[1]),
  );
  return new Map(entries.slice(-MOST_KINDS));
}

export function trialsText(trials: Trials): string {
  return JSON.stringify(Object.fromEntries([...trials].slice(-MOST_KINDS)));
}

export function registerDeliveryMetrics(
  registry: Registry,
  read: {
    readonly namespaces: () => number;
    readonly lacking: () => number;
    readonly kinds: () => Readonly<Record<string, number>>;
  },
): void {
  numberAtScrape(registry, {
    name: 'linger_hold_namespaces',
    help: 'Namespaces in which the helper of this version has been seen.',
    reference: 'Namespaces that have [the helper](operations.md#the-helper-of-hold) of this version.',
    read: read.namespaces,
  });
  numberAtScrape(registry, {
    name: 'linger_hold_namespaces_lacking',
    help: 'Namespaces whose policies or annotations ask for Hold, and which lack the helper or the Service of Hold.',
    reference:
      'Namespaces that ask for `Hold` and lack the helper; all of them without the Service of Hold. Some seconds are normal for a new namespace, and after an upgrade. Absent with `--hold-port=0`.',
    read: read.lacking,
  });
  gaugeAtScrape(registry, {
    name: 'linger_hold_node_kinds',
    help: 'Kinds of node in the cluster, by the result of the helper’s trial: passed, failed or untried.',
    reference: "Kinds of node, by the result of the helper's test: `passed`, `failed` or `untried`.",
    labelNames: ['result'],
    read: () => samplesBy('result', read.kinds(), (count) => count),
  });
}

/** How often each replica checks whether the Service has an address, and the leader whether a namespace lacks the helper. */
const TICK_MS = 500;
/** How often changes are put into the snapshot, so that changes of many namespaces become one. */
const SHOWN_EVERY_MS = 100;
/** At most four ConfigMaps of 25 KB a second: each is applied only once, but perhaps in the middle of a storm. */
const APPLY_EVERY_MS = 250;
const REQUEST_MS = 10_000;
/**
 * When to retry in a namespace that refuses the ConfigMap, because it is terminating, its quota is used up, or a right is
 * missing.
 */
const REFUSED_PAUSE_MS = 300_000;
/**
 * How often to retry in a single refused namespace: a right that was missing everywhere may have been granted, and if one
 * namespace shows that, all are retried.
 */
const PROBE_REFUSED_MS = 12_000;
/** How long an applied ConfigMap may take to appear in the watch. */
const SEEN_WITHIN_MS = 10_000;
/** How to retry while the API server cannot be reached, or is busy. */
const PACE = { everyMs: APPLY_EVERY_MS, firstPauseMs: 1_000, longestPauseMs: 60_000 };
/** A trial may fail forever (folders mounted noexec) or for a while (an image that cannot be pulled). */
const TRIAL_PACE = { everyMs: 0, firstPauseMs: 60_000, longestPauseMs: 3_600_000 };
/** Time to pull Linger's image and to start on a busy node. */
const TRIAL_WITHIN_MS = 120_000;
/** If a kubelet has not even accepted the pod by then, its node is broken, which says nothing about its kind. */
const TAKEN_WITHIN_MS = 20_000;
const NOT_TAKEN = 'no kubelet has taken its pod on';

/** All trials use this name, one after the other, so that RBAC can limit the rights to create and delete to it. */
const TEST_POD = 'linger-hold-test';

/** Delivers the helper into the namespaces of pods, and tests whether it works there. */
export class Delivery {
  readonly #options: DeliveryOptions;
  readonly #helper = readHelperObject();
  readonly #once: LogOnce;
  readonly #read = Promise.withResolvers<void>();
  #isRead = false;
  /** The namespaces in which the ConfigMap has been seen, with its uid. */
  readonly #seen = new Map<string, string>();
  #namespaces: ReadonlySet<string> | undefined;
  #trials: Trials = new Map();
  /** Resolves once the namespaces with the helper are known, or it is clear that they cannot be. May never resolve. */
  readonly read = this.#read.promise;
  readonly stats: WatchStats;

  constructor(options: DeliveryOptions) {
    this.#options = options;
    this.#once = new LogOnce(options.logger);
    this.stats = this.#watch();
    registerDeliveryMetrics(options.registry, {
      namespaces: () => this.#seen.size,
      lacking: () => this.#lackingNow(),
      kinds: () => this.#kindsByResult(),
    });
    void this.#follow();
  }

  #watch(): WatchStats {
    const { connection, place, onFailure, onHandlerError, onCurrent } = this.#options;
    const showSoon = throttle(SHOWN_EVERY_MS, () => this.#show(), this.#options);
    const resource: Resource<Trials> = {
      path: '/api/v1/configmaps',
      query: { fieldSelector: `metadata.name=${this.#helper.name}` },
      metadataOnly: true,
      project: ({ metadata }) => readTrials(metadata.annotations?.[TRIED_ANNOTATION]),
    };
    const handlers: WatchHandlers<Trials> = {
      onEvent: (event) => {
        const { namespace, uid } = event.identity;
        if (event.type !== 'deleted') {
          this.#seen.set(namespace, uid);
          if (namespace === place.namespace) this.#trials = event.object;
        } else if (this.#seen.get(namespace) === uid) this.#seen.delete(namespace);
        this.#namespaces = undefined;
        showSoon();
      },
      onListed: () => this.#know(),
      onCurrent,
      onFailure: (failure, pauseMs) => {
        onFailure(failure, pauseMs);
        // Without the right to watch, Hold is not available, so nothing must wait for it.
        if (failure.reason === 'Forbidden') this.#know();
      },
      onHandlerError,
    };
    return watchResource(resource, connection, handlers, this.#options).stats;
  }

  #know(): void {
    this.#isRead = true;
    this.#show();
    this.#read.resolve();
  }

  async #follow(): Promise<void> {
    const { pause, signal } = this.#options;
    do this.#show();
    while (await pause(TICK_MS, signal));
  }

  /** Updates the snapshot if what decisions need has changed. */
  #show(): void {
    const { snapshot } = this.#options;
    const hold = this.#supply();
    if (!isDeepStrictEqual(hold, snapshot.current().hold)) snapshot.apply({ kind: 'hold', hold });
  }

  /** @returns undefined while it is not known */
  #supply(): HoldSupply | HoldAbsence | undefined {
    const { place, settings, snapshot } = this.#options;
    if (!this.#isRead || !snapshot.current().services.byNamespace.has(place.namespace)) return undefined;
    const { image, address = this.#serviceAddress() } = settings;
    if (address === undefined)
      return { why: `there is no Service ${place.namespace}/${HOLD_SERVICE} with an address` };
    this.#namespaces ??= new Set(this.#seen.keys());
    const passed = [...this.#trials].filter(([, problem]) => problem === '').map(([kind]) => kind);
    return {
      address,
      digest: this.#helper.digest,
      namespaces: this.#namespaces,
      tested: new Set(passed),
      architectures: HELPER_ARCHITECTURES,
      ...(image !== undefined && { image }),
    };
  }

  #serviceAddress(): string | undefined {
    const { snapshot, place, settings } = this.#options;
    const services = snapshot.current().services.byNamespace.get(place.namespace);
    const ip = services?.find(({ name }) => name === HOLD_SERVICE)?.clusterIp;
    if (ip === undefined) return undefined;
    return `${ip.includes(':') ? `[${ip}]` : ip}:${settings.port}`;
  }

  /** Delivers the helper and tests it on each kind of node, while this replica leads. */
  get runnables(): readonly Runnable[] {
    const watches = () => ({ holdconfigmaps: this.stats });
    return [
      { name: 'hold delivery', watches, lead: (leadership) => this.#deliver(leadership) },
      { name: 'hold trials', lead: (leadership) => this.#try(leadership) },
    ];
  }

  /** Applies the ConfigMap in every namespace that wants Hold and lacks it. */
  async #deliver(leadership: Leadership): Promise<void> {
    const { clock, random, pause } = this.#options;
    await Promise.race([this.read, pause(SEEN_WITHIN_MS, leadership.signal)]);
    const schedule = new Schedule(PACE, clock(), random);
    const applied = new Map<string, number>();
    /** By namespace, when to retry; in order of refusal. */
    const refused = new Map<string, number>();
    let probeAt = 0;
    do {
      const now = clock();
      if (!schedule.due(now)) continue;
      const lacking = this.#lacking().filter((each) => (applied.get(each) ?? 0) <= now);
      for (const each of refused.keys()) if (!lacking.includes(each)) refused.delete(each);
      const due = lacking.find((each) => (refused.get(each) ?? 0) <= now);
      const [probed] = now >= probeAt ? refused.keys() : [];
      const namespace = due ?? probed;
      if (namespace === undefined || !leadership.holds()) continue;
      const failure = await this.#apply(namespace, leadership.signal);
      if (leadership.signal.aborted) return;
      if (failure === undefined) {
        schedule.done(clock());
        if (refused.delete(namespace)) refused.clear();
        applied.set(namespace, clock() + SEEN_WITHIN_MS);
      } else if (CONCERNS_ONE_NAMESPACE.has(failure.reason)) {
        schedule.done(clock());
        refused.delete(namespace);
        refused.set(namespace, clock() + REFUSED_PAUSE_MS);
        probeAt = clock() + PROBE_REFUSED_MS;
      } else schedule.failed(clock(), failure.retryAfterMs);
    } while (await pause(APPLY_EVERY_MS, leadership.signal));
  }

  /** The namespaces that want Hold and lack the ConfigMap. Linger's own comes first: tests run there. */
  #lacking(): readonly string[] {
    const { snapshot, place } = this.#options;
    const needed = this.#needed() && snapshot.current().namespaces.size > 0;
    const wanted = needed ? [place.namespace, ...this.#wanting()] : [];
    return wanted.filter((name) => !this.#seen.has(name));
  }

  /** How many namespaces lack the ConfigMap, without those that the webhook excludes, where some providers forbid writes. */
  #lackingNow(): number {
    const supply = this.#supply();
    if (supply === undefined) return 0;
    const lacks = (name: string) => !NEVER_ASKED.includes(name) && ('why' in supply || !this.#seen.has(name));
    return this.#wanting().filter(lacks).length;
  }

  #wantingOf: readonly unknown[] = [];
  #wantingNames: readonly string[] = [];

  #wanting(): readonly string[] {
    const { policies, namespaces } = this.#options.snapshot.current();
    // Snapshots share unchanged parts, so thousands of namespaces are checked only when one of them or a policy has changed.
    if (this.#wantingOf[0] !== policies || this.#wantingOf[1] !== namespaces) {
      this.#wantingOf = [policies, namespaces];
      this.#wantingNames = [...namespaces.values()]
        .filter((namespace) => wantsHold(policies, namespace))
        .map(({ name }) => name);
    }
    return this.#wantingNames;
  }

  /** Whether any pod may need the helper: some policy asks for Hold, or some namespace has the helper already. */
  #needed(): boolean {
    const { namespace } = this.#options.place;
    return this.#wanting().length > 0 || [...this.#seen.keys()].some((name) => name !== namespace);
  }

  /** @returns why it failed; undefined: it did not */
  async #apply(namespace: string, signal: AbortSignal): Promise<KubeFailure | undefined> {
    const { place, logger } = this.#options;
    // Server-side apply removes fields that are not applied again, so the annotation must be included each time.
    const own = namespace === place.namespace ? { [TRIED_ANNOTATION]: trialsText(this.#trials) } : undefined;
    const { name, manifest } = this.#helper;
    const of = { namespace, configmap: name };
    try {
      const target = { name, namespace, fieldManager: 'linger', force: true };
      await this.#ask(signal, (core) =>
        core.patchNamespacedConfigMap({ ...target, body: manifest(namespace, own) }),
      );
      this.#once.over(namespace, of, 'delivering the Hold helper recovered');
      logger.info(of, 'Hold helper delivered');
      return undefined;
    } catch (thrown) {
      const failure = asFailure(thrown);
      const members = { ...of, reason: failure.reason, problem: failure.message };
      if (!signal.aborted)
        this.#once.warn(
          namespace,
          members,
          'delivering the Hold helper failed; pods in this namespace get Sleep',
        );
      return failure;
    }
  }

  #ask<T>(signal: AbortSignal, use: (core: CoreV1Api) => Promise<T>): Promise<T> {
    const call = { signal, withinMs: REQUEST_MS, patch: 'apply-patch' } as const;
    return callApi(this.#options.connection, 'CoreV1Api', call, use);
  }

  /** Tests the helper on nodes of each kind, one after the other, until it has worked once. */
  async #try(leadership: Leadership): Promise<void> {
    const { clock, random, pause, place, logger } = this.#options;
    const schedules = new Map<string, Schedule>();
    const idle = new Set<string>();
    while (await pause(TICK_MS, leadership.signal)) {
      // The results are stored in the ConfigMap of Linger's own namespace, so that has to exist.
      if (!this.#seen.has(place.namespace) || !this.#needed()) continue;
      const kinds = [...this.#kinds()].filter(([kind]) => this.#trials.get(kind) !== '');
      const due = kinds.find(([kind]) => schedules.get(kind)?.due(clock()) ?? true);
      if (due === undefined || !leadership.holds()) continue;
      const [kind, nodes] = due;
      const schedule = schedules.get(kind) ?? new Schedule(TRIAL_PACE, clock(), random);
      schedules.set(kind, schedule);
      const untried = nodes.filter(({ name }) => !idle.has(name));
      // Empty if the other nodes have been removed in the meantime.
      const left = untried.length > 0 ? untried : nodes;
      const node = left[Math.floor(random() * left.length)] as NodeFacts;
      const problem = await this.#tryOn(node, leadership.signal);
      if (!leadership.holds()) return;
      if (problem === NOT_TAKEN) idle.add(node.name);
      if (problem === NOT_TAKEN && left.length > 1) continue;
      for (const { name } of nodes) idle.delete(name);
      const members = { node: node.name, kind };
      if (problem === '') {
        schedule.done(clock());
        logger.info(members, 'Hold helper passed its test on this kind of node');
      } else {
        schedule.failed(clock());
        logger.warn(
          { ...members, problem },
          'Hold helper failed its test; pods on nodes of this kind get Sleep',
        );
      }
      const others = [...this.#trials].filter(([each]) => each !== kind);
      this.#trials = new Map([...others, [kind, problem.slice(0, LONGEST_REASON)]]);
      this.#show();
      await this.#apply(place.namespace, leadership.signal);
    }
  }

  /** The nodes whose architecture a helper exists for, by kind. */
  #kinds(): ReadonlyMap<string, readonly NodeFacts[]> {
    const nodes = this.#options.snapshot.current().fleet?.nodes ?? [];
    const served = nodes.filter(
      ({ operatingSystem, architecture }) =>
        operatingSystem !== 'windows' && HELPER_ARCHITECTURES.has(architecture),
    );
    return Map.groupBy(served, nodeKind);
  }

  #kindsByResult() {
    const results = { passed: 0, failed: 0, untried: 0 };
    for (const kind of this.#kinds().keys()) {
      const problem = this.#trials.get(kind);
      results[problem === undefined ? 'untried' : problem === '' ? 'passed' : 'failed'] += 1;
    }
    return results;
  }

  /** Runs the helper in a pod on this node. @returns why it did not work; empty if it did */
  async #tryOn(node: NodeFacts, signal: AbortSignal): Promise<string> {
    const { clock, pause } = this.#options;
    try {
      await this.#removeTestPod(signal);
      const like = await this.#likeOurs(signal);
      if (like === undefined)
        return 'there is no pod of this replica’s name to take the image from: set --hold-test-image';
      await this.#createTestPod(node, like, signal);
      const begun = clock();
      let state = 'it was not started';
      while (clock() - begun < TRIAL_WITHIN_MS && (await pause(1_000, signal))) {
        const pod = await this.#pod(TEST_POD, signal);
        if (pod === undefined) return 'its pod was deleted';
        if (pod.status?.phase === 'Succeeded') return '';
        state = podStateOf(pod) || state;
        if (pod.status?.phase === 'Failed') return state;
        const isTaken = pod.status?.startTime !== undefined;
        if (!isTaken && clock() - begun >= TAKEN_WITHIN_MS) return NOT_TAKEN;
      }
      return `not within ${TRIAL_WITHIN_MS / 1000} s: ${state}`;
    } catch (thrown) {
      const { reason, message } = asFailure(thrown);
      return `${reason}: ${message}`;
    } finally {
      await this.#removeTestPod(signal).catch(() => undefined);
    }
  }

  async #pod(name: string, signal: AbortSignal): Promise<V1Pod | undefined> {
    const { namespace } = this.#options.place;
    const query = { namespace, fieldSelector: `metadata.name=${name}` };
    const { items } = await this.#ask(signal, (core) => core.listNamespacedPod(query));
    return items[0];
  }

  /** The settings that a test pod copies from this replica's own pod. @returns undefined if no image is known */
  async #likeOurs(signal: AbortSignal): Promise<Likeness | undefined> {
    const { place, settings } = this.#options;
    const own = (await this.#pod(place.identity, signal).catch(() => undefined))?.spec;
    const [container] = own?.containers ?? [];
    const image = settings.testImage ?? container?.image;
    if (image === undefined) return undefined;
    const runAsUser = container?.securityContext?.runAsUser ?? own?.securityContext?.runAsUser ?? NONROOT;
    return { image, secrets: own?.imagePullSecrets ?? [], runAsUser };
  }

  async #removeTestPod(signal: AbortSignal): Promise<void> {
    const { place, pause } = this.#options;
    // Without grace, so that the pod disappears even if its node no longer responds.
    const target = { name: TEST_POD, namespace: place.namespace, gracePeriodSeconds: 0 };
    const remove = () => unlessNotFound(this.#ask(signal, (core) => core.deleteNamespacedPod(target)));
    while ((await remove()) !== undefined && (await this.#pod(TEST_POD, signal)) !== undefined)
      if (!(await pause(1_000, signal))) return;
  }

  /** Uses server-side apply, because RBAC can limit that to one name, unlike a create. */
  async #createTestPod(
    { name: nodeName, architecture }: NodeFacts,
    like: Likeness,
    signal: AbortSignal,
  ): Promise<void> {
    const { namespace } = this.#options.place;
    const helper = { key: holdKey(architecture), configMap: this.#helper.name };
    const body = testPod({ namespace, nodeName, ...like, ...helper });
    const target = { name: TEST_POD, namespace, fieldManager: 'linger', force: true };
    await this.#ask(signal, (core) => core.patchNamespacedPod({ ...target, body }));
  }
}

/** The user of Linger's images. */
const NONROOT = 65_532;

interface Likeness {
  readonly image: string;
  readonly secrets: readonly object[];
  /** OpenShift allows pods of a namespace to run only as users of the namespace's own range. */
  readonly runAsUser: number;
}

type TestPod = Likeness & Readonly<Record<'namespace' | 'nodeName' | 'key' | 'configMap', string>>;

/**
 * A pod that runs the helper from the ConfigMap mounted as in an application's pod, on a certain node regardless of its
 * taints, and within Pod Security "restricted". It does not call the Hold Service: it waits for a second and exits with 0.
 */
export function testPod({ namespace, nodeName, image, secrets, runAsUser, key, configMap }: TestPod): object {
  const security = { runAsNonRoot: true, runAsUser, seccompProfile: { type: 'RuntimeDefault' } };
  const container = {
    name: 'hold',
    image,
    imagePullPolicy: 'IfNotPresent',
    command: [HOLD_HELPER, '', '', '1', '1'],
    // Requests and limits, because a quota may require either.
    resources: { requests: { cpu: '1m', memory: '8Mi' }, limits: { cpu: '100m', memory: '64Mi' } },
    securityContext: {
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ['ALL'] },
    },
    volumeMounts: [{ name: HOLD_VOLUME, mountPath: HOLD_MOUNT, readOnly: true }],
  };
  // Not optional here, so that the kubelet waits for a ConfigMap that it does not know yet.
  const source = { name: configMap, defaultMode: 0o555, items: [{ key, path: 'hold' }] };
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    // Not the labels of Linger's own pods, so that no Service selects it.
    metadata: { name: TEST_POD, namespace, labels: { 'app.kubernetes.io/name': TEST_POD } },
    spec: {
      nodeName,
      restartPolicy: 'Never',
      activeDeadlineSeconds: TRIAL_WITHIN_MS / 1000,
      terminationGracePeriodSeconds: 1,
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      tolerations: [{ operator: 'Exists' }],
      imagePullSecrets: secrets,
      securityContext: security,
      containers: [container],
      volumes: [{ name: HOLD_VOLUME, configMap: source }],
    },
  };
}

/** Why a pod is not running, or has failed, according to its status. */
function podStateOf({ status }: V1Pod): string {
  const state = status?.containerStatuses?.[0]?.state;
  const { reason, message } = state?.terminated ?? state?.waiting ?? status ?? {};
  const exit = state?.terminated === undefined ? undefined : `exit code ${state.terminated.exitCode}`;
  return [reason, exit, message].filter((each) => each !== undefined).join(': ');
}
