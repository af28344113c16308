import { readdirSync, readFileSync } from 'node:fs';
import { cp, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { commitOf, releaseArchive, releaseFiles } from '../../deploy/release.ts';
import { BUILT } from '../cli/built.ts';
import { emptyDirectory, ROOT, run } from '../cli/linger.ts';
import { read } from '../docs/markdown.ts';
import { atEndOfFile } from '../webhook/connection.ts';

const atEnd = atEndOfFile();
const { version, dependencies } = JSON.parse(read('package.json')) as {
  version: string;
  dependencies: Record<string, string>;
};
let out = '';

async function unpacked(tarball: string): Promise<string> {
  const directory = await emptyDirectory(atEnd);
  const { code, stderr } = await run('tar', ['-xzf', join(out, tarball), '-C', directory]);
  expect([code, stderr]).toEqual([0, '']);
  const [top = ''] = readdirSync(directory);
  return join(directory, top);
}

beforeAll(async () => {
  out = await emptyDirectory(atEnd);
  // Helm is built for the suite on a cluster, which packs the chart.
  const named = { packageName: '@owner/linger', repository: 'https://example.com/owner/linger' };
  await releaseFiles({ out, dist: BUILT, tag: `v${version}`, ...named, helm: undefined });
}, 60_000);

describe('the npm package', () => {
  it('needs nothing else, and runs', async () => {
    const directory = await unpacked(`owner-linger-${version}.tgz`);
    const manifest = JSON.parse(readFileSync(join(directory, 'package.json'), 'utf8')) as Record<
      string,
      unknown
    >;
    expect(manifest).toMatchObject({ name: '@owner/linger', version, bin: { linger: './dist/main.js' } });
    // Compared by npm with the repository that the provenance names.
    expect(manifest.repository).toEqual({ type: 'git', url: 'git+https://example.com/owner/linger.git' });
    for (const member of ['private', 'dependencies', 'devDependencies', 'scripts'])
      expect(manifest).not.toHaveProperty(member);
    const files = readdirSync(directory, { recursive: true }) as string[];
    expect(files).toEqual(expect.arrayContaining(['LICENSE', 'README.md', 'docs/examples/web.yaml']));
    expect(files.filter((file) => /\.map$|^(src|test|node_modules)/.test(file))).toEqual([]);
    const main = join(directory, 'dist/main.js');
    const injected = await run(
      process.execPath,
      [main, 'inject', join(directory, 'docs/examples/web.yaml')],
      {
        cwd: directory,
      },
    );
    expect(injected.code).toBe(0);
    expect(injected.stdout).toContain('preStop');
  });
});

it('the commit of a release is known where nothing differs from it', async () => {
  const checkout = await emptyDirectory(atEnd);
  expect(commitOf(checkout)).toEqual({});
  const git = (...args: string[]) =>
    run('git', ['-c', 'user.name=x', '-c', 'user.email=x@example.com', ...args], { cwd: checkout });
  await git('init', '--quiet');
  await writeFile(join(checkout, 'a'), 'a');
  await git('add', 'a');
  await git('commit', '--quiet', '--message', 'a');
  const { stdout } = await git('rev-parse', 'HEAD');
  expect(commitOf(checkout)).toEqual({ gitHead: stdout.trim() });
  expect(stdout).toMatch(/^[0-9a-f]{40}\n$/);
  await writeFile(join(checkout, 'a'), 'b');
  expect(commitOf(checkout)).toEqual({});
});

it('npm pack of a checkout makes a package that installs nothing beside itself', async () => {
  const checkout = await emptyDirectory(atEnd);
  for (const path of ['package.json', 'src', 'deploy', 'docs/examples', 'README.md', 'LICENSE'])
    await cp(join(ROOT, path), join(checkout, path), { recursive: true });
  await symlink(join(ROOT, 'node_modules'), join(checkout, 'node_modules'));
  // One that was interrupted has not restored it.
  expect(await run(process.execPath, ['deploy/pack.ts'], { cwd: checkout })).toMatchObject({ code: 0 });
  const packed = await run('npm', ['pack', '--silent'], { cwd: checkout });
  expect(packed.code).toBe(0);
  // What is developed on stays as it was.
  expect(readFileSync(join(checkout, 'package.json'), 'utf8')).toBe(read('package.json'));
  const tarball = join(checkout, `linger-${version}.tgz`);
  const project = await emptyDirectory(atEnd);
  const args = ['install', '--offline', '--no-audit', '--no-fund', '--prefix', project, tarball];
  expect(await run('npm', args, { cwd: project })).toMatchObject({ code: 0 });
  const modules = readdirSync(join(project, 'node_modules')).filter((name) => !name.startsWith('.'));
  expect(modules).toEqual(['linger']);
  const program = join(project, 'node_modules/.bin/linger');
  expect(await run(program, ['--version'])).toMatchObject({ code: 0, stdout: `${version}\n` });
}, 120_000);

it('says in one sentence that a Node is too old', async () => {
  const directory = await emptyDirectory(atEnd);
  const old = join(directory, 'old.cjs');
  const pretended = "Object.defineProperty(process, 'versions', { value: { node: '12.22.0' } });";
  await writeFile(old, `${pretended} Object.defineProperty(process, 'version', { value: 'v12.22.0' });`);
  const { code, stdout, stderr } = await run(process.execPath, ['--require', old, join(BUILT, 'main.js')]);
  expect([code, stdout]).toEqual([1, '']);
  expect(stderr).toMatch(/^linger: Node\.js 22\.19 or newer is needed, and this is v12\.22\.0: [^\n]*\n$/);
  // Nothing in it that Node 12 could not parse: neither imports nor newer syntax.
  const text = readFileSync(join(BUILT, 'main.js'), 'utf8');
  expect(text).not.toMatch(/^import |^export |\?\.|\?\?|=>|await|`/m);
});

it('the archive runs where there is no Node, also by the name of a plugin of kubectl', async () => {
  // In place of 130 MB that would have to be compressed: the release workflow tries the real ones.
  const node = join(await emptyDirectory(atEnd), 'node');
  await writeFile(node, `#!/bin/sh\nexec '${process.execPath}' "$@"\n`);
  await releaseArchive({ out, dist: BUILT }, node);
  const [name = ''] = readdirSync(out).filter((file) => file.endsWith('.tar.gz'));
  expect(name).toMatch(new RegExp(`^linger-${version}-(linux|darwin)-(amd64|arm64)\\.tar\\.gz$`));
  const directory = await unpacked(name);
  const env = { PATH: '/usr/bin:/bin' };
  const elsewhere = { env, cwd: await emptyDirectory(atEnd) };
  for (const program of ['linger', 'kubectl-linger'])
    expect(await run(join(directory, program), ['--version'], elsewhere)).toEqual({
      code: 0,
      stderr: '',
      stdout: `${version}\n`,
    });
}, 60_000);

it('the bill of materials has what the bundle is made of, and nothing that only builds it', () => {
  const { packages, documentNamespace } = JSON.parse(
    readFileSync(join(out, `linger-${version}.spdx.json`), 'utf8'),
  ) as { packages: { name: string; versionInfo: string }[]; documentNamespace: string };
  // A digest of the listed packages, not a random number: a rebuild of the image must come out the same.
  expect(documentNamespace).toMatch(/-[0-9a-f]{64}$/);
  const versions = new Map(packages.map(({ name, versionInfo }) => [name, versionInfo]));
  for (const [name, wanted] of Object.entries(dependencies))
    expect([name, versions.get(name)]).toEqual([name, wanted]);
  for (const name of ['esbuild', 'vitest', 'typescript']) expect(versions.has(name)).toBe(false);
});

it('the notes are the changelog’s section', () => {
  const notes = readFileSync(join(out, 'NOTES.md'), 'utf8');
  expect(notes).toContain('**Webhook.**');
  expect(notes).not.toMatch(/^## /m);
  expect(read('CHANGELOG.md')).toContain(notes);
});

it('a tag of another version is refused', async () => {
  const refused = releaseFiles({ out, dist: BUILT, tag: 'v9.9.9', helm: undefined });
  const sentence = `the tag: expected ${version}, as in package.json, got 9.9.9`;
  await expect(refused).rejects.toThrow(sentence);
  await expect(releaseArchive({ out, dist: BUILT, tag: 'v9.9.9' })).rejects.toThrow(sentence);
});
