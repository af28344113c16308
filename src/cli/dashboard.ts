import { spawn } from 'node:child_process';
import { Readable } from 'node:stream';
import { buffer as readAll } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import type { TerminationRecord } from '../audit/index.ts';
import type { KubeConnection } from '../cluster/index.ts';
import {
  API_VERSION,
  asError,
  type ClusterTerminationPolicy,
  LingerError,
  NAMESPACE_NAME_LABEL,
  NO_LABELS,
  namespaceRecord,
  parseDocument,
  UserError,
  unseenNamespace,
} from '../core/api/index.ts';
import { type ClusterSnapshot, holdObstacle, namespaceView, snapshotOf } from '../core/decision/index.ts';
import { type AuditSummary, calledBy, type RelatedObjects, summaryOfAudit } from '../core/judge/index.ts';
import {
  ChangeSummary,
  type ConsumerTable,
  ENDPOINT_SOURCES,
  LagHistory,
  type ObservedChange,
} from '../core/lag/index.ts';
import {
  becauseOf,
  explanationOf,
  type JudgedWorkload,
  outlinedPatch,
  overviewOf,
  plannedCharts,
  policyText,
  standingOf,
} from '../core/report/index.ts';
import {
  type AllWorkloads,
  type Answers,
  type ConsumersView,
  type ExplanationReport,
  type NowReport,
  type Recording,
  readRecording,
  startReplay,
  type Topic,
  type WhatIfReport,
} from '../dashboard/index.ts';
import { EndpointWatch } from '../informers/index.ts';
import { inPieces, pause, tick } from '../timing/index.ts';
import { close } from '../webhook/index.ts';
import { type AuditInput, auditAll, clusterInput, manifestsOf, withPolicies } from './audit.ts';
import type { Settings } from './commands.ts';
import { connectToLinger, explained, isDenied, nameOf } from './connect.ts';
import { usageError } from './flags.ts';
import { followFiles } from './follow-files.ts';
import { readHistory } from './history.ts';
import { askLeader } from './hold-command.ts';
import { lagReportOf, sampledCurve, waitsOf } from './lag-report.ts';
import { usedBy } from './manifest-files.ts';
import { collectEarly } from './manifests.ts';
import { endedOf, shortfallsOf } from './now-report.ts';
import { openDashboard } from './open-page.ts';
import { readConsumerTable, readTerminations, stalenessOf } from './read-cluster.ts';
import { yamlText } from './rendering.ts';
import { type Surroundings, stopRequested, withoutProgress } from './terminal.ts';
import { timelineReportOf } from './timeline.ts';

/** For lists of all workloads, each of which takes seconds in a large cluster. */
const AUDIT_EVERY_MS = 60_000;
/** For a few small objects. */
const ASK_EVERY_MS = 5_000;
/** For the history, which the leader writes every few minutes. */
const HISTORY_EVERY_MS = 120_000;
/** For removals, which are shown without waiting for the audit of a large cluster. */
const SOON_MS = 500;
/** Soon enough for a person who has just deleted a pod. */
const LOOK_MS = 250;

/** `linger dashboard`: serves the page, with the rights of the user's own kubeconfig, until Ctrl-C. */
export async function dashboard(
  settings: Settings<'dashboard'>,
  surroundings: Surroundings,
): Promise<number> {
  const { port, noOpen } = settings;
  collectEarly();
  const { print, warn, interactive } = surroundings;
  const ending = new AbortController();
  const live = new Live(ending.signal);
  const answers = await answersOf(settings, surroundings, live, ending.signal);
  // Only from here on, because Ctrl-C should end the process as usual while it is still connecting.
  const stopped = stopRequested();
  const onError = (error: Error) => warn(`linger: ${error.message}`);
  const { server, address } = await openDashboard({ ...answers, follow: live.follow }, port, onError);
  print(`Open in a browser; Ctrl-C stops it:\n\n  ${address}\n\n`);
  if (!noOpen && interactive) openInBrowser(address);
  await stopped;
  ending.abort();
  await close(server);
  return 0;
}

