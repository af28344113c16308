import { writeFile } from 'node:fs/promises';
import http from 'node:http';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Registry } from '@prometheus-io/client';
import { beforeAll, describe, expect, it } from 'vitest';
import type { ObjectEvent, ObjectEvents } from '../../src/cluster/index.ts';
import {
  type DeregisterSpec,
  type DiscoveryConsumerSpec,
  discoveryConsumerSpec,
  type NamespaceRecord,
  namespaceRecord,
} from '../../src/core/api/index.ts';
import { type ClusterSnapshot, NO_SOURCES, snapshotOf } from '../../src/core/decision/index.ts';
import { consumerOf } from '../../src/core/lag/index.ts';
import type { Leadership, PodEvent } from '../../src/manager/index.ts';
import { Deregistrations } from '../../src/measurement/deregister/deregister.ts';
import { createLogger } from '../../src/telemetry/index.ts';
import { emptyDirectory } from '../cli/linger.ts';
import { atEndOfFile } from '../webhook/connection.ts';
import { listening } from '../webhook/listening.ts';

// Nearly all of what these tests take is waiting: they wait side by side.
const atEnd = atEndOfFile();

// Which the first call would wait for: it takes a busy machine some seconds.
beforeAll(async () => void (await import('../../src/cluster/client-node.ts')), 60_000);

type Answer = (request: http.IncomingMessage, response: http.ServerResponse) => void;

interface Asked {
  readonly method: string;
  readonly url: string;
  readonly headers: http.IncomingHttpHeaders;
  readonly body: string;
}

const ok: Answer = (_, response) => void response.end('ok');
const status =
  (code: number, headers: Record<string, string> = {}): Answer =>
  (_, response) =>
    void response.writeHead(code, headers).end();

/** A registry that answers in turn, the last answer for good. */
async function registryThat(...answers: readonly Answer[]) {
  const asked: Asked[] = [];
  const server = http.createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request as AsyncIterable<Buffer>) chunks.push(chunk);
    const { method = '', url = '', headers } = request;
    const answer = answers[Math.min(asked.length, answers.length - 1)];
    asked.push({ method, url, headers, body: Buffer.concat(chunks).toString() });
    answer?.(request, response);
  });
  return { asked, port: await listening(server, atEnd) };
}

const PUT = (port: number): DeregisterSpec => ({
  http: { method: 'PUT', url: `http://127.0.0.1:${port}/v1/{namespace}/{pod}?at={address}:{port}` },
});

interface Setting {
  readonly deregister: DeregisterSpec;
  readonly allowLinkLocal?: boolean;
  readonly files?: string;
  readonly appliesTo?: DiscoveryConsumerSpec['appliesTo'];
  /** What the API server says of every pod. */
  readonly podStatus?: object | number;
  /** Those that it lists by an address. */
  readonly owners?: readonly object[];
}

