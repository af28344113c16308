import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { parseArgs } from 'node:util';

/*
 * npm run soak -- --minutes N --rate R
 * Pods a second are asked for; what was reached is in the table. In the cluster of LINGER_CLUSTER_NAME, as the other suites.
 */
const { values } = parseArgs({ options: { minutes: { type: 'string' }, rate: { type: 'string' } } });
const env = { ...process.env };
for (const [name, text] of [
  ['SOAK_MINUTES', values.minutes],
  ['SOAK_RATE', values.rate],
] as const) {
  if (text === undefined) continue;
  if (!(Number(text) > 0)) throw new Error(`${name}: expected a number above 0, got ${JSON.stringify(text)}`);
  env[name] = text;
}
const run = join(import.meta.dirname, '..', 'testbed', 'run.ts');
const child = spawn(process.execPath, [run, 'test/soak/soak.test.ts'], { env, stdio: 'inherit' });
for (const name of ['SIGINT', 'SIGTERM'] as const) process.on(name, () => child.kill(name));
child.on('exit', (code) => {
  process.exitCode = code ?? 1;
});
