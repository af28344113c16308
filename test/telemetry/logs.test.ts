import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { text as readAll } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it, onTestFinished, vi } from 'vitest';
import { createLogger } from '../../src/telemetry/logs.ts';
import { ROOT } from '../cli/built.ts';

/** Each line is a kilobyte. */
const program = (lines: number, rest = '') => `
  import { logToStandardOutput } from ${JSON.stringify(join(ROOT, 'src/telemetry/logs.ts'))};
  // As main.ts does: Node then makes a pipe non-blocking.
  process.stdout.on('error', () => undefined);
  const { logger, end } = logToStandardOutput('info');
  const x = 'x'.repeat(940);
  for (let i = 0; i < ${lines}; i += 1) logger.info({ i, x }, 'line');
  ${rest}
  const begun = performance.now();
  await end();
  logger.info('too late');
  process.stderr.write(String(Math.round(performance.now() - begun)));
  process.stdout.write('', () => process.exit(0));
`;

function start(source: string) {
  const child = spawn(process.execPath, ['--input-type=module', '-e', source], { cwd: ROOT });
  onTestFinished(() => void child.kill('SIGKILL'));
  const exited = once(child, 'exit') as Promise<[number | null, NodeJS.Signals | null]>;
  let stderr = '';
  child.stderr.setEncoding('utf8').on('data', (chunk: string) => (stderr += chunk));
  const stopped = Promise.race([exited, sleep(30_000, 'still running after 30 s', { ref: false })]);
  return { child, stopped, stderr: () => stderr };
}

type Line = { readonly i?: number; readonly msg: string; readonly lines?: number };

function linesOf(text: string): readonly Line[] {
  expect(text.endsWith('\n')).toBe(true);
  return text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Line);
}

it('a log that is read loses no line, up to the last', async () => {
  const { child, stopped } = start(program(100));
  const lines = linesOf(await readAll(child.stdout));
  expect(await stopped).toEqual([0, null]);
  expect(lines.map(({ i }) => i)).toEqual(Array.from({ length: 100 }, (_, i) => i));
});

it('the end waits a quarter of a second for a reader that does not read, and no longer', async () => {
  const { child, stopped, stderr } = start(program(2_000));
  child.stdout.pause();
  expect(await stopped).toEqual([0, null]);
  expect(Number(stderr())).toBeGreaterThanOrEqual(249);
  expect(Number(stderr())).toBeLessThan(10_000);
});

it('nor does it wait for a reader that is gone', async () => {
  const { child, stopped } = start(program(10, 'await new Promise((resolve) => setTimeout(resolve, 500));'));
  child.stdout.destroy();
  expect(await stopped).toEqual([0, null]);
});

it('beyond 4 MB that nobody reads, lines are dropped, and counted once they are read again', async () => {
  const written = 10_000;
  const { child, stopped } = start(
    program(
      written,
      `process.stderr.write('written');
      const alive = setInterval(() => undefined, 1_000);
      await new Promise((resolve) => process.once('SIGUSR2', resolve));
      clearInterval(alive);
      logger.info('last');`,
    ),
  );
  await once(child.stderr, 'data');
  let text = '';
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
  await vi.waitFor(() => expect(text).toContain('log lines dropped'), 30_000);
  child.kill('SIGUSR2');
  await once(child.stdout, 'close');
  const lines = linesOf(text);
  expect(await stopped).toEqual([0, null]);
  const kept = lines.filter(({ msg }) => msg === 'line');
  const told = lines.find(({ msg }) => msg.startsWith('log lines dropped'))?.lines ?? 0;
  expect(kept.length).toBeGreaterThan(4_000);
  expect(kept.length).toBeLessThan(5_000);
  expect(kept.length + told).toBe(written);
  expect(kept.map(({ i }) => i)).toEqual(kept.map((_, i) => i));
  expect(lines.at(-1)?.msg).toBe('last');
});

it('lets nothing that it quotes command a terminal that shows it', () => {
  const lines: string[] = [];
  const logger = createLogger('info', { write: (line) => void lines.push(line) });
  logger.child({ name: 'a\u009b2J' }).warn({ problem: 'b\u001b[2J\u007f' }, 'c\u0085d');
  const [line = ''] = lines;
  expect(line).not.toMatch(/[^\P{Cc}\n]/u);
  expect(JSON.parse(line)).toMatchObject({ name: 'a\u009b2J', problem: 'b\u001b[2J\u007f', msg: 'c\u0085d' });
});
