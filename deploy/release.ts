import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { chmod, cp, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { parse } from 'yaml';
import { buildProgram } from './build.ts';

/*
 * The files of a release. .github/workflows/release.yml runs this and publishes what it has made; this publishes nothing, so
 * anybody may run it:
 *   npm run release -- files OUT     the npm package, the chart, the bill of materials and the notes
 *   npm run release -- archive OUT   the command line with the Node that runs this, for machines without one
 *   npm run release -- bill OUT      the bill of materials alone, as the image has it
 */

const ROOT = join(import.meta.dirname, '..');

export interface ReleaseOptions {
  /** Made where it is missing. */
  readonly out: string;
  /** The program, built. Default: it is built. */
  readonly dist?: string;
  /** `v1.2.3`: what is released must be of that version. Default: whatever version it is of. */
  readonly tag?: string | undefined;
}

export interface FilesOptions extends ReleaseOptions {
  /** The package's name on npm, where `linger` is taken. Default: that of package.json. */
  readonly packageName?: string | undefined;
  /** Where its source is, a URL: npm takes a provenance only of the repository that the package names. */
  readonly repository?: string | undefined;
  /** The program `helm`; undefined: there will be no chart. */
  readonly helm: string | undefined;
}

interface Manifest {
  readonly name: string;
  readonly version: string;
  readonly [member: string]: unknown;
}

/** @throws Error where the versions of the checkout disagree, with each other or with the tag */
export async function releaseFiles(files: FilesOptions): Promise<void> {
  const { packageName, repository, helm, ...options } = files;
  const manifest = await readManifest();
  const { version } = manifest;
  await expectOneVersion(version, options.tag);
  const notes = await notesOf(version);
  const out = resolve(options.out);
  const source =
    repository === undefined ? {} : { repository: { type: 'git', url: `git+${repository}.git` } };
  await staged({ ...manifest, ...source, name: packageName ?? manifest.name }, options, async (program) => {
    execute('npm', ['pack', program, '--pack-destination', out]);
  });
  if (helm !== undefined)
    execute(helm, ['package', join(ROOT, 'deploy/chart'), '--destination', join(out, 'chart')]);
  await writeFile(join(out, `linger-${version}.spdx.json`), await billOfMaterials());
  await writeFile(join(out, 'NOTES.md'), notes);
}

const LAUNCHER = `#!/bin/sh
# kubectl calls its plugins by links.
self=$(readlink -f "$0") || exit 1
exec "\${self%/*}/node" "\${self%/*}/dist/main.js" "$@"
`;

/** Go's names, as all of Kubernetes has them. */
const ARCHITECTURES: Partial<Record<NodeJS.Architecture, string>> = { x64: 'amd64', arm64: 'arm64' };

/** @param node the Node to pack @throws Error as {@link releaseFiles} does: the workflow packs archives before it publishes anything */
export async function releaseArchive(options: ReleaseOptions, node = process.execPath): Promise<void> {
  const manifest = await readManifest();
  await expectOneVersion(manifest.version, options.tag);
  const architecture = ARCHITECTURES[process.arch] ?? process.arch;
  const name = `linger-${manifest.version}-${process.platform}-${architecture}`;
  await staged(manifest, options, async (program) => {
    const directory = join(dirname(program), name);
    await cp(program, directory, { recursive: true });
    await cp(node, join(directory, 'node'));
    const license = join(dirname(node), '..', 'LICENSE');
    if (existsSync(license)) await cp(license, join(directory, 'LICENSE.node'));
    await writeFile(join(directory, 'linger'), LAUNCHER);
    for (const file of ['node', 'linger']) await chmod(join(directory, file), 0o755);
    await symlink('linger', join(directory, 'kubectl-linger'));
    execute('tar', ['-czf', join(resolve(options.out), `${name}.tar.gz`), '-C', dirname(directory), name]);
  });
}

async function readManifest(): Promise<Manifest> {
  return JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8')) as Manifest;
}

/** The package.json that is published, as text: the bundle holds the dependencies, so there are none to install. */
export function publishedManifest(manifest: Manifest): string {
  const { private: _, scripts, dependencies, devDependencies, ...published } = manifest;
  return `${JSON.stringify(published, undefined, 2)}\n`;
}

async function expectOneVersion(version: string, tag = `v${version}`): Promise<void> {
  const yamlOf = async (file: string) => parse(await readFile(join(ROOT, file), 'utf8')) as unknown;
  const chart = (await yamlOf('deploy/chart/Chart.yaml')) as { version: string; appVersion: string };
  const { images } = (await yamlOf('deploy/kustomization.yaml')) as { images: { newTag: string }[] };
  const others = [
    ['the tag', tag.replace(/^v/, '')],
    ['version of the chart', chart.version],
    ['appVersion of the chart', chart.appVersion],
    ...images.map(({ newTag }) => ['newTag of deploy/kustomization.yaml', newTag]),
  ];
  for (const [what, said] of others)
    if (said !== version) throw new Error(`${what}: expected ${version}, as in package.json, got ${said}`);
}

/** What the package and the archives have in common. */
async function staged(
  manifest: Manifest,
  { out, dist }: ReleaseOptions,
  use: (directory: string) => Promise<void>,
): Promise<void> {
  await mkdir(out, { recursive: true });
  const scratch = await mkdtemp(join(tmpdir(), 'linger-release-'));
  const program = join(scratch, 'program');
  try {
    if (dist === undefined) await buildProgram(join(program, 'dist'));
    else await cp(dist, join(program, 'dist'), { recursive: true });
    // Their sources are not published.
    const maps = (await readdir(join(program, 'dist'))).filter((name) => name.endsWith('.map'));
    for (const name of maps) await rm(join(program, 'dist', name));
    await writeFile(join(program, 'package.json'), publishedManifest({ ...manifest, ...commitOf(ROOT) }));
    for (const path of ['README.md', 'CHANGELOG.md', 'LICENSE', 'docs/examples'])
      await cp(join(ROOT, path), join(program, path), { recursive: true });
    await use(program);
  } finally {
    await rm(scratch, { recursive: true });
  }
}

/** The commit that is released, for `linger version`; none without git, or where files differ from it. */
export function commitOf(checkout: string): { readonly gitHead?: string } {
  try {
    execute('git', ['diff', '--quiet', 'HEAD'], checkout);
    return { gitHead: execute('git', ['rev-parse', 'HEAD'], checkout).trim() };
  } catch {
    return {};
  }
}

interface Lock {
  readonly packages: Record<string, { readonly dev?: true; readonly devOptional?: true }>;
}

/**
 * What the bundle is made of, in SPDX. Told without the packages that only build and test it: with `--omit=dev` npm 11 also leaves
 * out a dependency that one of those names as an optional peer (yaml).
 */
async function billOfMaterials(): Promise<string> {
  const { devDependencies: _, ...manifest } = await readManifest();
  const lock = JSON.parse(await readFile(join(ROOT, 'package-lock.json'), 'utf8')) as Lock;
  const kept = Object.entries(lock.packages).filter(([, { dev, devOptional }]) => !dev && !devOptional);
  const packages = { ...Object.fromEntries(kept), '': manifest };
  const scratch = await mkdtemp(join(tmpdir(), 'linger-release-'));
  try {
    await writeFile(join(scratch, 'package.json'), JSON.stringify(manifest));
    await writeFile(join(scratch, 'package-lock.json'), JSON.stringify({ ...lock, packages }));
    const told = execute('npm', ['sbom', '--sbom-format=spdx', '--package-lock-only'], scratch);
    return reproducible(JSON.parse(told) as BillOfMaterials);
  } finally {
    await rm(scratch, { recursive: true });
  }
}

interface BillOfMaterials {
  readonly name: string;
  readonly creationInfo: object;
  readonly packages: readonly unknown[];
}

/** npm puts a random number and the time of day into it. */
function reproducible(bill: BillOfMaterials): string {
  const digest = createHash('sha256').update(JSON.stringify(bill.packages)).digest('hex');
  const epoch = process.env.SOURCE_DATE_EPOCH;
  const created = epoch ? { created: `${new Date(1000 * Number(epoch)).toISOString().slice(0, 19)}Z` } : {};
  const documentNamespace = `http://spdx.org/spdxdocs/${bill.name}-${digest}`;
  const creationInfo = { ...bill.creationInfo, ...created };
  return `${JSON.stringify({ ...bill, documentNamespace, creationInfo }, undefined, 2)}\n`;
}

/** The section of the changelog. @throws Error where it has none */
async function notesOf(version: string): Promise<string> {
  const [, ...sections] = (await readFile(join(ROOT, 'CHANGELOG.md'), 'utf8')).split(/^## /m);
  const section = sections.find((each) => each.startsWith(`[${version}]`));
  if (section === undefined) throw new Error(`CHANGELOG.md: expected a section [${version}]`);
  return section.slice(section.indexOf('\n')).trim();
}

function execute(program: string, args: readonly string[], cwd = ROOT): string {
  return execFileSync(program, args, { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
}

if (import.meta.main) {
  const { positionals, values } = parseArgs({
    allowPositionals: true,
    options: {
      tag: { type: 'string' },
      package: { type: 'string' },
      repository: { type: 'string' },
      helm: { type: 'string', default: 'helm' },
    },
  });
  const [what, out] = positionals;
  if (out !== undefined && what === 'archive') await releaseArchive({ out, tag: values.tag });
  else if (out !== undefined && what === 'files')
    await releaseFiles({ ...values, out, packageName: values.package });
  else if (out !== undefined && what === 'bill') {
    await mkdir(out, { recursive: true });
    await writeFile(join(out, 'linger.spdx.json'), await billOfMaterials());
  } else throw new Error('expected files, archive or bill, and where to');
}
