import { stringify } from 'yaml';
import { LingerError, UserError } from '../core/catalog/errors.ts';
import { diagnose as findingsOf } from '../core/diagnose/diagnose.ts';
import { FINDINGS, type Finding } from '../core/diagnose/findings.ts';
import { formatDuration } from '../core/schema/duration.ts';
import type { KubeConnection } from '../kube/connection.ts';
import { kubeVersion } from '../kube/version.ts';
import { type Diagnosis, renderDiagnosis } from '../render/diagnosis.ts';
import type { DiagnoseSettings, OutputFormat } from '../settings/commands.ts';
import type { KubeEnvironment } from '../settings/kube-environment.ts';
import { type GatherOptions, gatherFacts } from '../sources/diagnosis/gather.ts';
import { isAddress } from '../sources/diagnosis/metrics-input.ts';
import { connectAsKubectl, first } from './as-kubectl.ts';
import type { Terminal } from './terminal.ts';

const FINDINGS_EXIT_CODE = 3;
const ANY = 'any';

export interface DiagnoseContext extends Terminal {
  readonly kube: KubeEnvironment;
  readonly stdin: NodeJS.ReadableStream;
  /** Whether somebody could answer the question of a credential plugin. */
  readonly interactive: boolean;
}

/**
 * `linger diagnose`: why endpoints are withdrawn late here, and which flags to set.
 * @returns the exit code: 3 when there is one of the findings of --fail-on
 * @throws LingerError, ConnectionError
 */
export async function diagnose(settings: DiagnoseSettings, context: DiagnoseContext): Promise<number> {
  checkCodes(settings.failOn);
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
  const { controllerMetrics, controllerMetricsCa, controllerMetricsTokenFile, controllerMetricsInsecure } =
    settings;
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
    caFile: controllerMetricsCa,
    tokenFile: controllerMetricsTokenFile,
    insecure: controllerMetricsInsecure,
    ...('none' in connection ? {} : { identity: () => connection.credentials() }),
  };
}

const RENDERERS: Readonly<Record<OutputFormat, (diagnosis: Diagnosis) => string>> = {
  table: renderDiagnosis,
  json: (diagnosis) => `${JSON.stringify(diagnosis, orNull, 2)}\n`,
  yaml: (diagnosis) => stringify(JSON.parse(JSON.stringify(diagnosis, orNull))),
};

/** Every member is always there: what is not known is null. */
function orNull(_key: string, value: unknown): unknown {
  return value === undefined ? null : value;
}

/** A misspelt code would never be found, and the check that was meant would pass for ever. */
function checkCodes(codes: readonly string[] = []): void {
  const known = [ANY, ...Object.keys(FINDINGS)];
  const unknown = codes.find((code) => !known.includes(code));
  if (unknown === undefined) return;
  throw new LingerError(
    'settings-invalid',
    `--fail-on: expected some of ${known.join(', ')}, got "${unknown}"`,
  );
}

/** `any` is whatever makes endpoints late: what is merely good to know fails nothing. */
function isAskedFor({ code, severity }: Finding, codes: readonly string[] = []): boolean {
  return codes.includes(code) || (severity !== 'info' && codes.includes(ANY));
}