function answersOf(
  settings: Settings<'dashboard'>,
  surroundings: Surroundings,
  live: Live,
  signal: AbortSignal,
): Answers | Promise<Answers> {
  const { demo, filename, kubeconfig, context } = settings;
  if (demo) {
    if ((filename ?? kubeconfig ?? context) !== undefined)
      throw usageError('--demo: shows a recording; without -f, --kubeconfig and --context');
    return readRecording().then((recording) =>
      answersOfRecording(recording, settings, surroundings, live, signal),
    );
  }
  return filename === undefined
    ? answersOfCluster(settings, surroundings, live, signal)
    : answersOfFiles(settings, surroundings, live);
}

/** Without a desktop there is no browser; the address has been printed. */
function openInBrowser(address: string): void {
  const [program, ...args] =
    process.platform === 'darwin'
      ? ['open', address]
      : process.platform === 'win32'
        ? ['cmd', '/c', 'start', '', address]
        : ['xdg-open', address];
  const child = spawn(program ?? '', args, { stdio: 'ignore', detached: true });
  child.on('error', () => undefined).unref();
}

/** Signals when to read again: an item each time, from when the promise is fulfilled until the signal aborts. */
type Wake = (signal: AbortSignal) => Promise<AsyncIterable<void>>;

function every(milliseconds: number): Wake {
  return async (signal) =>
    (async function* () {
      while (await tick(milliseconds, signal)) yield;
    })();
}

/** Data that is read repeatedly while a page is open. */
export class Live {
  readonly #listeners: Set<(topic: Topic) => void>;
  readonly #signal: AbortSignal;

  constructor(signal: AbortSignal, listeners = new Set<(topic: Topic) => void>()) {
    this.#signal = signal;
    this.#listeners = listeners;
  }

