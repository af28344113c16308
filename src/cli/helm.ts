import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';
import { asError, isRecord, LingerError } from '../core/api/index.ts';
import { decodeText, readManifests } from '../core/manifest/index.ts';
import { BUILD_WITHIN_MS, type Built, MOST_BYTES, OFFLINE, type SourcePlace } from './kustomize.ts';

/**
 * Renders a chart with its own values, as its author would install it. helm uses no network for a local chart, so the
 * chart's dependencies must be in its folder.
 * @returns undefined if helm is not installed, or if the chart is a library
 * @throws LingerError `manifest-invalid`
 */
export async function renderChart(
  folder: string,
  variables: Readonly<Record<string, string | undefined>> = {},
): Promise<Built | 'library' | undefined> {
  const { name, isLibrary } = await chartIn(folder);
  if (isLibrary) return 'library';
  const by = `helm template ${folder}`;
  // The name of a release has at most 53 characters, which must be allowed in a DNS label.
  const release = name
    .toLowerCase()
    .replaceAll(/[^a-z0-9-]/g, '-')
    .slice(0, 53)
    .replaceAll(/^-+|-+$/g, '');
  try {
    const { stdout } = await promisify(execFile)('helm', ['template', release || 'release', folder], {
      timeout: BUILD_WITHIN_MS,
      maxBuffer: MOST_BYTES,
      encoding: 'buffer',
      env: { ...variables, ...OFFLINE },
    });
    return { bytes: stdout, by, placeOf: placesIn(stdout.toString(), folder, name) };
  } catch (thrown) {
    const { code, killed, stderr } = thrown as { code?: unknown; killed?: boolean; stderr?: Buffer };
    if (code === 'ENOENT') return undefined;
    const late =
      killed === true ? `not done within ${BUILD_WITHIN_MS / 1000} s, so it was stopped` : undefined;
    const said = late ?? (stderr?.toString().trim() || asError(thrown).message);
    throw new LingerError('manifest-invalid', `${by}: ${said}`);
  }
}

async function chartIn(folder: string): Promise<{ readonly name: string; readonly isLibrary: boolean }> {
  const file = join(folder, 'Chart.yaml');
  const bytes = await readFile(file).catch(() => undefined);
  const values = bytes === undefined ? [] : readManifests(decodeText(bytes, file).text, file).objects;
  const chart = values.map(({ value }) => value).find(isRecord) ?? {};
  return { name: String(chart.name ?? basename(folder)), isLibrary: chart.type === 'library' };
}

/** Places objects by the comment that helm writes before each document: `# Source: NAME/charts/SUB/templates/web.yaml`. */
function placesIn(text: string, folder: string, name: string): NonNullable<Built['placeOf']> {
  const sources: { readonly line: number; readonly file: string }[] = [];
  for (const [index, line] of text.split('\n').entries()) {
    const path = /^# Source: (\S.*)$/.exec(line)?.[1];
    if (path === undefined) continue;
    const within = path.startsWith(`${name}/`) ? path.slice(name.length + 1) : path;
    sources.push({ line: index + 1, file: join(folder, within) });
  }
  return async ({ line }): Promise<SourcePlace> => {
    const source = sources.findLast((each) => each.line <= line);
    return { file: source?.file ?? join(folder, 'Chart.yaml') };
  };
}
