import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
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
} from '../api/index.ts';
import { type AuditSubject, auditWorkload, headlineOf, subjectOf, summaryOfAudit } from '../audit/index.ts';
import type { KubeConnection } from '../cluster/index.ts';
import type {
  NowReport,
  Sources,
  Subject,
  Topic,
  WhatIfReport,
  WorkloadsReport,
} from '../dashboard/index.ts';
import { type ClusterSnapshot, explain, snapshotOf } from '../decision/index.ts';
import { EndpointWatch } from '../informers/index.ts';
import { ChangeSummary, LAG_STAGES, type LagHistory, type ObservedChange } from '../lag/index.ts';
import { tick } from '../timing/index.ts';
import { close } from '../webhook/index.ts';
import { type AuditInput, clusterInput, manifestsOf, withPolicies } from './audit.ts';
import type { Settings } from './commands.ts';
import { connectToLinger, explained, isDenied, nameOf } from './connect.ts';
import { readHistory } from './history.ts';
import { askLeader } from './hold-command.ts';
import { curveOf, lagReportOf, waitsOf } from './lag-report.ts';
import { planOfRunning } from './manifests.ts';
import { becauseOf, openPage } from './playground.ts';
import { readConsumerTable } from './read-cluster.ts';
import { type Surroundings, yamlText } from './terminal.ts';

/** Lists of all workloads: a large cluster takes seconds for each. */
const AUDIT_EVERY_MS = 60_000;
/** They are on this machine. */
const FILES_EVERY_MS = 5_000;
/** A few small objects. */
const ASK_EVERY_MS = 5_000;
/** The leader writes it every few minutes. */
const HISTORY_EVERY_MS = 120_000;
const ANSWER_WITHIN_MS = 30_000;
/** Removals are shown without waiting for an audit of a large cluster. */
const SOON_MS = 500;
/** Soon enough for a person who has just deleted a pod. */
const LOOK_MS = 250;

/** `linger dashboard`: the page, with the rights of the user's own kubeconfig, until Ctrl-C. */
export async function dashboard(
  settings: Settings<'dashboard'>,
  surroundings: Surroundings,
): Promise<number> {
  const { port, noOpen } = settings;
  const { print, warn, interactive } = surroundings;
  const stopped = Promise.race([once(process, 'SIGINT'), once(process, 'SIGTERM')]);
  const ending = new AbortController();
  const live = new Live(ending.signal);
  const sources =
    settings.filename === undefined
      ? await sourcesOfCluster(settings, surroundings, live, ending.signal)
      : sourcesOfFiles(settings, surroundings, live);
  const onError = (error: Error) => warn(`linger: ${error.message}`);
  const { server, address } = await openPage({ ...sources, follow: live.follow }, port, '--port', onError);
  print(`Open in a browser; Ctrl-C ends it:\n\n  ${address}\n\n`);
  if (!noOpen && interactive) openInBrowser(address);
  await stopped;
  ending.abort();
  await close(server);
  return 0;
}

/** Without a desktop there is none: the address has been printed. */
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

/** The data that is read again and again while a page is open. */
class Live {
  readonly #listeners = new Set<(topic: Topic) => void>();
  readonly #signal: AbortSignal;

  constructor(signal: AbortSignal) {
    this.#signal = signal;
  }

  readonly follow = (changed: (topic: Topic) => void): (() => void) => {
    this.#listeners.add(changed);
    return () => void this.#listeners.delete(changed);
  };

