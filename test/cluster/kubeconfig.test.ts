import { mkdir, writeFile } from 'node:fs/promises';
import http from 'node:http';
import https from 'node:https';
import { connect } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { stringify } from 'yaml';
import { issueAuthority, issueServingCertificate } from '../../src/certs/index.ts';
import { kubeVersion } from '../../src/cluster/client.ts';
import { readKubeconfig } from '../../src/cluster/connection.ts';
import { emptyDirectory } from '../cli/linger.ts';
import { listening } from '../webhook/listening.ts';
import { bearer } from './bearer.ts';

const bytes = (text: string) => Buffer.from(text);
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
      expected: { ca: bytes('CA'), cert: bytes('CERT'), key: bytes('KEY') },
    },
    {
      name: 'files beside the kubeconfig',
      parts: {
        cluster: { 'certificate-authority': 'pki/ca.crt' },
        user: { 'client-certificate': 'pki/me.crt', 'client-key': './me.key' },
      },
      files: { 'pki/ca.crt': 'CA', 'pki/me.crt': 'CERT', 'me.key': 'KEY\n' },
      expected: { ca: bytes('CA'), cert: bytes('CERT'), key: bytes('KEY\n') },
    },
    { name: 'a token', parts: { user: { token: 'T' } }, expected: bearer('T') },
    {
      name: 'a token file, which wins over a token',
      parts: { user: { token: 'T', tokenFile: 'token' } },
      files: { token: 'from the file\n' },
      expected: bearer('from the file'),
    },
    {
      name: 'inline data, which win over a file that need not exist',
      parts: { cluster: { 'certificate-authority': '/nowhere', 'certificate-authority-data': base64('CA') } },
      expected: { ca: bytes('CA') },
    },
  ])('$name', async ({ parts, files = {}, expected }) => {
    const { credentials } = await readKubeconfig(await write(kubeconfig(parts), files));
    expect(await credentials()).toEqual({ headers: {}, ...expected });
  });

  it('are read again from all files once the server has refused them', async () => {
    const file = await write(kubeconfig({ user: { tokenFile: 'token' } }), { token: 'old' });
    const { credentials, refused } = await readKubeconfig(file);
    await writeFile(join(file, '..', 'token'), 'new');
    refused?.(bearer('another'));
    expect(await credentials()).toMatchObject(bearer('old'));
    refused?.(await credentials());
    expect(await credentials()).toMatchObject(bearer('new'));
    await writeFile(file, stringify(kubeconfig({ user: { token: 'newest' } })));
    refused?.(await credentials());
    expect(await credentials()).toMatchObject(bearer('newest'));
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
    expect(here.namespace).toBe('shop');
    expect(await here.credentials()).toMatchObject({ servername: 'kubernetes' });
    expect(here.server.href).toBe('https://one:6443/');
    const there = await readKubeconfig(file, { context: 'there' });
    expect(there.server.href).toBe('https://two/k8s/clusters/c-1');
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

  it('may stand behind a proxy, and still has to prove its name', async () => {
    const now = new Date();
    const authority = await issueAuthority(now);
    const { cert, key } = await issueServingCertificate(authority, ['kubernetes'], now);
    const server = https.createServer({ cert, key }, (_request, response) => {
      response.end('{"gitVersion":"v1.36.3"}');
    });
    const [host, port] = ['kubernetes', await listening(server)];
    const tunnels: string[] = [];
    const proxy = http.createServer().on('connect', ({ url = '' }, socket) => {
      tunnels.push(url);
      const onward = connect(port, '127.0.0.1', () => socket.write('HTTP/1.1 200 OK\r\n\r\n'));
      onward.pipe(socket).pipe(onward);
      onTestFinished(() => void [onward, socket].map((end) => end.destroy()));
    });
    const cluster = {
      server: `https://${host}:${port}`,
      'proxy-url': `http://127.0.0.1:${await listening(proxy)}`,
      'certificate-authority-data': base64(authority.certificate),
    };
    const { signal } = new AbortController();
    const version = async (more = {}) =>
      kubeVersion(
        await readKubeconfig(await write(kubeconfig({ cluster: { ...cluster, ...more } }))),
        signal,
      );
    expect(await version()).toBe('v1.36.3');
    expect(tunnels).toEqual([`kubernetes:${port}`]);
    await expect(version({ 'tls-server-name': 'another' })).rejects.toMatchObject({ reason: 'Unreachable' });
  });

  it('is given the token of an OIDC login', async () => {
    const token = ['{}', JSON.stringify({ exp: Date.now() / 1000 + 3_600 }), 'signature']
      .map((part) => Buffer.from(part).toString('base64url'))
      .join('.');
    const user = { 'auth-provider': { name: 'oidc', config: { 'id-token': token } } };
    const { credentials } = await readKubeconfig(await write(kubeconfig({ user })));
    expect(await credentials()).toMatchObject(bearer(token));
  });

  it('is asked as the impersonated user', async () => {
    const { credentials } = await readKubeconfig(await write(kubeconfig({ user: { as: 'ada' } })));
    expect((await credentials()).headers).toEqual({ 'impersonate-user': 'ada' });
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
    expect(await current.credentials()).toMatchObject(bearer('token of the first'));
    const other = await readKubeconfig(files, { context: 'b' });
    expect(other.server.href).toBe('https://second-b/');
    expect(await other.credentials()).toMatchObject(bearer('token of the second'));
  });

  it('need not all be there; but one of them must', async () => {
    const file = await write(kubeconfig({}));
    const [away, gone] = ['/nowhere/a', '/nowhere/b'];
    expect((await readKubeconfig([away, file])).server.host).toBe('10.0.0.1:6443');
    await expect(readKubeconfig([away, gone])).rejects.toMatchObject({
      code: 'KubeconfigUnreadable',
      message: `${away}, ${gone}: there is no such file`,
    });
  });

  it('say all that there is, when something is missing', async () => {
    const files = [await write(first), await write(second)];
    await expect(readKubeconfig(files, { context: 'c' })).rejects.toThrow(
      `${files.join(', ')}: has no context "c"; it has: b, a`,
    );
  });
});

