import { spawn } from 'node:child_process';
import type { AtEnd } from '../webhook/connection.ts';
import { environment, MAIN, ROOT, until } from './linger.ts';

/** Starts the shipped `linger dashboard`. @returns its address, with the token, and its API */
export async function startDashboard(
  args: readonly string[],
  atEnd: AtEnd,
  env: Readonly<Record<string, string>> = {},
) {
  const child = spawn(process.execPath, [MAIN, 'dashboard', '--port', '0', '--no-open', ...args], {
    cwd: ROOT,
    env: environment(env),
  });
  atEnd(() => void child.kill('SIGKILL'));
  let [printed, said] = ['', ''];
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    printed += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    said += text;
  });
  const address = await until(async () => /http:\/\/\S+/.exec(printed)?.[0]).catch((error: unknown) => {
    throw new Error(`${String(error)}\n${said}`);
  });
  const token = new URL(address).hash.replace('#token=', '');
  const get = async (path: string): Promise<{ readonly status: number; readonly body: unknown }> => {
    const headers = { Authorization: `Bearer ${token}` };
    const answer = await fetch(new URL(`/api/v1${path}`, address), { headers });
    return { status: answer.status, body: await answer.json() };
  };
  return { address, get, child };
}