/** A replica that leads, and the API server that it asks for pods. */
async function replica({
  deregister,
  allowLinkLocal = true,
  files,
  appliesTo,
  podStatus = {},
  owners = [],
}: Setting) {
  const api = http.createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? '', 'http://api');
    if (pathname === '/api/v1/pods') {
      const asked = searchParams.get('fieldSelector') === 'status.podIP=10.1.2.3';
      response.writeHead(200, { 'content-type': 'application/json' });
      return void response.end(JSON.stringify({ items: asked ? owners : [] }));
    }
    const [, namespace, name] = /namespaces\/(.+)\/pods\/(.+)$/.exec(request.url ?? '') ?? [];
    const refused = typeof podStatus === 'number' ? podStatus : undefined;
    const pod = {
      metadata: { namespace, name, uid: name, labels: { app: 'orders' } },
      spec: { containers: [{ name: 'app', ports: [{ containerPort: 8080 }] }] },
      status: { phase: 'Running', podIP: '10.1.2.3', ...(podStatus as object) },
    };
    response.writeHead(refused ?? 200, { 'content-type': 'application/json' });
    response.end(JSON.stringify(refused === undefined ? pod : { kind: 'Status', code: refused }));
  });
  const ended = new AbortController();
  atEnd(() => ended.abort());
  const lines: string[] = [];
  const events: ObjectEvent[] = [];
  const troubles: (string | undefined)[] = [];
  const registry = new Registry();
  const spec = discoveryConsumerSpec.parse({
    appliesTo: appliesTo ?? { namespaceSelector: {}, podSelector: { matchLabels: { app: 'orders' } } },
    measure: { declared: { syncInterval: '10s' } },
    deregister,
  });
  let snapshot: ClusterSnapshot = { ...snapshotOf(NO_SOURCES), consumers: [consumerOf('edge', spec)] };
  const see = (...namespaces: readonly NamespaceRecord[]) => {
    snapshot = { ...snapshot, namespaces: new Map(namespaces.map((each) => [each.name, each])) };
  };
  const deregistrations = new Deregistrations({
    connection: {
      server: new URL(`http://127.0.0.1:${await listening(api, atEnd)}`),
      credentials: async () => ({}),
    },
    snapshot: { current: () => snapshot },
    measurement: { deregistering: (_, why) => troubles.push(why) },
    events: { tell: (event: ObjectEvent) => void events.push(event) } as ObjectEvents,
    registry,
    allowLinkLocal,
    files,
    random: () => 0,
    onConnect: () => undefined,
    logger: createLogger('info', { write: (line: string) => void lines.push(line) }),
    clock: () => performance.now(),
    signal: ended.signal,
  });
  const settled: string[] = [];
  deregistrations.onSettled((uid) => settled.push(uid));
  const { runnable } = deregistrations;
  const lead = (holds = () => true) => {
    const term = new AbortController();
    atEnd(() => term.abort());
    runnable.lead?.({
      signal: term.signal,
      holds: () => holds() && !term.signal.aborted,
    } satisfies Leadership);
    return term;
  };
  const object = (
    name: string,
    namespace: string,
    labels: object,
    deletionTimestamp: string | undefined,
  ) => ({
    uid: name,
    name,
    namespace,
    labels,
    deletionTimestamp,
    deletionGracePeriodSeconds: 90,
  });
  const event = (type: 'modified' | 'deleted', pod: ReturnType<typeof object>) =>
    runnable.onPod?.({
      type,
      identity: pod,
      at: 0,
      listed: false,
      relist: false,
      object: pod,
    } as unknown as PodEvent);
  const remove = (name: string, namespace = 'shop', labels: object = { app: 'orders' }) =>
    event('modified', object(name, namespace, labels, '2026-11-22T10:00:30Z'));
  const results = async () => {
    const metrics = await registry.getMetricsAsJSON();
    const counted =
      metrics.find(({ name }) => name === 'linger_consumer_deregistrations_total')?.values ?? [];
    return Object.fromEntries(
      (counted as { labels: { result?: string }; value: number }[]).map(({ labels, value }) => [
        labels.result,
        value,
      ]),
    );
  };
  const outAt = (name: string) =>
    deregistrations.outAt('edge', { uid: name, name, namespace: 'shop', labels: { app: 'orders' } }, 90);
  return {
    deregistrations,
    lead,
    remove,
    event,
    object,
    settled,
    results,
    outAt,
    lines,
    events,
    troubles,
    see,
  };
}

async function until(what: string, holds: () => boolean, ms = 15_000): Promise<void> {
  for (const end = performance.now() + ms; !holds(); await sleep(5))
    if (performance.now() > end) throw new Error(`waited in vain for ${what}`);
}

it.concurrent('takes a pod out when it begins to terminate, once, filling in what is the pod’s', async () => {
  const { asked, port } = await registryThat(ok);
  const { http: put } = PUT(port);
  const headers = [{ name: 'X-Instance', value: '{label:app}/{port}' }];
  const body = '{"ip": "{address}", "port": {port}}';
  const { lead, remove, event, object, settled, results, outAt } = await replica({
    deregister: { http: { ...put, url: put?.url ?? '', method: 'PUT', headers, body } },
  });
  lead();
  event('modified', object('running', 'shop', { app: 'orders' }, undefined));
  remove('other', 'shop', { app: 'else' });
  remove('web-1');
  remove('web-1');
  expect(outAt('web-1')).toBeUndefined();
  await until('the pod to be out', () => settled.length > 0);
  await sleep(100);
  expect(asked).toHaveLength(1);
  expect(asked[0]).toMatchObject({
    method: 'PUT',
    url: '/v1/shop/web-1?at=10.1.2.3:8080',
    body: '{"ip": "10.1.2.3", "port": 8080}',
    headers: { 'x-instance': 'orders/8080', 'content-type': 'application/json', host: `127.0.0.1:${port}` },
  });
  expect(outAt('web-1')).toBeGreaterThan(0);
  expect(await results()).toEqual({ Done: 1 });
});

