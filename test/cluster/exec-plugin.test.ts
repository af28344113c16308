import { chmod, writeFile } from 'node:fs/promises';
import http from 'node:http';
import { join } from 'node:path';
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { issueAuthority, issueServingCertificate, type KeyPair } from '../../src/certs/index.ts';
import { type Credentials, readKubeconfig } from '../../src/cluster/connection.ts';
import type { PluginHost } from '../../src/cluster/exec-plugin.ts';
import { ask, newAgent } from '../../src/cluster/request.ts';
import { emptyDirectory, linger } from '../cli/linger.ts';
import { listening } from '../webhook/listening.ts';
import { bearer } from './bearer.ts';
import { credential, type PluginParts, pluginFiles, V1, V1BETA1 } from './credential-plugin.ts';

const SECRET = 'geheim';
const base64 = (text: string) => Buffer.from(text).toString('base64');

let pair: KeyPair;

beforeAll(async () => {
  const now = new Date();
  pair = await issueServingCertificate(await issueAuthority(now), ['me'], now);
});

const host = (more: Partial<PluginHost> = {}): PluginHost => ({
  environment: { ...process.env, INHERITED: 'yes' },
  interactive: false,
  ...more,
});

const tokenIn = ({ headers }: Credentials) => headers?.authorization?.replace('Bearer ', '');

async function open(parts: PluginParts = {}, plugins: PluginHost = host()) {
  const files = await pluginFiles(parts);
  return { ...files, connection: await readKubeconfig(files.kubeconfig, { plugins }) };
}

describe('what a plugin gives', () => {
  const both = () => ({ clientCertificateData: pair.cert, clientKeyData: pair.key });

  it.each<{ name: string; apiVersion?: string; status: () => object; expected: () => object }>([
    { name: 'a token', status: () => ({ token: 'T' }), expected: () => bearer('T') },
    {
      name: 'a token, in v1beta1',
      apiVersion: V1BETA1,
      status: () => ({ token: 'T' }),
      expected: () => bearer('T'),
    },
    {
      name: 'a client certificate',
      status: both,
      expected: () => ({ cert: pair.cert, key: pair.key }),
    },
    {
      name: 'both, and empty texts, which are none',
      status: () => ({ ...both(), token: 'T', expirationTimestamp: null }),
      expected: () => ({ cert: pair.cert, key: pair.key, ...bearer('T') }),
    },
  ])('$name', async ({ apiVersion = V1, status, expected }) => {
    const { connection } = await open({ exec: { apiVersion }, output: credential(status(), apiVersion) });
    expect(await connection.credentials()).toEqual({ headers: {}, ...expected() });
  });

  it('stands beside the CA of the kubeconfig; a token of the kubeconfig’s own wins', async () => {
    const cluster = { 'certificate-authority-data': base64('CA') };
    const given = await open({ cluster });
    expect(await given.connection.credentials()).toMatchObject({
      ca: Buffer.from('CA'),
      ...bearer('token-1'),
    });
    const own = await open({ cluster, user: { token: 'mine' } });
    expect(await own.connection.credentials()).toMatchObject({ ca: Buffer.from('CA'), ...bearer('mine') });
    expect(await own.runs()).toEqual([]);
  });
});

describe('what a plugin is given', () => {
  it('its arguments, its variables over the inherited ones, and what is wanted', async () => {
    const env = [
      { name: 'PROFILE', value: 'prod' },
      { name: 'INHERITED', value: 'no' },
    ];
    const { connection, runs } = await open({ args: ['get-token', '--cluster=a b'], exec: { env } });
    await connection.credentials();
    const [run] = await runs();
    expect(run?.args).toEqual(['get-token', '--cluster=a b']);
    expect(run?.env).toMatchObject({ PROFILE: 'prod', INHERITED: 'no', PATH: process.env.PATH });
    expect(run?.info).toEqual({ kind: 'ExecCredential', apiVersion: V1, spec: { interactive: false } });
  });

  it.each([
    ['Never', true, false],
    ['IfAvailable', true, true],
    ['IfAvailable', false, false],
    ['Always', true, true],
  ])(
    'interactiveMode %s, on a terminal %s: interactive %s',
    async (interactiveMode, terminal, interactive) => {
      const { connection, runs } = await open({ exec: { interactiveMode } }, host({ interactive: terminal }));
      await connection.credentials();
      expect((await runs())[0]?.info.spec).toEqual({ interactive });
    },
  );
});

