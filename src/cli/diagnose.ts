import { type KubeConnection, kubeVersion } from '../cluster/index.ts';
import { formatDuration, UserError } from '../core/api/index.ts';
import {
  DIAGNOSES,
  type Diagnosed,
  type Facts,
  diagnose as findingsOf,
  type GatherOptions,
  gatherFacts,
  isAddress,
  type Look,
} from '../diagnose/index.ts';
import type { Settings } from './commands.ts';
import { asked, connectAsKubectl } from './connect.ts';
import { usageError } from './flags.ts';
import { rendered } from './rendering.ts';
import { checkFailOn, columns, exitCodeFor, paragraphs, type Surroundings, wrapped } from './terminal.ts';

/** The output of `linger diagnose --output json`; null stands for undefined. */
export interface Diagnosis {
  readonly findings: readonly Diagnosed[];
  readonly looks: readonly Look[];
  readonly facts: Omit<Facts, 'looks'>;
}

const ANY = 'any';

/** `linger diagnose`: reports why endpoints are withdrawn late here, and which flags to set. */
export async function diagnose(settings: Settings<'diagnose'>, surroundings: Surroundings): Promise<number> {
  const { failOn, output, controllerFlags, linger, lag, interval } = settings;
  const { print, progress, stdin, now } = surroundings;
  checkFailOn(failOn, [ANY, ...Object.keys(DIAGNOSES)]);
  const connection = await clusterOf(settings, surroundings);
  progress('reading the metrics of the controller-manager');
  const { looks, ...facts } = await gatherFacts({
    connection,
    metrics: metricsOf(settings, connection),
    flags: controllerFlags,
    linger,
    watch: lag === 'watch',
    intervalSeconds: interval,
    onWait: (seconds) => progress(`observing for ${formatDuration(seconds)}`),
    stdin,
    now,
  });
  const findings = findingsOf({ ...facts, looks });
  // All members are present; null if unknown.
  const orNull = (_key: string, value: unknown) => (value === undefined ? null : value);
  const diagnosis = JSON.parse(JSON.stringify({ findings, looks, facts }, orNull)) as Diagnosis;
  print(rendered(output, diagnosis, (wide) => renderDiagnosis(findings, looks, wide)));
  // `any` means findings that make endpoints late; merely informative ones do not fail.
  const codes = findings.flatMap(({ code, severity }) => [code, severity === 'info' ? null : ANY]);
  return exitCodeFor(failOn, codes);
}

/**
 * The cluster to use. A saved scrape may come from a cluster other than kubectl's current one, so with one, a cluster is
 * used only if it is named explicitly. With an address of metrics, none is needed.
 * @throws ConnectionError, LingerError
 */
async function clusterOf(
  settings: Settings<'diagnose'>,
  surroundings: Surroundings,
): Promise<GatherOptions['connection']> {
  const { kubeconfig, context, controllerMetrics = [], linger } = settings;
  const named = kubeconfig !== undefined || context !== undefined;
  const given = linger === undefined ? controllerMetrics : [...controllerMetrics, linger];
  if (!named && !given.every(isAddress))
    return { none: 'not asked: a saved scrape may be from another one; --kubeconfig or --context names it' };
  try {
    const connection = await connectAsKubectl(settings, surroundings);
    surroundings.progress('asking the cluster');
    await asked(connection, kubeVersion(connection, new AbortController().signal));
    return connection;
  } catch (error) {
    if (named || given.length === 0 || !(error instanceof UserError)) throw error;
    return { none: error.message };
  }
}

/** @throws LingerError `settings-invalid` */
function metricsOf(
  settings: Settings<'diagnose'>,
  connection: KubeConnection | { readonly none: string },
): GatherOptions['metrics'] {
  const { controllerMetrics } = settings;
  if (controllerMetrics === undefined) return undefined;
  const [from = '', ...more] = controllerMetrics;
  const addressed = controllerMetrics.some(isAddress);
  if (more.length > (addressed ? 0 : 1)) {
    throw usageError(
      `--controller-metrics: expected a URL, or one or two files, the older first, got "${controllerMetrics.join(',')}"`,
    );
  }
  if (!addressed) return { files: controllerMetrics };
  return {
    from,
    caFile: settings.controllerMetricsCa,
    tokenFile: settings.controllerMetricsTokenFile,
    insecure: settings.controllerMetricsInsecure,
    ...('none' in connection ? {} : { identity: () => connection.credentials() }),
  };
}

/**
 * The width at which prose is wrapped, unless the terminal is narrower. Evidence and commands are not wrapped, so that they
 * can be copied.
 */
const WIDTH = 100;

/** A diagnosis as text: a block for each finding, followed by what was examined. */
function renderDiagnosis(findings: readonly Diagnosed[], looks: readonly Look[], wide: boolean): string {
  const inLines = (text: string, indent: string) =>
    (wide ? [text] : wrapped(text, WIDTH - indent.length)).map((line) => indent + line);
  const blockOf = ({ code, severity, text, evidence, cure }: Diagnosed) => [
    `${severity.toUpperCase()} ${code}`,
    ...inLines(text, '  '),
    ...(evidence.length === 0 ? [] : ['  evidence', ...evidence.map((line) => `    ${line}`)]),
    ...(cure.length === 0 ? [] : ['  cure']),
    ...cure.flatMap((line) => (/^(--|kubectl )/.test(line) ? [`    ${line}`] : inLines(line, '    '))),
  ];
  const seen = looks.filter((look) => look.seen);
  const unseen = looks.filter((look) => !look.seen);
  return paragraphs(
    ...findings.map(blockOf),
    seen.length === 0 ? [] : ['looked at', ...lookLines(seen)],
    unseen.length === 0 ? [] : ['not seen', ...lookLines(unseen)],
  );
}

function lookLines(looks: readonly Look[]): readonly string[] {
  const rows = looks.flatMap(({ what, text, remedy }) => [
    ['', what, text],
    ...(remedy === undefined ? [] : [['', '', `→ ${remedy}`]]),
  ]);
  return columns(rows);
}