it.concurrent.each<[string, string, number | undefined, number | object, string[], string]>([
  ['whose name is enough', '/{namespace}/{pod}:{port}', 80, 404, ['PUT /shop/web-1:80'], 'Done'],
  ['but not without its address', '/{pod}/{address}', 80, 404, [], 'NoAddress'],
  ['nor without its port', '/{pod}:{port}', undefined, 404, [], 'NoAddress'],
  ['unless a new pod has its name', '/{pod}', 80, {}, [], 'NoAddress'],
])(
  'takes out a pod that is deleted without a grace, %s',
  async (_, path, containerPort, podStatus, requests, how) => {
    const { asked, port } = await registryThat(ok);
    const deregister: DeregisterSpec = {
      http: { method: 'PUT', url: `http://127.0.0.1:${port}${path}` },
      ...(containerPort && { port: containerPort }),
    };
    const { lead, event, object, settled, results } = await replica({ deregister, podStatus });
    lead();
    event('deleted', { ...object('web-1', 'shop', { app: 'orders' }, undefined), uid: 'of-the-old-one' });
    event('deleted', object('other', 'shop', { app: 'else' }, undefined));
    await until('it to be settled', () => settled.length > 0);
    await sleep(100);
    expect(asked.map(({ method, url }) => `${method} ${url}`)).toEqual(requests);
    expect([settled, await results()]).toEqual([['of-the-old-one'], { [how]: 1 }]);
  },
);

it.concurrent('a pod without a Service that is deleted without a grace concerns no registry', async () => {
  const { asked, port } = await registryThat(ok);
  const appliesTo = { serviceSelector: { matchLabels: { registry: 'eureka' } } };
  const http = { method: 'PUT', url: `http://127.0.0.1:${port}/{namespace}/{pod}` } as const;
  const { lead, event, object, settled } = await replica({ deregister: { http }, appliesTo, podStatus: 404 });
  lead();
  event('deleted', object('job-1', 'shop', {}, undefined));
  await sleep(200);
  expect([asked, settled]).toEqual([[], []]);
});

it.concurrent('sets OUT_OF_SERVICE in Eureka', async () => {
  const { asked, port } = await registryThat(ok);
  const eureka = { url: `http://127.0.0.1:${port}/eureka/`, app: 'ORDERS', instance: '{pod}:orders:{port}' };
  const { lead, remove, settled } = await replica({ deregister: { eureka, port: 80 } });
  lead();
  remove('web-1');
  await until('the pod to be out', () => settled.length > 0);
  const path = '/eureka/apps/ORDERS/web-1:orders:80/status?value=OUT_OF_SERVICE';
  expect(asked.map(({ method, url }) => `${method} ${url}`)).toEqual([`PUT ${path}`]);
  expect(asked[0]?.headers['content-length']).toBe('0');
});

it.concurrent('retries with growing pauses; its trouble is a condition and an Event until it is over', async () => {
  const failing = status(500);
  const { asked, port } = await registryThat(failing, failing, failing, ok);
  const { lead, remove, settled, events, troubles, lines, results } = await replica({
    deregister: PUT(port),
  });
  lead();
  remove('web-1');
  await until('the third attempt', () => asked.length === 3);
  await until('trouble', () => troubles.length > 0);
  await until('the pod to be out', () => settled.length > 0);
  expect(troubles).toEqual(['The request is answered with status 500.', undefined]);
  expect(events).toMatchObject([
    { reason: 'NotDeregistered', type: 'Warning', object: { kind: 'Pod', namespace: 'shop', name: 'web-1' } },
  ]);
  expect(lines.map((line) => (JSON.parse(line) as { msg: string }).msg)).toEqual([
    'deregistering a terminating pod failed; retrying',
    'deregistering pods recovered',
  ]);
  expect(await results()).toEqual({ Done: 1 });
});

