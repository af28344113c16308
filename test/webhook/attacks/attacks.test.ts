import { createHash, randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import http from 'node:http';
import { type AddressInfo, connect as connectTcp, type Socket } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { containerRuntime } from '../../../bench/containerfile.ts';
import { sharedCertificates } from '../../cli/certificates.ts';
import { emptyDirectory, ROOT, replaceFile, type Serving, serving, until } from '../../cli/linger.ts';
import { holdOf } from '../../hold/arena.ts';
import { AdsServer } from '../../measurement/ads-server.ts';
import { field, push, repeated } from '../../measurement/pushes.ts';
import { atEndOfFile, connect, requestBytes } from '../connection.ts';
import { listening } from '../listening.ts';
import { bodyOf } from '../reviews.ts';
import { responseOf } from '../webhook.ts';
import {
  EVIL_PODS,
  EVIL_SERVICES,
  ending,
  evilSlices,
  freePort,
  HostileCluster,
  type Made,
  made,
  range,
  service,
  slice,
  TERMINATING,
  WEB,
  webSlices,
} from './hostile-cluster.ts';
import type { Turns } from './turns.ts';

// A whole replica as it is installed, and each attack of a tenant on it: no review may wait for the event loop for longer than
// this, and the memory stays within the limit of the manifest.

const LOOP_MS = 250;
const AT_ONCE_SECONDS = Number(process.env.ATTACK_SECONDS ?? '10');
/** With `ATTACK_SECONDS=120`, audits go on beside all else. */
const AUDIT_EVERY = AT_ONCE_SECONDS < 60 ? '1h' : '5s';
/** As many as a cluster that changes from one revision of a mesh to the next follows, and as many of another mesh. */
const ISTIODS = 4;
const [, LIMIT] = /limits: \{memory: (\d+)Mi\}/.exec(
  readFileSync(join(ROOT, 'deploy/deployment.yaml'), 'utf8'),
) ?? ['', ''];
/** What Node takes for its heap under that limit. */
const HEAP_MB = Number(LIMIT) / 2;

const certs = sharedCertificates();
const atEnd = atEndOfFile();

const fields = (count: number, entry: (index: number) => string) => range(count).map(entry).join();
const plan = (text: string) => `"annotations":{"linger.dev/plan":${JSON.stringify(text)}}`;

const LARGE = fields(13_000, (label) => `"${`${label}`.padEnd(30, 'k')}":"${'x'.repeat(63)}"`);
/** V8 hashes nine digits by the low 24 bits of their value. */
const COLLIDING = fields(20_000, (index) => `"key-${index}":"${2e8 + index * 2 ** 15}"`);
const LONG = 'x'.repeat(200);

/** What one tenant has created before the replica starts; Pending pods suffice. */
const pods: readonly Made[] = [
  ...range(20).map((i) => () => made('evil', `labels-${i}`, `"labels":{"n":"${i}",${LARGE}}`)),
  ...range(50).map((i) => () => made('evil', `plan-${i}`, plan(`${i} ${'x'.repeat(250_000)}`))),
  // As large as each may be, and all of them terminate.
  ...range(6_500).map(
    (i) => () => made('evil', `many-${i}`, `${plan(`${i} ${'x'.repeat(8_000)}`)},${TERMINATING}`),
  ),
];
/** Every Service of the tenant lists the same hundred pods; further slices list 160,000 pods that there are not. */
const slices: readonly Made[] = [
  ...evilSlices,
  ...range(160).map((i) => () => {
    const names = range(1_000).map((each) => `${i}-${each}-${LONG}`);
    return slice('evil', `long-${i}`, 'long', names);
  }),
];

/** Each turn takes the pods of one slice. */
const LATE_TURNS = 200;
const lateNames = (turn: number) => range(20).map((i) => `late-${turn}-${i}`);
const lateSlice = (turn: number, ready: boolean) => () =>
  slice('late', `late-${turn}`, 'late', lateNames(turn), ready);
const latePods: readonly Made[] = range(LATE_TURNS)
  .flatMap(lateNames)
  .map((name) => () => made('late', name, '"labels":{"app":"late"}'));

const policiesOf = (namespace: string, count: number, turn = 0): readonly Made[] =>
  range(count).map((i) => () => {
    const wait = { from: 'Fixed', fixed: `${9 + (turn % 50)}s` };
    const spec = { mode: 'Off', hook: 'Exec', wait, grace: { max: '90s' } };
    return made(namespace, `p${i}`, '"generation":1', `"spec":${JSON.stringify(spec)}`);
  });

/** @param container further members of its container, as JSON */
function deployment(namespace: string, name: string, container = '', replicas = 2): string {
  const labels = `"labels":{"app":"envoy","of":"${name}"}`;
  const pod = `{"metadata":{${labels}},"spec":{"containers":[{"name":"app","image":"envoy","ports":[{"containerPort":80}]${container}}]}}`;
  const selector = `"selector":{"matchLabels":{"app":"envoy","of":"${name}"}}`;
  return made(namespace, name, '', `"spec":{"replicas":${replicas},${selector},"template":${pod}}`);
}

/** A script that runs itself with its arguments, which are that script. */
const ITSELF = ['sh', '-c', ...Array<string>(8).fill('sh -c "$0" $1 $2 $3 $4 $5 $6 $7;'.repeat(4))];
const hooked = `,"lifecycle":{"preStop":{"exec":{"command":${JSON.stringify(ITSELF)}}}}`;

/** What audits read: gateway-like workloads with hostile hooks, 180 MB of Ingresses that name thousands of Services, budgets. */
const evilDeployments: readonly Made[] = range(1_000).map(
  (i) => () => deployment('evil', `envoy-${i}`, i % 50 === 0 ? hooked : '', i % 2),
);
const evilIngresses: readonly Made[] = range(600).map((i) => () => {
  const paths = range(20).map(
    (path) => `{"path":"/${'x'.repeat(15_000)}","backend":{"service":{"name":"evil-${i}-${path}"}}}`,
  );
  const rules = `"rules":[{"http":{"paths":[${paths.join()}]}}]`;
  return made('evil', `ingress-${i}`, '', `"spec":{"ingressClassName":"edge",${rules}}`);
});
const evilBudgets: readonly Made[] = range(3_000).map(
  (i) => () =>
    made('evil', `budget-${i}`, '', '"spec":{"maxUnavailable":0,"selector":{"matchLabels":{"app":"envoy"}}}'),
);

/** What an inspected gateway, or its impostor, can answer. */
const PAGES: Readonly<Record<string, string>> = {
  Envoy: `${'::['.repeat(60_000)}\n`,
  HAProxy: `# ${range(32_000).map(String).join()}\n${','.repeat(32_000)}\n`.repeat(10),
  Text: '1::'.repeat(60_000),
};

const GIANT_PUSH = push(field(1, repeated(field(9), 1_500_000)));

let server: Serving;
let cluster: HostileCluster;
let holdPort = 0;
let istiods: readonly AdsServer[];
/** How often a registry, which never succeeds, has been asked to take a pod out. */
let registryRequests = 0;
let policies = '';
const asked = new Map<string, number>();
/** Reviews, one after the other, until the file ends. */
const reviews = { answered: 0, failed: 0, over: false };
let reviewing: Promise<void> = Promise.resolve();

const POLICY = 'apiVersion: linger.dev/v1alpha1\nkind: ClusterTerminationPolicy\nmetadata: {name: base}\n';
const FIXED = `${POLICY}spec: {wait: {from: Fixed, fixed: 11s}}\n`;

/** What the replica says of itself since it was asked the last time. */
async function turns(): Promise<Turns> {
  const said = () => server.logs().filter(({ msg }) => msg === 'turns') as unknown as Turns[];
  const before = said().length;
  process.kill(server.pid, 'SIGWINCH');
  return until(async () => said()[before]);
}

/** Holds the replica to its promises while and after this happens. */
async function attacked(what: string, attack: () => Promise<void>): Promise<void> {
  await turns();
  const before = { ...reviews };
  await attack();
  await until(async () => reviews.answered > before.answered + 20);
  const { longest, mostResidentMiB } = await turns();
  console.log(
    `${what}: the longest turn ${Math.round(longest)} ms, at most ${Math.round(mostResidentMiB)} MiB resident, ` +
      `${reviews.answered - before.answered} reviews`,
  );
  expect(longest).toBeLessThan(LOOP_MS);
  expect(mostResidentMiB).toBeLessThan(Number(LIMIT));
  expect(reviews.failed).toBe(before.failed);
  expect(await slowAnswers()).toBe(0);
}

/**
 * The answers that have come later than the API server would wait, from their requests' last byte to their own. By the
 * replica's clock: how long a busy machine takes to make requests, and to read answers, is left out. What a request waits for
 * before it is read is bounded by the longest turn.
 */
async function slowAnswers(): Promise<number> {
  const { text } = await server.get('/metrics');
  const [in2s, all] = ['_bucket{le="2"}', '_count'].map((end) => {
    const line = text.split('\n').find((each) => each.startsWith(`linger_admission_duration_seconds${end} `));
    return Number(line?.split(' ').at(-1));
  });
  expect(all).toBeGreaterThan(0);
  return (all ?? Number.NaN) - (in2s ?? Number.NaN);
}

async function review(): Promise<void> {
  const connection = await connect(server, atEnd);
  while (!reviews.over) {
    connection.write(requestBytes(bodyOf()));
    const { auditAnnotations } = responseOf(await connection.answer());
    reviews[auditAnnotations?.reason === 'Injected' ? 'answered' : 'failed'] += 1;
    await sleep(5);
  }
  connection.destroy();
}

beforeAll(async () => {
  cluster = await HostileCluster.start(atEnd);
  const page = http.createServer((request, response) => {
    const format = request.url?.slice(1) ?? '';
    asked.set(format, (asked.get(format) ?? 0) + 1);
    response.end(PAGES[format]);
  });
  await listening(page, atEnd);
  const { port } = page.address() as AddressInfo;
  const registry = http.createServer((_, response) => {
    registryRequests += 1;
    response.writeHead(503).end();
  });
  const registryPort = await listening(registry, atEnd);
  istiods = await Promise.all(range(ISTIODS).map(() => AdsServer.start(atEnd)));
  cluster.list('pods', [
    ...pods,
    ...WEB.map((name) => () => made('shop', name, '"labels":{"app":"web"}')),
    ...latePods,
  ]);
  cluster.list('services', [
    () => service('shop', 'web'),
    () => service('late', 'late'),
    ...EVIL_SERVICES.map((name) => () => service('evil', name)),
  ]);
  cluster.list(
    'namespaces',
    ['shop', 'evil', 'late'].map((name) => () => made('', name)),
  );
  cluster.list('endpointslices', [
    ...slices,
    ...webSlices(true),
    ...range(LATE_TURNS).map((turn) => lateSlice(turn, true)),
  ]);
  cluster.list('clusterterminationpolicies', [
    () => made('', 'strict', '"generation":1', '"spec":{"overrides":{"namespaces":false}}'),
  ]);
  cluster.list('terminationpolicies', [...policiesOf('evil', 5_000), ...policiesOf('shop', 3)]);
  cluster.list('deployments', [...evilDeployments, () => deployment('shop', 'web')]);
  cluster.list('ingresses', evilIngresses);
  cluster.list('ingressclasses', [
    () => made('', 'edge', '', '"spec":{"controller":"projectcontour.io/ingress-controller"}'),
  ]);
  cluster.list('poddisruptionbudgets', evilBudgets);
  const consumer = (name: string, spec: object) => () => made('', name, '', `"spec":${JSON.stringify(spec)}`);
  cluster.list('discoveryconsumers', [
    ...Object.keys(PAGES).map((format) => {
      const inspect = { url: `http://127.0.0.1:${port}/${format}`, syncInterval: '1s', format };
      return consumer(`edge-${format.toLowerCase()}`, {
        appliesTo: { namespaceSelector: {} },
        measure: { inspect },
      });
    }),
    ...istiods.map((istiod, index) =>
      consumer(`mesh-${index}`, {
        appliesTo: { serviceSelector: { matchLabels: { mesh: 'yes' } } },
        measure: { xds: { address: `127.0.0.1:${istiod.port}` } },
      }),
    ),
    consumer('registry', {
      appliesTo: { namespaceSelector: {}, podSelector: { matchLabels: { app: 'registered' } } },
      measure: { declared: { syncInterval: '1s' } },
      deregister: { http: { method: 'DELETE', url: `http://127.0.0.1:${registryPort}/{address}` } },
    }),
  ]);
  const directory = await emptyDirectory(atEnd);
  policies = join(directory, 'policies');
  await mkdir(policies);
  await replaceFile(join(policies, 'base.yaml'), FIXED);
  await writeFile(join(directory, 'config'), cluster.kubeconfig);
  const { nodeFlags, environment } = containerRuntime(ROOT);
  const NODE_OPTIONS = `${environment.NODE_OPTIONS} --max-old-space-size=${HEAP_MB}`;
  holdPort = await freePort();
  server = await serving(
    certs(),
    [
      ...['--kubeconfig', join(directory, 'config'), '--policies', policies],
      ...['--namespace', 'linger', '--identity', 'replica', '--hold-port', String(holdPort)],
      ...['--canary-port', String(await freePort()), '--canary-every', '0', '--audit-every', AUDIT_EVERY],
      ...['--connection-close-probability', '0', '--probe-allow-link-local'],
    ],
    {
      atEnd,
      env: { ...environment, NODE_OPTIONS, NODE_COMPILE_CACHE: '' },
      nodeFlags: [...nodeFlags, '--import', join(import.meta.dirname, 'turns.ts')],
    },
  );
  reviewing = review();
}, 60_000);
afterAll(async () => {
  reviews.over = true;
  await reviewing;
});

const isCurrent = async (resource: string) =>
  (await server.count(`linger_watch_current{resource="${resource}"}`)) === 1;

describe('a replica answers every review in time, within its memory', { timeout: 900_000 }, () => {
  it('when it starts beside large labels and plans, and endpoints without end', async () => {
    await attacked('start', async () => {
      for (const resource of ['services', 'pods', 'endpointslices'])
        while (!(await isCurrent(resource))) await sleep(1_000);
    });
    expect(await server.count('linger_watch_unread_objects{resource="pods"}')).toBeGreaterThan(70);
    expect(await server.count('linger_watch_unread_objects{resource="endpoints"}')).toBeGreaterThan(50);
    await until(async () => server.logs().some(({ msg }) => String(msg).includes('leading')));
  });

  it('when watches bring labels whose hashes collide', async () => {
    const collide = range(8).map((i) => () => made('evil', `collide-${i}`, `"labels":{${COLLIDING}}`));
    await attacked('colliding labels', () => cluster.send('pods', 'ADDED', collide));
  });

  it('when a tenant opens 60,000 removals', async () => {
    await attacked('60,000 removals', async () => {
      await cluster.send('pods', 'MODIFIED', ending('evil', EVIL_PODS, 'x'));
      await until(
        async () => (await server.count('linger_removals_discarded_total{reason="TooMany"}')) === 35_000,
      );
    });
  });

  it('when 5,000 pods of one Service end at once, before gateways with hostile pages', async () => {
    await attacked('5,000 pods, hostile pages', async () => {
      await cluster.send('pods', 'MODIFIED', ending('shop', WEB, 'web'));
      await cluster.send('endpointslices', 'MODIFIED', webSlices(false));
      await until(async () => Object.keys(PAGES).every((format) => (asked.get(format) ?? 0) > 1));
      await sleep(3_000);
    });
    // The tenant's removals cost this namespace none of its own.
    expect(await server.count('linger_removals_discarded_total{reason="TooMany"}')).toBe(35_000);
  });

  it('when held pods forge their plans and tell what they like', async () => {
    const tokens = range(100).map(() => randomBytes(16).toString('base64url'));
    const callers = (count: number) =>
      range(count).map(() => connectTcp(holdPort, '127.0.0.1').on('error', () => undefined));
    const held = (more: string) =>
      tokens.map((token, index) => () => {
        const { plan: text } = holdOf(token, 1, {
          min: 0,
          max: 60,
          percentile: 99,
          initial: 0,
          probes: 1_000,
        });
        const hash = createHash('sha256').update(token).digest('hex');
        const annotations = { 'linger.dev/plan': text, 'linger.dev/hold-token': hash };
        return made('evil', `held-${index}`, `"annotations":${JSON.stringify(annotations)}${more}`);
      });
    let calls: readonly Socket[] = [];
    await attacked('forged plans', async () => {
      await cluster.send('pods', 'ADDED', held(''));
      calls = callers(tokens.length);
      for (const [index, call] of calls.entries()) call.write(`linger-hold/1 ${tokens[index]}\n`);
      await cluster.send('pods', 'MODIFIED', held(`,${TERMINATING}`));
      for (const turn of range(60)) {
        const remotes = range(16).map((each) => `10.${turn}.${each}.7`);
        for (const call of calls) call.write(`w ${turn * 1e6} - 999999 ${remotes.join()} 999999\n`);
        await sleep(100);
      }
    });
    for (const call of calls) call.destroy();
  });

  it('when 2,500 callers of the Hold Service send a byte every now and then', async () => {
    await attacked('greeters', async () => {
      const calls = range(2_500).map(() =>
        connectTcp(holdPort, '127.0.0.1')
          .on('error', () => undefined)
          .resume(),
      );
      // Each has five seconds for its token, whatever it sends.
      const open = () => calls.filter(({ destroyed, readableEnded }) => !destroyed && !readableEnded);
      while (open().length > 0) {
        for (const call of open()) call.write('l');
        await sleep(1_000);
      }
      for (const call of calls) call.destroy();
    });
  });

  it('when an audit reads what a tenant has put around 1,000 gateway-like workloads', async () => {
    await attacked('audit', async () => {
      await until(async () => (await server.count('linger_audit_timestamp_seconds')) > 0, 240);
    });
    expect(server.logs().filter(({ msg }) => String(msg).includes('audit failed'))).toEqual([]);
    const judged = await Promise.all(
      ['protected', 'unprotected', 'skipped', 'unknown'].map((verdict) =>
        server.count(`linger_audited_workloads{verdict="${verdict}"}`),
      ),
    );
    expect(judged.reduce((sum, each) => sum + each, 0)).toBeGreaterThan(1_000);
  });

  it('when 5,000 policies of one namespace may not override', async () => {
    const connection = await connect(server, atEnd);
    await attacked('refused policies', async () => {
      for (const _ of range(50)) {
        connection.write(requestBytes(bodyOf(undefined, { namespace: 'evil' })));
        expect(responseOf(await connection.answer()).allowed).toBe(true);
      }
    });
    connection.destroy();
  });

  /** One endpoint, of unknown fields; the next one when it has been read. */
  async function giantPush(istiod: AdsServer): Promise<void> {
    await until(async () => istiod.streams > 0);
    const before = istiod.requests.length;
    istiod.send(GIANT_PUSH);
    await until(async () => istiod.requests.length > before);
  }

  /** Pods that their Service selects, listed for a second after they have begun to terminate. */
  async function lateRemovals(turn: number): Promise<void> {
    const names = lateNames(turn % LATE_TURNS);
    await cluster.send('pods', 'MODIFIED', ending('late', names, 'late'));
    await sleep(1_000);
    await cluster.send('endpointslices', 'MODIFIED', [lateSlice(turn % LATE_TURNS, false)]);
    await cluster.send('pods', 'DELETED', ending('late', names, 'late'));
  }

  /** A registered pod is gone before its registry has taken it out, and another pod has its address. */
  async function reusedAddress(turn: number): Promise<void> {
    const podIP = `10.9.${(turn >> 8) & 255}.${turn & 255}`;
    const path = (namespace: string, name: string) => `/api/v1/namespaces/${namespace}/pods/${name}`;
    const pod = (namespace: string, name: string) =>
      cluster.store(path(namespace, name), {
        metadata: { namespace, name, uid: `uid-${name}`, labels: { app: 'registered' } },
        spec: { containers: [{ name: 'app' }] },
        status: { phase: 'Running', podIP },
      });
    const name = `leaving-${turn}`;
    pod('late', name);
    const before = registryRequests;
    await cluster.send('pods', 'MODIFIED', ending('late', [name], 'registered'));
    await until(async () => registryRequests > before);
    cluster.forget(path('late', name));
    pod('shop', `coming-${turn}`);
    await cluster.send('pods', 'DELETED', ending('late', [name], 'registered'));
  }

  it(`when all of this comes at once, for ${AT_ONCE_SECONDS} s`, async () => {
    const callers: Socket[] = [];
    const reused = 'linger_consumer_deregistrations_total{consumer="registry",result="AddressReused"}';
    // A watch that a busy machine makes late costs a sample, and is counted as that.
    const late = async () =>
      (await server.count('linger_removal_lag_seconds_count{stage="EndpointSlice"}')) +
      (await server.count('linger_removals_discarded_total{reason="Late"}'));
    const removedBefore = await late();
    const audited = () => server.count('linger_audit_timestamp_seconds');
    const auditedBefore = await audited();
    const asking = await Promise.all(range(4).map(() => connect(server, atEnd)));
    await attacked('all at once', async () => {
      const end = performance.now() + AT_ONCE_SECONDS * 1_000;
      const goesOn = () => performance.now() < end;
      const rounds = async (round: (turn: number) => Promise<void>) => {
        for (let turn = 0; goesOn(); turn += 1) {
          await round(turn);
          await sleep(50);
        }
      };
      const object = JSON.parse(deployment('evil', 'envoy', hooked)) as {
        spec: { template: { metadata: object; spec: object } };
      };
      const { metadata, spec } = object.spec.template;
      const hostile = requestBytes(
        bodyOf({ metadata: { name: 'a', ...metadata }, spec }, { namespace: 'evil' }),
      );
      await Promise.all([
        ...asking.map((connection) =>
          rounds(async () => {
            connection.write(hostile);
            expect(responseOf(await connection.answer()).allowed).toBe(true);
          }),
        ),
        rounds((turn) =>
          cluster.send(
            'pods',
            'ADDED',
            range(4).map((i) => () => made('evil', `at-once-${turn}-${i}`, `"labels":{${COLLIDING}}`)),
          ),
        ),
        ...istiods.map((istiod) => rounds(() => giantPush(istiod))),
        rounds(lateRemovals),
        rounds(reusedAddress),
        rounds(async () => {
          while (callers.length > 400) callers.shift()?.destroy();
          callers.push(
            ...range(20).map(() => connectTcp(holdPort, '127.0.0.1').on('error', () => undefined)),
          );
          for (const call of callers) call.resume().write('l');
        }),
        rounds((turn) => cluster.send('terminationpolicies', 'MODIFIED', policiesOf('evil', 200, turn))),
        rounds(() => cluster.send('endpointslices', 'MODIFIED', evilSlices.slice(0, 50))),
      ]);
    });
    for (const connection of asking) connection.destroy();
    for (const call of callers) call.destroy();
    for (const istiod of istiods) expect(istiod.requests.length).toBeGreaterThan(2);
    await until(async () => (await server.count(reused)) > 0);
    await until(async () => (await late()) > removedBefore, 150);
    // By the replica's own processor time: how little of it a busy machine gives a replica is left out.
    const spent = () => server.count('process_cpu_seconds_total');
    const spentBefore = await spent();
    while (AUDIT_EVERY !== '1h' && (await audited()) === auditedBefore) {
      expect(await spent()).toBeLessThan(spentBefore + 60);
      await sleep(1_000);
    }
    expect(server.logs().filter(({ msg }) => String(msg).includes('audit failed'))).toEqual([]);
    // The lease has been kept throughout.
    expect(server.logs().filter(({ msg }) => String(msg).includes('lease acquired, leading'))).toHaveLength(
      1,
    );
  });

  it('when a policy file beside a good one unfolds without end', async () => {
    await attacked('hostile policy files', async () => {
      await writeFile(join(policies, 'deep.yaml'), '- '.repeat(100_000));
      const levels = range(9).map((i) => `a${i + 1}: &a${i + 1} [${fields(9, () => `*a${i}`)}]`);
      await writeFile(join(policies, 'bomb.yaml'), `a0: &a0 [x, x]\n${levels.join('\n')}\n`);
      await until(async () => (await server.count('linger_policy_problems')) >= 2, 120);
    });
    expect(await server.count('linger_policy_documents{kind="ClusterTerminationPolicy"}')).toBe(1);
  });
});
