import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';

/** As kubectl's proxy to a cluster whose user may not list nodes, and whose controllers give a namespace no ServiceAccount. */
const KUBECTL = `#!${process.execPath}
const { appendFileSync } = require('node:fs');
if (process.argv[2] !== 'proxy') process.exit(0);
const log = (line) => appendFileSync(process.env.REQUESTS, line + '\\n');
const server = require('node:http').createServer((request, response) => {
  log(request.method + ' ' + request.url);
  const [status, body] =
    request.url === '/version' ? [200, { minor: '37' }]
    : request.method === 'POST' || request.method === 'DELETE' ? [201, {}]
    : request.url === '/api/v1/nodes' ? [403, { reason: 'Forbidden', message: 'no' }]
    : [404, { reason: 'NotFound' }];
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(body));
});
server.listen(0, '127.0.0.1', () => {
  log('at ' + server.address().port);
  console.log('Starting to serve on 127.0.0.1:' + server.address().port);
});
`;

/** In a process group of its own, as a terminal starts it. */
function start() {
  const folder = mkdtempSync(join(tmpdir(), 'linger-conformance-'));
  const kubectl = join(folder, 'kubectl');
  writeFileSync(kubectl, KUBECTL);
  chmodSync(kubectl, 0o755);
  const log = join(folder, 'requests');
  writeFileSync(log, '');
  const env = {
    ...process.env,
    REQUESTS: log,
    KUBECONFIG: '/dev/null',
    PATH: `${folder}${delimiter}${process.env.PATH}`,
  };
  const main = join(import.meta.dirname, 'main.ts');
  const child = spawn(process.execPath, [main], { env, detached: true, stdio: 'ignore' });
  const { pid } = child;
  if (pid === undefined) throw new Error('not started');
  const requests = () => readFileSync(log, 'utf8').split('\n');
  const until = async (pattern: RegExp) => {
    for (;;) {
      const found = requests().find((line) => pattern.test(line));
      if (found !== undefined) return found;
      await sleep(20);
    }
  };
  return { child, pid, requests, until };
}

describe('npm run conformance', () => {
  it('deletes its namespace when Ctrl-C comes twice, to its whole process group, while the namespace is made', async () => {
    const { child, pid, requests, until } = start();
    const line = await until(/^GET .*\/serviceaccounts\/default$/);
    const [namespace = ''] = /\/api\/v1\/namespaces\/[^/]+/.exec(line) ?? [];
    // The terminal's, and what npm passes on.
    process.kill(-pid, 'SIGINT');
    child.kill('SIGINT');
    const [code] = await once(child, 'exit');
    expect(code).toBe(130);
    expect(requests()).toContain(`DELETE ${namespace}`);
  });

  it('leaves no proxy behind when it is killed', async () => {
    const { child, until } = start();
    const address = `http://127.0.0.1:${(await until(/^at /)).slice(3)}/`;
    await until(/serviceaccounts/);
    child.kill('SIGKILL');
    await once(child, 'exit');
    await expect
      .poll(
        () =>
          fetch(address).then(
            () => 'answers',
            () => 'gone',
          ),
        { timeout: 10_000 },
      )
      .toBe('gone');
  });
});
