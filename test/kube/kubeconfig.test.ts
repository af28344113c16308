import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { stringify } from 'yaml';
import { readKubeconfig } from '../../src/kube/kubeconfig.ts';
import { emptyDirectory } from '../commands/linger.ts';

const base64 = (text: string) => Buffer.from(text).toString('base64');

interface Parts {
  readonly cluster?: object;
  readonly user?: object;
  readonly context?: object;
}

function kubeconfig({ cluster = {}, user = {}, context = {} }: Parts): object {
  return {
    apiVersion: 'v1',
    kind: 'Config',
    preferences: {},
    'current-context': 'here',
    clusters: [{ name: 'one', cluster: { server: 'https://10.0.0.1:6443', ...cluster } }],
    users: [{ name: 'me', user }],
    contexts: [{ name: 'here', context: { cluster: 'one', user: 'me', ...context } }],
  };
}

async function write(document: unknown, files: Readonly<Record<string, string>> = {}): Promise<string> {
  const directory = await emptyDirectory();
  await mkdir(join(directory, 'pki'));
  for (const [name, text] of Object.entries(files)) await writeFile(join(directory, name), text);
  const file = join(directory, 'config');
  await writeFile(file, typeof document === 'string' ? document : stringify(document));
  return file;
}

describe('credentials', () => {
  it.each<{ name: string; parts: Parts; files?: Record<string, string>; expected: object }>([
    { name: 'none', parts: {}, expected: {} },
    {
      name: 'certificates inline',
      parts: {
        cluster: { 'certificate-authority-data': base64('CA') },
        user: { 'client-certificate-data': base64('CERT'), 'client-key-data': base64('KEY') },
      },
      expected: { ca: 'CA', certificate: 'CERT', key: 'KEY' },
    },
    {
      name: 'files beside the kubeconfig',
      parts: {
        cluster: { 'certificate-authority': 'pki/ca.crt' },
        user: { 'client-certificate': 'pki/me.crt', 'client-key': './me.key' },
      },
      files: { 'pki/ca.crt': 'CA', 'pki/me.crt': 'CERT', 'me.key': 'KEY\n' },
      expected: { ca: 'CA', certificate: 'CERT', key: 'KEY' },
    },
    { name: 'a token', parts: { user: { token: 'T' } }, expected: { token: 'T' } },
    {
      name: 'a token file, which wins over a token',
      parts: { user: { token: 'T', tokenFile: 'token' } },
      files: { token: 'from the file\n' },
      expected: { token: 'from the file' },
    },
    {
      name: 'inline data, which win over a file that need not exist',
      parts: { cluster: { 'certificate-authority': '/nowhere', 'certificate-authority-data': base64('CA') } },
      expected: { ca: 'CA' },
    },
  ])('$name', async ({ parts, files = {}, expected }) => {
    const { credentials } = await readKubeconfig(await write(kubeconfig(parts), files));
    expect(await credentials()).toEqual({
      ca: undefined,
      certificate: undefined,
      key: undefined,
      token: undefined,
      ...expected,
    });
  });

  it('are read again each time', async () => {
    const file = await write(kubeconfig({ user: { tokenFile: 'token' } }), { token: 'old' });
    const { credentials } = await readKubeconfig(file);
    await writeFile(join(file, '..', 'token'), 'new');
    expect((await credentials()).token).toBe('new');
  });
});

describe('the server', () => {
  it('comes from the current context, or from the one that is named', async () => {
    const document = {
      ...kubeconfig({ context: { namespace: 'shop' }, cluster: { 'tls-server-name': 'kubernetes' } }),
      clusters: [
        { name: 'one', cluster: { server: 'https://one:6443', 'tls-server-name': 'kubernetes' } },
        { name: 'two', cluster: { server: 'https://two/k8s/clusters/c-1' } },
      ],
      contexts: [
        { name: 'here', context: { cluster: 'one', user: 'me', namespace: 'shop' } },
        { name: 'there', context: { cluster: 'two' } },
      ],
    };
    const file = await write(document);
    const here = await readKubeconfig(file);
    expect(here).toMatchObject({ serverName: 'kubernetes', namespace: 'shop', insecure: false });
    expect(here.server.href).toBe('https://one:6443/');
    const there = await readKubeconfig(file, { context: 'there' });
    expect(there.server.href).toBe('https://two/k8s/clusters/c-1');
  });

  it('is not verified only when both the kubeconfig and the caller say so', async () => {
    const file = await write(kubeconfig({ cluster: { 'insecure-skip-tls-verify': true } }));
    expect((await readKubeconfig(file, { allowInsecure: true })).insecure).toBe(true);
    await expect(readKubeconfig(file)).rejects.toMatchObject({ code: 'KubeconfigUnsupported' });
  });

  it.each([
    ['https://10.0.0.1:6443', true],
    ['https://k8s.example', true],
    ['https://127.0.0.1:6443', false],
    ['http://localhost:8001', false],
    ['https://[::1]:6443', false],
  ])('%s is asked for compressed lists: %s', async (server, compressed) => {
    const connection = await readKubeconfig(await write(kubeconfig({ cluster: { server } })));
    expect(connection.compressed).toBe(compressed);
  });

  it('may be kubectl proxy, even with a token: it does not leave the machine', async () => {
    const parts = { cluster: { server: 'http://127.0.0.1:8001' }, user: { token: 'T' } };
    expect((await readKubeconfig(await write(kubeconfig(parts)))).server.port).toBe('8001');
  });
});

