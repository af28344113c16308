import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { isAlive, signalIfAlive, startProcess } from './process.ts';
import { waitUntil } from './waiting.ts';

// Go's runtime does this when a signal ends it on one thread: for some 30 ms the others still listen.
const FIRST_THREAD_ENDS = `
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).pthread_exit(None)
`;

it('a process whose first thread has ended is alive for as long as another runs', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'linger-process-'));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  const argv = ['python3', '-c', FIRST_THREAD_ENDS];
  const logFile = join(directory, 'log');
  const record = await startProcess({ name: 'threads', argv, runDir: directory, logFile });
  onTestFinished(() => signalIfAlive(record, 'SIGKILL'));
  const state = () => readFileSync(`/proc/${record.pid}/stat`, 'utf8').replace(/^.*\) /, '')[0];
  await waitUntil('its first thread to end', () => state() === 'Z');
  expect(isAlive(record)).toBe(true);
  signalIfAlive(record, 'SIGKILL');
  await waitUntil('it to end', () => !isAlive(record));
});
