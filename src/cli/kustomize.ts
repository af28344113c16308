import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, realpath, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, relative, resolve } from 'node:path';
import { promisify } from 'node:util';
import { asError, isRecord, isString, LingerError, listOf, memberAt } from '../core/api/index.ts';
import { decodeText, type ManifestObject, readManifests } from '../core/manifest/index.ts';

/** Source: sigs.k8s.io/kustomize api/konfig (RecognizedKustomizationFileNames). */
export const KUSTOMIZATION = /^(kustomization\.ya?ml|Kustomization)$/;

/** The time for one build. */
export const BUILD_WITHIN_MS = 60_000;
export const MOST_BYTES = 256 * 1024 * 1024;

const BUILDERS = [
  ['kubectl', 'kustomize'],
  ['kustomize', 'build'],
] as const;

export interface BuildTerms {
  /** Whether it may fetch what its files name; otherwise such a kustomization is rejected. */
  readonly allowRemote: boolean;
  /** The environment of the process. */
  readonly variables?: Readonly<Record<string, string | undefined>> | undefined;
  /** Whether to return the source file of each object: for reading, not for printing. */
  readonly withOrigins: boolean;
}

export interface Built {
  readonly bytes: Buffer;
  readonly by: string;
  readonly placeOf?: (object: ManifestObject) => Promise<SourcePlace>;
}

/** Where an object comes from: a file of the repository, and its line (counting from 1) if that is known. */
export interface SourcePlace {
  readonly file: string;
  readonly line?: number;
}

/**
 * Renders a kustomization. Its files may come from a pull request. So anything that they would fetch is rejected before
 * anything runs, and then the build runs without git's protocols and with a proxy that does not answer.
 * @returns undefined if neither kubectl nor kustomize is installed
 * @throws LingerError `manifest-invalid`
 */
export async function build(folder: string, terms: BuildTerms): Promise<Built | undefined> {
  if (!terms.allowRemote) await refuseRemote(folder);
  const around = terms.withOrigins ? await overlayOf(folder) : undefined;
  try {
    return await builtBy(around ?? folder, folder, terms);
  } finally {
    if (around !== undefined) await rm(around, { recursive: true, force: true });
  }
}

async function builtBy(at: string, folder: string, { allowRemote, variables }: BuildTerms) {
  for (const [program, verb] of BUILDERS) {
    const env = { ...variables, ...(allowRemote ? {} : OFFLINE) };
    const options = { timeout: BUILD_WITHIN_MS, maxBuffer: MOST_BYTES, encoding: 'buffer' } as const;
    const by = `${program} ${verb} ${folder}`;
    try {
      const { stdout } = await promisify(execFile)(program, [verb, at], {
        ...options,
        ...(variables && { env }),
      });
      return { bytes: stdout, by, ...(at === folder ? {} : { placeOf: placesIn(at, folder) }) };
    } catch (thrown) {
      const { code, killed, stderr } = thrown as { code?: unknown; killed?: boolean; stderr?: Buffer };
      if (code === 'ENOENT') continue;
      const late =
        killed === true ? `not done within ${BUILD_WITHIN_MS / 1000} s, so it was stopped` : undefined;
      const said = late ?? (stderr?.toString().replaceAll(at, folder).trim() || asError(thrown).message);
      throw new LingerError('manifest-invalid', `${by}: ${said}`);
    }
  }
  return undefined;
}

/**
 * A second protection behind {@link refuseRemote}: git accepts no protocol, and Go’s HTTP client uses a proxy that does not
 * answer.
 */
export const OFFLINE: Readonly<Record<string, string>> = {
  GIT_ALLOW_PROTOCOL: 'none',
  GIT_TERMINAL_PROMPT: '0',
  HTTP_PROXY: 'http://127.0.0.1:1',
  HTTPS_PROXY: 'http://127.0.0.1:1',
  NO_PROXY: '',
  http_proxy: 'http://127.0.0.1:1',
  https_proxy: 'http://127.0.0.1:1',
  no_proxy: '',
};