describe('several files', () => {
  const contexts = (...names: string[]) =>
    names.map((name) => ({ name, context: { cluster: name, user: name } }));
  const entries = (kind: 'cluster' | 'user', all: Readonly<Record<string, object>>) =>
    Object.entries(all).map(([name, value]) => ({ name, [kind]: value }));

  const first = {
    'current-context': '',
    clusters: entries('cluster', { a: { server: 'https://first-a' } }),
    users: entries('user', { a: { tokenFile: 'token' } }),
    contexts: contexts('b'),
  };
  const second = {
    'current-context': 'a',
    clusters: entries('cluster', { a: { server: 'https://second-a' }, b: { server: 'https://second-b' } }),
    users: entries('user', { a: { token: 'second' }, b: { tokenFile: 'token' } }),
    contexts: contexts('a'),
  };

  it('are taken together: the first that has an entry wins, and names count from its own folder', async () => {
    const files = [
      await write(first, { token: 'token of the first' }),
      await write(second, { token: 'token of the second' }),
    ];
    const current = await readKubeconfig(files);
    expect(current.server.href).toBe('https://first-a/');
    expect(current.name).toBe(`context "a" of ${files[1]}`);
    expect((await current.credentials()).token).toBe('token of the first');
    const other = await readKubeconfig(files, { context: 'b' });
    expect(other.server.href).toBe('https://second-b/');
    expect((await other.credentials()).token).toBe('token of the second');
  });

  it('need not all be there, where the caller says so; but one of them must', async () => {
    const file = await write(kubeconfig({}));
    const [away, gone] = ['/nowhere/a', '/nowhere/b'];
    expect((await readKubeconfig([away, file], { mayMiss: true })).server.host).toBe('10.0.0.1:6443');
    await expect(readKubeconfig([away, file])).rejects.toMatchObject({ code: 'KubeconfigUnreadable' });
    await expect(readKubeconfig([away, gone], { mayMiss: true })).rejects.toMatchObject({
      code: 'KubeconfigUnreadable',
      message: `${away}, ${gone}: there is no such file`,
    });
  });

  it('say all that there is, when something is missing', async () => {
    const files = [await write(first), await write(second)];
    await expect(readKubeconfig(files, { context: 'c' })).rejects.toThrow(
      `${files.join(', ')}: has no context "c"; there are: b, a`,
    );
  });
});

describe('is refused, with what is wrong and the way out', () => {
  it.each<{ name: string; document: unknown; code: string; message: RegExp }>([
    {
      name: 'an exec plugin',
      document: kubeconfig({ user: { exec: { command: 'aws', apiVersion: 'x' } } }),
      code: 'KubeconfigUnsupported',
      message: /the exec plugin "aws"; use .*kubectl create token/,
    },
    {
      name: 'an auth-provider',
      document: kubeconfig({ user: { 'auth-provider': { name: 'oidc' } } }),
      code: 'KubeconfigUnsupported',
      message: /auth-provider "oidc"/,
    },
    {
      name: 'a password',
      document: kubeconfig({ user: { username: 'admin', password: 'geheim' } }),
      code: 'KubeconfigUnsupported',
      message: /user name and password/,
    },
    {
      name: 'impersonation',
      document: kubeconfig({ user: { as: 'root' } }),
      code: 'KubeconfigUnsupported',
      message: /impersonation/,
    },
    {
      name: 'a proxy',
      document: kubeconfig({ cluster: { 'proxy-url': 'socks5://x' } }),
      code: 'KubeconfigUnsupported',
      message: /proxy-url/,
    },
    {
      name: 'a token in the clear',
      document: kubeconfig({ cluster: { server: 'http://10.0.0.1' }, user: { token: 'geheim' } }),
      code: 'KubeconfigUnsupported',
      message: /token over http/,
    },
    { name: 'no YAML', document: 'token: {geheim', code: 'KubeconfigInvalid', message: /not valid YAML/ },
    { name: 'an empty file', document: '', code: 'KubeconfigInvalid', message: /no current-context/ },
    {
      name: 'the kubeconfig that kubectl makes of nothing',
      document:
        'apiVersion: v1\nkind: Config\nclusters: null\ncontexts: null\nusers: null\ncurrent-context: ""\n',
      code: 'KubeconfigInvalid',
      message: /no current-context/,
    },
    {
      name: 'a context that is not there',
      document: { ...kubeconfig({}), 'current-context': 'away' },
      code: 'KubeconfigInvalid',
      message: /no context "away"; there are: here/,
    },
    {
      name: 'a user that is not there',
      document: kubeconfig({ context: { user: 'you' } }),
      code: 'KubeconfigInvalid',
      message: /no user "you"; there are: me/,
    },
    {
      name: 'a wrong type',
      document: kubeconfig({ user: { token: ['geheim'] } }),
      code: 'KubeconfigInvalid',
      message: /users\.0\.user\.token/,
    },
    {
      name: 'no server',
      document: kubeconfig({ cluster: { server: 'ftp://x' } }),
      code: 'KubeconfigInvalid',
      message: /https:\/\/ address as server/,
    },
    {
      name: 'a certificate without its key',
      document: kubeconfig({ user: { 'client-certificate-data': base64('CERT') } }),
      code: 'KubeconfigInvalid',
      message: /only one of/,
    },
    {
      name: 'a file that is not there',
      document: kubeconfig({ user: { tokenFile: 'away' } }),
      code: 'KubeconfigUnreadable',
      message: /away: cannot be read \(ENOENT\)/,
    },
  ])('$name', async ({ document, code, message }) => {
    const refused = await readKubeconfig(await write(document)).catch((error: unknown) => error);
    expect(refused).toMatchObject({ code, message: expect.stringMatching(message) });
    expect((refused as Error).message).not.toContain('geheim');
  });
});
