import { canonicalAddress, objectKey, PageFindings } from '../../core/api/index.ts';
import type {
  ClusterEvent,
  Departed,
  MeasurementState,
  PodAddress,
  PodAddresses,
  PodKey,
  RemovalSample,
  ServiceName,
} from '../../core/lag/index.ts';
import { Listeners } from '../../manager/index.ts';
import { pause } from '../../timing/index.ts';
import type { PageAnswer } from '../requests/gateway-client.ts';
import type { Problem } from '../requests/probe.ts';
import {
  Asked,
  type Inspected,
  Instance,
  type InstanceList,
  inspectionStateOf,
  isSettled,
  isSkipped,
  MOST_QUESTIONS,
  MOST_STALE_HOLDS,
  type PageInstance,
  type PageToRead,
  Question,
  readyAt,
  type Verdict,
} from './inspected.ts';
import { endpointsOf, pageUrl, roomBeside, whatFits } from './page-request.ts';
import { endpointOf, STALE_LIMITS, type StaleUpstream } from './stale-upstreams.ts';

export interface InspectionOptions {
  /** Monotonic milliseconds, both for events and for the inspection. */
  readonly clock: () => number;
  readonly addresses: PodAddresses;
  /** The inspected consumers that send traffic to a pod through these Services. */
  readonly sendersTo: (services: readonly ServiceName[]) => readonly Inspected[];
  /** Never rejects. */
  readonly instancesOf: (consumer: Inspected, signal: AbortSignal) => Promise<InstanceList | Problem>;
  /** Never rejects. */
  readonly ask: (
    consumer: Inspected,
    instance: PageInstance,
    page: PageToRead,
    signal: AbortSignal,
  ) => Promise<PageAnswer>;
  /** The 99.9th percentile of a consumer's removals, in seconds; undefined: nothing has been measured. */
  readonly lagOf: (consumer: string) => number | undefined;
  /** Whether a pod other than this one has the address; undefined: not known. Never rejects. */
  readonly isReused: (departed: Departed, signal: AbortSignal) => Promise<boolean | undefined>;
  /** Called when an instance keeps a dead address, and when Hold stops or resumes waiting for an instance. */
  readonly onStale: (found: StaleUpstream) => void;
  readonly onSkipped: (consumer: string, instance: string, skipped: boolean) => void;
  /** Called with the seconds from the withdrawal of a pod until no instance used it any more. */
  readonly onLag: (consumer: string, seconds: number) => void;
  readonly count: {
    page(consumer: string, result: 'read' | Problem['reason'], bytes: number): void;
    /** A removal that gave no sample, because some instance could not answer. */
    lost(consumer: string): void;
  };
  readonly limits?: Partial<typeof INSPECTION_LIMITS>;
}

/** Times in milliseconds, and request rates per second. */
const INSPECTION_LIMITS = {
  ...STALE_LIMITS,
  pages: 20,
  bytes: 10_000_000,
  atOnce: 8,
  every: 1_000,
  /**
   * Time between two requests when no change is expected: the pod is still listed as ready, or all instances have answered.
   */
  calm: 10_000,
  /** Time between two listings of the instances: while questions are open, and otherwise. */
  listing: 5_000,
  idleListing: 60_000,
  /** For how long an instance's last answer is valid. */
  unheard: 10_000,
  /**
   * No withdrawal is followed for longer: if it has not ended by then, it gives no sample, and instances are no longer
   * asked.
   */
  endless: 600_000,
  silent: 60_000,
  unmeasured: 30_000,
  oldest: 7_200_000,
};

/** The longest pause after a slow turn, which may only have been short of processor time. */
const LONGEST_REST_MS = 50;

const MOST_FELLOWS = 50;
const NEWS = 'news';

/**
 * Asks the instances of consumers whether they still use terminating pods. Questions about a pod begin when its termination
 * is seen. Once its slices no longer list it as ready, they are repeated until every instance has dropped it.
 */
export class Inspection {
  readonly #options: InspectionOptions;
  readonly #limits: typeof INSPECTION_LIMITS;
  readonly #consumers = new Map<string, Asked>();
  readonly #wanted = new Map<string, PodKey>();
  readonly #changed = new Listeners<[uid: string]>();
  readonly #connected = new Listeners<[address: string]>();
  /** When the latest requests were started. */
  #begun: number[] = [];
  /** How many bytes have been read beyond the budget so far. */
  #debt = 0;
  #debtAt = 0;
  #atOnce = 0;
  #waking = new AbortController();

