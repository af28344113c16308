import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it, onTestFinished, vi } from 'vitest';
import { http } from '../../src/cluster/index.ts';
import {
  attemptsIn,
  attemptsOf,
  type NodeTimer,
  NodeTimers,
  nodeTimerApp,
} from '../../src/measurement/node-timers/node-timers.ts';
import { close, listen } from '../../src/webhook/index.ts';
import { OwnPods } from '../cluster/own-pods.ts';

const A = 'a'.repeat(32);
const TIMER = { 'app.kubernetes.io/name': 'linger-node-timer' };

async function timers(nodes: number) {
  const own = await OwnPods.start();
  onTestFinished(() => own.close());
  for (let index = 0; index < nodes; index++)
    own.add(`timer-${index}`, TIMER, `10.0.0.${index}`, true, `node-${index}`);
  const { signal } = new AbortController();
  let now = 0;
  const options = { connection: own.connection, namespace: 'linger', clock: () => now, signal };
  const pass = (ms: number) => {
    now += ms;
  };
  return { own, timers: new NodeTimers(options), pass };
}

/** One flip: each chosen node takes so many seconds. */
async function flip(of: NodeTimers, lagOf: (node: string) => number, own = 0.02) {
  const chosen = await of.chosen();
  const outcomes = chosen.map((each) => [each, { removal: lagOf(each.node), addition: 0.01 }] as const);
  return {
    chosen: chosen.map(({ node }) => node),
    lag: (await of.slowest({ removal: own }, outcomes)).removal,
  };
}

it('with more nodes than a flip may have, each has its turn, and a slow one is timed in every flip', async () => {
  const { timers: of } = await timers(40);
  const lagOf = (node: string) => (node === 'node-37' ? 4 : 0.03);
  const seen = new Set<string>();
  const flips = [];
  for (let index = 0; index < 8; index++) {
    flips.push(await flip(of, lagOf));
    for (const node of flips.at(-1)!.chosen) seen.add(node);
    expect(flips.at(-1)!.chosen).toHaveLength(16);
  }
  expect(seen.size).toBe(40);
  const found = flips.findIndex(({ lag }) => lag === 4);
  expect(found).toBeLessThan(5);
  expect(flips.slice(found).every(({ lag }) => lag === 4)).toBe(true);
  expect(of.limit).toContain('40 of 40 nodes');
  expect(of.limit).toContain('The slowest is node-37: up to 4s.');
});

it('thousands of nodes whose pods a rollout has replaced do not keep the leader busy', async () => {
  const { own, timers: of, pass } = await timers(0);
  const nodeAt = (index: number) => `ip-10-0-${String(index).padStart(4, '0')}.eu-west-1.compute.internal`;
  for (let index = 0; index < 2_000; index++) own.add(`old-${index}`, TIMER, '10.0.0.1', true, nodeAt(index));
  const seen = new Set<string>();
  for (let index = 0; index < 250; index++)
    for (const node of (await flip(of, () => 0.01)).chosen) seen.add(node);
  expect(seen.size).toBeGreaterThan(1_990);
  // Pods have names of their own: they come in another order than their nodes had their turns.
  own.pods.clear();
  for (let index = 0; index < 2_000; index++)
    own.add(`new-${index}`, TIMER, '10.0.0.1', true, nodeAt((index * 1_237) % 2_000));
  pass(3_600_000);
  expect((await of.chosen())[0]?.name).toMatch(/^new-/);
  const took = [];
  for (let index = 0; index < 5; index++) {
    const began = performance.now();
    await of.chosen();
    took.push(performance.now() - began);
  }
  // Some milliseconds; a hundred and more where each comparison goes through all nodes.
  expect(Math.min(...took)).toBeLessThan(60);
});

it('the name stays while lags move little, and changes when another node is slower', async () => {
  const { timers: of } = await timers(2);
  await flip(of, (node) => (node === 'node-0' ? 1 : 0.9));
  const said = of.limit;
  expect(said).toContain('node-0: up to 1s');
  await flip(of, (node) => (node === 'node-0' ? 1 : 1.1));
  expect(of.limit).toBe(said);
  await flip(of, (node) => (node === 'node-0' ? 1 : 2));
  expect(of.limit).toContain('node-1: up to 2s');
});

it('the leader’s own node counts, and without node timers alone', async () => {
  const { timers: of } = await timers(2);
  expect((await flip(of, () => 0.1, 3)).lag).toBe(3);
  const { timers: none } = await timers(0);
  expect((await flip(none, () => 0.1, 3)).lag).toBe(3);
  expect(none.limit).toBeUndefined();
});

