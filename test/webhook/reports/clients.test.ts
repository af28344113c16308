import { spawn } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import https from 'node:https';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, expect, it } from 'vitest';
import { HELD_BACK_MS } from '../../../src/webhook/report-endpoint.ts';
import { emptyDirectory, ROOT, until } from '../../cli/linger.ts';
import { blocksOf } from '../../docs/markdown.ts';
import { startWebhook } from '../webhook.ts';
import { Desk } from './desk.ts';

/** A desk behind the real HTTPS server, and the files that a gateway's pod has. */
async function start() {
  const desk = new Desk();
  const server = await startWebhook({ reports: desk.app });
  const directory = await emptyDirectory();
  const [ca, token] = [join(directory, 'ca.crt'), join(directory, 'token')];
  await writeFile(ca, server.ca);
  await writeFile(token, 'gw-1\n');
  const url = `https://127.0.0.1:${server.port}/v1/consumers/edge/reports`;
  return { desk, server, ca, token, url };
}

it('a flood gets an answer a second on each of its connections, and so costs no more than that', async () => {
  const desk = new Desk(HELD_BACK_MS);
  const { port, ca } = await startWebhook({ reports: desk.app });
  const agent = new https.Agent({ keepAlive: true, maxSockets: 10, ca });
  let answered = 0;
  const post = () =>
    new Promise<void>((resolve) => {
      const headers = { authorization: 'Bearer gw-1' };
      const options = {
        agent,
        host: '127.0.0.1',
        port,
        method: 'POST',
        path: '/v1/consumers/edge/reports',
        headers,
      };
      const request = https.request(options, (response) => {
        answered += 1;
        response.resume().on('close', resolve);
      });
      request.on('error', () => resolve()).end('{}');
    });
  const began = performance.now();
  let going = true;
  const flooding = Array.from({ length: 10 }, async () => {
    while (going) await post();
  });
  // The first 12 are within what an instance may do.
  const least = 12;
  await until(async () => performance.now() - began > 2_500 && answered > least);
  going = false;
  const seconds = Math.ceil((performance.now() - began) / HELD_BACK_MS);
  expect(answered).toBeLessThanOrEqual(least + 10 * seconds);
  await Promise.all(flooding);
  agent.destroy();
});

describe('the lines of curl in the docs', () => {
  const [block] = blocksOf('docs/gateways.md').filter(({ text }) =>
    text.includes('/v1/consumers/edge/reports'),
  );
  const lines = block!.text.trim().split('\n');
  const PLACE = 'https://linger-reports.linger.svc/v1/consumers/edge/reports';

  it('report around one sync after the other, and go on after errors', async () => {
    const { desk, ca, token, url } = await start();
    // What stands before the loop, with the URL of this server: its certificate is for localhost.
    const loopAt = lines.findIndex((line) => line.startsWith('while '));
    // Nothing here is about being late, and every process may be where others want the processors.
    const definition = lines
      .slice(0, loopAt)
      .join('\n')
      .replace(PLACE, url)
      .replace('--max-time 2', '--max-time 60');
    expect(definition).toContain(url);
    expect(definition).toContain('--max-time 60');
    const loop = `CA=${ca} TOKEN=${token}
      ${definition}
      for sync in 1 2 3 4; do
        test $sync = 2 && echo strange > ${token}; test $sync = 3 && echo gw-1 > ${token}
        ${lines
          .slice(loopAt + 1, -1)
          .join('\n')
          .replace('sync-my-table', 'true')
          .replace('sleep 10', 'true')}
      done`;
    const child = spawn('bash', ['-euc', loop], { stdio: ['ignore', 'inherit', 'pipe'] });
    expect(await text(child.stderr)).toBe('');
    expect(desk.counted.map(([, result]) => result)).toEqual([
      ...['Asked', 'Synced', 'TokenRefused', 'TokenRefused'],
      ...['Asked', 'Synced', 'Asked', 'Synced'],
    ]);
  });
});

describe('examples/report-client.ts', () => {
  /**
   * A gateway that syncs so many times, 50 ms apart, and once more in vain: it prints what that one throws, and how many
   * milliseconds all of them took.
   */
  function gateway(url: string, token: string, ca: string, syncs: number) {
    const program = `
      import { reporter } from ${JSON.stringify(join(ROOT, 'examples/report-client.ts'))};
      const report = reporter(${JSON.stringify(url)}, ${JSON.stringify(token)});
      let took = 0;
      const around = (sync) => {
        const began = performance.now();
        return report(sync).finally(() => (took += performance.now() - began));
      };
      for (let sync = 0; sync < ${syncs}; sync++) {
        await new Promise((resolve) => setTimeout(resolve, 50));
        const table = await around(async () => ['10.0.0.1']);
        if (table[0] !== '10.0.0.1') throw new Error('not what the sync gave');
      }
      await around(() => Promise.reject(new Error('discovery is away'))).catch(({ message }) => console.log(message, took));
      process.exit(0);`;
    const args = ['--input-type=module', '--eval', program];
    const env = { ...process.env, NODE_EXTRA_CA_CERTS: ca };
    const child = spawn(process.execPath, args, { env, stdio: ['ignore', 'pipe', 'inherit'] });
    return text(child.stdout).then((said) => said.trim());
  }

  const AWAY = /^discovery is away (\d+)/;

  it('asks before each sync and reports it after, and hands over what the sync gives or throws', async () => {
    const { desk, ca, token, url } = await start();
    expect(await gateway(url, token, ca, 30)).toMatch(AWAY);
    const results = desk.counted.map(([consumer, result]) => `${consumer} ${result}`);
    expect(results[0]).toBe('edge Asked');
    // A first answer may take longer than a sync waits; it is not reported then.
    expect(results.join()).toContain(Array(3).fill('edge Asked,edge Synced').join());
  });

  it.each<[string, (place: Awaited<ReturnType<typeof start>>) => [url: string, token: string]]>([
    [
      'Linger is away',
      ({ server, token }) => [`https://127.0.0.1:${server.port + 1}/v1/consumers/edge/reports`, token],
    ],
    ['there is no token', ({ url, ca }) => [url, `${ca}.none`]],
    ['reports are refused', ({ url }) => [url.replace('edge', 'mesh'), '']],
  ])('fails no sync when %s', async (_, place) => {
    const started = await start();
    const [url, token] = place(started);
    expect(await gateway(url, token || started.token, started.ca, 5)).toMatch(AWAY);
  });

  it('waits once for an answer, and then no more until there is one: syncs go on while reports hang', async () => {
    let reports = 0;
    const hanging = await startWebhook({ reports: () => void reports++ });
    const { ca, token } = await start();
    const url = `https://127.0.0.1:${hanging.port}/v1/consumers/edge/reports`;
    const said = await gateway(url, token, ca, 10);
    expect(said).toMatch(AWAY);
    expect(reports).toBeGreaterThan(5);
    // Waiting for each of eleven would have taken 5.5 s.
    expect(Number(AWAY.exec(said)?.[1])).toBeLessThan(5_000);
  });
});
