import { readFile } from 'node:fs/promises';
import { buffer as readAll } from 'node:stream/consumers';
import { setFlagsFromString } from 'node:v8';
import { LingerError } from '../core/api/index.ts';
import { type Documents, NO_DOCUMENTS, NO_SOURCES, type Sources } from '../core/decision/index.ts';
import { decodeText, type Encoding, type ManifestObject } from '../core/manifest/index.ts';
import {
  type ManifestProblem,
  type ManifestText,
  type Reading,
  type Surveyed,
  survey,
} from '../core/report/index.ts';
import { readPolicies } from '../policy-files/index.ts';
import type { Settings } from './commands.ts';
import { usageError } from './flags.ts';
import { renderChart } from './helm.ts';
import { type Built, build, type SourcePlace } from './kustomize.ts';
import { findManifests, unreadable } from './manifest-files.ts';
import type { KnownCluster } from './read-cluster.ts';
import type { Surroundings, Terminal } from './terminal.ts';

export type ManifestSettings = Omit<Settings<'uninject'>, 'inPlace' | 'diff' | 'allowRemote'> & {
  /** Absent: rendering must not use the network. */
  readonly allowRemote?: boolean;
};

export interface ManifestInput extends ManifestText {
  /** `-` is standard input; for a kustomization, its folder. */
  readonly path: string;
  readonly encoding: Encoding;
  /** The source file of an object that was rendered. */
  readonly placeOf?: Built['placeOf'];
}

export interface Manifests extends Surveyed {
  readonly inputs: readonly ManifestInput[];
  /** Whether something could not be read, which was reported. */
  readonly failed: boolean;
}

/** Loads the client of the API server only if a cluster is used. @throws ConnectionError, LingerError */
export async function askCluster(
  settings: Pick<Settings<'explain'>, 'kubeconfig' | 'context' | 'lingerNamespace' | 'policies'> & {
    readonly namespace?: string | undefined;
  },
  surroundings: Surroundings,
) {
  const { connectToLinger } = await import('./connect.ts');
  const { readCluster } = await import('./read-cluster.ts');
  const { connection, ...place } = await connectToLinger(settings, surroundings);
  // kubectl’s default namespace is all that is read if listing the whole cluster is forbidden.
  const { namespace = connection.namespace } = settings;
  surroundings.progress('reading policies, Services, namespaces and nodes');
  const known = await readCluster(connection, { ...settings, ...place, namespace }, surroundings.warn);
  return { connection, known, lingerNamespace: place.lingerNamespace };
}

/**
 * Makes V8 collect garbage earlier for the rest of the process. For commands that read far more than they keep
 * (docs/decisions/0044-collecting-early.md).
 */
export function collectEarly(): void {
  setFlagsFromString('--heap-growing-percent=20');
  setFlagsFromString('--semi-space-growth-factor=1');
}

/**
 * Reads the manifests that are given by `-f` and by operands; if there are none, standard input, unless it is a terminal. A
 * kustomization is built if kubectl or kustomize is installed and its files will not be changed, and a chart if helm is
 * installed; otherwise they are rejected.
 * @throws LingerError, ManifestError
 */
export async function readGivenManifests(
  { filename = [], operands, recursive, namespace, allowRemote = false }: ManifestSettings,
  { stdin, warn, kube }: Pick<Surroundings, 'stdin' | 'warn'> & Partial<Pick<Surroundings, 'kube'>>,
  builds: 'plainly' | 'with origins' | 'to print' | 'never' = 'plainly',
): Promise<Manifests> {
  collectEarly();
  const named = [...filename, ...operands];
  if (named.length === 0 && stdin.isTTY === true)
    throw usageError('no manifests: name files or folders (-f FILE), or - for standard input');
  const paths = named.length === 0 ? ['-'] : named;
  const { files, kustomizations, charts } = await findManifests(paths, recursive, builds === 'never');
  const inputs: ManifestInput[] = [];
  let failed = false;
  const refuse = (what: string) => {
    failed = true;
    warn(`linger: ${what}`);
  };
  const take = (folder: string, kind: string, { by, bytes, placeOf }: Built) => {
    warn(`linger: ${folder} is ${kind}: rendered with ${by}`);
    inputs.push({ path: folder, name: folder, ...decodeText(bytes, folder), ...(placeOf && { placeOf }) });
  };
  for (const path of files) {
    const name = path === '-' ? 'stdin' : path;
    const bytes = await (path === '-' ? readAll(stdin) : readFile(path)).catch((cause: unknown) => {
      throw unreadable(name, cause);
    });
    const decoded = decodeText(bytes, name);
    const isPrinted = builds === 'to print' || builds === 'never';
    if (!isPrinted && !paths.includes(path) && !isManifest(decoded.text)) continue;
    inputs.push({ path, name, ...decoded });
  }
  for (const folder of kustomizations) {
    const terms = { allowRemote, variables: kube?.variables, withOrigins: builds === 'with origins' };
    const built = builds === 'never' ? undefined : await build(folder, terms).catch(failureOf);
    // One that cannot be rendered does not prevent the others from being read.
    if (built instanceof LingerError) refuse(built.message);
    else if (built === undefined)
      refuse(
        `${folder} is a kustomization, its files are fragments: render it first (kubectl kustomize ${folder})`,
      );
    else take(folder, 'a kustomization', built);
  }
  for (const folder of charts) {
    const built =
      builds === 'never' ? undefined : await renderChart(folder, kube?.variables).catch(failureOf);
    if (built === 'library') continue;
    if (built instanceof LingerError) refuse(built.message);
    else if (built === undefined)
      refuse(`${folder} is a Helm chart: render it first (helm template ${folder})`);
    else take(folder, 'a Helm chart', built);
  }
  const { problems, ...surveyed } = survey(inputs, namespace);
  for (const { message } of problems) refuse(message);
  return { inputs, ...surveyed, failed };
}

function failureOf(thrown: unknown): LingerError {
  if (!(thrown instanceof LingerError)) throw thrown;
  return thrown;
}

/**
 * Whether a file that was not named explicitly may contain an object, because repositories contain other YAML and JSON, too.
 */
function isManifest(text: string): boolean {
  return /\bapiVersion\b/.test(text) && /\bkind\b/.test(text);
}

/** The place of a workload, in a file that its author can change. */
export async function placeOf(
  input: ManifestInput,
  object: ManifestObject,
): Promise<SourcePlace & { column?: number }> {
  return input.placeOf?.(object) ?? { file: input.name, line: object.line, column: object.column };
}

/** Reads manifests and prints their problems in the terminal. */
export function readingOf(
  warn: Terminal['warn'],
  { failed }: Pick<Manifests, 'failed'>,
  remark?: string,
): Reading {
  const report = ({ message }: ManifestProblem) => warn(`linger: ${message}`);
  return { report, failed, ...(remark !== undefined && { remark }) };
}

export type SnapshotSettings = Pick<Settings<'explain'>, 'policies' | 'namespace' | 'modeLimit'>;

/**
 * The sources for decisions about manifests: the given policies, or else those of the cluster; and the Services and
 * Namespaces of the manifests and of the cluster or, without one, of the policy files.
 * @throws LingerError
 */
export async function sourcesFor(
  applied: Documents,
  { policies, modeLimit }: SnapshotSettings,
  cluster?: KnownCluster,
): Promise<Sources> {
  const given = policies === undefined ? cluster?.files : await readPolicies(policies);
  const sources = { ...NO_SOURCES, modeLimit, files: given ?? NO_DOCUMENTS, applied };
  return cluster === undefined ? sources : { ...sources, cluster, lags: cluster.lags };
}
