import { once } from 'node:events';
import { Agent, createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { gzipSync } from 'node:zlib';
import { restoreHistory } from '../src/leader/history-objects.ts';
import { ReviewingJudge } from '../src/webhook/report-access.ts';
import { Desk } from '../test/webhook/reports/desk.ts';
import { Churn } from './memory-churn.ts';

// `npm run bench:memory`: what attempts to fill the memory of a replica leave behind, and what pods that come and go do. Ends with 1 where one is beyond its
// bound. It is no test: V8's heap and the process's RSS depend on whatever else the process does.

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

interface Attempt {
  readonly what: string;
  readonly of: 'heapUsed' | 'rss';
  readonly mostMb: number;
  readonly make: () => Promise<unknown>;
}

const judge = new ReviewingJudge({
  reviews: { userOf: async () => undefined, isAllowed: async () => false },
  audience: 'reports',
  clock: () => performance.now(),
  onFailure: () => undefined,
});
const SOURCE = '10.0.0.1';
const server = createServer(new Desk(0, judge).app).listen(0, '127.0.0.1');
await once(server, 'listening');
const { port } = server.address() as AddressInfo;
const agent = new Agent({ keepAlive: true, maxSockets: 300 });
const bomb = gzipSync(' '.repeat(16 * 1024 * 1024)).toString('base64');

const churn = new Churn(20);

const ATTEMPTS: readonly Attempt[] = [
  {
    what: '6,500 verdicts on made-up tokens of 8 KB',
    of: 'heapUsed',
    mostMb: 5,
    make: async () => {
      for (let each = 0; each < 6_500; each += 1)
        await judge.verdict(`made-up-${each}-${'x'.repeat(8_000)}`, 'edge', SOURCE);
    },
  },
  {
    what: '6,500 reports for consumers with names of 12 KB',
    of: 'heapUsed',
    mostMb: 10,
    make: async () => {
      for (let round = 0; round < 65; round += 1)
        await Promise.all(Array.from({ length: 100 }, (_, each) => post(`${round}-${each}`)));
    },
  },
  {
    what: '40,000 pods that end in 20 namespaces',
    of: 'heapUsed',
    mostMb: 2,
    make: () => churn.run(40_000),
  },
  {
    what: 'a stored history of 21 KB that unfolds to 16 MB, twice',
    of: 'rss',
    mostMb: 64,
    make: () =>
      restoreHistory(
        async (name) =>
          name === 'linger-history' ? { binaryData: { 'a.json.gz': bomb, 'b.json.gz': bomb } } : undefined,
        { restorePart: () => false },
        1_700_000_000,
      ),
  },
];

for (const { what, of, mostMb, make } of ATTEMPTS) {
  await make();
  collect();
  const before = process.memoryUsage()[of];
  await make();
  collect();
  const left = (process.memoryUsage()[of] - before) / 1e6;
  console.log(`${what}: ${left.toFixed(1)} MB of ${of} (at most ${mostMb})`);
  if (left > mostMb) process.exitCode = 1;
}
agent.destroy();
server.close();
server.closeAllConnections();

function post(token: string): Promise<void> {
  const path = `/v1/consumers/${'x'.repeat(12_000)}-${token}/reports`;
  const headers = { authorization: `Bearer made-up-${token}` };
  return new Promise((resolve, reject) => {
    request({ agent, host: '127.0.0.1', port, path, method: 'POST', headers }, (response) =>
      response.resume().on('end', resolve),
    )
      .on('error', reject)
      .end('{}');
  });
}
