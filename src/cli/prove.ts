import { constants } from 'node:os';
import { KubeFailure, messageOf } from '../cluster/index.ts';
import { LingerError } from '../core/api/index.ts';
import {
  type Chart,
  type Comparison,
  type Disturbance,
  drawingOf,
  fullName,
  junitOf,
  LONGEST_RUN,
  MOST_RATE,
  markdownOf,
  markdownOfBoth,
  type ProveReport,
  reportOf,
  sidesOf,
  tablesOf,
  titleOf,
  type WorkloadName,
  wordsOf,
  workloadNamed,
} from '../prove/index.ts';
import { FAILURE_EXIT_CODE } from './command-line.ts';
import type { Settings } from './commands.ts';
import { connectAsKubectl, explained } from './connect.ts';
import { usageError } from './flags.ts';
import { headersIn, type NamedUrl, type ProveSetting, proveOne } from './prove-run.ts';
import { draw, rendered } from './rendering.ts';
import { columns, FINDINGS_EXIT_CODE, paragraphs, type Surroundings } from './terminal.ts';

/** `linger prove`: sends traffic to a workload, disturbs it once, and reports what was lost and why. */
export async function prove(settings: Settings<'prove'>, surroundings: Surroundings): Promise<number> {
  const { operands, rate, output, maxLost } = settings;
  const { print, warn, interactive } = surroundings;
  const [named = ''] = operands;
  if (operands.length !== 1) throw usageError('expected one KIND/NAME, such as deployment/web');
  if (rate < 1 || rate > MOST_RATE) throw usageError(`--rate: expected 1 to ${MOST_RATE}, got ${rate}`);
  if (settings.for + settings.calm > LONGEST_RUN)
    throw usageError(`--for: expected at most ${LONGEST_RUN}s with --calm`);
  if (!settings.path.startsWith('/'))
    throw usageError(`--path: expected a path such as /healthz, got "${settings.path}"`);
  if (!/^[A-Z]{1,20}$/.test(settings.method))
    throw usageError(`--method: expected a method such as GET, got "${settings.method}"`);
  if (settings.timeout < LEAST_TIMEOUT || settings.timeout > MOST_TIMEOUT)
    throw usageError(`--timeout: expected 10ms to ${MOST_TIMEOUT}s`);
  const disturbance = disturbanceIn(settings);
  const urls = urlsIn(settings);
  headersIn(settings.header);
  const connection = await connectAsKubectl(settings, surroundings);
  const namespace = settings.namespace ?? connection.namespace ?? 'default';
  const target = workloadNamed(named, namespace);
  if (target === undefined)
    throw usageError(`${named}: expected deployment/NAME, statefulset/NAME, daemonset/NAME or rollout/NAME`);
  const stopping = new AbortController();
  let interrupted: NodeJS.Signals | undefined;
  const stop = (signal: NodeJS.Signals) => {
    if (signal === 'SIGHUP' && stopping.signal.aborted) return;
    if (stopping.signal.aborted) {
      warn(`linger prove: interrupted again; ${leftBy(disturbance, namespace, settings.compare)}`);
      process.exit(exitCodeBy(signal));
    }
    interrupted = signal;
    warn('linger prove: interrupted; removing what was created (interrupt again to leave it)');
    stopping.abort(new LingerError('prove-refused', 'interrupted; what was created is removed'));
  };
  // Closing a terminal sends its signal twice, once by the shell; with nohup there is none.
  const ending = ['SIGINT', 'SIGTERM', ...(interactive ? ['SIGHUP'] : [])] as NodeJS.Signals[];
  for (const each of ending) process.on(each, stop);
  const setting = { connection, settings, surroundings, disturbance, urls, stopping };
  try {
    const proof = await (settings.compare ? ofCopies(setting, target) : ofOriginal(setting, target));
    const isProse = output === 'junit' || output === 'markdown';
    print(isProse ? proof[output]() : rendered(output, proof.value, proof.table));
    if (settings.svg !== undefined) await draw(settings.svg, proof.drawing());
    return exitCodeOf(proof.judged, maxLost);
  } catch (thrown) {
    if (interrupted !== undefined) {
      warn(`linger prove: ${messageOf(thrown)}`);
      return exitCodeBy(interrupted);
    }
    throw thrown instanceof KubeFailure ? explained(thrown, connection) : thrown;
  } finally {
    for (const each of ending) process.off(each, stop);
  }
}

/** As in a shell, for a program that was ended by a signal: 130 for SIGINT, 143 for SIGTERM. */
function exitCodeBy(signal: NodeJS.Signals): number {
  return 128 + constants.signals[signal];
}

/** A check must not pass just because no pod has ended. */
export function exitCodeOf({ lost, upperBound }: Proof['judged'], maxLost: number): number {
  if (lost > maxLost) return FINDINGS_EXIT_CODE;
  return lost === 0 && upperBound === null ? FAILURE_EXIT_CODE : 0;
}

