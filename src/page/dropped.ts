import { decodeText, readManifests } from '../core/manifest/index.ts';
import type { ManifestText } from '../core/report/index.ts';
import { readZip, ZipError } from './zip.ts';

/** A file as it was dropped, with its path in the dropped folders. */
export interface DroppedFile {
  readonly path: string;
  readonly file: Blob;
}

/** How a dropped file, or a folder of them, was interpreted. */
export interface TakenFor {
  readonly path: string;
  readonly as: string;
}

/** Limits; more would be a whole repository rather than what is deployed. */
export const BUDGET = { entries: 10_000, bytes: 64 * 1024 * 1024 } as const;

interface Source {
  readonly path: string;
  readonly size: number | undefined;
  readonly bytes: () => Promise<Uint8Array<ArrayBufferLike>>;
}

const MANIFEST = /\.(ya?ml|json)$/;
const KUSTOMIZATION = /^(kustomization\.ya?ml|Kustomization)$/;

const nameOf = (path: string) => path.slice(path.lastIndexOf('/') + 1);
const folderOf = (path: string) => path.slice(0, Math.max(0, path.lastIndexOf('/')));
const isIn = (folder: string) => (path: string) => folder === '' || path.startsWith(`${folder}/`);

/** The manifests among dropped files, and how each file was interpreted. */
export async function readDropped(
  dropped: readonly DroppedFile[],
): Promise<{ readonly texts: readonly ManifestText[]; readonly taken: readonly TakenFor[] }> {
  const taken: TakenFor[] = [];
  const sources: Source[] = [];
  for (const { path, file } of dropped) {
    if (!path.toLowerCase().endsWith('.zip')) {
      sources.push({ path, size: file.size, bytes: async () => new Uint8Array(await file.arrayBuffer()) });
      continue;
    }
    try {
      if (file.size > BUDGET.bytes)
        throw new ZipError('more than the page reads at a time; drop a part of it');
      for (const { path: inner, bytes } of readZip(new Uint8Array(await file.arrayBuffer()), BUDGET))
        sources.push({ path: `${path}/${inner}`, size: undefined, bytes });
    } catch (thrown) {
      if (!(thrown instanceof ZipError)) throw thrown;
      taken.push({ path, as: `not read: ${thrown.message}` });
    }
  }
  if (sources.length > BUDGET.entries) {
    const as = `not read: ${sources.length} files, more than ${BUDGET.entries}; drop a folder of them`;
    return { texts: [], taken: [...taken, { path: 'everything', as }] };
  }
  const charts = outermost(
    sources.filter(({ path }) => nameOf(path) === 'Chart.yaml').map(({ path }) => folderOf(path)),
  );
  for (const folder of charts) {
    const as = `Helm chart: render it (helm template ${folder || '.'}) and drop the result`;
    taken.push({ path: folder || 'Chart.yaml', as });
  }
  const others = sources.filter(({ path }) => !charts.some((folder) => isIn(folder)(path)));
  const texts: ManifestText[] = [];
  let left: number = BUDGET.bytes;
  const read = async ({ path, size, bytes }: Source): Promise<string | undefined> => {
    try {
      if ((size ?? 0) > left) throw new ZipError('more than the page reads at a time; drop a part of it');
      const got = await bytes();
      left -= got.length;
      if (got.includes(0) && !startsAsUtf16(got)) throw new ZipError('binary');
      return decodeText(got, path).text;
    } catch (thrown) {
      taken.push({ path, as: `not read: ${thrown instanceof Error ? thrown.message : 'unknown'}` });
      return undefined;
    }
  };
  const kustomized = new Map<string, ReadonlySet<string>>();
  for (const source of others.filter(({ path }) => KUSTOMIZATION.test(nameOf(path)))) {
    const text = await read(source);
    if (text === undefined) continue;
    const folder = folderOf(source.path);
    kustomized.set(folder, resourcesOf(text, folder));
    const as = `kustomization: its resources are judged as they stand; what it changes is not. To judge the result: kubectl kustomize ${folder || '.'}`;
    taken.push({ path: source.path, as });
  }
  const named = new Set([...kustomized.values()].flatMap((paths) => [...paths]));
  const templates: string[] = [];
  let ignored = 0;
  for (const source of others.toSorted((a, b) => (a.path < b.path ? -1 : 1))) {
    const { path } = source;
    if (KUSTOMIZATION.test(nameOf(path))) continue;
    const isAlone = dropped.length === 1 && sources.length === 1;
    if (!MANIFEST.test(path) && !isAlone) {
      ignored += 1;
      continue;
    }
    const within = [...kustomized.keys()].some((folder) => isIn(folder)(path));
    const isNamed = [...named].some((each) => path === each || isIn(each)(path));
    if (within && !isNamed) {
      taken.push({ path, as: 'part of a kustomization that is no resource of it: not judged' });
      continue;
    }
    const text = await read(source);
    if (text === undefined) continue;
    if (isHelmTemplate(text, path)) templates.push(path);
    else texts.push({ name: path, text });
  }
  taken.push(...templatesIn(templates));
  if (ignored > 0) {
    const what = ignored === 1 ? 'another file' : `${ignored} other files`;
    taken.push({ path: what, as: 'not *.yaml, *.yml or *.json: not read' });
  }
  return { texts, taken };
}

const TEMPLATE_WORDS =
  /\{\{-?\s*(?:\.(?:Values|Release|Chart|Capabilities|Files)\b|(?:include|template|define|if|range|with|toYaml)\b|\/\*)/;

/**
 * Whether this is a template of Helm. Rendered manifests may contain such text as well, meant for something that renders it
 * in the cluster, but they are valid YAML.
 */
function isHelmTemplate(text: string, path: string): boolean {
  return TEMPLATE_WORDS.test(text) && readManifests(text, path).problems.length > 0;
}

/** One line for each chart. */
function templatesIn(paths: readonly string[]): readonly TakenFor[] {
  const chartOf = (path: string) => /^(?:(.*)\/)?templates\//.exec(path)?.[1] ?? '';
  return [...Map.groupBy(paths, chartOf)].map(([chart, all]) => ({
    path: all.length === 1 ? (all[0] ?? '') : `${chart || 'the chart'}: ${all.length} files`,
    as: `Helm templates without their Chart.yaml: not judged. Render the chart (helm template ${chart || 'CHART'}) and drop the result`,
  }));
}

function outermost(folders: readonly string[]): readonly string[] {
  return folders.filter((folder) => !folders.some((other) => other !== folder && isIn(other)(folder)));
}

function startsAsUtf16([first, second]: Uint8Array): boolean {
  return (first === 0xff && second === 0xfe) || (first === 0xfe && second === 0xff) || first === 0;
}

/** The paths that a kustomization names as resources, relative to its own place. */
function resourcesOf(text: string, folder: string): ReadonlySet<string> {
  const { objects } = readManifests(text, folder);
  const lists = objects.flatMap(({ value }) => {
    const { resources, bases } = value as Readonly<Record<string, unknown>>;
    return [resources, bases].flatMap((each) => (Array.isArray(each) ? each : []));
  });
  const paths = lists.filter((each) => typeof each === 'string').map((each) => resolved(folder, each));
  return new Set(paths);
}

function resolved(folder: string, path: string): string {
  const parts = folder === '' ? [] : folder.split('/');
  for (const part of path.split('/')) {
    if (part === '..') parts.pop();
    else if (part !== '.' && part !== '') parts.push(part);
  }
  return parts.join('/');
}
