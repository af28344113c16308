import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { constants } from 'node:fs';
import { type FileHandle, open, readFile, writeFile } from 'node:fs/promises';
import { delimiter, dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { sharedCertificates } from '../cli/certificates.ts';
import { emptyDirectory, environment, MAIN, ROOT, type Serving, serving, until } from '../cli/linger.ts';
import { atEndOfFile, connect, connectSilently, requestBytes } from '../webhook/connection.ts';
import { bodyOf, UID } from '../webhook/reviews.ts';
import { responseOf } from '../webhook/webhook.ts';

const certs = sharedCertificates();
const atEnd = atEndOfFile();
const start = (...args: string[]) => serving(certs(), args, { atEnd });

async function isDraining(server: Serving): Promise<boolean> {
  return (await server.get('/readyz')).status === 503;
}

describe.concurrent('SIGTERM', () => {
  it('unready, still answering but closing each connection, then over with 0', {
    timeout: 40_000,
  }, async () => {
    const server = await start('--drain', '5s', '--connection-close-probability', '0');
    const established = await connect(server, atEnd);
    established.write(requestBytes(bodyOf()));
    expect((await established.answer()).headers.get('connection')).toBe('keep-alive');

    const started = Date.now();
    server.kill('SIGTERM');
    await until(() => isDraining(server));
    expect(await server.get('/readyz')).toEqual({ status: 503, text: 'draining\n' });
    expect((await server.get('/healthz')).status).toBe(200);
    expect(await server.count('linger_draining')).toBe(1);

    const fresh = await connect(server, atEnd);
    for (const connection of [established, fresh]) {
      connection.write(requestBytes(bodyOf()));
      const answer = await connection.answer();
      expect([responseOf(answer).uid, answer.headers.get('connection')]).toEqual([UID, 'close']);
      await connection.closed;
    }
    expect(await server.exited).toBe(0);
    expect(Date.now() - started).toBeGreaterThanOrEqual(5_000);
    const said = server.logs().map(({ msg }) => msg);
    // A busy machine may keep the processor from it.
    expect(said.filter((msg) => !String(msg).startsWith('event loop blocked'))).toEqual([
      'listening',
      expect.stringMatching(/^draining/),
      'stopped',
    ]);
  });

  it('a review that is being sent when the drain ends is answered', async () => {
    const server = await start('--drain', '300ms');
    const connection = await connect(server, atEnd);
    const bytes = requestBytes(bodyOf());
    connection.write(bytes.subarray(0, bytes.length - 10));
    server.kill('SIGTERM');
    // No listener any more: the drain is over.
    await until(
      async () =>
        !(await server.get('/readyz').then(
          () => true,
          () => false,
        )),
    );
    connection.write(bytes.subarray(bytes.length - 10));

    const answer = await connection.answer();
    expect([responseOf(answer).uid, answer.headers.get('connection')]).toEqual([UID, 'close']);
    expect(await server.exited).toBe(0);
  });

  it('a request that stalls at the end of the drain holds it for less than 5 s', {
    timeout: 40_000,
  }, async () => {
    const server = await start('--drain', '1s');
    const stalled = await connect(server, atEnd);
    stalled.write(requestBytes(bodyOf()).subarray(0, 200));
    const silent = await connectSilently(server, atEnd);
    server.kill('SIGTERM');
    expect(await server.exited).toBe(0);
    // By its own log: a busy machine takes a while to deliver the signal, and to tell of the end of the process.
    const loggedAt = (message: RegExp) =>
      Date.parse(String(server.logs().find(({ msg }) => message.test(String(msg)))?.time));
    expect(loggedAt(/^stopped$/) - loggedAt(/^draining/)).toBeLessThan(6_000);
    await stalled.closed;
    silent.destroy();
  });

  it('idle connections do not hold it', async () => {
    const server = await start('--drain', '0s');
    const connection = await connect(server, atEnd);
    connection.write(requestBytes(bodyOf()));
    await connection.answer();
    server.kill('SIGTERM');
    expect(await server.exited).toBe(0);
  });

  it('neither do connections that never said anything, as Go’s transport keeps them in reserve', {
    timeout: 40_000,
  }, async () => {
    const server = await start('--drain', '0s');
    const connection = await connect(server, atEnd);
    // The server must have seen the end of the handshake as well.
    await new Promise((resolve) => setTimeout(resolve, 300));
    server.kill('SIGTERM');
    const tooLate = new Promise((resolve) => setTimeout(resolve, 20_000, 'still running after 20 s'));
    expect(await Promise.race([server.exited, tooLate])).toBe(0);
    await connection.closed;
  });
});

describe.concurrent('a log that nobody reads', () => {
  // The log cannot tell the port. Below 32,768 the kernel gives none to other tests (ip_local_port_range).
  const anyPort = () => 20_000 + Math.floor(Math.random() * 10_000);

  /** Starts it with this end of a pipe as its standard output, and waits until it is ready. */
  async function startWith(stdout: FileHandle) {
    const adminPort = anyPort();
    const flags = ['--port', '0', '--admin-port', `${adminPort}`, '--cluster', 'off', '--drain', '0s'];
    const child = spawn(process.execPath, [MAIN, 'serve', ...flags, '--certs', certs()], {
      stdio: ['ignore', stdout.fd, 'inherit'],
      // In a cluster it prints no greeting.
      env: environment({ KUBERNETES_SERVICE_HOST: '127.0.0.1' }),
    });
    atEnd(() => void child.kill('SIGKILL'));
    const isReady = async () => {
      const answer = await fetch(`http://127.0.0.1:${adminPort}/readyz`).catch(() => undefined);
      return answer?.status === 200;
    };
    await until(isReady);
    return child;
  }

  async function endOf(child: ChildProcess): Promise<unknown> {
    const exited = once(child, 'exit').then(([code, signal]) => ({ code, signal }));
    child.kill('SIGTERM');
    return Promise.race([exited, sleep(20_000, 'still running after 20 s')]);
  }

  async function pipe(): Promise<{ readonly reader: FileHandle; readonly writer: FileHandle }> {
    const path = join(await emptyDirectory(atEnd), 'log');
    execFileSync('mkfifo', [path]);
    const reader = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
    const writer = await open(path, constants.O_WRONLY | constants.O_NONBLOCK);
    return { reader, writer };
  }

  it('a pipe that is full does not keep it from ending', { timeout: 60_000 }, async () => {
    const { reader, writer } = await pipe();
    // A pipe takes whole blocks of 4 KB.
    const block = Buffer.alloc(4_096, '\n');
    const write = () => writer.write(block).catch((error: NodeJS.ErrnoException) => error.code);
    let outcome = await write();
    for (let blocks = 1; typeof outcome === 'object' && blocks < 1_024; blocks += 1) outcome = await write();
    expect(outcome).toBe('EAGAIN');
    const child = await startWith(writer);
    expect(await endOf(child)).toEqual({ code: 0, signal: null });
    await Promise.all([reader.close(), writer.close()]);
  });

  it('nor does a reader that is gone', { timeout: 60_000 }, async () => {
    const { reader, writer } = await pipe();
    await reader.close();
    const child = await startWith(writer);
    expect(await endOf(child)).toEqual({ code: 0, signal: null });
    await writer.close();
  });

  it('a full disk keeps it neither from answering nor from ending', { timeout: 60_000 }, async () => {
    const full = await open('/dev/full', 'w');
    expect(await endOf(await startWith(full))).toEqual({ code: 0, signal: null });
    await full.close();
  });
});

describe('npm start', () => {
  it('hands SIGTERM to the server: npm’s shell becomes it', async () => {
    const { scripts } = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8')) as {
      scripts: Record<string, string>;
    };
    // Some shells do that of themselves with a last command, and some do not.
    expect(scripts.start).toMatch(/^exec node /);
    const flags = `--port 0 --admin-port 0 --page-port 0 --cluster off --drain 0s --certs "${certs()}"`;
    const PATH = `${dirname(process.execPath)}${delimiter}${process.env.PATH}`;
    const child = spawn('sh', ['-c', `${scripts.start} ${flags}`], {
      cwd: ROOT,
      env: { ...process.env, PATH },
    });
    atEnd(() => void child.kill('SIGKILL'));
    let printed = '';
    child.stdout.setEncoding('utf8').on('data', (chunk: string) => (printed += chunk));
    await until(async () => printed.includes('"listening"'));
    const exited = once(child, 'exit');
    child.kill('SIGTERM');
    expect(await exited).toEqual([0, null]);
    expect(printed).toContain('"stopped"');
  });
});