  constructor(options: InspectionOptions) {
    this.#options = options;
    this.#limits = { ...INSPECTION_LIMITS, ...options.limits };
  }

  /** Sets the inspected consumers; none while this replica does not lead. */
  keep(consumers: readonly Inspected[]): void {
    const names = new Set(consumers.map(({ name }) => name));
    for (const name of this.#consumers.keys()) if (!names.has(name)) this.#consumers.delete(name);
    for (const consumer of consumers) {
      const known = this.#consumers.get(consumer.name);
      // A changed spec may refer to another page, so answers from the old page no longer count.
      if (JSON.stringify(known?.consumer.inspect) === JSON.stringify(consumer.inspect)) continue;
      this.#consumers.set(consumer.name, new Asked(consumer));
      this.#wake();
    }
    for (const pod of this.#wanted.values()) this.#open(pod);
  }

  /** Takes an event of the watches, before it is measured. */
  observe(event: ClusterEvent): void {
    const isAsking = () => [...this.#consumers.values()].some(({ questions }) => questions.size > 0);
    // A pod may have been withdrawn, so pages may change soon.
    if (this.#options.addresses.observe(event) && isAsking()) this.#wake();
    if (event.type !== 'PodTerminating' && event.type !== 'PodDeleted') return;
    this.#open(event.pod);
    if (event.type !== 'PodDeleted') return;
    for (const [, question] of this.#all(event.pod.uid)) question.goneAt ??= event.at;
    for (const asked of this.#consumers.values()) asked.settled.delete(event.pod.uid);
  }

  /** Records that all groups have withdrawn the pod. */
  removed({ uid, at }: Pick<RemovalSample, 'uid' | 'at'>): void {
    for (const [asked, question] of this.#all(uid)) {
      question.withdrawnAt = at;
      this.#conclude(asked, question);
    }
    this.#wake();
  }

  /** Starts to ask whether the pod is in use, until {@link done}. */
  want(pod: PodKey): void {
    this.#wanted.set(pod.uid, pod);
    this.#open(pod);
  }

  /** Ends {@link want}, because the hold of the pod is over. */
  done(uid: string): void {
    if (this.#wanted.delete(uid))
      for (const [asked, question] of this.#all(uid)) this.#learn(asked, question);
  }

  /** Counts for each instance how many held pods in a row it has used for longer than the consumer takes to follow. */
  #learn(asked: Asked, { verdicts, hotSince, withdrawnAt = hotSince, endpoints }: Question): void {
    const { clock, addresses, onSkipped } = this.#options;
    if (withdrawnAt === undefined) return;
    for (const instance of asked.instances.values()) {
      const { name } = instance.page;
      const before = instance.staleHolds;
      const { state } = verdicts.get(name) ?? {};
      const isKept =
        state === 'using' &&
        withdrawnAt >= instance.staleHoldAt &&
        clock() - withdrawnAt > this.#patience(asked);
      // If a slice of another Service still lists the address, the instance is right to keep it.
      if (isKept && !endpoints.some(({ address }) => addresses.lists(address))) {
        instance.staleHolds += 1;
        instance.staleHoldAt = clock();
      }
      if (state === 'notUsing') instance.staleHolds = 0;
      if (instance.staleHolds === MOST_STALE_HOLDS && before < MOST_STALE_HOLDS)
        onSkipped(asked.consumer.name, name, true);
      if (instance.staleHolds === 0 && before >= MOST_STALE_HOLDS)
        onSkipped(asked.consumer.name, name, false);
    }
  }

  /** The instances that Hold does not wait for, because they keep what they should drop. */
  skipped(consumer: string): readonly string[] {
    const instances = [...(this.#consumers.get(consumer)?.instances.values() ?? [])];
    return instances.filter(isSkipped).map(({ page }) => page.name);
  }

  /** The dead addresses that instances keep, by consumer and instance. */
  *stale(): Generator<readonly [consumer: string, instance: string, kept: readonly Departed[]]> {
    for (const [name, { stale }] of this.#consumers)
      for (const [instance, kept] of stale.kept(this.#options.addresses.departed))
        yield [name, instance, kept];
  }

  /** Calls a listener when an answer of {@link usersOf} may have changed. */
  get onChange() {
    return this.#changed.add;
  }

  /** Calls a listener with the address of an instance whenever Linger has connected to it to read a page. */
  get onConnect() {
    return this.#connected.add;
  }

  get connected() {
    return this.#connected.call;
  }

  /**
   * The instances of a consumer that use a wanted pod.
   * @param since when the pod was withdrawn. Pages that were read before that do not count, as an instance may have started
   * to use it later
   * @returns undefined: the consumer is not inspected, or not about this pod; `unknown`: some instance could not answer
   */
  usersOf(consumer: string, uid: string, since: number): readonly string[] | 'unknown' | undefined {
    const asked = this.#consumers.get(consumer);
    if (asked === undefined || !this.#wanted.has(uid)) return undefined;
    const question = asked.questions.get(uid);
    const awaited = [...asked.instances.values()].filter((each) => !isSkipped(each));
    if (awaited.length === 0 && asked.instances.size > 0 && asked.knowsAll) return [];
    const verdicts = awaited.map(
      (instance) => [instance.page.name, this.#saysNow(asked, question, instance, since)] as const,
    );
    const users = verdicts.filter(([, says]) => says === 'using').map(([name]) => name);
    if (users.length > 0) return users;
    const isKnown = asked.knowsAll && verdicts.length > 0 && verdicts.every(([, says]) => says !== 'unknown');
    return isKnown ? [] : 'unknown';
  }

  /** Asks until the signal aborts. */
  async run(signal: AbortSignal): Promise<void> {
    const wake = () => this.#wake();
    signal.addEventListener('abort', wake, { once: true });
    while (!signal.aborted) {
      this.#waking = new AbortController();
      const began = this.#options.clock();
      const waitMs = this.#turn(signal);
      const took = this.#options.clock() - began;
      await pause(waitMs, this.#waking.signal);
      // In a storm there is always something new, so limit the checks of what is due to a fifth of the time.
      if (took > 1) await pause(Math.min(4 * took, LONGEST_REST_MS), signal);
    }
  }

  /**
   * The inspected consumers that send through these Services, each with whether one of its instances is among the addresses.
   * @param remotes addresses in the spelling of {@link canonicalAddress}
   */
  *seenAmong(
    services: readonly ServiceName[],
    remotes: readonly string[],
  ): Generator<readonly [consumer: string, seen: boolean]> {
    for (const { name, inspect, followed } of this.#options.sendersTo(services)) {
      const { instances } = this.#consumers.get(name) ?? {};
      // Pages of a discovery service are not from the instances that send.
      if (inspect.url !== undefined || followed !== undefined || !instances?.size) continue;
      const addresses = [...instances.values()].map(({ page }) => canonicalAddress(page.address));
      yield [name, addresses.some((each) => each !== undefined && remotes.includes(each))];
    }
  }

  /** The state of inspection by consumer. */
  states(): ReadonlyMap<string, MeasurementState> {
    const { departed } = this.#options.addresses;
    return new Map([...this.#consumers].map(([name, asked]) => [name, inspectionStateOf(asked, departed)]));
  }

  /** For gauges. */
  *instances(): Generator<readonly [consumer: string, answering: number, silent: number]> {
    for (const [name, { instances }] of this.#consumers) {
      const silent = [...instances.values()].filter(({ failing }) => failing !== undefined).length;
      yield [name, instances.size - silent, silent];
    }
  }

  #open(pod: PodKey): void {
    const { uid } = pod;
    const { addresses, sendersTo, clock } = this.#options;
    const known = addresses.of(pod);
    if (known.length === 0 || this.#consumers.size === 0) return;
    const services = [...new Set(known.map(({ service }) => service))];
    for (const { name } of sendersTo(services)) {
      const asked = this.#consumers.get(name);
      if (asked === undefined || asked.questions.has(uid)) continue;
      if (!asked.shares.hasRoomFor(pod.namespace, 1, MOST_QUESTIONS)) continue;
      const isSettled = asked.settled.has(uid);
      if (isSettled && !this.#wanted.has(uid)) continue;
      asked.shares.add(pod.namespace, 1);
      asked.questions.set(uid, new Question(pod, known, services, clock(), isSettled));
      this.#wake();
    }
  }

  *#all(uid: string): Generator<readonly [Asked, Question]> {
    for (const asked of this.#consumers.values()) {
      const question = asked.questions.get(uid);
      if (question !== undefined) yield [asked, question];
    }
  }

  #wake(): void {
    // With a constant reason; otherwise each call would create an error.
    if (!this.#waking.signal.aborted) this.#waking.abort(NEWS);
  }

  /** Starts the requests that are due. @returns the milliseconds until the next check */
  #turn(signal: AbortSignal): number {
    const now = this.#options.clock();
    let next = now + this.#limits.listing;
    const due: { readonly at: number; readonly asked: Asked; readonly instance: Instance }[] = [];
    for (const asked of this.#consumers.values()) {
      this.#expire(asked, now);
      next = Math.min(next, this.#list(asked, now, signal));
      next = Math.min(next, this.#tellWaits(asked, now));
      for (const instance of asked.instances.values()) {
        const at = instance.asking
          ? Number.POSITIVE_INFINITY
          : Math.min(this.#dueAt(asked, instance), this.#restDueAt(asked, instance, now));
        if (at <= now) due.push({ at, asked, instance });
        else next = Math.min(next, at);
      }
    }
    due.sort((a, b) => a.at - b.at);
    for (const { asked, instance } of due) {
      const free = asked.consumer.followed === undefined ? this.#freeAt(now) : now;
      if (free <= now) void this.#ask(asked, instance, signal);
      // Lookups in memory are made even while pages have to wait.
      else next = Math.min(next, free);
    }
    return Math.max(1, next - now);
  }

  /** When the next page may be requested. */
  #freeAt(now: number): number {
    const { pages, bytes, atOnce } = this.#limits;
    // The end of a request wakes the loop, so there is no need to wait for an instant.
    if (this.#atOnce >= atOnce) return Number.POSITIVE_INFINITY;
    this.#begun = this.#begun.filter((at) => now - at < 1000);
    const first = this.#begun[this.#begun.length - pages];
    const debt = this.#debtNow(now);
    return Math.max(first === undefined ? now : first + 1000, now + ((debt - bytes) / bytes) * 1000);
  }

  #debtNow(now: number): number {
    this.#debt = Math.max(0, this.#debt - ((now - this.#debtAt) / 1000) * this.#limits.bytes);
    this.#debtAt = now;
    return this.#debt;
  }

  /** @returns when to list the instances again */
  #list(asked: Asked, now: number, signal: AbortSignal): number {
    const { listing, idleListing } = this.#limits;
    const every = asked.questions.size > 0 ? listing : idleListing;
    if (asked.listedAt + every <= now) void this.#listInstances(asked, signal);
    return asked.listedAt + every;
  }

  async #listInstances(asked: Asked, signal: AbortSignal): Promise<void> {
    asked.listedAt = Number.POSITIVE_INFINITY;
    const found = await this.#options.instancesOf(asked.consumer, signal);
    const now = this.#options.clock();
    asked.listedAt = now;
    const knewAll = asked.knowsAll;
    if ('reason' in found) {
      asked.unlistableSince ??= now;
      // The known instances may still exist, and for a while they are probably all.
      const lasts = now - asked.unlistableSince > this.#limits.silent;
      if (lasts || asked.instances.size === 0) asked.trouble = found;
    } else {
      asked.unlistableSince = undefined;
      asked.trouble = undefined;
      asked.isWhole = found.isWhole;
      asked.unrouted = found.unrouted ?? [];
      this.#setInstances(asked, found.pages);
    }
    if (knewAll !== asked.knowsAll) for (const { uid } of asked.questions.values()) this.#tell(uid);
    this.#wake();
  }

  /** Adapts instances and open questions to the pages that exist now. */
  #setInstances(asked: Asked, found: readonly PageInstance[]): void {
    const { instances, questions } = asked;
    const byName = new Map(found.map((page) => [page.name, page]));
    let hasChanged = false;
    for (const { page } of instances.values()) {
      if (byName.get(page.name)?.address === page.address) continue;
      instances.delete(page.name);
      for (const { verdicts } of questions.values()) verdicts.delete(page.name);
      asked.stale.forget(page.name);
      hasChanged = true;
    }
    for (const page of found) {
      if (instances.has(page.name)) continue;
      instances.set(page.name, new Instance(page));
      hasChanged = true;
    }
    if (!hasChanged) return;
    for (const question of questions.values()) {
      this.#conclude(asked, question);
      this.#tell(question.uid);
    }
  }

  /** When to ask the instance next. */
  #dueAt(asked: Asked, instance: Instance): number {
    const { askedAt, failing } = instance;
    // Ask once when it is first seen, so that a problem with its page shows before the page is needed.
    if (askedAt === undefined) return 0;
    const { calm, idleListing } = this.#limits;
    const { every: seconds = this.#limits.every / 1000 } = asked.consumer.inspect;
    const every = seconds * 1000 * Math.min(5, 1 + (failing?.times ?? 0));
    let due = failing === undefined ? Number.POSITIVE_INFINITY : askedAt + idleListing;
    // A source in memory can be looked up at no cost, so that its trouble, and the end of it, shows.
    if (asked.consumer.followed !== undefined) due = askedAt + this.#limits.every;
    for (const question of asked.questions.values()) {
      const hurry = this.#isPressing(question, question.verdicts.get(instance.page.name));
      due = Math.min(due, askedAt + (hurry ? every : Math.max(calm, every)));
      if (hurry) break;
    }
    return due;
  }

  /** When to ask the instance about departed addresses. If there are none, sets the next instant for checking that. */
  #restDueAt(asked: Asked, instance: Instance, now: number): number {
    const { rest, confirm } = this.#limits;
    const keptSince = asked.stale.keptSince(instance.page.name, this.#options.addresses.departed);
    const due =
      keptSince === undefined ? instance.restedAt + rest : Math.max(keptSince, instance.restedAt) + confirm;
    if (due > now || instance.resting) return due;
    instance.resting = this.#departedFor(asked, instance).length > 0;
    if (instance.resting) return due;
    instance.restedAt = now;
    return now + rest;
  }

  /** The departed addresses that the instance may still use. */
  #departedFor(asked: Asked, { page }: Instance): readonly Departed[] {
    const { addresses, sendersTo, clock } = this.#options;
    const { departed } = addresses;
    if (departed.size === 0) return [];
    const open = asked.stale.open(page.name, departed.values(), clock() - this.#patience(asked));
    const services = new Map<string, boolean>();
    return open.filter(({ service }) => {
      const key = objectKey(service);
      const sends =
        services.get(key) ?? sendersTo([service]).some(({ name }) => name === asked.consumer.name);
      services.set(key, sends);
      return sends;
    });
  }

  /**
   * How long an instance may keep an address: as long as the consumer takes to follow, plus as long as its clients may cache
   * it. Milliseconds.
   */
  #patience(asked: Asked): number {
    const { clock, lagOf } = this.#options;
    const { least } = this.#limits;
    const now = clock();
    if (asked.patience === undefined || now - asked.patience.at > least) {
      const lag = (lagOf(asked.consumer.name) ?? 0) * 1000;
      asked.patience = { ms: Math.max(least, lag) + asked.syncMs, at: now };
    }
    return asked.patience.ms;
  }

  /** Confirms an address that two pages list, unless it has a new owner by now. */
  async #confirm(asked: Asked, { page: { name } }: Instance, departed: Departed, signal: AbortSignal) {
    const { addresses, isReused, onStale } = this.#options;
    const reused = addresses.lists(departed.address) || (await isReused(departed, signal));
    // With `undefined`, the API server could not be asked, so the next page decides.
    if (reused) addresses.forgetDeparted(departed.address);
    if (reused !== false || addresses.departed.get(departed.address) !== departed) return;
    asked.stale.confirm(name, departed);
    onStale({ consumer: asked.consumer.name, instance: name, departed });
  }

  #isPressing(question: Question, verdict: Verdict | undefined): boolean {
    if (verdict === undefined) return true;
    return !this.#options.addresses.isReady(question) && !isSettled(question, verdict);
  }

  async #ask(asked: Asked, instance: Instance, signal: AbortSignal): Promise<void> {
    const { clock, ask, count } = this.#options;
    const askedAt = clock();
    const { page, questions, fellows, whole, departed } = this.#pageFor(asked, instance, askedAt);
    instance.asking = true;
    instance.askedAt = askedAt;
    // Reading a source in memory costs no request.
    const cost = asked.consumer.followed === undefined ? 1 : 0;
    this.#atOnce += cost;
    if (cost > 0) this.#begun.push(askedAt);
    const { outcome, bytes } = await ask(asked.consumer, instance.page, page, signal);
    this.#atOnce -= cost;
    instance.asking = false;
    const readAt = clock();
    this.#debt = this.#debtNow(readAt) + bytes;
    if (signal.aborted || asked.instances.get(instance.page.name) !== instance) return;
    if (outcome instanceof PageFindings) {
      if (cost > 0) count.page(asked.consumer.name, 'read', bytes);
      instance.failing = undefined;
      if (whole && questions.length > 0) instance.learn(outcome.clusters);
      const shown = fellows.map(
        ([service, of]) => [service, of.filter((each) => shows(outcome, each))] as const,
      );
      for (const each of shown.flatMap(([, of]) => of)) instance.shows(each, askedAt);
      // Of each Service, the newest endpoint comes first.
      const newest = new Map(
        shown.flatMap(([service, [first]]) => (first ? [[service, readyAt(first)] as const] : [])),
      );
      const read = { findings: outcome, newest, askedAt, readAt, whole };
      const fresh = questions.filter(({ verdicts }) => verdicts.size === 0).length;
      for (const question of questions) this.#judge(asked, instance, question, read);
      const lasting = asked.stale.judge(instance.page.name, departed, outcome, askedAt, this.#limits.confirm);
      for (const each of lasting) void this.#confirm(asked, instance, each, signal);
      if (outcome.endpoints.size > 0) asked.unlisted = undefined;
      else if (questions.length > 0 && asked.unlisted)
        asked.unlisted = [asked.unlisted[0] + 1, asked.unlisted[1] + fresh];
    } else {
      if (cost > 0) count.page(asked.consumer.name, outcome.reason, bytes);
      const { since = readAt, times = 0 } = instance.failing ?? {};
      instance.failing = { trouble: outcome, since, times: times + 1 };
    }
    this.#wake();
  }

  /** The page to request from an instance, and the questions that it will answer. */
  #pageFor(asked: Asked, instance: Instance, now: number) {
    const { format } = asked.consumer.inspect;
    const open = [...asked.questions.values()];
    const questions = format === 'Witness' ? whatFits(open, instance.page.name) : open;
    if (questions.length === 0) instance.clusters.clear();
    const own = questions.flatMap(({ endpoints }) => endpoints);
    const departed = instance.resting ? this.#departedFor(asked, instance) : [];
    if (instance.resting) instance.restedAt = now;
    instance.resting = false;
    const services = new Map(
      questions.flatMap((each) => each.services.map((service) => [objectKey(service), service] as const)),
    );
    const fellows = [...services].map(([key, service]) => [key, this.#fellows(service)] as const);
    const dead = format === 'Witness' ? departed.slice(0, roomBeside(own)) : departed;
    const wanted = [...own, ...dead.map(endpointOf), ...fellows.flatMap(([, of]) => endpointsOf(of))];
    const whole =
      dead.length > 0 || !questions.every((each) => each.verdicts.get(instance.page.name)?.whole === true);
    const clusters = whole ? new Set<string>() : instance.clusters;
    const url = pageUrl(instance.page.url, format, wanted, clusters);
    const page = { url, wanted, services: [...services.values(), ...dead.map(({ service }) => service)] };
    return { page, questions, fellows, whole, departed: dead };
  }

  /** The endpoints of a Service, the most recently ready first. */
  #fellows(service: ServiceName): readonly PodAddress[] {
    const all = [...this.#options.addresses.in(service)];
    return all.sort((a, b) => readyAt(b) - readyAt(a)).slice(0, MOST_FELLOWS);
  }

  #judge(
    asked: Asked,
    instance: Instance,
    question: Question,
    read: {
      readonly findings: PageFindings;
      /** For each Service with endpoints on the page: when the newest of these became ready. */
      readonly newest: ReadonlyMap<string, number>;
      readonly askedAt: number;
      readonly readAt: number;
      readonly whole: boolean;
    },
  ): void {
    const { name } = instance.page;
    const before = question.verdicts.get(name);
    const found = question.endpoints.map((endpoint) => read.findings.of(endpoint));
    const shown =
      before?.shown === true || found.some((each) => each !== 'absent') || instance.hasShown(question);
    const wasUnused = before?.state === 'notUsing';
    let state = before?.state ?? 'unknown';
    if (found.includes('using')) state = 'using';
    else if (shown || wasUnused || this.#knows(question, read.newest)) state = 'notUsing';
    const left = question.endpoints.flatMap(({ address }) => read.findings.leftAt.get(address) ?? []);
    const since = wasUnused ? before.since : left.length > 0 ? Math.max(...left) : read.readAt;
    const whole = before?.whole === true || read.whole;
    question.verdicts.set(name, { state, shown, whole, since, askedAt: read.askedAt });
    this.#conclude(asked, question);
    // A repeated `notUsing` matters: it may be the first one since the withdrawal.
    if (state !== before?.state || state === 'notUsing') this.#tell(question.uid);
  }

  /**
   * Whether the absence of a pod from an instance's page means that the instance has dropped it. An instance that lags may
   * not have added the pod yet: it would add it, and send to it, only after the pod is gone. So its page must show a pod of
   * the same Service that became ready later, or this pod must have been ready for longer than any consumer may lag.
   */
  #knows(question: Question, newest: ReadonlyMap<string, number>): boolean {
    const { clock, addresses } = this.#options;
    question.see(addresses.of(question));
    const settled = clock() - this.#limits.endless;
    return [...question.readyAt].some(([service, since]) => {
      const seen = newest.get(service);
      return seen !== undefined && (seen > since || since < settled);
    });
  }

  /** Records the sample of a removal once the answers of all instances are known. */
  #conclude(asked: Asked, question: Question): void {
    const { withdrawnAt, closed, verdicts } = question;
    if (closed || withdrawnAt === undefined || asked.instances.size === 0 || !asked.knowsAll) return;
    let last = withdrawnAt;
    for (const name of asked.instances.keys()) {
      const verdict = verdicts.get(name);
      if (verdict === undefined || !isSettled(question, verdict)) return;
      last = Math.max(last, verdict.since + asked.syncMs);
    }
    question.closed = true;
    this.#options.onLag(asked.consumer.name, (last - withdrawnAt) / 1000);
  }

  /** Abandons questions that can no longer give a sample, and forgets those that are no longer needed. */
  #expire(asked: Asked, now: number): void {
    for (const question of asked.questions.values()) {
      if (question.verdicts.size > 0 && !this.#options.addresses.isReady(question)) question.hotSince ??= now;
      if (!question.closed && this.#isHopeless(asked, question, now)) {
        question.closed = true;
        if (question.hotSince !== undefined) this.#options.count.lost(asked.consumer.name);
      }
      if (question.closed && !this.#wanted.has(question.uid)) asked.settle(question);
    }
  }

  #isHopeless(asked: Asked, question: Question, now: number): boolean {
    const { endless, silent, unmeasured, oldest } = this.#limits;
    const { hotSince = now, goneAt = now, openedAt, verdicts } = question;
    const verdictsNow = [...asked.instances.keys()].map((name) => verdicts.get(name)?.state ?? 'unknown');
    if (now - openedAt > oldest || now - hotSince > endless) return true;
    if (now - hotSince > silent && !verdictsNow.includes('using') && verdictsNow.includes('unknown'))
      return true;
    // The withdrawal was discarded, or was never measured.
    return now - Math.max(goneAt, hotSince) > unmeasured && !verdictsNow.includes('using');
  }

  #saysNow(
    asked: Asked,
    question: Question | undefined,
    instance: Instance,
    since: number,
  ): Verdict['state'] {
    const verdict = question?.verdicts.get(instance.page.name);
    if (verdict === undefined) return 'unknown';
    const now = this.#options.clock();
    if (verdict.state === 'notUsing') {
      if (verdict.askedAt < since) return 'unknown';
      return verdict.since + asked.syncMs > now ? 'using' : 'notUsing';
    }
    const { since: failingSince = now } = instance.failing ?? {};
    return now - failingSince > this.#limits.unheard ? 'unknown' : verdict.state;
  }

  /** Clients of a discovery service may keep an address for one more interval. @returns when the next such interval ends */
  #tellWaits(asked: Asked, now: number): number {
    const sync = asked.syncMs;
    let next = Number.POSITIVE_INFINITY;
    if (sync === 0) return next;
    for (const { uid, verdicts, waited } of asked.questions.values()) {
      if (!this.#wanted.has(uid)) continue;
      for (const [name, { state, since }] of verdicts) {
        if (state !== 'notUsing' || waited.get(name) === since) continue;
        if (since + sync > now) next = Math.min(next, since + sync);
        else {
          waited.set(name, since);
          this.#tell(uid);
        }
      }
    }
    return next;
  }

  #tell(uid: string): void {
    if (this.#wanted.has(uid)) this.#changed.call(uid);
  }
}

function shows(page: PageFindings, pod: PodAddress): boolean {
  return endpointsOf([pod]).some((own) => page.of(own) !== 'absent');
}
