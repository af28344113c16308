import { stringify } from 'yaml';
import { formatDuration, LingerError, UserError } from '../api/index.ts';
import { type KubeConnection, kubeVersion } from '../cluster/index.ts';
import {
  type Facts,
  FINDINGS,
  type Finding,
  diagnose as findingsOf,
  type GatherOptions,
  gatherFacts,
  isAddress,
  type Look,
} from '../diagnose/index.ts';
import type { DiagnoseSettings, OutputFormat } from './commands.ts';
import { connectAsKubectl, first } from './connect.ts';
import type { KubeEnvironment } from './flags.ts';
import { checkFailOn, FINDINGS_EXIT_CODE, type Terminal } from './terminal.ts';

/** What `linger diagnose --output json` prints, with null for what is undefined. */
export interface Diagnosis {
  readonly findings: readonly Finding[];
  readonly looks: readonly Look[];
  /** The numbers behind it, as they were read. */
  readonly facts: Omit<Facts, 'looks'>;
}

/** Prose is wrapped here; evidence and commands are not, so that they can be copied. */
const WIDTH = 100;

/** A diagnosis for people: a block for each finding, then what was looked at. */
function renderDiagnosis({ findings, looks }: Diagnosis, width = WIDTH): string {
  const blocks = [
    ...findings.map((finding) => findingBlock(finding, width)),
    looksBlock('looked at', looks, true),
    looksBlock('not seen', looks, false),
  ];
  return `${blocks
    .filter((lines) => lines.length > 0)
    .map((lines) => lines.join('\n'))
    .join('\n\n')}\n`;
}

function findingBlock({ code, severity, text, evidence, cure }: Finding, width: number): readonly string[] {
  return [
    `${severity.toUpperCase()} ${code}`,
    ...wrapped(text, '  ', width),
    ...(evidence.length === 0 ? [] : ['  evidence', ...evidence.map((line) => `    ${line}`)]),
    ...(cure.length === 0 ? [] : ['  cure', ...cure.flatMap((line) => cureLines(line, width))]),
  ];
}

function cureLines(line: string, width: number): readonly string[] {
  return /^(--|kubectl )/.test(line) ? [`    ${line}`] : wrapped(line, '    ', width);
}

function looksBlock(title: string, all: readonly Look[], seen: boolean): readonly string[] {
  const looks = all.filter((look) => look.seen === seen);
  if (looks.length === 0) return [];
  const width = Math.max(...looks.map(({ what }) => what.length));
  const lines = looks.flatMap(({ what, text, remedy }) => [
    `  ${what.padEnd(width)}  ${text}`,
    ...(remedy === undefined ? [] : [`  ${' '.repeat(width)}  → ${remedy}`]),
  ]);
  return [title, ...lines];
}

function wrapped(text: string, indent: string, width: number): readonly string[] {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(' ')) {
    if (line !== '' && indent.length + line.length + 1 + word.length > width) {
      lines.push(indent + line);
      line = word;
    } else line = line === '' ? word : `${line} ${word}`;
  }
  return [...lines, indent + line];
}

const ANY = 'any';

export interface DiagnoseContext extends Terminal {
  readonly kube: KubeEnvironment;
  readonly stdin: NodeJS.ReadableStream;
  /** Whether a person can answer the question of a credential plugin. */
  readonly interactive: boolean;
}

/**
 * `linger diagnose`: why endpoints are withdrawn late here, and which flags to set.
 * @returns the exit code: 3 when there is one of the findings of --fail-on
 * @throws LingerError, ConnectionError
 */
export async function diagnose(settings: DiagnoseSettings, context: DiagnoseContext): Promise<number> {
  checkFailOn(settings.failOn, [ANY, ...Object.keys(FINDINGS)]);
  const connection = await clusterOf(settings, context);
  const { looks, ...facts } = await gatherFacts({
    connection,
    metrics: metricsOf(settings, connection),
    flags: settings.controllerFlags === undefined ? undefined : [settings.controllerFlags],
    linger: settings.linger,
    watch: settings.lag === 'watch',
    intervalSeconds: settings.interval,
    onWait: (seconds) => {
      if (context.interactive) context.warn(`looking again in ${formatDuration(seconds)} …\n`);
    },
    stdin: context.stdin,
    signal: new AbortController().signal,
    clock: () => performance.now(),
    epochSeconds: () => Date.now() / 1000,
    random: Math.random,
  });
  const diagnosis: Diagnosis = { findings: findingsOf({ ...facts, looks }), looks, facts };
  context.print(RENDERERS[settings.output](diagnosis));
  return diagnosis.findings.some((each) => isAskedFor(each, settings.failOn)) ? FINDINGS_EXIT_CODE : 0;
}

/**
 * The cluster to ask. A saved scrape may be of another cluster than the one that kubectl happens to talk to, so then
 * none is asked unless it is named; and who has named an address of metrics may do without.
 * @throws ConnectionError, LingerError
 */
async function clusterOf(
  settings: DiagnoseSettings,
  { kube, interactive }: DiagnoseContext,
): Promise<KubeConnection | { readonly none: string }> {
  const { kubeconfig, context, controllerMetrics = [], linger } = settings;
  const named = kubeconfig !== undefined || context !== undefined;
  const given = [...controllerMetrics, ...(linger === undefined ? [] : [linger])];
  if (!named && given.some((from) => !isAddress(from))) {
    return { none: 'not asked, as a saved scrape may be of another one; --kubeconfig or --context names it' };
  }
  try {
    const connection = await connectAsKubectl(settings, kube, interactive);
    await first(connection, () => kubeVersion(connection, new AbortController().signal));
    return connection;
  } catch (error) {
    if (named || given.length === 0 || !(error instanceof UserError)) throw error;
    return { none: error.message };
  }
}

/** @throws LingerError `settings-invalid` */
function metricsOf(
  settings: DiagnoseSettings,
  connection: KubeConnection | { readonly none: string },
): GatherOptions['metrics'] {
  const { controllerMetrics } = settings;
  if (controllerMetrics === undefined) return undefined;
  const [from = ''] = controllerMetrics;
  const addresses = controllerMetrics.filter(isAddress).length;
  if (controllerMetrics.length > 2 || (addresses > 0 && controllerMetrics.length > 1)) {
    throw new LingerError(
      'settings-invalid',
      `--controller-metrics: expected a URL, or one or two files, the older first, got "${controllerMetrics.join(',')}"`,
    );
  }
  if (addresses === 0) return { files: controllerMetrics };
  return {
    from,
    caFile: settings.controllerMetricsCa,
    tokenFile: settings.controllerMetricsTokenFile,
    insecure: settings.controllerMetricsInsecure,
    ...('none' in connection ? {} : { identity: () => connection.credentials() }),
  };
}

const RENDERERS: Readonly<Record<OutputFormat, (diagnosis: Diagnosis) => string>> = {
  table: (diagnosis) => renderDiagnosis(diagnosis),
  wide: (diagnosis) => renderDiagnosis(diagnosis, Number.POSITIVE_INFINITY),
  json: (diagnosis) => `${JSON.stringify(diagnosis, orNull, 2)}\n`,
  yaml: (diagnosis) => stringify(JSON.parse(JSON.stringify(diagnosis, orNull))),
};

/** Every member is always there: what is not known is null. */
function orNull(_key: string, value: unknown): unknown {
  return value === undefined ? null : value;
}

/** `any` is whatever makes endpoints late: what is merely good to know fails nothing. */
function isAskedFor({ code, severity }: Finding, codes: readonly string[] = []): boolean {
  return codes.includes(code) || (severity !== 'info' && codes.includes(ANY));
}