describe.concurrent('before it listens', () => {
  const waiting = async (...signals: readonly NodeJS.Signals[]) => {
    const kubeconfig = join(await emptyDirectory(atEnd), 'config');
    const server = 'https://127.0.0.1:1';
    const clusters = [{ name: 'gone', cluster: { server } }];
    const contexts = [{ name: 'gone', context: { cluster: 'gone' } }];
    await writeFile(kubeconfig, JSON.stringify({ clusters, contexts, 'current-context': 'gone' }));
    const flags = ['--certs-secret=linger', '--namespace=linger', `--kubeconfig=${kubeconfig}`, '--drain=0s'];
    const child = spawn(process.execPath, [MAIN, 'serve', '--sync-timeout=1h', ...flags]);
    atEnd(() => void child.kill('SIGKILL'));
    let printed = '';
    child.stdout.setEncoding('utf8').on('data', (chunk: string) => (printed += chunk));
    const exited = once(child, 'exit');
    await until(async () => printed.includes('"reason":"Unreachable"'));
    const over = await Promise.race([exited, sleep(1_500, 'still waiting')]);
    for (const signal of signals) child.kill(signal);
    return [over, await exited];
  };

  it('waits for an API server that cannot be reached yet, and is over with 0 when asked to end', async () => {
    expect(await waiting('SIGTERM')).toEqual(['still waiting', [0, null]]);
  });

  it('SIGINT: 130', async () => {
    expect(await waiting('SIGINT')).toEqual(['still waiting', [130, null]]);
  });
});

describe.concurrent('ending at once', () => {
  it('SIGINT: 130, whatever is going on', async () => {
    const server = await start('--drain', '168h');
    const connection = await connect(server, atEnd);
    connection.write(requestBytes(bodyOf()).subarray(0, 100));
    server.kill('SIGINT');
    expect(await server.exited).toBe(130);
  });

  it('SIGINT while draining: 130', async () => {
    const server = await start('--drain', '168h');
    server.kill('SIGTERM');
    await until(() => isDraining(server));
    server.kill('SIGINT');
    expect(await server.exited).toBe(130);
  });

  it('a second SIGTERM: 143', async () => {
    const server = await start('--drain', '168h');
    server.kill('SIGTERM');
    await until(() => isDraining(server));
    server.kill('SIGTERM');
    expect(await server.exited).toBe(143);
  });
});