describe('a pod that is gone before its registry answers', () => {
  const owner = (more: { metadata?: object; spec?: object; status?: object }) => ({
    metadata: { namespace: 'pay', name: 'db-0', uid: 'db-0', labels: { app: 'db' }, ...more.metadata },
    spec: { containers: [], ...more.spec },
    status: { phase: 'Running', ...more.status },
  });

  async function ending(owners: readonly object[], path = '') {
    const { asked, port } = await registryThat(status(500), ok);
    const http = { method: 'PUT', url: `http://127.0.0.1:${port}${path}` } as const;
    const deregister = path === '' ? PUT(port) : { http };
    const all = await replica({ deregister, owners });
    all.lead();
    all.remove('web-1');
    await until('the first attempt', () => asked.length === 1);
    all.event('deleted', all.object('web-1', 'shop', { app: 'orders' }, '2026-11-22T10:00:30Z'));
    await until('the pod to be settled', () => all.settled.length > 0);
    return { ...all, asked };
  }

  it.concurrent.each<[string, object, string?]>([
    ['nobody has its address', { metadata: { uid: 'web-1' } }],
    ['the one that had it has ended, too', { status: { phase: 'Succeeded' } }],
    ['all pods of its node have it, and none is of this registry', { spec: { hostNetwork: true } }],
    ['its address is not what it is known by', {}, '/{namespace}/{pod}'],
  ])('is still taken out where %s', async (_, more, path) => {
    const { asked, results } = await ending([owner(more)], path);
    expect(asked).toHaveLength(2);
    expect(await results()).toEqual({ Done: 1 });
  });

  it.concurrent.each([
    ['another pod', {}],
    [
      'another of this registry on the same node',
      { spec: { hostNetwork: true }, metadata: { labels: { app: 'orders' } } },
    ],
  ])('is not asked for again once %s has its address, and that is said', async (_, more) => {
    const { asked, results, events, lines } = await ending([
      owner({ metadata: { uid: 'web-1' } }),
      owner(more),
    ]);
    await sleep(1_000);
    expect(asked).toHaveLength(1);
    expect(await results()).toEqual({ AddressReused: 1 });
    expect(events).toMatchObject([
      { reason: 'NotDeregistered', object: { name: 'web-1' }, note: expect.stringContaining('pay/db-0') },
    ]);
    expect(lines.map((line) => JSON.parse(line) as object)).toMatchObject([
      { level: 'warn', pod: 'web-1', other: 'pay/db-0' },
    ]);
  });
});

it.concurrent('a registry that knows none of the pods is not asked again, and is told as trouble', async () => {
  const { asked, port } = await registryThat(status(404));
  const { lead, remove, settled, troubles, outAt } = await replica({ deregister: PUT(port) });
  lead();
  for (const name of ['web-1', 'web-2', 'web-3']) remove(name);
  await until('all to be settled', () => settled.length === 3);
  expect(asked).toHaveLength(3);
  expect(troubles).toEqual([expect.stringContaining('404')]);
  // There is nothing that Hold could wait for.
  expect(outAt('web-1')).toBeGreaterThan(0);
});

it.concurrent('sends nothing for a pod whose Namespace has not been seen, until it has', async () => {
  const { asked, port } = await registryThat(ok);
  const namespaceSelector = { matchLabels: { team: 'orders' } };
  const appliesTo = { namespaceSelector, podSelector: { matchLabels: { app: 'orders' } } };
  const { lead, remove, settled, see } = await replica({ deregister: PUT(port), appliesTo });
  lead();
  remove('orders-0', 'staging');
  remove('orders-0', 'shop');
  see(namespaceRecord('staging', { team: 'other' }, {}), namespaceRecord('shop', { team: 'orders' }, {}));
  await sleep(500);
  expect(asked).toEqual([]);
  remove('orders-0', 'staging');
  remove('orders-0', 'shop');
  await until('the pod to be out', () => settled.length > 0);
  await sleep(100);
  expect(asked.map(({ url }) => url)).toEqual(['/v1/shop/orders-0?at=10.1.2.3:8080']);
});

it.concurrent('a registry that does not know pods which may be out already is no trouble', async () => {
  const names = ['web-1', 'web-2', 'web-3'];
  const { port } = await registryThat(status(404));
  const next = await replica({ deregister: PUT(port) });
  // They terminate under another leader, which has taken them out.
  for (const name of names) next.remove(name);
  next.lead();
  await until('all to be settled', () => next.settled.length === 3);
  expect(next.troubles).toEqual([]);

  const known = new Set<string>();
  const busy: Answer = ({ url = '' }, response) => {
    // It does as asked, but cannot say so.
    response.writeHead(known.has(url) ? 404 : 503).end();
    known.add(url);
  };
  const slow = await replica({ deregister: PUT((await registryThat(busy)).port) });
  slow.lead();
  for (const name of names) slow.remove(name);
  await until('all to be settled', () => slow.settled.length === 3);
  expect(await slow.results()).toEqual({ NotRegistered: 3 });
  expect(slow.troubles).toEqual([]);
});

