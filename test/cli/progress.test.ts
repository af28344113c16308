import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { beforeAll, describe, expect, it } from 'vitest';
import { atEndOfFile } from '../webhook/connection.ts';
import { emptyDirectory, environment, MAIN, ROOT, until } from './linger.ts';

const atEnd = atEndOfFile();
/** An API server that answers nothing: each command that asks one waits. */
const server = createServer(() => undefined);
let kubeconfig = '';

beforeAll(async () => {
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  kubeconfig = join(await emptyDirectory(atEnd), 'config');
  const cluster = { name: 'slow', cluster: { server: `http://127.0.0.1:${port}` } };
  const contexts = [{ name: 'slow', context: { cluster: 'slow' } }];
  await writeFile(
    kubeconfig,
    JSON.stringify({ 'current-context': 'slow', clusters: [cluster], users: [], contexts }),
  );
});
atEnd(() => server.closeAllConnections());

/** What a terminal is to a program, but for its width. */
const ON_A_TERMINAL = ['--import', 'data:text/javascript,process.stderr.isTTY=true'];

describe.concurrent('a cluster that is slow to answer', () => {
  it.each([
    'audit',
    'audit --server-dry-run',
    'audit --since=1h',
    'check',
    'check --pre',
    'diagnose',
    'status',
    'history',
    'consumers',
    'consumers discover',
    'timeline',
    'hold list',
    'explain deployment/web',
  ])('linger %s says after a second how far it is', async (words) => {
    const args = [...ON_A_TERMINAL, MAIN, ...words.split(' '), '--kubeconfig', kubeconfig];
    const child = spawn(process.execPath, args, { cwd: ROOT, env: environment() });
    atEnd(() => child.kill('SIGKILL'));
    let said = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      said += text;
    });
    const first = await until(async () => said.split('\u001b[K')[1]);
    expect(first).toMatch(/^\w.* \(\d+ s\)$/);
  });

  it.each(['watch', 'dashboard --no-open --port 0'])('linger %s ends at once with Ctrl-C', async (words) => {
    const args = [MAIN, ...words.split(' '), '--kubeconfig', kubeconfig];
    const child = spawn(process.execPath, args, { cwd: ROOT, env: environment() });
    atEnd(() => child.kill('SIGKILL'));
    const ended = once(child, 'exit');
    await sleep(2_000);
    child.kill('SIGINT');
    expect(await Promise.race([ended, sleep(10_000, 'still running', { ref: false })])).toEqual([
      null,
      'SIGINT',
    ]);
  });
});