describe('where a plugin is looked for', () => {
  const files = { 'my-plugin': `#!/bin/sh\necho '${credential({ token: 'from the shell' })}'\n` };

  it.each([
    { name: 'in PATH', command: 'my-plugin', inPath: true },
    { name: 'in the kubeconfig’s folder, where its name has a slash', command: './my-plugin', inPath: false },
  ])('$name', async ({ command, inPath }) => {
    const { kubeconfig, directory } = await pluginFiles({ exec: { command, args: null }, files });
    await chmod(join(directory, 'my-plugin'), 0o755);
    const PATH = inPath ? `${directory}:${process.env.PATH}` : process.env.PATH;
    const { credentials } = await readKubeconfig(kubeconfig, { plugins: host({ environment: { PATH } }) });
    expect(tokenIn(await credentials())).toBe('from the shell');
  });

  it('in the folder of the kubeconfig that names it, where another one has the context', async () => {
    const { kubeconfig, directory } = await pluginFiles({
      exec: { command: './my-plugin', args: null },
      files,
    });
    await chmod(join(directory, 'my-plugin'), 0o755);
    const context = join(await emptyDirectory(), 'context');
    await writeFile(
      context,
      '{"current-context":"there","contexts":[{"name":"there","context":{"cluster":"one","user":"me"}}]}',
    );
    const { credentials } = await readKubeconfig([context, kubeconfig], { plugins: host() });
    expect(tokenIn(await credentials())).toBe('from the shell');
  });
});

describe('how long credentials are kept', () => {
  const tokenOf = async ({ connection }: Awaited<ReturnType<typeof open>>) =>
    tokenIn(await connection.credentials());

  it('one run serves all who ask at once, and later', async () => {
    const opened = await open();
    const tokens = await Promise.all([1, 2, 3].map(() => tokenOf(opened)));
    expect([...tokens, await tokenOf(opened)]).toEqual(['token-1', 'token-1', 'token-1', 'token-1']);
    expect(await opened.runs()).toHaveLength(1);
  });

  it('until they expire', async () => {
    const until = (at: number) =>
      credential({ token: 'token-NUMBER', expirationTimestamp: new Date(at).toISOString() });
    const opened = await open({ output: until(Date.now() - 1_000) });
    expect([await tokenOf(opened), await tokenOf(opened)]).toEqual(['token-1', 'token-2']);
    await opened.prints(until(Date.now() + 60_000));
    expect([await tokenOf(opened), await tokenOf(opened)]).toEqual(['token-3', 'token-3']);
  });

  it('until the server refuses them: 401, and not those that were given since', async () => {
    let accepted = 'Bearer token-2';
    const server = http.createServer(({ headers }, response) => {
      response.writeHead(headers.authorization === accepted ? 200 : 401).end('{}');
    });
    const opened = await open({ server: `http://127.0.0.1:${await listening(server)}` });
    const { connection } = opened;
    const agent = newAgent(connection);
    onTestFinished(() => agent.destroy());
    const get = () =>
      ask(connection, { path: '/version', agent, signal: AbortSignal.timeout(10_000), answerMs: 10_000 });
    await expect(get()).rejects.toMatchObject({ reason: 'Unauthorized' });
    (await get()).resume();
    (await get()).resume();
    expect(await opened.runs()).toHaveLength(2);
    connection.refused?.(bearer('token-1'));
    expect(await tokenOf(opened)).toBe('token-2');
    accepted = 'Bearer token-3';
    await expect(get()).rejects.toMatchObject({ reason: 'Unauthorized' });
    (await get()).resume();
    expect(await opened.runs()).toHaveLength(3);
  });

  it('a run that failed is not kept', async () => {
    const opened = await open({ output: 'nothing' });
    await expect(tokenOf(opened)).rejects.toMatchObject({ code: 'PluginFailed' });
    await opened.prints(credential({ token: 'T' }));
    expect(await tokenOf(opened)).toBe('T');
  });
});