describe('is refused, with what is wrong and the way out', () => {
  it.each<{ name: string; document: unknown; code: string; message: RegExp }>([
    {
      name: 'a server that is not verified',
      document: kubeconfig({ cluster: { 'insecure-skip-tls-verify': true } }),
      code: 'KubeconfigUnsupported',
      message: /insecure-skip-tls-verify, .+; give its CA/,
    },
    {
      name: 'an auth-provider that nothing implements',
      document: kubeconfig({ user: { 'auth-provider': { name: 'openstack' } } }),
      code: 'KubeconfigUnsupported',
      message: /auth-provider "openstack"; use .*kubectl create token/,
    },
    {
      name: 'impersonation of groups, which would otherwise be left out',
      document: kubeconfig({ user: { as: 'root', 'as-groups': ['x'] } }),
      code: 'KubeconfigUnsupported',
      message: /impersonation with as-groups/,
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
      message: /no context "away"; it has: here/,
    },
    {
      name: 'a user that is not there',
      document: kubeconfig({ context: { user: 'you' } }),
      code: 'KubeconfigInvalid',
      message: /no user "you"; it has: me/,
    },
    {
      name: 'a wrong type',
      document: kubeconfig({ user: { token: ['geheim'] } }),
      code: 'KubeconfigInvalid',
      message: /users\.me\.token: expected a string/,
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
      message: /away cannot be read \(ENOENT\)/,
    },
  ])('$name', async ({ document, code, message }) => {
    const refused = await readKubeconfig(await write(document)).catch((error: unknown) => error);
    expect(refused).toMatchObject({ code, message: expect.stringMatching(message) });
    expect((refused as Error).message).not.toContain('geheim');
  });
});
