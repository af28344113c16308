import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { standIn } from '../cluster-suite/support/gateways.ts';
import {
  type Cluster,
  FakeNode,
  type FakePod,
  inParallel,
  openCluster,
  waitUntil,
} from '../testbed/cluster.ts';
import { network } from '../testbed/network.ts';
import { listProcesses } from '../testbed/process.ts';
import { LONG } from './form.ts';
import { type HookEnd, type Hooked, Hooks, hookOf } from './hold/held-pods.ts';
import { consumer, HoldSetting } from './hold/setting.ts';
import { removals, spread } from './hold/terminations.ts';
import { duration, table } from './table.ts';

/*
 * 200 hooks at once, run without a kubelet but with the real helper, while replicas of Linger are lost, and while strangers
 * attack the Hold Service.
 */
const HELD = 200;
const DECLARED_SECONDS = 20;
/** Linger's grid of lags is 1 % wide. */
const LET_GO_MS = 1_010 * DECLARED_SECONDS;
const MAX_SECONDS = 60;
/** Longer than a Lease is valid, and too short for the kubelet to restart the container. */
const STANDSTILL_MS = 24_000;
const PAGE_PORT = 18_555;

let cluster: Cluster;
let setting: HoldSetting;
let node: FakeNode;
let kubelet: Hooks;
let namespace = '';
const rows: (readonly (string | number)[])[] = [];

const stuckPage = {
  inspect: {
    instances: {
      namespaceSelector: { matchLabels: { gateways: 'here' } },
      podSelector: { matchLabels: { gateway: 'stuck' } },
      port: PAGE_PORT,
      path: '/',
    },
    format: 'Text',
  },
};

beforeAll(async () => {
  cluster = await openCluster();
  if (!LONG || !cluster.own) return;
  const declared = { declared: { lag: `${DECLARED_SECONDS}s` } };
  setting = await HoldSetting.open(cluster, {
    max: MAX_SECONDS,
    consumers: [
      consumer('late', { consumers: 'late' }, declared),
      // Overrides the built-in consumer of that name.
      consumer('cluster-ip', { consumers: 'late' }, { declared: { lag: '1s' } }),
      consumer('stuck', { consumers: 'stuck' }, stuckPage),
    ],
  });
  kubelet = await Hooks.open();
  namespace = await held('late');
  // Only now: otherwise Linger might have tried its helper on the fake node.
  node = await FakeNode.start(cluster.api, network.nodeName);
  await setting.holds(namespace);
}, 240_000);

afterAll(async () => {
  if (rows.length > 0)
    console.log(table(['case', 'hooks', 'from the deletion', 'after their condition', 'early'], rows));
  if (namespace !== '') await node?.finishAll(namespace);
  kubelet?.close();
  await node?.remove();
  await setting?.close();
  await cluster?.close();
}, 240_000);

/** A namespace with a Service, whose pods are held. */
async function held(consumers: string): Promise<string> {
  const created = await setting.namespace('hold', `held-${consumers}`, { consumers });
  const spec = { selector: { app: 'web' }, ports: [{ port: 80 }] };
  await cluster.create({
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { namespace: created, name: 'web' },
    spec,
  } as never);
  return created;
}

const STOPPED_WITHIN_MS = 2_000;
let round = 0;

/** Starts pods and waits until they are listed. */
async function start(count: number, where = namespace): Promise<readonly Hooked[]> {
  round += 1;
  const pods = Array.from({ length: count }, (_, index): FakePod => {
    return { namespace: where, name: `round-${round}-${index}`, labels: { app: 'web' } };
  });
  await node.run(pods);
  const hooks: Hooked[] = [];
  await inParallel(pods, async (pod) => hooks.push(await hookOf(cluster, pod)));
  type List = { items: { endpoints: { conditions: { ready: boolean } }[] | null }[] };
  const path = `/apis/discovery.k8s.io/v1/namespaces/${where}/endpointslices`;
  await waitUntil('all to be listed', async () => {
    const { items } = await cluster.api.call<List>('GET', path);
    const ready = items
      .flatMap(({ endpoints }) => endpoints ?? [])
      .filter(({ conditions }) => conditions.ready);
    return ready.length >= count;
  });
  return hooks;
}

