import { type ChildProcess, fork, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { LagHistory, NOTHING_PLANNED, nextPlanned, plannedToText } from '../src/core/lag/index.ts';
import { packPart, partKey, stampAnnotations, textContent } from '../src/leader/codec.ts';
import { CHROMIUM, startBrowser, windowOf } from '../test/page/browser.ts';
import { describeMachine, memoryOf } from './machine.ts';
import { positive, readOptions } from './options.ts';
import { median, table } from './statistics.ts';

// What `linger dashboard` and its page cost with a large cluster: memory, answers of the API, and tasks of the browser while
// somebody scrolls. The cluster is a process that answers as an API server does; nothing in it changes.

const usage = `usage: node bench/page.ts [--workloads N] [--services N] [--days N] [--quick]
  --workloads  Deployments, with three pods each (default 20000)
  --services   each with an EndpointSlice and Endpoints (default 13000)
  --days       of history (default 28)
  --quick      does it still work? a hundredth of all`;

interface Size {
  readonly workloads: number;
  readonly services: number;
  readonly days: number;
}

const NAMESPACES = 200;
const NOW = Math.floor(Date.now() / 1000);
const REVISION = '100';

const namespaceOf = (index: number) => `team-${index % NAMESPACES}`;
const labelsOf = (index: number) => ({
  app: `web-${index}`,
  tier: 'backend',
  'app.kubernetes.io/name': 'web',
});

function deployment(index: number): object {
  const name = `web-${index}`;
  const probe = { httpGet: { path: '/ready', port: 8080 }, periodSeconds: 5, failureThreshold: 3 };
  const env = Array.from({ length: 12 }, (_, each) => ({
    name: `SETTING_${each}`,
    value: `value-${index}-${each}`,
  }));
  const container = {
    name: 'web',
    image: `registry.example/shop/web:${index % 97}`,
    env,
    readinessProbe: probe,
    ports: [{ containerPort: 8080 }],
    resources: { requests: { cpu: '100m', memory: '128Mi' } },
    // A tenth waits by itself.
    ...(index % 10 === 0 && { lifecycle: { preStop: { exec: { command: ['sleep', '5'] } } } }),
  };
  return {
    metadata: { namespace: namespaceOf(index), name, uid: `d-${index}`, labels: labelsOf(index) },
    spec: {
      replicas: index % 20 === 0 ? 1 : 3,
      selector: { matchLabels: { app: name } },
      template: {
        metadata: { labels: labelsOf(index) },
        spec: { terminationGracePeriodSeconds: 30, containers: [container] },
      },
    },
  };
}

const uidOf = (kind: string, index: number) => `${kind}-${index}`;

/** The collections, by the end of their path: how many there are, and each. */
function collections({
  workloads,
  services,
}: Size): Readonly<Record<string, readonly [number, (index: number) => object]>> {
  const targets = (index: number) =>
    [0, 1, 2].map((pod) => ({
      ip: `10.${1 + (index >> 8)}.${index & 255}.${pod + 1}`,
      targetRef: { kind: 'Pod', name: `web-${index}-${pod}`, uid: uidOf('p', 3 * index + pod) },
    }));
  const named = (index: number, kind: string) => ({
    namespace: namespaceOf(index),
    name: `web-${index}`,
    uid: uidOf(kind, index),
    resourceVersion: REVISION,
  });
  return {
    nodes: [
      100,
      (index) => ({
        metadata: {
          name: `node-${index}`,
          uid: uidOf('node', index),
          labels: { 'kubernetes.io/arch': 'amd64' },
        },
        status: { nodeInfo: { kubeletVersion: 'v1.36.3', architecture: 'amd64', operatingSystem: 'linux' } },
      }),
    ],
    namespaces: [NAMESPACES, (index) => ({ metadata: { name: `team-${index}`, uid: uidOf('n', index) } })],
    deployments: [workloads, deployment],
    services: [
      services,
      (index) => ({
        metadata: named(index, 's'),
        spec: { selector: { app: `web-${index}` }, clusterIP: '10.96.0.1', ports: [{ port: 80 }] },
      }),
    ],
    pods: [
      3 * workloads,
      (index) => {
        const owner = Math.floor(index / 3);
        const by = {
          kind: 'ReplicaSet',
          name: `web-${owner}-5d8f7`,
          controller: true,
          uid: uidOf('r', owner),
        };
        const labels = { ...labelsOf(owner), 'pod-template-hash': '5d8f7' };
        const own = {
          namespace: namespaceOf(owner),
          name: `web-${owner}-${index % 3}`,
          uid: uidOf('p', index),
        };
        return { metadata: { ...own, resourceVersion: REVISION, labels, ownerReferences: [by] } };
      },
    ],
    endpointslices: [
      services,
      (index) => ({
        metadata: { ...named(index, 'e'), labels: { 'kubernetes.io/service-name': `web-${index}` } },
        addressType: 'IPv4',
        endpoints: targets(index).map(({ ip, targetRef }) => ({
          addresses: [ip],
          conditions: { ready: true },
          targetRef,
        })),
      }),
    ],
    endpoints: [
      services,
      (index) => ({ metadata: named(index, 'o'), subsets: [{ addresses: targets(index) }] }),
    ],
  };
}

/** A lag each two minutes: tenths of a second, seconds through a gateway, and two storms. */
function historyOf(days: number, scale: number): LagHistory {
  const history = new LagHistory();
  const begin = NOW - days * 86_400;
  for (let at = begin; at < NOW; at += 120) history.record(scale * 0.05 * 1.02 ** ((at / 120) % 200), at);
  for (const storm of [0.3, 0.8])
    for (let each = 0; each < 500; each += 1)
      history.record(40 + (each % 90), begin + storm * days * 86_400 + each);
  return history;
}

async function configMaps({ days }: Size): Promise<ReadonlyMap<string, object>> {
  const cluster = historyOf(days, 1);
  const edge = historyOf(days, 3);
  const annotations = stampAnnotations({ writer: 'linger-a', term: 1, writtenAt: NOW - 60 });
  const planning = nextPlanned(
    NOTHING_PLANNED,
    { cluster, namespaces: new Map(), consumers: new Map([['cluster-ip', edge]]) },
    NOW,
  );
  let step = planning.next();
  while (step.done !== true) step = planning.next();
  const binaryData: Record<string, string> = {};
  const add = async (key: string, history: LagHistory, characters: number) => {
    for (const part of history.parts(key, NOW))
      binaryData[partKey(part.key)] = await packPart(part.text(characters));
  };
  await add('cluster', cluster, 400_000);
  await add('consumer/cluster-ip/removal', edge, 14_000);
  for (let index = 0; index < 50; index += 1) await add(`namespace/${namespaceOf(index)}`, cluster, 60_000);
  const objects = {
    'linger-planned': textContent('planned', plannedToText(step.value)),
    'linger-history': { binaryData },
    'linger-consumers': textContent('consumers', JSON.stringify({ v: 2, asOf: NOW, consumers: [] })),
  };
  return new Map(
    Object.entries(objects).map(([name, content]) => [
      `/api/v1/namespaces/linger/configmaps/${name}`,
      {
        kind: 'ConfigMap',
        apiVersion: 'v1',
        metadata: { name, namespace: 'linger', annotations },
        ...content,
      },
    ]),
  );
}

/** The cluster, as a process of its own. */
async function cluster(size: Size): Promise<void> {
  const kinds = collections(size);
  const single = await configMaps(size);
  const answer = (response: ServerResponse, code: number, body: object) =>
    response.writeHead(code, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  const server = createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? '/', 'http://cluster');
    const object = single.get(pathname);
    if (object !== undefined) return answer(response, 200, object);
    if (pathname === '/version') return answer(response, 200, { gitVersion: 'v1.36.3' });
    const [count, make] = kinds[pathname.split('/').at(-1) ?? ''] ?? [];
    const isCluster = !pathname.includes('/namespaces/');
    if (count === undefined || make === undefined || !isCluster)
      return answer(response, 404, { kind: 'Status', code: 404, message: 'the server could not find it' });
    if (searchParams.get('watch') === 'true') {
      response.writeHead(200, { 'content-type': 'application/json' });
      return response.flushHeaders();
    }
    const from = Number(searchParams.get('continue') ?? 0);
    const to = Math.min(count, from + Number(searchParams.get('limit') ?? count));
    const items = Array.from({ length: to - from }, (_, index) => make(from + index));
    const next = to < count ? { continue: String(to) } : {};
    answer(response, 200, { kind: 'List', metadata: { resourceVersion: REVISION, ...next }, items });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  process.send?.({ port: (server.address() as AddressInfo).port });
}

/** How long an answer takes, in milliseconds, and its size. */
async function timed(url: URL, headers: Readonly<Record<string, string>>) {
  const begun = performance.now();
  const answer = await fetch(url, { headers });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${url.pathname}: ${answer.status} ${text.slice(0, 300)}`);
  return { ms: performance.now() - begun, text };
}

const PATHS = {
  'the list, the worst first': () => '/workloads?sort=fate&limit=100',
  'a search in it': (round: number) => `/workloads?sort=name&search=web-${round}&limit=100`,
  'one explanation': (round: number) => `/explanation?workload=Deployment/${namespaceOf(round)}/web-${round}`,
  now: () => '/now',
  'lag of the cluster': () => '/lag?scope=cluster',
  'lag of a namespace': (round: number) => `/lag?scope=namespace/${namespaceOf(round % 50)}`,
  'what if, another policy each time': (round: number) => `/what-if?from=Fixed&fixed=${10 + round}s`,
  consumers: () => '/consumers',
} as const;
const ROUNDS = 20;

async function measure(size: Size): Promise<void> {
  const scratch = mkdtempSync(join(tmpdir(), 'linger-bench-'));
  const children: ChildProcess[] = [];
  try {
    const served = fork(import.meta.filename, ['cluster', JSON.stringify(size)]);
    children.push(served);
    const [{ port }] = (await once(served, 'message')) as [{ port: number }];
    const kubeconfig = join(scratch, 'config');
    writeFileSync(
      kubeconfig,
      JSON.stringify({
        'current-context': 'large',
        clusters: [{ name: 'large', cluster: { server: `http://127.0.0.1:${port}` } }],
        users: [],
        contexts: [{ name: 'large', context: { cluster: 'large' } }],
      }),
    );
    const main = join(import.meta.dirname, '..', 'dist', 'main.js');
    const args = [
      'dashboard',
      '--kubeconfig',
      kubeconfig,
      '--port',
      '0',
      '--no-open',
      '--linger-namespace',
      'linger',
    ];
    const begun = performance.now();
    const dashboard = spawn(process.execPath, [main, ...args], { stdio: ['ignore', 'pipe', 'inherit'] });
    children.push(dashboard);
    const address = await addressOf(dashboard);
    const headers = { Authorization: `Bearer ${address.hash.replace('#token=', '')}` };
    const ask = (path: string) => timed(new URL(`/api/v1${path}`, address), headers);
    await ask('/workloads?limit=1');
    const auditedMs = performance.now() - begun;
    await ask('/lag?scope=cluster');
    await ask('/now');
    const rows: string[][] = [];
    for (const [what, path] of Object.entries(PATHS)) {
      const answers: { ms: number; bytes: number }[] = [];
      for (let round = 0; round < ROUNDS; round += 1) {
        const { ms, text } = await ask(path(round));
        answers.push({ ms, bytes: text.length });
      }
      const times = answers.map(({ ms }) => ms);
      rows.push([
        what,
        median(times).toFixed(1),
        Math.max(...times).toFixed(1),
        `${Math.round(median(answers.map(({ bytes }) => bytes)) / 1000)}`,
      ]);
    }
    console.log(table([['answer', 'median ms', 'longest ms', 'KB'], ...rows]));
    const trial = performance.now();
    while (
      (JSON.parse((await ask('/what-if?from=Fixed&fixed=77s')).text) as { after: object | null }).after ===
      null
    )
      await sleep(50);
    console.log(
      `the first audit after ${(auditedMs / 1000).toFixed(1)} s; with another policy after ${((performance.now() - trial) / 1000).toFixed(1)} s`,
    );
    const longest = CHROMIUM === undefined ? 'no Chromium is installed' : await browse(address);
    const pid = dashboard.pid ?? 0;
    const { rssMb, peakRssMb } = memoryOf({ pid });
    console.log(longest);
    console.log(`memory of linger dashboard: ${rssMb.toFixed(0)} MB, at its peak ${peakRssMb.toFixed(0)} MB`);
  } finally {
    for (const child of children) child.kill();
    rmSync(scratch, { recursive: true, force: true });
  }
}

