import { readdir, readFile, stat } from 'node:fs/promises';
import { basename, dirname, join, normalize, relative, resolve } from 'node:path';
import { asError, isRecord, LingerError } from '../core/api/index.ts';
import { decodeText, readManifests } from '../core/manifest/index.ts';
import { KUSTOMIZATION } from './kustomize.ts';

export interface FoundFiles {
  /** Manifests; `-` is standard input. */
  readonly files: readonly string[];
  /** The folders of kustomizations that no other of these uses; these are built. */
  readonly kustomizations: readonly string[];
  readonly charts: readonly string[];
}

const MANIFEST_FILE = /\.(ya?ml|json)$/;
const CHART = 'Chart.yaml';

/**
 * The manifests to which paths refer: a file itself, or the manifests in a folder in the order of their names, like kubectl.
 * The files of a kustomization (resources, patches, generators) and of a chart do not count as manifests themselves.
 * @param changes whether they will be changed; if so, parts of a kustomization are excluded even if they are named
 * explicitly
 * @throws LingerError
 */
export async function findManifests(
  paths: readonly string[],
  recursive: boolean,
  changes: boolean,
): Promise<FoundFiles> {
  const files: string[] = [];
  const kustomizations = new Map<string, Kustomization>();
  const charts: string[] = [];
  for (const path of paths) {
    const all = await filesOf(path, recursive);
    for (const file of all) {
      if (basename(file) === CHART) charts.push(dirname(file));
      const known = KUSTOMIZATION.test(basename(file)) ? await readKustomization(file) : undefined;
      if (known !== undefined) kustomizations.set(normalize(dirname(file)), known);
      else if (all.length === 1 || file === path || MANIFEST_FILE.test(file)) files.push(file);
    }
  }
  for (const file of changes ? files : []) {
    const folder = await kustomizationOf(file);
    if (folder !== undefined && !kustomizations.has(folder))
      kustomizations.set(folder, { isComponent: false, uses: [normalize(file)] });
  }
  const parts = new Set([...kustomizations.values()].flatMap(({ uses }) => uses));
  const isPart = (file: string) => parts.has(normalize(file)) || [...kustomizations.keys()].some(holds(file));
  const isOfChart = (file: string) => charts.some(holds(file));
  return {
    files: files.filter((file) => file === '-' || !(isPart(file) || isOfChart(file))),
    kustomizations: [...kustomizations].flatMap(([folder, { isComponent }]) =>
      isComponent || parts.has(folder) ? [] : [folder],
    ),
    charts: charts.filter((folder) => !charts.some((other) => other !== folder && holds(folder)(other))),
  };
}

function holds(file: string): (folder: string) => boolean {
  return (folder) => !relative(folder, file).startsWith('..');
}

async function filesOf(path: string, recursive: boolean): Promise<readonly string[]> {
  try {
    if (path === '-' || !(await stat(path)).isDirectory()) return [path];
    const entries = await readdir(path, { recursive, withFileTypes: true });
    const files = entries.filter(
      (entry) =>
        !entry.isDirectory() &&
        (MANIFEST_FILE.test(entry.name) || KUSTOMIZATION.test(entry.name)) &&
        // Settings of tools and of code hosts: `.github`, `.vscode`.
        !/(^|\/)\.[^./]/.test(join(relative(path, entry.parentPath), entry.name)),
    );
    if (files.length > 0) return files.map((entry) => join(entry.parentPath, entry.name)).toSorted();
  } catch (cause) {
    throw unreadable(path, cause);
  }
  const wayOut = recursive ? 'name a file' : '-R also looks into its folders';
  throw new LingerError('manifest-invalid', `${path}: there is no *.yaml, *.yml or *.json in it: ${wayOut}`);
}

export function unreadable(name: string, cause: unknown): LingerError {
  const why = /^https?:/.test(name) ? 'download it first' : asError(cause).message;
  return new LingerError('manifest-invalid', `${name}: cannot be read (${why})`, { cause });
}

interface Kustomization {
  readonly isComponent: boolean;
  /** The paths that it names: files and folders that exist, and others. */
  readonly uses: readonly string[];
}

/** Where changes of manifests may occur: their paths, and what their kustomizations use elsewhere. */
export async function usedBy(paths: readonly string[], recursive: boolean): Promise<readonly string[]> {
  const used = new Set<string>();
  const open = paths.filter((path) => path !== '-');
  const isWithin = (path: string) => [...used].some((other) => holds(path)(other));
  for (let path = open.pop(); path !== undefined && used.size < MOST_USED; path = open.pop()) {
    // Not every text in a kustomization is a path.
    const isThere = paths.includes(path) || (await stat(path).catch(() => undefined)) !== undefined;
    if (!isThere || isWithin(path)) continue;
    used.add(path);
    const files = await filesOf(path, recursive).catch(() => []);
    for (const file of files.filter((each) => KUSTOMIZATION.test(basename(each))))
      open.push(...((await readKustomization(file).catch(() => undefined))?.uses ?? []));
  }
  return [...used];
}

/** Limited, because each takes at least one of the system's watches. */
const MOST_USED = 1_000;

/** @returns undefined for a file that is not a kustomization, such as a Kustomization of Flux */
async function readKustomization(file: string): Promise<Kustomization | undefined> {
  const bytes = await readFile(file).catch((cause: unknown) => {
    throw unreadable(file, cause);
  });
  const { text } = decodeText(bytes, file);
  const { objects } = readManifests(text, file);
  const values = objects.map(({ value }) => value).filter(isRecord);
  const isOwn = ({ apiVersion = 'kustomize.config.k8s.io' }: Record<string, unknown>) =>
    String(apiVersion).startsWith('kustomize.config.k8s.io');
  if (!values.every(isOwn)) return undefined;
  // A generator's `files: [name=path]` also names a path.
  const named = values
    .flatMap(textsIn)
    .map((text) => normalize(join(dirname(file), text.replace(/^[^=/]*=/, ''))));
  return {
    isComponent: values.some(({ kind }) => kind === 'Component'),
    uses: named.map((path) => path.replace(/(?<=.)\/$/, '')),
  };
}

/** The nearest folder whose kustomization names the file. */
async function kustomizationOf(file: string): Promise<string | undefined> {
  for (let folder = dirname(file); ; folder = join(folder, '..')) {
    const name = (await readdir(folder).catch(() => [])).find((each) => KUSTOMIZATION.test(each));
    const known = name === undefined ? undefined : await readKustomization(join(folder, name));
    if (known?.uses.some((each) => resolve(each) === resolve(file))) return normalize(folder);
    if (resolve(folder) === '/') return undefined;
  }
}

function textsIn(value: unknown): readonly string[] {
  if (typeof value === 'string') return value.length < LONGEST_PATH && !value.includes('\n') ? [value] : [];
  return typeof value === 'object' && value !== null ? Object.values(value).flatMap(textsIn) : [];
}

const LONGEST_PATH = 4096;
