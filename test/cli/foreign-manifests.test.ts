import { mkdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { atEndOfFile } from '../webhook/connection.ts';
import { emptyDirectory, linger, MAIN, run } from './linger.ts';
import { DEPLOYMENT, INJECTED_DEPLOYMENT, POLICY } from './manifests.ts';

const atEnd = atEndOfFile();

async function fileOf(content: string | Uint8Array, name = 'web.yaml'): Promise<string> {
  const path = join(await emptyDirectory(atEnd), name);
  await writeFile(path, content);
  return path;
}

const utf16 = (text: string) => Buffer.from(`\uFEFF${text}`, 'utf16le');

describe.concurrent('what is written', () => {
  it.each(['inject', 'explain'])(
    '%s into a full disk: exit 1 and a message, not a short file',
    async (command) => {
      const shell = `"$0" "$1" ${command} "$2" >/dev/full`;
      const args = ['-c', shell, process.execPath, MAIN, await fileOf(DEPLOYMENT)];
      const { code, stderr } = await run('sh', args);
      expect([code, stderr]).toEqual([1, expect.stringContaining('standard output cannot be written')]);
    },
  );

  it('a byte order mark stays, also from standard input', async () => {
    const [from, to] = [await fileOf(`\uFEFF${DEPLOYMENT}`), await fileOf('', 'out.yaml')];
    await run('sh', ['-c', '"$0" "$1" inject <"$2" >"$3"', process.execPath, MAIN, from, to]);
    expect(await readFile(to, 'utf8')).toBe(`\uFEFF${INJECTED_DEPLOYMENT}`);
  });

  it('UTF-16 stays UTF-16', async () => {
    const path = await fileOf(utf16(DEPLOYMENT));
    expect((await linger(['inject', '--in-place', '-f', path])).code).toBe(0);
    expect(await readFile(path)).toEqual(utf16(INJECTED_DEPLOYMENT));
  });

  it('--in-place changes the file, keeps a link to it, and prints nothing', async () => {
    const path = await fileOf(DEPLOYMENT);
    const link = join(await emptyDirectory(atEnd), 'link.yaml');
    await symlink(path, link);
    const { code, stdout } = await linger(['inject', '--in-place', '-f', link]);
    expect([code, stdout, await readFile(path, 'utf8')]).toEqual([0, '', INJECTED_DEPLOYMENT]);
  });

  it.each([
    [
      'of standard input',
      ['--in-place'],
      /^linger: --in-place needs files; standard input cannot be changed in place/,
    ],
    [
      'with --diff',
      ['--in-place', '--diff', 'x.yaml'],
      /^linger: --in-place and --diff are mutually exclusive/,
    ],
  ])('--in-place %s is wrong usage', async (_what, args, message) => {
    const { code, stderr } = await linger(['inject', ...args]);
    expect([code, stderr]).toEqual([2, expect.stringMatching(message)]);
  });

  it('--diff prints what patch(1) takes', async () => {
    const path = await fileOf(`${DEPLOYMENT}---\n${DEPLOYMENT}`);
    const { code, stdout } = await linger(['inject', '--diff', path]);
    expect([code, stdout]).toEqual([
      0,
      expect.stringMatching(/^--- .*\n\+\+\+ .*\n@@ -\d+,\d+ \+\d+,\d+ @@\n/),
    ]);
    await run('patch', ['-s', path], { stdin: stdout });
    expect(await readFile(path, 'utf8')).toBe(`${INJECTED_DEPLOYMENT}---\n${INJECTED_DEPLOYMENT}`);
  });
});

describe.concurrent('what is read', () => {
  it('-f several times, folders with -R, and words', async () => {
    const folder = await emptyDirectory(atEnd);
    await mkdir(join(folder, 'sub'));
    await writeFile(join(folder, 'a.yaml'), DEPLOYMENT);
    await writeFile(join(folder, 'sub', 'b.json'), '{"kind": "ConfigMap"}\n');
    await writeFile(join(folder, 'README'), 'no manifest: [');
    const flat = await linger(['explain', '-f', folder, '-o', 'json']);
    const deep = await linger(['inject', '-R', '-f', folder, '-f', join(folder, 'a.yaml')]);
    expect(JSON.parse(flat.stdout)).toMatchObject({
      plans: [{ name: 'web', file: join(folder, 'a.yaml'), line: 2 }],
    });
    expect(deep.stdout).toBe(`${INJECTED_DEPLOYMENT}---\n{"kind": "ConfigMap"}\n---\n${INJECTED_DEPLOYMENT}`);
  });

  it('-l chooses by labels, and the others pass', async () => {
    const { stdout } = await linger(['inject', '-l', 'app=other'], { stdin: DEPLOYMENT });
    expect(stdout).toBe(DEPLOYMENT);
  });

  it('an empty namespace is the default one', async () => {
    const stdin = DEPLOYMENT.replace('namespace: shop', 'namespace: ""');
    const { stderr } = await linger(['inject', '-n', 'team'], { stdin });
    expect(stderr).toContain('Deployment team/web: wait 30s');
  });

  it.each([
    [
      'a misspelt kind',
      'apps/v1',
      'Deploymint',
      /stdin:2: Deploymint web has a pod template.*not a kind that Linger knows/,
    ],
    [
      'an API version that is gone',
      'extensions/v1beta1',
      'Deployment',
      /no longer serves extensions\/v1beta1: write apps\/v1/,
    ],
    ['Knative', 'serving.knative.dev/v1', 'Service', /serving\.knative\.dev\/v1 Service is not a kind/],
    [
      'Kruise',
      'apps.kruise.io/v1alpha1',
      'SidecarSet',
      /apps\.kruise\.io\/v1alpha1 SidecarSet is not a kind/,
    ],
  ])('%s does not vanish without a word', async (_what, apiVersion, kind, message) => {
    const stdin = DEPLOYMENT.replace('apps/v1', apiVersion).replace('kind: Deployment', `kind: ${kind}`);
    const { code, stdout, stderr } = await linger(['inject'], { stdin });
    expect([code, stdout, stderr]).toEqual([0, stdin, expect.stringMatching(message)]);
  });

  it.each([
    ['Knative’s Service', 'serving.knative.dev/v1', 'Service'],
    ['Agones’ Fleet', 'agones.dev/v1', 'Fleet'],
  ])('the pods of %s drain by themselves', async (_, apiVersion, kind) => {
    const stdin = DEPLOYMENT.replace('apps/v1', apiVersion).replace('kind: Deployment', `kind: ${kind}`);
    expect((await linger(['explain'], { stdin })).stdout).toContain('skip: DrainsItself');
  });

  it.each(['CloneSet', 'StatefulSet'])('Kruise’s %s is injected', async (kind) => {
    const stdin = DEPLOYMENT.replace('apps/v1', 'apps.kruise.io/v1beta1').replace(
      'kind: Deployment',
      `kind: ${kind}`,
    );
    expect((await linger(['inject'], { stdin })).stderr).toContain(`${kind} shop/web: wait 30s`);
  });

  it('a key that stands twice outside of workloads is no obstacle', async () => {
    const config = 'apiVersion: v1\nkind: ConfigMap\ndata:\n  a: b\n  a: c\n';
    const { code, stdout } = await linger(['inject'], { stdin: `${config}---\n${DEPLOYMENT}` });
    expect([code, stdout]).toEqual([0, `${config}---\n${INJECTED_DEPLOYMENT}`]);
  });

  it('notes are said', async () => {
    const stdin = DEPLOYMENT.replace(
      'labels: {app:   web}',
      'labels: {app: web}\n      annotations: {linger.dev/hook: Magic}',
    );
    expect((await linger(['inject'], { stdin })).stderr).toMatch(/^ {2}note InvalidAnnotation: .*"Magic"/m);
  });
});

describe.concurrent('over its own output', () => {
  it('--refresh decides again, and only what differs changes', async () => {
    const policies = await fileOf(POLICY, 'policy.yaml');
    const kept = await linger(['inject', '--refresh'], { stdin: INJECTED_DEPLOYMENT });
    const { stdout } = await linger(['inject', '--refresh', '--policies', policies], {
      stdin: INJECTED_DEPLOYMENT,
    });
    expect(kept.stdout).toBe(INJECTED_DEPLOYMENT);
    const [injected] = [await linger(['inject', '--policies', policies], { stdin: DEPLOYMENT })];
    expect(stdout).toBe(injected.stdout);
    expect(stdout).toContain('seconds: 45');
  });

  it('uninject takes out what inject has put in', async () => {
    const { code, stdout, stderr } = await linger(['uninject'], { stdin: INJECTED_DEPLOYMENT });
    expect([code, stdout, stderr]).toEqual([0, DEPLOYMENT, 'Deployment shop/web: reverted\n']);
    expect((await linger(['uninject'], { stdin: DEPLOYMENT })).stdout).toBe(DEPLOYMENT);
  });

  it('explain says the wait that is there', async () => {
    const { stdout } = await linger(['explain', '-o', 'json'], { stdin: INJECTED_DEPLOYMENT });
    expect(JSON.parse(stdout)).toMatchObject({
      plans: [{ reason: 'AlreadyInjected', waitSeconds: 30, graceSeconds: 60, containers: ['app'] }],
    });
  });
});

describe.concurrent('however it is called', () => {
  it.each([
    ['linger', /^Usage: linger /],
    ['kubectl-linger', /^Usage: kubectl linger /],
  ])('through a link called %s, from another folder', async (name, usage) => {
    const folder = await emptyDirectory(atEnd);
    const bin = join(folder, name);
    await symlink(MAIN, bin);
    const help = await run(process.execPath, [bin, '--help'], { cwd: folder });
    expect([help.code, help.stdout]).toEqual([0, expect.stringMatching(usage)]);
    const injected = await run(process.execPath, [bin, 'inject'], { cwd: folder, stdin: DEPLOYMENT });
    expect([injected.code, injected.stdout]).toEqual([0, INJECTED_DEPLOYMENT]);
  });
});
