import https from 'node:https';
import { buffer } from 'node:stream/consumers';
import { checkServerIdentity } from 'node:tls';
import { createGunzip } from 'node:zlib';
import { readKubeconfig } from '../../src/cluster/connection.ts';
import { type PageEnd, readListPage } from '../../src/cluster/object-json.ts';
import { acceptOf, requestPath, WATCH_LIMITS } from '../../src/cluster/resource.ts';
import type { PodMetadata } from '../../src/core/lag/index.ts';
import { podsResource } from '../../src/informers/pods.ts';

// One list of the pods, as a process that has just started reads it; prints what it took, in a line of JSON.

export interface Reading {
  readonly pods: number;
  readonly seconds: number;
  readonly cpuSeconds: number;
  /** The size of the bodies as they came over the network. */
  readonly bytes: number;
}

/** `port`: of a way to the API server that is slower than this machine's own; empty: none. */
const [kubeconfig = '', encoding = 'identity', port = ''] = process.argv.slice(2);
const { server, credentials } = await readKubeconfig(kubeconfig);
const { ca, cert, key } = await credentials();
const agent = new https.Agent({
  keepAlive: true,
  maxSockets: 1,
  ca,
  cert,
  key,
  checkServerIdentity: (_host, peer) => checkServerIdentity(server.hostname, peer),
});
const way = port === '' ? server : new URL(`https://127.0.0.1:${port}`);
const resource = podsResource();
const pods = new Map<string, PodMetadata>();
let bytes = 0;

/** One page: the way of the list-watch, but for the encoding. */
async function page(from: string | undefined): Promise<PageEnd> {
  const parameters = {
    limit: String(WATCH_LIMITS.pageSize),
    ...(from === undefined ? {} : { continue: from }),
  };
  const headers = { accept: acceptOf(resource, 'list'), 'accept-encoding': encoding };
  const { promise, resolve, reject } = Promise.withResolvers<import('node:http').IncomingMessage>();
  https.get(new URL(requestPath(resource, parameters), way), { agent, headers }, resolve).on('error', reject);
  const response = await promise;
  if (response.statusCode !== 200) throw new Error(`status ${response.statusCode}`);
  response.on('data', (chunk: Buffer) => (bytes += chunk.length));
  const isGzip = response.headers['content-encoding'] === 'gzip';
  const page = await buffer(isGzip ? response.pipe(createGunzip({ chunkSize: 65_536 })) : response);
  const items = readListPage(page, (item) => pods.set(item.metadata.uid, resource.project(item)));
  for (;;) {
    const step = items.next();
    if (step.done === true) return step.value;
  }
}

const begun = performance.now();
const before = process.cpuUsage();
let next: string | undefined;
do {
  ({ next } = await page(next));
} while (next !== undefined);
const { user, system } = process.cpuUsage(before);
agent.destroy();
const reading: Reading = {
  pods: pods.size,
  seconds: (performance.now() - begun) / 1000,
  cpuSeconds: (user + system) / 1e6,
  bytes,
};
console.log(JSON.stringify(reading));