/** What a run leaves behind if it is not allowed to clean up. */
function leftBy(disturbance: Disturbance, namespace: string, compare: boolean): string {
  if (compare) return 'the namespaces of its copies (label linger.dev/prove) end within two minutes';
  const job = `its Job in namespace ${namespace} and the pods that send traffic end within 65 s`;
  if (disturbance.type === 'scale') return `${job}; the number of replicas may not be restored`;
  if (disturbance.type === 'drain') return `${job}; node ${disturbance.node} may stay cordoned`;
  return job;
}

/** @throws LingerError `settings-invalid` */
function disturbanceIn({ rollout, deleteOne, evict, scale, drain }: Settings<'prove'>): Disturbance {
  const asked: Disturbance[] = [];
  if (rollout) asked.push({ type: 'rollout' });
  if (deleteOne) asked.push({ type: 'deleteOne' });
  if (evict) asked.push({ type: 'evict' });
  if (drain !== undefined) asked.push({ type: 'drain', node: drain });
  if (scale !== undefined) {
    const [from = 0, to = 0] = scale;
    asked.push({ type: 'scale', from, to });
  }
  if (asked.length > 1)
    throw usageError('expected one of --rollout, --delete-one, --scale, --evict and --drain');
  return asked[0] ?? { type: 'rollout' };
}

/** @throws LingerError `settings-invalid` */
function urlsIn({ url = [], urlsOnly, urlFrom, keepAlive }: Settings<'prove'>): readonly NamedUrl[] {
  if (urlsOnly && url.length === 0)
    throw usageError('--urls-only: expected a --url: nothing would be sent, and so nothing lost');
  const most = keepAlive ? MOST_URLS : 2 * MOST_URLS;
  if (urlFrom === 'cluster' && url.length > most)
    throw usageError(`--url: expected at most ${most} from the cluster, got ${url.length}`);
  const urls = url.map((text) => {
    const [, name, rest] = /^([\w.-]+)=(https?:\/\/.+)$/.exec(text) ?? [undefined, undefined, text];
    if (!URL.canParse(rest ?? '') || !/^https?:$/.test(new URL(rest ?? '').protocol))
      throw usageError(`--url: expected http:// or https://, or NAME=http://…, got "${text}"`);
    return { name: name ?? new URL(rest ?? '').host, url: rest ?? '' };
  });
  const twice = urls.find(({ name }, index) =>
    urls.some((each, other) => other < index && each.name === name),
  );
  if (twice !== undefined)
    throw usageError(
      `--url: expected different names, got "${twice.name}" twice; NAME=${twice.url} gives another`,
    );
  return urls;
}

/** How many URLs senders accept besides the Service. */
const MOST_URLS = 7;
/** Seconds. */
const [LEAST_TIMEOUT, MOST_TIMEOUT] = [0.01, 60];

/** The result, in each of the available formats. */
interface Proof {
  readonly value: object;
  /** The values to which --max-lost applies. */
  readonly judged: Pick<ProveReport, 'lost' | 'upperBound'>;
  readonly junit: () => string;
  readonly markdown: () => string;
  readonly table: () => string;
  readonly drawing: () => Chart;
}

async function ofOriginal(setting: ProveSetting, target: WorkloadName): Promise<Proof> {
  const result = await proveOne(setting, target);
  const of = { workload: fullName(target), disturbance: wordsOf(setting.disturbance) };
  const report = reportOf(result, of);
  return {
    value: report,
    judged: report,
    junit: () => junitOf(report),
    markdown: () => markdownOf(report),
    table: () => textOf(report),
    drawing: () => drawingOf(result, titleOf(report)),
  };
}

async function ofCopies(setting: ProveSetting, target: WorkloadName): Promise<Proof> {
  const { compareCopies } = await import('./prove-compare.ts');
  const { found, drawing } = await compareCopies(setting, target);
  return {
    value: found,
    judged: found.with,
    drawing,
    junit: () => junitOf(found.with, found.verdict),
    markdown: () => markdownOfBoth(found),
    table: () => textOfBoth(found),
  };
}

function textOf(report: ProveReport): string {
  const { ways, pods, failures } = tablesOf(report);
  const notes = report.notes.map((note) => `note: ${note}`);
  return paragraphs([titleOf(report)], columns(ways), columns(pods), columns(failures, ['right']), notes, [
    report.verdict,
  ]);
}

function textOfBoth(found: Comparison): string {
  const notes = [found.without, found.with].flatMap((each) => each.notes.map((note) => `note: ${note}`));
  return paragraphs([titleOf(found)], columns(sidesOf(found)), [...new Set(notes)], [found.verdict]);
}