/**
 * Deletes them all and runs their hooks, spread over two seconds: while a machine forks two hundred helpers at the
 * same instant, watches stall.
 */
function stopAll(hooks: readonly Hooked[]): Promise<readonly HookEnd[]> {
  return Promise.all(
    hooks.map(async (hook, index) => {
      await sleep(index * (STOPPED_WITHIN_MS / hooks.length));
      return kubelet.stop(node, hook);
    }),
  );
}

const heldNow = () => setting.linger.replicas.sum('linger_hold_pods');

const allHeld = (count: number) =>
  waitUntil(`${count} to be held`, async () => (await heldNow()) >= count, { intervalMs: 100 });

interface Known extends HookEnd {
  readonly deletedAt: number;
  /** When Linger had to let it go, which is never before the hook started. */
  readonly dueAt: number;
  /** It ended before Linger may have let it go. */
  readonly early: boolean;
}

/** By the API server's audit log. */
function known(ends: readonly HookEnd[], where = namespace): readonly Known[] {
  const all = removals(cluster, where);
  return ends.map((end) => {
    const { deletedAt, withdrawnAt, withdrawnFrom } = all.get(end.pod) ?? UNKNOWN;
    const dueAt = Math.max(end.startedAt, withdrawnAt + LET_GO_MS);
    return { ...end, deletedAt, dueAt, early: !(end.endedAt >= withdrawnFrom + LET_GO_MS) };
  });
}

const UNKNOWN = { deletedAt: Number.NaN, withdrawnAt: Number.NaN, withdrawnFrom: Number.NaN };

const lateBy = (ends: readonly Known[]) => ends.map(({ endedAt, dueAt }) => endedAt - dueAt);

interface Noted {
  readonly early: number;
  /** Milliseconds. */
  readonly latest: number;
}

function note(name: string, ends: readonly Known[], after = lateBy(ends)): Noted {
  const waits = ends.map(({ deletedAt, endedAt }) => endedAt - deletedAt);
  const early = ends.filter((each) => each.early).length;
  rows.push([name, ends.length, spread(waits), spread(after), early]);
  console.log(rows.at(-1)?.join(' | '));
  return { early, latest: Math.max(...after) };
}

/** Splits the lateness into Linger's share and that of the helper and this machine. */
async function stages(ends: readonly Known[]): Promise<string> {
  const released = new Map(
    (await setting.releases(namespace)).map(({ pod, time }) => [pod, Date.parse(time)]),
  );
  const at = (end: Known) => released.get(end.pod) ?? Number.NaN;
  const of = ends.filter((end) => !Number.isNaN(at(end)));
  const lingers = spread(of.map((end) => at(end) - end.dueAt));
  return `released after ${lingers}; ended after that ${spread(of.map((end) => end.endedAt - at(end)))}`;
}

/** The pid of a replica's process on this machine. */
function processOf(replica: string): number {
  const isIts = ({ pid, argv }: { pid: number; argv: readonly string[] }) =>
    argv.includes('--certs-secret=linger-certificates') &&
    readFileSync(`/proc/${pid}/environ`, 'latin1').split('\0').includes(`LINGER_IDENTITY=${replica}`);
  const found = listProcesses().find(isIts);
  if (found === undefined) throw new Error(`no process is ${replica}`);
  return found.pid;
}

async function leader(): Promise<string> {
  return waitUntil('a leader', async () => {
    const found = [...(await setting.linger.replicas.sums('linger_leader '))].find(
      ([, leads]) => leads === 1,
    );
    return found?.[0];
  });
}

async function kubectl(...args: readonly string[]): Promise<void> {
  const { code, stderr } = await cluster.kubectl(['--namespace', 'linger', ...args], { timeoutMs: 120_000 });
  if (code !== 0) throw new Error(stderr);
}

const rolledOut = () => kubectl('rollout', 'status', 'deployment/linger', '--timeout=100s');