it.concurrent('pods without a Service that were never registered blame no template', async () => {
  const { asked, port } = await registryThat(status(404));
  const appliesTo = { serviceSelector: { matchLabels: { registry: 'eureka' } } };
  const { lead, remove, settled, troubles } = await replica({ deregister: PUT(port), appliesTo });
  lead();
  for (const name of ['worker-1', 'worker-2', 'worker-3']) remove(name);
  await until('all to be settled', () => settled.length === 3);
  expect(asked).toHaveLength(3);
  expect(troubles).toEqual([]);
});

it.concurrent('follows no redirect, and reads nothing of an answer, however long it is', {
  timeout: 30_000,
}, async () => {
  const elsewhere = await registryThat(ok);
  const { port } = await registryThat(
    status(307, { location: `http://127.0.0.1:${elsewhere.port}/stolen` }),
    (_, response) => {
      response.writeHead(200, { 'content-length': String(2 ** 30) });
      const chunk = Buffer.alloc(1 << 20);
      const write = () => {
        while (!response.destroyed && response.write(chunk));
        if (!response.destroyed) response.once('drain', write);
      };
      write();
    },
  );
  const { lead, remove, settled } = await replica({ deregister: PUT(port) });
  const before = process.memoryUsage().arrayBuffers;
  lead();
  remove('web-1');
  await until('the pod to be out', () => settled.length > 0);
  expect(elsewhere.asked).toEqual([]);
  expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(64 << 20);
});

it.concurrent.each([
  'http://169.254.169.254/{pod}/{address}',
  'http://127.0.0.1:1/{pod}/{address}',
  'http://[::ffff:7f00:1]:1/{pod}/{address}',
  'http://[fd00:ec2::254]/{pod}/{address}',
  'http://0.0.0.0:1/{pod}/{address}',
  'http://localhost:1/{pod}/{address}',
])('sends nothing to %s', { timeout: 30_000 }, async (url) => {
  const { lead, remove, troubles, outAt } = await replica({
    deregister: { http: { method: 'PUT', url } },
    allowLinkLocal: false,
  });
  lead();
  remove('web-1');
  await until('trouble', () => troubles.length > 0);
  expect(troubles[0]).toContain('is not sent to loopback, link-local addresses and those of cloud metadata');
  expect(outAt('web-1')).toBeUndefined();
});

it.concurrent('a registry that hangs costs the others of its consumer, and nothing else', {
  timeout: 60_000,
}, async () => {
  const sockets = new Set<Socket | null>();
  const { asked, port } = await registryThat(({ socket }) => void sockets.add(socket));
  const { lead, remove, troubles, results } = await replica({ deregister: PUT(port) });
  lead();
  for (let index = 0; index < 200; index += 1) remove(`flood-${index}`, 'evil');
  remove('web-1');
  // Its namespace has nothing running, so it is the very next.
  await until('the other namespace to have its turn', () => asked.some(({ url }) => url.includes('web-1')));
  expect(asked.length).toBeLessThanOrEqual(16);
  await until('trouble', () => troubles.length > 0, 30_000);
  expect(troubles[0]).toBe('The request gets no answer within 3 s.');
  expect(await results()).toEqual({});
});

it.concurrent('takes 200 pods out that are deleted at once', async () => {
  const { asked, port } = await registryThat(ok);
  const { lead, remove, settled } = await replica({ deregister: PUT(port) });
  lead();
  for (let index = 0; index < 200; index += 1) remove(`web-${index}`);
  await until('all to be out', () => settled.length === 200);
  expect(new Set(asked.map(({ url }) => url)).size).toBe(200);
  expect(asked).toHaveLength(200);
});

it.concurrent('a new leader asks again for what terminates, and the old one no more', async () => {
  const { asked, port } = await registryThat(status(503));
  const old = await replica({ deregister: PUT(port) });
  const next = await replica({ deregister: PUT(port) });
  const term = old.lead();
  old.remove('web-1');
  next.remove('web-1');
  await until('an attempt', () => asked.length >= 2);
  term.abort();
  await sleep(100);
  const before = asked.length;
  await sleep(1_500);
  expect(asked.length).toBe(before);
  next.lead();
  await until('another', () => asked.length > before);
});

