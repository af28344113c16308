import { execFile } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { emptyDirectory, shipped } from './linger.ts';

// `audit --baseline`: only what is new fails a pull request.

const run = promisify(execFile);
const GIT = { GIT_CONFIG_GLOBAL: '/dev/null', GIT_CONFIG_SYSTEM: '/dev/null' };

const deployment = (name: string, spec = '') =>
  `apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: ${name}}\nspec: {replicas: 2, ${spec}template: {spec: {containers: [{name: a, ports: [{containerPort: 80}]}]}}}\n`;
const RECREATE = 'strategy: {type: Recreate}, ';

async function write(folder: string, files: Readonly<Record<string, string>>): Promise<void> {
  for (const [name, text] of Object.entries(files)) {
    await mkdir(join(folder, dirname(name)), { recursive: true });
    await writeFile(join(folder, name), text);
  }
}

/** A repository with one commit. */
async function repository(files: Readonly<Record<string, string>>): Promise<string> {
  const folder = await emptyDirectory();
  await write(folder, files);
  const git = (...args: readonly string[]) =>
    run('git', ['-c', 'user.name=a', '-c', 'user.email=a@example', ...args], {
      cwd: folder,
      env: { ...process.env, ...GIT },
    });
  await git('init', '-q', '-b', 'main');
  await git('add', '-A');
  await git('commit', '-q', '-m', 'x');
  return folder;
}

async function audited(cwd: string, ...args: readonly string[]) {
  const { code, stdout, stderr } = await shipped(
    ['audit', '--webhook', '--fail-on', 'any', '-o', 'name', ...args],
    { cwd },
  );
  return { code, names: stdout.trim(), stderr };
}

const OLD = { 'app/old.yaml': deployment('old', RECREATE) };

describe('--baseline COMMIT', () => {
  it('leaves out what was there, and fails by what is new', async () => {
    const folder = await repository(OLD);
    expect(await audited(folder, '-R', '-f', 'app')).toMatchObject({ code: 3, names: 'deployment.apps/old' });
    const same = await audited(folder, '-R', '-f', 'app', '--baseline', 'main');
    expect(same).toMatchObject({ code: 0, names: '' });
    expect(same.stderr).toContain('findings are in the baseline, and left out');
    await write(folder, { 'app/new.yaml': deployment('new', RECREATE) });
    const more = await audited(folder, '-R', '-f', 'app', '--baseline', 'HEAD');
    expect(more).toMatchObject({ code: 3, names: 'deployment.apps/new' });
  });

  it('knows a workload that has moved to another file and line', async () => {
    const folder = await repository(OLD);
    await write(folder, { 'app/old.yaml': '# moved\n', 'app/there/it.yaml': `\n\n${OLD['app/old.yaml']}` });
    expect(await audited(folder, '-R', '-f', 'app', '--baseline', 'main')).toMatchObject({ code: 0 });
  });

  it('fails by another finding of a workload that had one', async () => {
    const folder = await repository({ 'app/old.yaml': deployment('old') });
    await write(folder, OLD);
    expect(await audited(folder, '-f', 'app', '--baseline', 'main')).toMatchObject({ code: 3 });
  });

  it('a path that is new has nothing before it', async () => {
    const folder = await repository({ 'app/ok.yaml': deployment('ok') });
    await write(folder, { 'other/new.yaml': deployment('new', RECREATE) });
    const { code, names } = await audited(folder, '-f', 'other', '--baseline', 'main');
    expect([code, names]).toEqual([3, 'deployment.apps/new']);
  });

  it.each([
    ['no-such-branch', /neither a file nor a commit of git/],
    ['--output=/tmp/x', /--baseline/],
    ['-x', /--baseline/],
  ])('%s is refused', async (commit, why) => {
    const folder = await repository(OLD);
    const { code, stderr } = await audited(folder, '-f', 'app', `--baseline=${commit}`);
    expect([code, stderr]).toEqual([1, expect.stringMatching(why)]);
  });

  it('a path outside the repository is refused', async () => {
    const folder = await repository(OLD);
    const outside = await emptyDirectory();
    await write(outside, OLD);
    const { code, stderr } = await audited(folder, '-f', join(outside, 'app'), '--baseline', 'main');
    expect([code, stderr]).toEqual([1, expect.stringContaining('is not in the repository')]);
  });

  it('leaves the work tree as it is', async () => {
    const folder = await repository(OLD);
    await write(folder, { 'app/new.yaml': deployment('new') });
    await audited(folder, '-f', 'app', '--baseline', 'main');
    const { stdout } = await run('git', ['status', '--porcelain'], { cwd: folder });
    expect(stdout).toBe('?? app/new.yaml\n');
  });
});

describe('--baseline FILE', () => {
  it('what audit -o json has printed', async () => {
    const folder = await emptyDirectory();
    await write(folder, OLD);
    const { stdout } = await shipped(['audit', '--webhook', '-f', 'app', '-o', 'json'], { cwd: folder });
    await write(folder, { 'before.json': stdout, 'app/new.yaml': deployment('new', RECREATE) });
    const { code, names } = await audited(folder, '-f', 'app', '--baseline', 'before.json');
    expect([code, names]).toEqual([3, 'deployment.apps/new']);
    await write(folder, { 'app/new.yaml': deployment('new') });
    expect(await audited(folder, '-f', 'app', '--baseline', 'before.json')).toMatchObject({ code: 0 });
  });

  it.each([
    ['{', /before\.json: .*expected what linger audit -o json prints/],
    ['[]', /there are no findings in it/],
    ['{"findings": {}}', /there are no findings in it/],
  ])('%s is refused', async (text, why) => {
    const folder = await emptyDirectory();
    await write(folder, { ...OLD, 'before.json': text });
    const { code, stderr } = await audited(folder, '-f', 'app', '--baseline', 'before.json');
    expect([code, stderr]).toEqual([1, expect.stringMatching(why)]);
  });
});