async function isOwn(): Promise<boolean> {
  const opened = await openCluster();
  await opened.close();
  return opened.own;
}

describe.runIf(LONG && (await isOwn()))(`${HELD} hooks that wait`, () => {
  it('end when all have let go, with nothing in their way', { timeout: 200_000 }, async () => {
    const hooks = await start(HELD);
    const ends = known(await stopAll(hooks));
    const { early, latest } = note('calm', ends);
    console.log(await stages(ends));
    expect(early).toBe(0);
    expect(latest).toBeLessThanOrEqual(1_000);
  });

  it('end no earlier when the replicas are replaced', { timeout: 200_000 }, async () => {
    const hooks = await start(HELD);
    const ending = stopAll(hooks);
    await allHeld(HELD);
    await kubectl('rollout', 'restart', 'deployment/linger');
    const { early } = note('all replicas replaced', known(await ending));
    await rolledOut();
    expect(early).toBe(0);
  });

  it('end no earlier when the leader is killed', { timeout: 200_000 }, async () => {
    const hooks = await start(HELD);
    const ending = stopAll(hooks);
    await allHeld(HELD);
    const pid = processOf(await leader());
    const killedAt = Date.now();
    process.kill(pid, 'SIGKILL');
    const ends = known(await ending);
    const { early } = note('the leader killed', ends);
    expect(Math.min(...ends.map(({ endedAt }) => endedAt))).toBeGreaterThan(killedAt);
    await rolledOut();
    expect(early).toBe(0);
  });

  it('end no earlier when the leader stands still and comes back', { timeout: 200_000 }, async () => {
    const hooks = await start(HELD);
    const ending = stopAll(hooks);
    await allHeld(HELD);
    const pid = processOf(await leader());
    process.kill(pid, 'SIGSTOP');
    try {
      await sleep(STANDSTILL_MS);
    } finally {
      process.kill(pid, 'SIGCONT');
    }
    const { early } = note(`the leader stands still for ${duration(STANDSTILL_MS)}`, known(await ending));
    await rolledOut();
    expect(early).toBe(0);
  });

  it('are none the worse for what strangers do', { timeout: 200_000 }, async () => {
    const undisturbed = note('50 undisturbed', known(await stopAll(await start(50))));
    const hooks = await start(50);
    const [host = '', port] = hooks[0]?.call.address.split(':') ?? [];
    const abuse = new Abuse({ host, port: Number(port) });
    const ending = stopAll(hooks);
    await allHeld(50);
    const begun = Date.now();
    await abuse.begin(hooks.map(({ call }) => call.token));
    console.log(`all of the abuse has begun after ${duration(Date.now() - begun)}`);
    const ends = known(await ending);
    const { early, latest } = note(`abuse: ${abuse.inWords}`, ends);
    abuse.end();
    console.log(await stages(ends));
    expect(early).toBe(0);
    expect(latest - undisturbed.latest).toBeLessThanOrEqual(300);
  });

  it('end at hold.max where a page always shows the address', { timeout: 200_000 }, async () => {
    const gateways = await cluster.namespace('gateways', { gateways: 'here', 'linger.dev/inject': 'false' });
    const where = await held('stuck');
    let shown = '';
    const server = http.createServer((_, response) => response.end(shown));
    server.listen(PAGE_PORT, cluster.nodeAddress);
    await once(server, 'listening');
    await standIn(cluster, gateways, 'stuck');
    const hooks = await start(5, where);
    const calm = await start(5);
    type List = { items: { status: { podIP: string } }[] };
    const { items } = await cluster.api.call<List>('GET', `/api/v1/namespaces/${where}/pods`);
    shown = items.map(({ status }) => `${status.podIP}:80`).join('\n');
    const [stuck, others] = await Promise.all([stopAll(hooks), stopAll(calm)]);
    server.close();
    const ofStuck = known(stuck, where);
    const toMax = ofStuck.map(({ deletedAt, endedAt }) => endedAt - deletedAt - 1_000 * MAX_SECONDS);
    note('a page that always shows the address', ofStuck, toMax);
    const { early, latest } = note('others meanwhile', known(others));
    await node.finishAll(where);
    expect(Math.max(...toMax.map(Math.abs))).toBeLessThanOrEqual(1_500);
    expect(early).toBe(0);
    expect(latest).toBeLessThanOrEqual(1_000);
  });

  it('end 30 s after the loss of all of Linger', { timeout: 200_000 }, async () => {
    const hooks = await start(HELD);
    const pids = (await setting.linger.replicas.list()).map(({ name }) => processOf(name));
    const ending = stopAll(hooks);
    await allHeld(HELD);
    const path = '/apis/apps/v1/namespaces/linger/deployments/linger/scale';
    const contentType = 'application/merge-patch+json';
    await cluster.api.call('PATCH', path, { body: { spec: { replicas: 0 } }, contentType });
    // The kubelet would restart a killed container of a pod that is to stay.
    const terminating = async () => (await setting.linger.replicas.list()).length === 0;
    await waitUntil('all replicas to terminate', terminating, { intervalMs: 100 });
    const lostAt = Date.now();
    for (const pid of pids) process.kill(pid, 'SIGKILL');
    const ends = await ending;
    // Otherwise nothing was lost while they were held.
    expect(Math.min(...ends.map(({ endedAt }) => endedAt))).toBeGreaterThan(lostAt);
    const [hook] = hooks;
    const after = ends.map(({ startedAt, endedAt }) => {
      const staticAt = startedAt + 1_000 * (hook?.call.wait ?? 0);
      return endedAt - Math.max(staticAt, lostAt + 30_000);
    });
    note(`all of Linger gone (static wait ${hook?.call.wait} s)`, known(ends), after);
    expect(Math.max(...after.map(Math.abs))).toBeLessThanOrEqual(1_000);
  });
});