it.concurrent('goes on when the pod has gone, and gives up what has no address', async () => {
  const { asked, port } = await registryThat(status(500), ok);
  const { lead, remove, event, object, settled } = await replica({ deregister: PUT(port) });
  lead();
  remove('web-1');
  await until('an attempt', () => asked.length === 1);
  event('deleted', object('web-1', 'shop', { app: 'orders' }, '2026-11-22T10:00:30Z'));
  await until('it to be out', () => settled.length === 1);
  expect(asked).toHaveLength(2);

  const ended = await replica({ deregister: PUT(port), podStatus: { phase: 'Succeeded' } });
  ended.lead();
  ended.remove('done-1');
  await until('it to be settled', () => ended.settled.length === 1);
  expect(asked).toHaveLength(2);
  expect(await ended.results()).toEqual({ NoAddress: 1 });
});

it.concurrent('takes out no later pod of the same name', async () => {
  const { asked, port } = await registryThat(status(500));
  const { lead, remove, event, object } = await replica({ deregister: PUT(port) });
  lead();
  remove('web-0');
  await until('an attempt', () => asked.length === 1);
  event('deleted', object('web-0', 'shop', { app: 'orders' }, '2026-11-22T10:00:30Z'));
  await until('another', () => asked.length === 2);
  event('modified', { ...object('web-0', 'shop', { app: 'orders' }, undefined), uid: 'its-successor' });
  await sleep(2_000);
  expect(asked).toHaveLength(2);
});

it.concurrent('sends nothing while its lease may have expired, and goes on once it holds again', async () => {
  const { asked, port } = await registryThat(ok);
  const { lead, remove, settled } = await replica({ deregister: PUT(port) });
  let holds = false;
  lead(() => holds);
  remove('web-1');
  await sleep(700);
  expect(asked).toEqual([]);
  holds = true;
  await until('the pod to be out', () => settled.length > 0);
});

it.concurrent('says so where a template asks for what the pod does not have, and where the API server is silent', async () => {
  const { asked, port } = await registryThat(ok);
  const url = `http://127.0.0.1:${port}/{address}/{label:missing}`;
  const templated = await replica({ deregister: { http: { method: 'DELETE', url } } });
  templated.lead();
  templated.remove('web-1');
  await until('trouble', () => templated.troubles.length > 0);
  expect(templated.troubles[0]).toBe('The request cannot be made: the pod has no value for {label:missing}.');
  const blind = await replica({ deregister: PUT(port), podStatus: 403 });
  blind.lead();
  blind.remove('web-1');
  await until('trouble', () => blind.troubles.length > 0);
  expect(blind.troubles[0]).toContain("the API server does not say the pod's address");
  expect(asked).toEqual([]);
});

it.concurrent('sends a secret from a file, and keeps it out of logs, conditions and Events', async () => {
  const files = await emptyDirectory(atEnd);
  // Editors and shells of Windows write a byte order mark.
  await writeFile(join(files, 'token'), '\uFEFFBearer s3cr3t\n');
  await writeFile(join(files, 'broken'), 's3cr3t\r\nX-Injected: yes');
  const { asked, port } = await registryThat(status(401), status(401), status(401), ok);
  const named = (valueFile: string) => ({
    http: {
      method: 'PUT' as const,
      url: `http://127.0.0.1:${port}/{address}`,
      headers: [{ name: 'Authorization', valueFile }],
    },
  });
  const sent = await replica({ deregister: named('token'), files });
  sent.lead();
  sent.remove('web-1');
  await until('the pod to be out', () => sent.settled.length > 0);
  expect(asked.map(({ headers }) => headers.authorization)).toEqual(Array(4).fill('Bearer s3cr3t'));
  const broken = await replica({ deregister: named('broken'), files });
  broken.lead();
  broken.remove('web-1');
  await until('trouble', () => broken.troubles.length > 0);
  expect(broken.troubles[0]).toBe('The request needs one line of printable ASCII in the file broken.');
  const missing = await replica({ deregister: named('none') });
  missing.lead();
  missing.remove('web-1');
  await until('trouble', () => missing.troubles.length > 0);
  expect(asked).toHaveLength(4);
  const said = JSON.stringify(
    [sent, broken, missing].map(({ lines, events, troubles }) => [lines, events, troubles]),
  );
  expect(said).not.toContain('s3cr3t');
});