  changed(topic: Topic): void {
    for (const listener of this.#listeners) listener(topic);
  }

  /**
   * @param read fails with what the page shows in its place
   * @returns what asks for the latest: read when it is first asked for, then every so often while a page is open
   */
  keep<T>(topics: readonly Topic[], everyMs: number, read: () => Promise<T>): () => Promise<T> {
    let latest: Promise<T> | undefined;
    const tell = () => {
      for (const topic of topics) this.changed(topic);
    };
    const again = async () => {
      while (await tick(everyMs, this.#signal)) {
        if (this.#listeners.size === 0) continue;
        const next = read();
        // The page keeps what it has until there is something new, or a failure.
        await next.catch(() => undefined);
        latest = next;
        tell();
      }
    };
    return () => {
      if (latest === undefined) {
        latest = read();
        latest.then(tell, tell);
        void again();
      }
      return latest;
    };
  }
}

/** An audit, and what the explanation of one of its workloads takes. */
interface Audit {
  readonly report: WorkloadsReport;
  readonly input: AuditInput;
  readonly snapshot: ClusterSnapshot;
  readonly subjects: ReadonlyMap<string, AuditSubject>;
}

function keyOf({ kind, namespace, name, file = '', line = 0 }: Subject): string {
  return `${kind} ${namespace}/${name} ${file}:${line}`;
}

function audited(input: AuditInput, unseen: readonly string[], asOf: number): Audit {
  const { sources, subjects, related } = input;
  const snapshot = snapshotOf(sources);
  const all = subjects.map((subject) => auditWorkload(subject, snapshot, related));
  const summary = summaryOfAudit(all);
  const findings = all.flatMap((each) => each.findings);
  const keyed = subjects.map((subject) => {
    const { workload, namespace, file, line } = subject;
    const of = { kind: workload.kind, namespace, name: workload.name };
    const where = file === undefined || line === undefined ? {} : { file, line };
    return [keyOf({ ...of, ...where }), subject] as const;
  });
  const report = { findings, summary, asOf, headline: worstOf(findings, summary), unseen };
  return { report, input, snapshot, subjects: new Map(keyed) };
}

/** `3 of 41 workloads lose requests when they roll; worst: Deployment shop/web, for 10 s` */
function worstOf(
  findings: WorkloadsReport['findings'],
  summary: WorkloadsReport['summary'] & Parameters<typeof headlineOf>[0],
): string {
  const { unprotected } = summary.verdicts;
  if (unprotected === 0) return headlineOf(summary);
  const open = findings.filter(({ verdict }) => verdict === 'unprotected');
  const [worst] = open.toSorted((a, b) => (b.exposureSeconds ?? 0) - (a.exposureSeconds ?? 0));
  const seconds = worst?.exposureSeconds ?? 0;
  const howLong = seconds >= 1e9 ? ', for ever' : seconds > 0 ? `, for ${seconds} s` : '';
  const which = worst === undefined ? '' : `; worst: ${subjectOf(worst)}${howLong}`;
  const lose = unprotected === 1 ? 'loses requests when it rolls' : 'lose requests when they roll';
  return `${unprotected} of ${summary.workloads} workloads ${lose}${which}`;
}

/** The sources that an audit feeds. @param read an audit from the beginning */
function auditSources(
  live: Live,
  everyMs: number,
  topics: readonly Topic[],
  read: () => Promise<Audit>,
): Required<Pick<Sources, 'workloads' | 'explanation'>> & {
  readonly latest: () => Promise<Audit>;
} {
  const latest = live.keep(topics, everyMs, read);
  return {
    workloads: async () => (await latest()).report,
    latest,
    explanation: async (of) => {
      const { subjects, snapshot } = await latest();
      const subject = subjects.get(keyOf(of));
      if (subject === undefined) return undefined;
      const plan = explain(planOfRunning(subject, snapshot));
      return { plan, because: becauseOf(plan) };
    },
  };
}

/** After every policy that an operator is likely to have. */
const PRIORITY = 1_000;

/**
 * What a wait would do: the decisions and the audit themselves, with one policy more.
 * @param history the lags of the cluster; undefined: there are none
 * @throws LingerError `policy-invalid`
 */
function whatIfOf(
  { report, input }: Pick<Audit, 'report' | 'input'>,
  wait: Readonly<Record<string, unknown>>,
  history: LagHistory | undefined,
): WhatIfReport {
  const document = {
    apiVersion: API_VERSION,
    kind: 'ClusterTerminationPolicy',
    metadata: { name: 'what-if' },
    spec: { priority: PRIORITY, mode: 'Enforce', wait },
  };
  const policy = parseDocument(document, 'what if') as ClusterTerminationPolicy;
  const snapshot = snapshotOf(withPolicies(input.sources, [policy]));
  const related = { ...input.related, configured: true };
  const after = summaryOfAudit(input.subjects.map((subject) => auditWorkload(subject, snapshot, related)));
  const curve = history && curveOf(history);
  const names = [...new Set(input.subjects.map(({ namespace }) => namespace))];
  const bare = (name: string) => namespaceRecord(name, { [NAMESPACE_NAME_LABEL]: name }, NO_LABELS);
  const namespaces = names.map((name) => snapshot.namespaces.get(name) ?? bare(name));
  const waits = waitsOf(namespaces, snapshot).map((each) => ({
    ...each,
    covered: curve?.covered(each.seconds) ?? null,
  }));
  const { summary: before } = report;
  return { policy: yamlText(document), waits, removals: curve?.samples ?? null, before, after };
}

/** What an audit takes of the settings of this command, and of its own otherwise. */
function auditSettings(settings: Settings<'dashboard'>): Settings<'audit'> {
  const { kubeconfig, context, filename, recursive, namespace, policies, lingerNamespace } = settings;
  return {
    ...{ kubeconfig, context, filename, recursive, namespace, policies, lingerNamespace },
    ...{ allNamespaces: false, selector: undefined, modeLimit: 'Enforce', since: undefined, webhook: false },
    ...{ suggest: false, serverDryRun: false, output: 'json', failOn: undefined, operands: [] },
  };
}

function sourcesOfFiles(settings: Settings<'dashboard'>, surroundings: Surroundings, live: Live): Sources {
  const { version, now } = surroundings;
  const read = async () => {
    const unseen: string[] = [];
    const warn = (line: string) => void unseen.push(line.replace(/^linger: /, ''));
    const input = await manifestsOf(auditSettings(settings), { ...surroundings, warn });
    return audited(input, unseen, now());
  };
  const root = {
    version,
    views: ['workloads', 'what-if'],
    source: settings.filename?.join(', ') ?? null,
  } as const;
  const { workloads, explanation, latest } = auditSources(live, FILES_EVERY_MS, ['workloads'], read);
  const whatIf: Sources['whatIf'] = async (wait) => whatIfOf(await latest(), wait, undefined);
  return { root, workloads, explanation, whatIf };
}

async function sourcesOfCluster(
  settings: Settings<'dashboard'>,
  surroundings: Surroundings,
  live: Live,
  signal: AbortSignal,
): Promise<Sources> {
  const { version, now } = surroundings;
  // A failure here is printed in the terminal: there is no page yet.
  const { connection, lingerNamespace } = await connectToLinger(settings, surroundings);
  const readAudit = async () => {
    const unseen: string[] = [];
    const warn = (line: string) => void unseen.push(line);
    const reading = clusterInput(auditSettings(settings), { ...surroundings, warn });
    const input = await reading.catch((error: unknown) => {
      if (!(error instanceof LingerError) || error.code !== 'cluster-denied') throw error;
      throw new LingerError(
        error.code,
        `${error.message}; ClusterRole linger-view has all rights that are needed`,
      );
    });
    return audited(input, unseen, now());
  };
  const audit = auditSources(live, AUDIT_EVERY_MS, ['workloads', 'now'], readAudit);
  const consumers = live.keep(['consumers', 'now'], ASK_EVERY_MS, () =>
    readConsumerTable(connection, lingerNamespace, AbortSignal.timeout(ANSWER_WITHIN_MS)),
  );
  const held = live.keep(['now'], ASK_EVERY_MS, () =>
    askLeader(connection, lingerNamespace, { warn: () => undefined }),
  );
  const history = live.keep(['lag'], HISTORY_EVERY_MS, async () => {
    const unseen: string[] = [];
    const { scopes } = await readHistory(
      connection,
      lingerNamespace,
      now(),
      (line) => void unseen.push(line),
    );
    return { scopes, unseen };
  });
  const lag = async (scope: string) => {
    const { scopes, unseen } = await history();
    // Where the audit cannot be had, there is a history all the same.
    const snapshot = await audit.latest().then(
      ({ snapshot: known }) => known,
      () => undefined,
    );
    const report = lagReportOf(scopes, scope, snapshot, now());
    const more = snapshot === undefined ? ['waits: the policies of the cluster cannot be read'] : [];
    return report && { ...report, unseen: [...unseen, ...more] };
  };
  const watched = new Watched(connection, settings.namespace, () => live.changed('now'), signal);
  const reportNow = async (): Promise<NowReport> => {
    const unseen: string[] = [];
    /** null: not yet, or not at all; what comes later is shown when it comes. */
    const unless = async <T>(what: string, read: () => Promise<T>): Promise<T | null> => {
      try {
        return await Promise.race([read(), sleep(SOON_MS, null, { ref: false })]);
      } catch (thrown) {
        if (!(thrown instanceof UserError)) throw thrown;
        unseen.push(`${what}: ${asError(thrown).message}`);
        return null;
      }
    };
    const [report, table, pods] = await Promise.all([
      unless('workloads', audit.workloads),
      unless('consumers', consumers),
      unless('held pods', held),
    ]);
    const troubled = table?.consumers.filter(({ condition }) => condition.status === 'False') ?? null;
    const isUnread = unseen.some((line) => line.startsWith('workloads: '));
    const nothing = isUnread ? 'Not known which workloads lose requests' : 'Reading the workloads …';
    const headline = report?.headline ?? nothing;
    const problem = watched.problem;
    if (problem !== undefined) unseen.push(`removals: ${problem}`);
    return { asOf: now(), headline, held: pods, troubled, watched: watched.report(now()), unseen };
  };
  const whatIf: Sources['whatIf'] = async (wait) => {
    const known = await history().catch(() => undefined);
    return whatIfOf(await audit.latest(), wait, known?.scopes.get('cluster'));
  };
  const views = ['now', 'workloads', 'lag', 'what-if', 'consumers'] as const;
  const { workloads, explanation } = audit;
  const root = { version, views, source: nameOf(connection) };
  return { root, workloads, explanation, now: reportNow, consumers, lag, whatIf };
}

/** More is for `linger watch`. */
const MOST_DONE = 100;
const MOST_OPEN = 50;

/** Monotonic milliseconds. */
const clock = () => performance.now();

/** The removals that this process watches itself, as `linger watch` does. */
class Watched {
  readonly #watch: EndpointWatch;
  readonly #summary = new ChangeSummary();
  #done: readonly ObservedChange[] = [];
  #begunAt: number | undefined;
  #seen = '';
  /** Why the watches cannot begin. */
  problem: string | undefined;

  constructor(
    connection: KubeConnection,
    namespace: string | undefined,
    changed: () => void,
    signal: AbortSignal,
  ) {
    const scope = { namespace, services: undefined, sources: LAG_STAGES, selector: undefined };
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
      for (const each of changes) this.#summary.add(each);
      // Where the process stood still, or a watch was interrupted, a removal has no lag: it is one all the same.
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
        ...{ namespace, service: name, pod, source: stage },
        since: at(since),
      })),
      done: this.#done.map(({ namespace, service, pod = '', source, lag, at: seen }) => ({
        ...{ namespace, service, pod, source, lagSeconds: lag ?? null },
        at: at(seen),
      })),
      lags: this.#summary
        .sources(LAG_STAGES)
        .flatMap(({ source, samples, lag }) =>
          lag === undefined ? [] : [{ source, samples, p50: lag.p50, p99: lag.p99, max: lag.max }],
        ),
    };
  }
}