/** A temporary kustomization that builds the folder and adds the origin of each object. */
async function overlayOf(folder: string): Promise<string> {
  const around = await realpath(await mkdtemp(join(tmpdir(), 'linger-')));
  const resources = [relative(around, await realpath(folder))];
  await writeFile(
    join(around, 'kustomization.yaml'),
    JSON.stringify({ buildMetadata: ['originAnnotations'], resources }),
  );
  return around;
}

/** Source: sigs.k8s.io/kustomize api/resource/origin.go. */
const ORIGIN = 'config.kubernetes.io/origin';

/** Places objects by the file that kustomize names; generated objects belong to their kustomization. */
function placesIn(around: string, folder: string): (object: ManifestObject) => Promise<SourcePlace> {
  const read = new Map<string, Promise<readonly ManifestObject[]>>();
  return async ({ value }) => {
    const origin = String(memberAt(value, ['metadata', 'annotations', ORIGIN]) ?? '');
    const path = /^(?:path|configuredIn): (.+)$/m.exec(origin)?.[1]?.replace(/^["']|["']$/g, '');
    const own = await kustomizationIn(folder);
    const whole: SourcePlace = { file: own === undefined ? folder : join(folder, own) };
    // A path within a fetched repository does not refer to this one.
    if (path === undefined || /^repo: /m.test(origin)) return whole;
    const file = relative(resolve('.'), resolve(around, path)) || folder;
    const shown = file.startsWith('..') ? resolve(around, path) : file;
    const objects = read.get(shown) ?? objectsIn(shown);
    read.set(shown, objects);
    const source = (await objects).find(({ value: of }) => isSourceOf(of, value));
    if ((await objects).length === 0) return whole;
    return { file: shown, ...(source && { line: source.line }) };
  };
}

async function objectsIn(file: string): Promise<readonly ManifestObject[]> {
  const bytes = await readFile(file).catch(() => undefined);
  return bytes === undefined ? [] : readManifests(decodeText(bytes, file).text, file).objects;
}

/** Whether a source may be that of a rendered object, whose name may have got a prefix and a suffix. */
function isSourceOf(source: unknown, rendered: unknown): boolean {
  const nameOf = (object: unknown) => String(memberAt(object, ['metadata', 'name']));
  return (
    memberAt(source, ['kind']) === memberAt(rendered, ['kind']) && nameOf(rendered).includes(nameOf(source))
  );
}

async function kustomizationIn(folder: string): Promise<string | undefined> {
  return (await readdir(folder).catch(() => [])).find((each) => KUSTOMIZATION.test(each));
}

/** More folders than any repository has. */
const MOST_FOLDERS = 1_000;
const LONGEST_PATH = 4096;

/**
 * Follows a kustomization through everything that it reads.
 * @throws LingerError `manifest-invalid` for anything that it would fetch, and for missing paths, which kustomize would take
 * for addresses
 */
async function refuseRemote(folder: string): Promise<void> {
  const open = [folder];
  const seen = new Set<string>();
  for (let at = open.pop(); at !== undefined; at = open.pop()) {
    const real = await realpath(at).catch(() => at ?? '');
    if (seen.has(real)) continue;
    seen.add(real);
    if (seen.size > MOST_FOLDERS) throw refused(folder, `more than ${MOST_FOLDERS} folders are used`);
    const name = await kustomizationIn(at);
    if (name === undefined) throw refused(folder, `${at}: there is no kustomization in it`);
    for (const value of await valuesIn(join(at, name), folder))
      for (const { path, isPlugin } of pathsIn(value)) await follow(path, isPlugin, at, folder, open);
  }
}

async function follow(
  path: string,
  isPlugin: boolean,
  at: string,
  folder: string,
  open: string[],
): Promise<void> {
  if (isRemote(path))
    throw refused(folder, `${at} would fetch ${path}: pass --allow-remote if it may be reached`);
  const local = join(at, path);
  const found = await stat(local).catch(() => undefined);
  if (found === undefined)
    throw refused(folder, `${at} names ${path}, which is not there (a step of the pipeline may make it)`);
  if (found.isDirectory()) open.push(local);
  else if (isPlugin)
    for (const value of await valuesIn(local, folder))
      for (const named of pluginPaths(value)) await follow(named, false, dirname(local), folder, open);
}

async function valuesIn(file: string, folder: string): Promise<readonly Record<string, unknown>[]> {
  const bytes = await readFile(file).catch(() => undefined);
  const { objects = [], problems = [] } = bytes ? readManifests(decodeText(bytes, file).text, file) : {};
  const [problem] = problems;
  // If kustomize might read this differently, it might find an address in it.
  if (problem !== undefined) throw refused(folder, problem.message);
  return objects.map(({ value }) => value).filter(isRecord);
}

function refused(folder: string, why: string): LingerError {
  return new LingerError('manifest-invalid', `${folder} is a kustomization that is not rendered: ${why}`);
}

/** Fields that are lists of paths, each of which may be an address. Source: sigs.k8s.io/kustomize api/types/kustomization.go. */
const LISTS = ['resources', 'components', 'bases', 'crds', 'configurations'] as const;
/** Lists of paths or of inline YAML. */
const PLUGINS = ['generators', 'transformers', 'validators'] as const;

interface NamedPath {
  readonly path: string;
  /** Whether this file configures a plugin, which may name further files. */
  readonly isPlugin: boolean;
}

function pathsIn(kustomization: Readonly<Record<string, unknown>>): readonly NamedPath[] {
  const listed = LISTS.flatMap((field) => listOf(kustomization[field]));
  const inline = PLUGINS.flatMap((field) => listOf(kustomization[field]));
  const isText = (each: unknown) => isString(each) && /\n|^\s*[{[]/.test(each);
  const plain = [
    ...listed,
    ...listOf(kustomization.patchesStrategicMerge).filter((each) => !isText(each)),
    ...inline.filter(isText).flatMap((text) => inlinePaths(String(text))),
    ...pluginPaths({ ...kustomization, ...Object.fromEntries(LISTS.map((each) => [each, undefined])) }),
  ];
  return [
    ...plain.filter(isString).map((path) => ({ path, isPlugin: false })),
    ...inline
      .filter((each) => isString(each) && !isText(each))
      .map((path) => ({ path: String(path), isPlugin: true })),
  ];
}

function inlinePaths(text: string): readonly string[] {
  return readManifests(text, 'inline').objects.flatMap(({ value }) => pluginPaths(value));
}

/** Members whose texts are paths, wherever they are: in patches, replacements, openapi, generators and Helm charts. */
const PATHS: ReadonlySet<string> = new Set([
  'path',
  'paths',
  'files',
  'envs',
  'env',
  'repo',
  'valuesFile',
  'additionalValuesFiles',
]);
/** Members that contain objects of the cluster, or text. */
const NOT_ENTERED: ReadonlySet<string> = new Set([
  'patch',
  'literals',
  'target',
  'commonAnnotations',
  'commonLabels',
  'labels',
  'images',
  'metadata',
  'options',
  'valuesInline',
  'source',
  'targets',
  // The paths in these refer to fields.
  'fieldSpecs',
  'fields',
  'patchesStrategicMerge',
  ...LISTS,
  ...PLUGINS,
]);

function pluginPaths(value: unknown, key = ''): readonly string[] {
  // A generator has `files: [name=path]`.
  if (isString(value)) return PATHS.has(key) && !value.includes('\n') ? [value.replace(/^[^=/:]*=/, '')] : [];
  if (Array.isArray(value)) return value.flatMap((each) => pluginPaths(each, key));
  if (!isRecord(value)) return [];
  return Object.entries(value).flatMap(([name, member]) =>
    NOT_ENTERED.has(name) ? [] : pluginPaths(member, name),
  );
}

/** Hosts from which kustomize clones even without a scheme. Source: api/internal/git/repospec.go, also of older versions. */
const HOSTS =
  /^(www\.)?(github|gitlab|bitbucket)\.[a-z]+([/:]|$)|^(gh|git|ssh):|^git-codecommit|^dev\.azure\.com|\.visualstudio\.com/i;

/** Whether kustomize may take a path for an address. Only relative paths of plain characters are accepted. */
export function isRemote(path: string): boolean {
  return path.length > LONGEST_PATH || HOSTS.test(path) || /[:?@\\]|\/\/|\.git(\/|$)|_git\//.test(path);
}