  /** A view of the same pages that ends with this signal. */
  until(signal: AbortSignal): Live {
    return new Live(AbortSignal.any([this.#signal, signal]), this.#listeners);
  }

  readonly follow = (changed: (topic: Topic) => void): (() => void) => {
    this.#listeners.add(changed);
    return () => void this.#listeners.delete(changed);
  };

  changed(topic: Topic): void {
    for (const listener of this.#listeners) listener(topic);
  }

  /**
   * @param wake when to read again
   * @param read its failure is shown by the page in place of the data
   * @param shown the part of the data that is shown; if that has not changed, the page gets no event
   * @returns a function that returns the latest data: read when first requested, then repeatedly while a page is open
   */
  keep<T>(
    topics: readonly Topic[],
    wake: Wake,
    read: () => Promise<T>,
    shown: (value: T) => unknown = (value) => value,
  ): () => Promise<T> {
    let latest: Promise<T> | undefined;
    /** Whether it should have been read while no page was open. */
    let isStale = false;
    const tell = () => {
      for (const topic of topics) this.changed(topic);
    };
    const looked = (reading: Promise<T>) =>
      reading.then(shown, (thrown: unknown) => ({ failed: asError(thrown).message }));
    const refresh = async () => {
      isStale = false;
      const next = read();
      // The page keeps what it has until there is something new, or a failure.
      const [before, after] = await Promise.all([latest && looked(latest), looked(next)]);
      latest = next;
      if (!isDeepStrictEqual(before, after)) tell();
    };
    const follow = async (changes: AsyncIterable<void>) => {
      for await (const _ of changes) {
        if (this.#listeners.size === 0) isStale = true;
        else await refresh();
      }
    };
    return () => {
      if (latest === undefined) {
        const waking = wake(this.#signal);
        latest = waking.then(read);
        latest.then(tell, tell);
        void waking.then(follow);
      } else if (isStale) void refresh();
      return latest;
    };
  }
}

/** An audit, and what explaining one of its workloads needs. */
interface Audit {
  readonly report: AllWorkloads;
  readonly input: AuditInput;
  readonly snapshot: ClusterSnapshot;
  /** By address. */
  readonly judged: ReadonlyMap<string, JudgedWorkload>;
}

/** Monotonic milliseconds. */
const clock = () => performance.now();

async function audited(input: AuditInput, unseen: readonly string[], asOf: number): Promise<Audit> {
  const { sources, subjects, noHooks } = input;
  const snapshot = snapshotOf(sources);
  const all = await auditAll(input, snapshot);
  const judged = subjects.flatMap((subject, index) => {
    const each = all[index];
    return each === undefined ? [] : [{ subject, audited: each }];
  });
  const overview = await inPieces(overviewOf(judged, snapshot));
  const headline = noHooks === undefined ? overview.headline : `${noHooks} ${overview.headline}`;
  const byAddress = new Map(
    judged.map((each, index) => [overview.rows[index]?.address ?? '', each] as const),
  );
  return { report: { ...overview, asOf, headline, unseen }, input, snapshot, judged: byAddress };
}

/** The answers that are based on an audit. @param read makes a new audit; @param isRunning whether it is of a cluster */
function auditAnswers(
  live: Live,
  wake: Wake,
  topics: readonly Topic[],
  read: () => Promise<Audit>,
  isRunning: boolean,
): Required<Pick<Answers, 'workloads' | 'explanation' | 'whatIf'>> & {
  readonly latest: () => Promise<Audit>;
} {
  const latest = live.keep(topics, wake, read, ({ report: { asOf: _, ...shown } }) => shown);
  const trials = new Trials(() => live.changed('what-if'));
  return {
    whatIf: async (fields) => trials.report(await latest(), fields),
    workloads: async () => (await latest()).report,
    latest,
    explanation: async (address) => {
      const { judged, snapshot, input } = await latest();
      const found = judged.get(address);
      return found && detailOf(found, snapshot, input.related, isRunning);
    },
  };
}

/** The details shown when a workload is opened. @param isRunning whether it is in a cluster, as opposed to a manifest */
function detailOf(
  judged: JudgedWorkload,
  snapshot: ClusterSnapshot,
  related: RelatedObjects,
  isRunning: boolean,
): ExplanationReport {
  const {
    subject,
    audited: { findings },
  } = judged;
  // Manifests are explained as the webhook, if installed, would decide.
  const around = isRunning ? related : { ...related, ...calledBy(undefined) };
  const plan = explanationOf(subject, snapshot, around, { isRunning });
  const verdict = findings[0]?.verdict;
  const isDone = verdict === 'protected' || verdict === 'skipped';
  const patch = isDone ? null : outlinedPatch(subject, snapshot);
  const isBare = isRunning && subject.workload.pointer === '' && patch !== null;
  return {
    plan,
    ...standingOf(judged, snapshot),
    because: becauseOf(plan),
    charts: plannedCharts(judged, plan, snapshot),
    patch: isBare ? null : patch,
    left: isBare ? ['The hooks of a running pod cannot be changed: create it anew, with these.'] : [],
    policy: patch === null ? null : policyText([subject.namespace], {}, 'Audit'),
  };
}

/** Above the priority of any policy that an operator is likely to have. */
const PRIORITY = 1_000;

/** Tries out other policies, for the page's view *What if*. */
export class Trials {
  readonly #done: () => void;
  /** Results by policy, kept for as long as the audit is the latest. */
  readonly #kept = new WeakMap<object, Map<string, Trial>>();
  #running = new AbortController();

  /** @param done called when an audit has ended that was not waited for */
  constructor(done: () => void) {
    this.#done = done;
  }

  /**
   * Decisions and an audit with one additional policy. If the audit takes longer than a person notices, its summary is null
   * at first, and it continues until another policy is requested.
   * @param fields members of `wait`; members of `hold` with the prefix `hold.`; and `hook`
   * @throws LingerError `policy-invalid`
   */
  async report(audit: Pick<Audit, 'report' | 'input'>, fields: Fields): Promise<WhatIfReport> {
    const document = policyOf(fields);
    const policy = parseDocument(document, 'what if') as ClusterTerminationPolicy;
    const yaml = yamlText(document);
    const kept = this.#kept.get(audit.report) ?? new Map<string, Trial>();
    this.#kept.set(audit.report, kept);
    const trial = kept.get(yaml) ?? trialOf(audit, yaml, policy);
    if (kept.size >= MOST_TRIALS) kept.clear();
    kept.set(yaml, trial);
    const after = await this.#audited(audit, trial);
    return { ...trial.report, after };
  }

  async #audited(
    { input: { subjects, related } }: Pick<Audit, 'input'>,
    trial: Trial,
  ): Promise<AuditSummary | null> {
    if (trial.after !== undefined || trial.signal?.aborted === false) return trial.after ?? null;
    this.#running.abort();
    this.#running = new AbortController();
    const { signal } = this.#running;
    trial.signal = signal;
    const withWebhook = { subjects, related: { ...related, configured: true, noHooks: undefined } };
    const auditing = auditAll(withWebhook, trial.snapshot, { signal }).then(
      (all) => {
        trial.after = summaryOfAudit(all);
        return trial.after;
      },
      (thrown: unknown) => {
        trial.signal = undefined;
        if (!signal.aborted) throw thrown;
        return null;
      },
    );
    const soonest = await Promise.race([auditing, sleep(NOTICED_MS, undefined, { ref: false })]);
    if (soonest !== undefined) return soonest;
    // A failure is reported to the next request.
    void auditing.then(
      (late) => late !== null && this.#done(),
      () => this.#done(),
    );
    return null;
  }
}

/** What is known about one additional policy. */
interface Trial {
  readonly report: Omit<WhatIfReport, 'after'>;
  readonly snapshot: ClusterSnapshot;
  after: AuditSummary | undefined;
  /** Ends the running audit. */
  signal: AbortSignal | undefined;
}

function trialOf(
  { input, report }: Pick<Audit, 'report' | 'input'>,
  yaml: string,
  policy: ClusterTerminationPolicy,
): Trial {
  const snapshot = snapshotOf(withPolicies(input.sources, [policy]));
  const bare = (name: string) => namespaceRecord(name, { [NAMESPACE_NAME_LABEL]: name }, NO_LABELS);
  const names = [...new Set(input.subjects.map(({ namespace }) => namespace))];
  const records = names.map((name) => snapshot.namespaces.get(name) ?? bare(name));
  const { lag, hold } = namespaceView(unseenNamespace(''), snapshot);
  const longest = Math.max(lag.seen?.quantile(100) ?? 0, hold?.max ?? 0, 1);
  const distribution = lag.coverage === undefined ? [] : sampledCurve({ coverage: lag.coverage }, longest);
  const heldFor = (share: number) => {
    const [seconds = longest] = distribution.find(([, upTo]) => upTo >= share) ?? [];
    return Math.min(Math.max(seconds, hold?.min ?? 0), hold?.max ?? seconds);
  };
  const whys = hold === undefined ? [] : names.flatMap((name) => holdObstacle(name, 'Auto', snapshot) ?? []);
  const known = {
    policy: yaml,
    waits: waitsOf(records, snapshot).map(({ seconds, hold: bounds, namespaces }) => {
      const shares = namespaces.map((each) => each.lag.coverage?.(bounds?.max ?? seconds));
      const covered = shares.every((share) => share !== undefined) ? Math.min(...shares) : null;
      const held = bounds === undefined ? null : { minSeconds: bounds.min, maxSeconds: bounds.max };
      return { seconds, namespaces: namespaces.length, hold: held, covered };
    }),
    removals: lag.coverage === undefined ? null : lag.samples,
    distribution,
    held: hold === undefined || distribution.length === 0 ? null : { p50: heldFor(0.5), p99: heldFor(0.99) },
    obstacles: [...new Set(whys)].slice(0, MOST_OBSTACLES),
    before: report.summary,
  };
  return { report: known, snapshot, after: undefined, signal: undefined };
}

const MOST_OBSTACLES = 3;
const MOST_TRIALS = 64;
/** Milliseconds. */
const NOTICED_MS = 100;

type Fields = Readonly<Record<string, unknown>>;

function policyOf(fields: Fields) {
  const { hook, ...others } = fields;
  const entries = Object.entries(others);
  const hold = entries.flatMap(([name, value]) => (name.startsWith('hold.') ? [[name.slice(5), value]] : []));
  const wait = entries.filter(([name]) => !name.startsWith('hold.'));
  return {
    apiVersion: API_VERSION,
    kind: 'ClusterTerminationPolicy',
    metadata: { name: 'what-if' },
    spec: {
      priority: PRIORITY,
      mode: 'Enforce',
      wait: Object.fromEntries(wait) as Fields,
      ...(hook !== undefined && { hook }),
      ...(hold.length > 0 && { hold: Object.fromEntries(hold) as Fields }),
    },
  };
}

/** The settings for an audit: some from this command, and defaults for the rest. */
function auditSettings(settings: Settings<'dashboard'>): Settings<'audit'> {
  const { kubeconfig, context, filename, recursive, allowRemote, namespace, policies, lingerNamespace } =
    settings;
  return {
    kubeconfig,
    context,
    filename,
    recursive,
    allowRemote,
    allowEmpty: false,
    baseline: undefined,
    namespace,
    policies,
    lingerNamespace,
    allNamespaces: false,
    selector: undefined,
    modeLimit: 'Enforce',
    since: undefined,
    webhook: false,
    suggest: false,
    serverDryRun: false,
    output: 'json',
    failOn: undefined,
    operands: [],
  };
}

function answersOfFiles(settings: Settings<'dashboard'>, surroundings: Surroundings, live: Live): Answers {
  const { version, now } = surroundings;
  let given: Promise<Buffer> | undefined;
  const read = async () => {
    const unseen: string[] = [];
    const warn = (line: string) => void unseen.push(line.replace(/^linger: /, ''));
    // Standard input, unlike files, can be read only once.
    if (settings.filename?.includes('-')) given ??= readAll(surroundings.stdin);
    const stdin = given === undefined ? surroundings.stdin : Readable.from([await given]);
    const input = await manifestsOf(auditSettings(settings), {
      ...withoutProgress(surroundings),
      stdin,
      warn,
    });
    return audited(input, unseen, now());
  };
  const root = {
    version,
    views: ['workloads', 'what-if'],
    source: settings.filename?.join(', ') ?? null,
  } as const;
  const topics = ['workloads', 'what-if'] as const;
  const { filename = [], policies, recursive } = settings;
  const followed = async () => [
    ...(await usedBy(filename, recursive)),
    ...(policies === undefined ? [] : await usedBy([policies], true)),
  ];
  // Policies of a cluster do not come from files.
  const asksCluster = settings.kubeconfig !== undefined || settings.context !== undefined;
  const wake: Wake = asksCluster ? every(AUDIT_EVERY_MS) : (signal) => followFiles(followed, signal);
  const { workloads, explanation, whatIf } = auditAnswers(live, wake, topics, read, false);
  return { root, workloads, explanation, whatIf };
}

async function answersOfCluster(
  settings: Settings<'dashboard'>,
  surroundings: Surroundings,
  live: Live,
  signal: AbortSignal,
): Promise<Required<Omit<Answers, 'follow'>>> {
  const { version, now } = surroundings;
  // A failure here is printed in the terminal, because there is no page yet.
  const quiet = withoutProgress(surroundings);
  const { connection, lingerNamespace } = await connectToLinger(settings, quiet);
  const readAudit = async () => {
    const unseen: string[] = [];
    const warn = (line: string) => void unseen.push(line);
    const reading = clusterInput(auditSettings(settings), { ...quiet, warn });
    const input = await reading.catch((error: unknown) => {
      if (!(error instanceof LingerError) || error.code !== 'cluster-denied') throw error;
      throw new LingerError(
        error.code,
        `${error.message}; ClusterRole linger-view has all the permissions it needs`,
      );
    });
    return audited(input, unseen, now());
  };
  const topics = ['workloads', 'now', 'consumers', 'what-if'] as const;
  const audit = auditAnswers(live, every(AUDIT_EVERY_MS), topics, readAudit, true);
  const consumers = live.keep(['consumers', 'now'], every(ASK_EVERY_MS), () =>
    readConsumerTable(connection, lingerNamespace),
  );
  const stale = (table: ConsumerTable | null) => {
    const why = table === null ? undefined : stalenessOf(table, now());
    return why === undefined ? [] : [`${ABSENT}: ${why}`];
  };
  const terminations = live.keep(['consumers', 'now', 'timeline'], every(ASK_EVERY_MS), () =>
    readTerminations(connection, lingerNamespace),
  );
  const held = live.keep(['now'], every(ASK_EVERY_MS), () =>
    askLeader(connection, lingerNamespace, { warn: () => undefined }),
  );
  const timeline = async () => {
    const { terminations: kept } = await terminations();
    const of = kept.filter(({ namespace }) => namespace === (settings.namespace ?? namespace));
    return { ...timelineReportOf(of.toSorted((a, b) => b.deletedAt - a.deletedAt)), asOf: now() };
  };
  const history = live.keep(['lag'], every(HISTORY_EVERY_MS), async () => {
    const unseen: string[] = [];
    const { scopes } = await readHistory(
      connection,
      lingerNamespace,
      now(),
      (line) => void unseen.push(line),
    );
    return { scopes, unseen };
  });
  const watchedChanged = () => {
    live.changed('now');
    live.changed('lag');
  };
  const watched = new Watched(connection, settings.namespace, now, watchedChanged, signal);
  const lag = async (scope: string) => {
    const unseen: string[] = [];
    const published = await history().catch((thrown: unknown) => {
      if (!(thrown instanceof UserError)) throw thrown;
      unseen.push(`history: ${thrown.message}`);
      return undefined;
    });
    // What this command has observed itself is available without Linger as well.
    const own = [...watched.histories].map(([each, seen]) => [each, () => seen] as const);
    const scopes = new Map([...(published?.scopes ?? []), ...own]);
    const [first] = watched.histories.keys();
    const wanted = scope === 'cluster' && !scopes.has(scope) ? (first ?? scope) : scope;
    // Even without an audit there is a history.
    const snapshot = await audit.latest().then(
      ({ snapshot: known }) => known,
      () => undefined,
    );
    const report = lagReportOf(scopes, wanted, snapshot, now());
    const more = snapshot === undefined ? ['waits: the policies of the cluster cannot be read'] : [];
    return report && { ...report, unseen: [...unseen, ...(published?.unseen ?? []), ...more] };
  };
  const reportNow = async (): Promise<NowReport> => {
    const unseen: string[] = [];
    const [report, table, pods, ended] = await Promise.all([
      soon('workloads', audit.workloads, unseen),
      soon('consumers', consumers, unseen),
      soon('held pods', held, unseen),
      soon('terminations', terminations, unseen),
    ]);
    const troubled = table?.consumers.filter(({ condition }) => condition.status === 'False') ?? null;
    const isUnread = unseen.some((line) => line.startsWith('workloads: '));
    const nothing = isUnread ? 'Not known which workloads lose requests' : 'Reading the workloads …';
    const headline = report?.headline ?? nothing;
    const problem = watched.problem;
    if (problem !== undefined) unseen.push(`removals: ${problem}`);
    unseen.push(...stale(table));
    return {
      asOf: now(),
      headline,
      held: pods,
      troubled,
      shortfalls: ended && shortfallsOf(ended, now()),
      ended: ended && endedOf(ended, now()),
      watched: watched.report(now()),
      unseen,
    };
  };
  const reportConsumers = async (): Promise<ConsumersView> => {
    const unseen: string[] = [];
    const table = await consumers();
    const [ended, report] = await Promise.all([
      soon('terminations', terminations, unseen),
      soon('workloads', audit.workloads, unseen),
    ]);
    unseen.push(...stale(table));
    const routed = report?.rows
      .flatMap(({ findings }) => findings)
      .filter(({ reason }) => reason === 'UndeclaredConsumer');
    return {
      ...table,
      undeclared: ended && undeclaredOf(ended),
      routed: routed?.map(({ kind, namespace, name, text }) => ({ kind, namespace, name, text })) ?? null,
      unseen,
    };
  };
  const views = ['now', 'workloads', 'timeline', 'lag', 'what-if', 'consumers'] as const;
  const { workloads, explanation, whatIf } = audit;
  const root = { version, views, source: nameOf(connection) };
  return { root, workloads, explanation, now: reportNow, timeline, consumers: reportConsumers, lag, whatIf };
}

/** A recording of a cluster, repeated from its beginning; each repetition is read like a newly opened cluster. */
export async function answersOfRecording(
  recording: Recording,
  settings: Settings<'dashboard'>,
  surroundings: Surroundings,
  live: Live,
  signal: AbortSignal,
): Promise<Answers> {
  const { of, from, lasts } = recording;
  const begin = async () => {
    const ending = new AbortController();
    const until = AbortSignal.any([signal, ending.signal]);
    const { connection, now } = await startReplay(recording, until);
    const kube = { ...surroundings.kube, connection };
    const answers = await answersOfCluster(
      settings,
      { ...surroundings, now, kube },
      live.until(until),
      until,
    );
    return { answers, end: () => ending.abort() };
  };
  let pass = await begin();
  const repeat = async () => {
    while (await pause(lasts * 1000, signal)) {
      const last = pass;
      pass = await begin();
      last.end();
      for (const topic of pass.answers.root.views) live.changed(topic);
    }
  };
  void repeat();
  return {
    root: { ...pass.answers.root, source: null, recording: { of, from, lasts } },
    workloads: () => pass.answers.workloads(),
    explanation: (named) => pass.answers.explanation(named),
    now: () => pass.answers.now(),
    timeline: () => pass.answers.timeline(),
    consumers: () => pass.answers.consumers(),
    lag: (scope) => pass.answers.lag(scope),
    whatIf: (fields) => pass.answers.whatIf(fields),
  };
}

/**
 * Data that a view shows in addition to other things: null if it cannot be read, which `unseen` then says, or if it is not
 * available yet, in which case the page is notified later.
 */
async function soon<T>(what: string, read: () => Promise<T>, unseen: string[]): Promise<T | null> {
  try {
    return await Promise.race([read(), sleep(SOON_MS, null, { ref: false })]);
  } catch (thrown) {
    if (!(thrown instanceof UserError)) throw thrown;
    // In a cluster without Linger, the lack of each of its parts is not worth reporting.
    const isAbsent = thrown.code === 'not-published';
    if (!isAbsent || !unseen.some((line) => line.startsWith(ABSENT)))
      unseen.push(`${isAbsent ? ABSENT : what}: ${thrown.message}`);
    return null;
  }
}

const ABSENT = 'what Linger publishes';

/** The senders that still connected to pods after every known consumer had dropped these, latest first. */
export function undeclaredOf({ findings }: TerminationRecord): ConsumersView['undeclared'] {
  const seen = findings
    .filter(({ reason }) => reason === 'UndeclaredConsumer')
    .flatMap(({ from = [], ...each }) => from.map((sender) => ({ sender, ...each })));
  return [...Map.groupBy(seen, ({ sender }) => sender)]
    .map(([from, all]) => ({
      from,
      pods: new Set(all.map(({ uid }) => uid)).size,
      connections: all.reduce((sum, { connections = 0 }) => sum + connections, 0),
      lastSeen: Math.max(...all.map(({ at }) => at)),
      workloads: [
        ...new Set(all.map(({ namespace, owner, pod }) => `${namespace}/${owner || `Pod/${pod}`}`)),
      ],
    }))
    .toSorted((a, b) => b.lastSeen - a.lastSeen);
}

/** How many are shown; for more there is `linger watch`. */
const MOST_DONE = 100;
const MOST_OPEN = 50;

/** The removals that this process observes itself, like `linger watch`. */
class Watched {
  readonly #watch: EndpointWatch;
  readonly #now: () => number;
  readonly #summary = new ChangeSummary();
  /** By scope, named as in the view of lags. */
  readonly histories = new Map(
    ENDPOINT_SOURCES.map((stage) => [`watched/${stage}`, new LagHistory()] as const),
  );
  #done: readonly ObservedChange[] = [];
  #begunAt: number | undefined;
  #seen = '';
  /** Why the watches cannot start. */
  problem: string | undefined;

  constructor(
    connection: KubeConnection,
    namespace: string | undefined,
    now: () => number,
    changed: () => void,
    signal: AbortSignal,
  ) {
    this.#now = now;
    const scope = { namespace, services: undefined, sources: ENDPOINT_SOURCES, selector: undefined };
    const options = { clock, random: Math.random, signal, initial: false };
    const handlers = {
      onStartFailure: (_stream: unknown, failure: Parameters<typeof explained>[0]) => {
        this.problem = isDenied(failure.reason) ? failure.message : explained(failure, connection).message;
      },
    };
    this.#watch = new EndpointWatch(scope, connection, handlers, options);
    void this.#follow(changed, signal);
  }

  async #follow(changed: () => void, signal: AbortSignal): Promise<void> {
    while (await tick(LOOK_MS, signal)) {
      if (this.#begunAt === undefined && this.#watch.begun) {
        this.#begunAt = clock();
        this.problem = undefined;
      }
      const changes = this.#watch.observer.take(clock());
      for (const each of changes) {
        this.#summary.add(each);
        if (each.lag !== undefined)
          this.histories.get(`watched/${each.source}`)?.record(each.lag, this.#now());
      }
      // If the process stalled, or a watch was interrupted, a removal has no lag, but is shown all the same.
      const through = changes.filter(({ lag, withdrawn, change, seen }) => {
        const ends = withdrawn && (change === 'terminating' || change === 'removed');
        return lag !== undefined || (ends && seen !== 'initial');
      });
      this.#done = [...through.toReversed(), ...this.#done].slice(0, MOST_DONE);
      const open = [...this.#watch.observer.unresolved()].map(
        ({ uid, name, stage }) => `${uid} ${name} ${stage}`,
      );
      const seen = `${this.#begunAt} ${this.problem} ${through.length} ${open.join()}`;
      if (through.length > 0 || seen !== this.#seen) changed();
      this.#seen = seen;
    }
  }

  /** @param now seconds since the epoch */
  report(now: number): NowReport['watched'] {
    const at = (instant: number) => now - (clock() - instant) / 1000;
    const open = [...this.#watch.observer.unresolved()].toSorted((a, b) => a.since - b.since);
    return {
      since: this.#begunAt === undefined ? null : at(this.#begunAt),
      open: open.slice(0, MOST_OPEN).map(({ namespace, name, pod, stage, since }) => ({
        namespace,
        service: name,
        pod,
        source: stage,
        since: at(since),
      })),
      done: this.#done.map(({ namespace, service, pod = '', source, lag, at: seen }) => ({
        namespace,
        service,
        pod,
        source,
        lagSeconds: lag ?? null,
        at: at(seen),
      })),
      lags: this.#summary
        .sources(ENDPOINT_SOURCES)
        .flatMap(({ source, samples, lag }) =>
          lag === undefined ? [] : [{ source, samples, p50: lag.p50, p99: lag.p99, max: lag.max }],
        ),
    };
  }
}