/** What any pod in the cluster can do to the Hold Service, from the addresses of load clients. */
class Abuse {
  readonly #target: net.NetConnectOpts & net.TcpNetConnectOpts;
  readonly #open = new Set<net.Socket>();
  readonly #answers: Record<string, number> = {};
  #turn = 0;
  #slow: NodeJS.Timeout | undefined;

  constructor(target: { readonly host: string; readonly port: number }) {
    this.#target = target;
  }

  get inWords(): string {
    return `10,000 idle connections, 2,000 guessed tokens, ${JSON.stringify(this.#answers)}`;
  }

  /** @param tokens stolen */
  async begin(tokens: readonly string[]): Promise<void> {
    await inParallel(Array.from({ length: 10_000 }), () => this.#connect(), 200);
    await inParallel(
      Array.from({ length: 2_000 }),
      async () => {
        const socket = await this.#connect();
        socket.write(`linger-hold/1 ${randomBytes(16).toString('base64url')}\n`);
      },
      50,
    );
    // Each with one of the stolen tokens, thirty times, reporting endless connections.
    for (const token of tokens.slice(0, 10))
      for (let copy = 0; copy < 30; copy += 1) {
        const socket = await this.#connect();
        socket.write(`linger-hold/1 ${token}\nw ${copy * 1_000} 0 5000 198.51.100.7\n`);
      }
    const slow = await Promise.all(Array.from({ length: 200 }, () => this.#connect()));
    this.#slow = setInterval(() => {
      for (const socket of slow) if (socket.writable) socket.write('l');
    }, 900);
  }

  end(): void {
    clearInterval(this.#slow);
    for (const socket of this.#open) socket.destroy();
  }

  async #connect(): Promise<net.Socket> {
    this.#turn += 1;
    const localAddress = cluster.clientAddresses[this.#turn % cluster.clientAddresses.length] ?? '';
    const socket = net.connect({ ...this.#target, localAddress });
    this.#open.add(socket);
    socket.on('error', () => undefined);
    socket.on('data', (bytes) => {
      const [word = ''] = bytes.toString('latin1').split('\n');
      this.#answers[word] = (this.#answers[word] ?? 0) + 1;
    });
    await Promise.race([once(socket, 'connect'), once(socket, 'close'), sleep(5_000)]).catch(() => undefined);
    return socket;
  }
}
