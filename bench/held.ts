import { fork } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { dirname } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { NO_SOURCES, snapshotOf } from '../src/core/decision/cluster-snapshot.ts';
import { renderPlan } from '../src/core/decision/plan-codec.ts';
import type { EndpointGroup } from '../src/core/lag/endpoint-index.ts';
import { HeldPods } from '../src/hold/held-pods.ts';
import { Holds } from '../src/hold/holds.ts';
import { HoldService } from '../src/hold/service.ts';
import { consumerInstances } from '../src/measurement/instances.ts';
import { createLogger } from '../src/telemetry/logs.ts';
import { containerRuntime } from './containerfile.ts';
import { positive, readOptions } from './options.ts';

// What it takes to hold many pods at once: memory of the process that holds them, and how soon all are released once their
// condition is met. The helpers are connections of another process, each with two lines a second, as the real ones.

const usage = `usage: node bench/held.ts [--pods N] [--seconds N]
  --pods      held at once (default 2000)
  --seconds   for how long (default 20)
exit code 1: more than 40 MB, or more than 1 s until all are released`;
const text = { type: 'string' } as const;

const MOST_BYTES = 40e6;
const MOST_MS = 1_000;

/** What the two processes say to each other. */
type Said =
  | { readonly port: number; readonly tokens: readonly string[] }
  | { readonly rss: number; readonly heap: number; readonly external: number }
  | { readonly withdrawnAt: number };

const wall = () => performance.timeOrigin + performance.now();

/** The replica that holds. */
async function hold(count: number): Promise<void> {
  const clock = () => performance.now();
  const group: EndpointGroup = {
    stage: 'EndpointSlice',
    namespace: 'shop',
    service: 'web',
    mirrored: false,
    overCapacity: false,
  };
  const listed = new Set<string>();
  const snapshot = snapshotOf(NO_SOURCES);
  const pods = new HeldPods({ clock, wall: Date.now, onChange: ({ uid }) => holds.touch(uid) });
  const holds: Holds = new Holds({
    clock,
    leads: () => true,
    snapshot: () => snapshot,
    measurement: {
      listing: ({ uid }) => (listed.has(uid) ? [group] : []),
      withdraws: () => true,
      hasUnread: () => false,
    },
    pods: { followedSince: Number.NEGATIVE_INFINITY, sawDeletion: () => undefined },
    current: () => true,
    instances: consumerInstances({}),
    deregistrations: { outAt: () => undefined },
    lookUp: () => Promise.resolve(undefined),
    isReplica: () => false,
    onRelease: () => undefined,
    onStranger: () => undefined,
  });
  const key = randomBytes(32);
  const service = new HoldService({
    holds,
    pods,
    route: () => 'here',
    keys: () => [key],
    clock,
    logger: createLogger('silent', process.stdout),
  });
  const plan = renderPlan({
    wait: 5,
    grace: 300,
    baseGrace: 30,
    hook: 'Hold',
    containers: ['app'],
    policy: 'built-in',
    why: 'initial',
    hold: { min: 5, max: 270, percentile: 99, initial: 0, probes: 1 },
  });
  const put = (uid: string, token: string, deleted: boolean) => {
    const hash = createHash('sha256').update(token).digest('hex');
    const identity = { namespace: 'shop', name: uid, uid };
    const object = {
      ...identity,
      labels: { app: 'web' },
      heartbeat: undefined,
      deletionTimestamp: deleted ? new Date(Date.now() + 300_000).toISOString() : undefined,
      deletionGracePeriodSeconds: deleted ? 300 : undefined,
      hold: { token: hash, created: '2026-11-22T10:00:00Z' },
      plan,
    };
    pods.apply({ type: 'modified', listed: false, at: clock(), identity, object });
  };
  const tokens = Array.from({ length: count }, () => randomBytes(16).toString('base64url'));
  const changed = (uid: string, after: 'ready' | 'terminating') => {
    const before = after === 'ready' ? undefined : 'ready';
    pods.changed({ uid, group, before, after, address: undefined }, clock(), '1');
  };
  for (const [index, token] of tokens.entries()) {
    put(`web-${index}`, token, true);
    listed.add(`web-${index}`);
    changed(`web-${index}`, 'ready');
  }
  service.server.listen(0, '127.0.0.1');
  await once(service.server, 'listening');
  const say = (said: Said) => process.send?.(said);
  process.on('message', (asked) => {
    if (asked === 'memory') {
      globalThis.gc?.();
      const { rss, heapUsed: heap, external } = process.memoryUsage();
      say({ rss, heap, external });
      return;
    }
    say({ withdrawnAt: wall() });
    for (const uid of listed) changed(uid, 'terminating');
    listed.clear();
  });
  say({ port: (service.server.address() as AddressInfo).port, tokens });
}