async function addressOf({ stdout }: ChildProcess): Promise<URL> {
  let printed = '';
  for await (const chunk of stdout ?? []) {
    printed += String(chunk);
    const [address] = /http:\/\/\S+/.exec(printed) ?? [];
    if (address !== undefined) return new URL(address);
  }
  throw new Error('linger dashboard has printed no address');
}

/** Scrolls through the views that grow with the cluster, as a wheel does. */
async function browse(address: URL): Promise<string> {
  const browser = await startBrowser();
  try {
    const { page } = await windowOf(browser);
    await page.addInitScript(
      'window.tasks = []; new PerformanceObserver((list) => window.tasks.push(...list.getEntries().map(({duration}) => duration))).observe({type: "longtask", buffered: true});',
    );
    const begun = performance.now();
    await page.goto(address.href);
    await page.locator('h1').first().waitFor();
    const lines = [`usable after ${(performance.now() - begun).toFixed(0)} ms`];
    for (const view of ['workloads', 'lag']) {
      const at = new URL(address);
      Object.assign(at, { pathname: `/${view}`, hash: '', search: view === 'lag' ? '?span=month' : '' });
      await page.goto(at.href);
      await page.locator('h1').first().waitFor();
      const more = page.getByRole('button', { name: /^Show / });
      for (let times = 0; times < 9 && (await more.count()) > 0; times += 1) {
        await more.click();
        await sleep(150);
      }
      await sleep(500);
      await page.evaluate('window.tasks.length = 0');
      for (let step = 0; step < 60; step += 1) {
        await page.mouse.wheel(0, step < 30 ? 600 : -600);
        await sleep(30);
      }
      const tasks = await page.evaluate<readonly number[]>('window.tasks');
      const rows = await page.locator('tbody tr').count();
      lines.push(
        `${view}, ${rows} rows: ${tasks.length} tasks over 50 ms while scrolling${tasks.length > 0 ? `, the longest ${Math.max(...tasks)} ms` : ''}`,
      );
    }
    return lines.join('\n');
  } finally {
    await browser.close();
  }
}

const [role, given] = process.argv.slice(2);
if (role === 'cluster') await cluster(JSON.parse(given ?? '') as Size);
else {
  const text = { type: 'string' } as const;
  const size = readOptions(
    process.argv.slice(2),
    { workloads: text, services: text, days: text, quick: { type: 'boolean', default: false } },
    usage,
    ({ quick, workloads, services, days }): Size => ({
      workloads: positive('workloads', workloads ?? (quick ? '200' : '20000')),
      services: positive('services', services ?? (quick ? '130' : '13000')),
      days: positive('days', days ?? '28'),
    }),
  );
  console.log(`${describeMachine()}; ${JSON.stringify(size)}`);
  await measure(size);
}