describe('what is said of a plugin that gives nothing', () => {
  it.each<{ name: string; parts: PluginParts; message: RegExp }>([
    {
      name: 'it is not there',
      parts: { exec: { command: 'no-such-plugin' } },
      message: /: the credential plugin "no-such-plugin" cannot be run \(ENOENT\)$/,
    },
    { name: 'it fails', parts: { script: 'process.exit(7)' }, message: /" failed with exit code 7$/ },
    {
      name: 'it is killed',
      parts: {
        script: "process.kill(process.pid, 'SIGTERM'); await new Promise(() => setTimeout(() => {}, 9_000))",
      },
      message: /" was ended by SIGTERM, or took too long$/,
    },
    { name: 'no JSON', parts: { output: SECRET }, message: /" printed no ExecCredential$/ },
    { name: 'another kind', parts: { output: `{"kind":"${SECRET}"}` }, message: /no ExecCredential$/ },
    { name: 'no status', parts: { output: credential(undefined) }, message: /no ExecCredential$/ },
    {
      name: 'a token that is none',
      parts: { output: credential({ token: [SECRET] }) },
      message: /no ExecCredential$/,
    },
  ])('$name', async ({ parts, message }) => {
    const { connection, kubeconfig } = await open(parts);
    const refused = await connection.credentials().catch((error: unknown) => error);
    expect(refused).toMatchObject({ code: 'PluginFailed', message: expect.stringMatching(message) });
    expect((refused as Error).message).toMatch(new RegExp(`^${kubeconfig}: the credential plugin "`));
    expect((refused as Error).message).not.toContain(SECRET);
  });

  it('it gives no answer: it is killed', async () => {
    const script = 'await new Promise(() => setTimeout(() => {}, 60_000))';
    const { connection } = await open({ script }, host({ timeoutMs: 300 }));
    await expect(connection.credentials()).rejects.toThrow(/" was ended by SIGKILL, or took too long$/);
  });
});

describe('what a kubeconfig must say of it', () => {
  it.each<{ name: string; exec: object; message: RegExp }>([
    { name: 'a command', exec: { command: '' }, message: /exec\.command/ },
    { name: 'variables with names', exec: { env: [{ value: SECRET }] }, message: /exec\.env\.0\.name/ },
    {
      name: 'no wish for the cluster’s address',
      exec: { provideClusterInfo: true },
      message: /exec\.provideClusterInfo: is not supported/,
    },
  ])('$name', async ({ exec, message }) => {
    const refused = await open({ exec }).catch((error: unknown) => error);
    expect(refused).toMatchObject({ code: 'KubeconfigInvalid', message: expect.stringMatching(message) });
  });

  it('an address at which a token cannot be overheard', async () => {
    await expect(open({ server: 'http://10.0.0.1' })).rejects.toThrow(/a token over http:\/\//);
  });
});

it('what a plugin says to people is shown, and what it gives is not', async () => {
  const output = credential({ token: SECRET });
  const exec = { env: [{ name: 'SAYS', value: 'who are you?\n' }] };
  const { kubeconfig } = await pluginFiles({ server: 'http://127.0.0.1:1', output, exec });
  const { code, stdout, stderr } = await linger(['watch', '--kubeconfig', kubeconfig]);
  expect([code, stdout]).toEqual([1, '']);
  expect(stderr).toMatch(/^who are you\?\nlinger: http:\/\/127\.0\.0\.1:1 .+ \[cluster-unreachable\]\n$/);
  expect(stderr).not.toContain(SECRET);
});