async function measure(): Promise<void> {
  const { pods, seconds } = readOptions(
    process.argv.slice(2),
    { pods: text, seconds: text },
    usage,
    (given) => ({
      pods: positive('pods', given.pods ?? '2000'),
      seconds: positive('seconds', given.seconds ?? '20'),
    }),
  );
  const { nodeFlags, environment } = containerRuntime(dirname(import.meta.dirname));
  const replica = fork(import.meta.filename, [String(pods)], {
    // As the image starts it; its compile cache is of another program.
    env: { ...process.env, ...environment, NODE_COMPILE_CACHE: '', HELD_REPLICA: '1' },
    execArgv: ['--expose-gc', ...nodeFlags],
  });
  const heard = async <T extends Said>() => (await once(replica, 'message'))[0] as T;
  const asked = <T extends Said>(question: string) => {
    replica.send(question);
    return heard<T>();
  };
  const { port, tokens } = await heard<Extract<Said, { port: number }>>();
  type Memory = Extract<Said, { rss: number }>;
  const before = await asked<Memory>('memory');

  let [holding, opens] = [0, 1_000];
  const released: number[] = [];
  const sockets = new Set<Socket>();
  const call = (token: string, isHeld = false): void => {
    const socket = connect({ port, host: '127.0.0.1' }).setEncoding('latin1');
    sockets.add(socket);
    let isReleased = false;
    socket.on('data', (said: string) => {
      if (!isHeld) holding += 1;
      isHeld = true;
      isReleased ||= said.includes('release');
      if (isReleased) released.push(wall());
    });
    socket.on('error', () => undefined);
    // As a helper does.
    socket.on('close', () => {
      sockets.delete(socket);
      if (!isReleased && !isOver) call(token, isHeld);
    });
    socket.write(`linger-hold/1 ${token}\n`);
  };
  let isOver = false;
  for (const token of tokens) call(token);
  let rate = 5;
  const lines = setInterval(() => {
    opens += rate;
    for (const socket of sockets) if (socket.writable) socket.write(`w ${opens} 5 3 10.0.0.7,10.0.0.8 0\n`);
  }, 500);
  while (holding < pods) await sleep(100);
  await sleep(seconds * 1000);
  const after = await asked<Memory>('memory');
  // There are no more senders: silence is reported once it has lasted.
  rate = 0;
  await sleep(6_000);
  const { withdrawnAt } = await asked<Extract<Said, { withdrawnAt: number }>>('withdraw');
  while (released.length < pods) await sleep(10);
  clearInterval(lines);
  isOver = true;
  for (const socket of sockets) socket.destroy();
  replica.kill();
  const mb = (bytes: number) => `${(bytes / 1e6).toFixed(1)} MB`;
  const grown = (member: keyof Memory) => mb(after[member] - before[member]);
  console.log(
    `${pods} pods: RSS ${mb(before.rss)} + ${grown('rss')} (heap ${grown('heap')}, external ${grown('external')})`,
  );
  const took = released.map((at) => Math.round(at - withdrawnAt)).toSorted((a, b) => a - b);
  // What the product promises of 2,000 pods.
  if (after.rss - before.rss > MOST_BYTES || (took.at(-1) ?? 0) > MOST_MS) process.exitCode = 1;
  console.log(
    `released after ${took[0]} to ${took.at(-1)} ms, half of them within ${took[took.length >> 1]} ms`,
  );
}

if (process.env.HELD_REPLICA === undefined) await measure();
else await hold(Number(process.argv[2]));