it('a node that is never followed is the trouble of the consumer; one that is not seen is named', async () => {
  const { timers: of } = await timers(2);
  const [first, second] = (await of.chosen()) as [NodeTimer, NodeTimer];
  const unseen = { trouble: { reason: 'Unreachable', message: 'no answer' } } as const;
  expect(
    await of.slowest({ removal: 0.1 }, [
      [first, unseen],
      [second, { removal: 0.2 }],
    ]),
  ).toMatchObject({
    removal: 0.2,
  });
  expect(of.limit).toContain('Not timed, and possibly slower: node-0 (no answer)');
  const never = { trouble: { reason: 'Implausible', message: 'still answered' } } as const;
  expect(
    await of.slowest({ removal: 0.1 }, [
      [first, { removal: 9 }],
      [second, never],
    ]),
  ).toEqual(never);
});

it('a slow node whose pod is another by then does not count, nor one of which that is not known', async () => {
  const { own, timers: of } = await timers(1);
  const [timer] = (await of.chosen()) as [NodeTimer];
  const slow = () => of.slowest({ removal: 0.1 }, [[timer, { removal: 9 }]]);
  own.pods.delete('timer-0');
  expect(await slow()).toMatchObject({ removal: 0.1 });
  expect(of.limit).toContain('node-0 (its pod was replaced)');
  own.close();
  expect(await slow()).toMatchObject({ removal: 0.1 });
  expect(of.limit).toContain('node-0 (its pod may have been replaced: the API server does not answer)');
});

it('nodes that are gone are forgotten', async () => {
  const { own, timers: of, pass } = await timers(2);
  await flip(of, () => 1);
  own.pods.delete('timer-1');
  pass(120_000);
  await flip(of, () => 1);
  expect(of.limit).toContain('1 of 1 nodes');
});

it('tries only while it is asked, and says what it met since the number asked for', async () => {
  let tried = 0;
  const app = nodeTimerApp(async () => {
    tried += 1;
    return { identity: A };
  }, performance.now.bind(performance));
  const server = http.createServer(app);
  const port = await listen(server, '127.0.0.1', 0, '--port', () => undefined);
  onTestFinished(() => close(server));
  const get = async (path: string) => {
    const sentAt = performance.now();
    const text = await (await fetch(`http://127.0.0.1:${port}${path}`)).text();
    return attemptsIn(text, { sentAt, receivedAt: performance.now() });
  };
  expect((await fetch(`http://127.0.0.1:${port}/healthz`)).status).toBe(200);
  expect((await fetch(`http://127.0.0.1:${port}/attempts/x`)).status).toBe(404);
  expect(tried).toBe(0);
  expect(await get('/attempts/')).toMatchObject({ made: [] });
  await expect.poll(() => tried).toBeGreaterThan(5);
  const first = await get('/attempts/0');
  if (!('made' in first)) throw new Error(first.message);
  expect(first.made.length).toBe(first.next);
  expect(first.made.every(({ answer }) => answer.identity === A)).toBe(true);
  await expect.poll(() => tried).toBeGreaterThan(first.next);
  const second = await get(`/attempts/${first.next}`);
  if (!('made' in second)) throw new Error(second.message);
  expect(second.made.length).toBe(second.next - first.next);
  // No request is made any more.
  await vi.waitFor(
    async () => {
      const before = tried;
      await sleep(500);
      expect(tried).toBe(before);
    },
    { timeout: 20_000 },
  );
});

it('a node timer that refuses the leader says nothing of the replica', async () => {
  const server = http.createServer();
  const port = await listen(server, '127.0.0.1', 0, '--port', () => undefined);
  await close(server);
  const ask = attemptsOf({ address: '127.0.0.1' }, { clock: () => 1, timeoutMs: 2_000, port });
  expect(await ask()).toMatchObject([{ answer: { reason: 'Unreachable', turnedAway: false } }]);
});

it.each([
  '',
  '{}',
  '{"next":1,"replicas":{},"attempts":[]}',
  `{"next":1,"replicas":[],"attempts":[${'1,'.repeat(1_024)}1]}`,
])('refuses what no node timer says: %.40s', (text) => {
  expect(attemptsIn(text, { sentAt: 0, receivedAt: 1 })).toMatchObject({ reason: 'BadAnswer' });
});
