import { expect, test } from 'vitest';
import { PodLives, prove, type TrafficJob, type WorkloadAccess } from '../../src/prove/index.ts';
import { endOf, type ProveOptions } from '../../src/prove/proving.ts';
import { wallClock } from '../../src/prove/traffic.ts';
import { type LossKind, runSeconds, type TrafficReport } from '../../src/prove/traffic-plan.ts';

/** Each waits for seconds of its own run. */
const it = test.concurrent;

/** Sends nothing, and says twenty times a second what it has not lost, by a clock that is ahead of ours. */
function silentJob(aheadMs: number, lost: readonly (LossKind | undefined)[] = [undefined]) {
  let sending: NodeJS.Timeout | undefined;
  const start = async (report: (sender: number, each: TrafficReport) => void) => {
    const way = { way: 0, tookMs: 1 };
    sending = setInterval(() => {
      const until = wallClock() + aheadMs;
      const outcomes = lost.map((each) => ({ ...way, at: until - 1, lost: each }));
      report(0, { sequence: 0, until, lateMs: 0, outcomes });
    }, 50);
    return ['one'];
  };
  const remove = async () => {
    clearInterval(sending);
    return true;
  };
  const ways = [{ name: 'Service web', url: 'http://web', keepAlive: false, verify: false }];
  return { ways, senders: 1, start, remove } as unknown as TrafficJob;
}

const DEPLOYMENT = {
  kind: { apiVersion: 'apps/v1', kind: 'Deployment' },
  namespace: 'shop',
  name: 'web',
  selector: 'app=web',
  podLabels: {},
  replicas: 2,
  settled: true,
  rollsOut: true,
  maxUnavailable: 0,
} as ProveOptions['workload'];

/** Options for a Deployment of two ready pods, where a deleted pod is gone at once. */
function optionsFor(
  change: Partial<ProveOptions> = {},
  access: Partial<WorkloadAccess> = {},
  hanging: readonly object[] = [],
): ProveOptions {
  const ready = ['a', 'b'].map((name, index) => ({ name, createdAt: index, wait: 0, node: name }));
  const all: object[] = [...ready, ...hanging];
  const gone = (name: string) => {
    const at = wallClock();
    all.push({ ...ready[0], name, deletedAt: at, withdrawnAt: at, sigtermAt: at, endedAt: at, goneAt: at });
  };
  const api = {
    read: async () => DEPLOYMENT,
    deletePod: async (name: string) => gone(name),
    evict: async () => undefined,
    ...access,
  };
  return {
    access: api as unknown as WorkloadAccess,
    workload: DEPLOYMENT,
    disturbance: { type: 'deleteOne' },
    lives: {
      all,
      ready,
      terminating: PodLives.prototype.terminating,
      problems: new Set(),
    } as unknown as PodLives,
    job: silentJob(0),
    fromHere: [],
    fresh: false,
    slowMs: 1_000,
    calm: 0.2,
    quiet: 0.2,
    longest: 5,
    traffic: { rate: 10, timeoutMs: 1_000, method: 'GET', headers: {} },
    signal: new AbortController().signal,
    note: () => undefined,
    ...change,
  };
}

it.each([
  [3_000, [expect.stringMatching(/^the clock of pod 0 is (2[5-9]\d\d|3000) ms ahead of this one: its/)]],
  [-900, [expect.stringMatching(/^the clock of pod 0 is 9\d{2} ms behind this one, or/)]],
  [0, []],
])('says how far the clock of a sender is off, and counts by ours: %d ms', async (aheadMs, notes) => {
  const found = await prove(optionsFor({ job: silentJob(aheadMs), calm: 1.5 }));
  expect(found.notes).toEqual(notes);
  const sentAt = found.outcomes.map(({ at }) => at);
  expect(Math.min(...sentAt) - found.startedAt).toBeLessThan(500);
  expect(found.endedAt - Math.max(...sentAt)).toBeLessThan(500);
});

it('proves something although the clock of a sender is minutes behind', async () => {
  const { verdict, pods } = await prove(optionsFor({ job: silentJob(-200_000) }));
  expect(verdict.sent).toBeGreaterThan(10);
  const [{ endedAt = 0, goneAt = 0 } = {}] = pods.filter(({ deletedAt }) => deletedAt !== undefined);
  expect(Math.round((endedAt - goneAt) / 1_000)).toBe(200);
});

it('says that a request was lost before anything was disturbed', async () => {
  const aHundredth = ['5xx', ...Array<undefined>(99)] as const;
  const { notes } = await prove(optionsFor({ job: silentJob(0, aHundredth), longest: 1 }));
  expect(notes).toContainEqual(
    expect.stringMatching(/^lost before anything was disturbed: \d+; .* too long$/),
  );
});

it('restores the replicas that there were when it began, not when it was asked for', async () => {
  let replicas = 7;
  const asked: number[] = [];
  const access: Partial<WorkloadAccess> = {
    read: async () => ({ ...DEPLOYMENT, replicas }),
    scale: async (to) => {
      replicas = to;
      asked.push(to);
    },
  };
  await prove(optionsFor({ disturbance: { type: 'scale', from: 2, to: 1 }, longest: 1 }, access));
  expect(asked).toEqual([2, 1, 7]);
});

it.each([
  ['a pod of ten minutes, by a clock that is nine ahead', 600, -540, false],
  ['a pod of a minute, by a clock that is nine behind', 60, 540, true],
])('takes for replaced what is young by the clock of the cluster: %s', async (_, age, behind, expected) => {
  const options = optionsFor({ job: silentJob(-1_000 * behind) }, {}, [
    { name: 'c', wait: 0, createdAt: wallClock() - 1_000 * (age + behind) },
  ]);
  const { notes } = await prove(options);
  expect(notes.some((note) => note.startsWith('pods were replaced'))).toBe(expected);
});

it('does not wait for a pod that hangs since before, and leaves it out', async () => {
  const hanging = { name: 'hangs', createdAt: 0, wait: 0, deletedAt: 1 };
  const { notes, pods, verdict } = await prove(optionsFor({ calm: 1.2 }, {}, [hanging]));
  expect(notes).toEqual(['pods that were terminating before and still are: 1; they are left out']);
  expect(pods.map(({ name }) => name)).toEqual(['a', 'b', 'a']);
  expect(verdict.sentence).not.toContain('still terminating');
});

it('disturbs nothing that has come to stand on one pod since it was asked', async () => {
  const deleted: string[] = [];
  const options = optionsFor({}, { deletePod: async (name) => void deleted.push(name) });
  const alone = { ...options.lives, ready: options.lives.ready.slice(1) } as unknown as PodLives;
  await expect(prove({ ...options, lives: alone })).rejects.toThrow('has 1 ready pod');
  expect(deleted).toEqual([]);
});

it('disturbs nothing while somebody else rolls it out', async () => {
  const options = optionsFor({}, { read: async () => ({ ...DEPLOYMENT, settled: false }) });
  await expect(prove(options)).rejects.toThrow('is not settled');
});

it('lets all evictions of a drain together take no longer than a run may', async () => {
  const asked = new Map<string, number>();
  const options = optionsFor(
    { disturbance: { type: 'drain', node: 'n' }, longest: 1.5 },
    {
      cordon: async () => undefined,
      evict: async (name, _, dryRun) => {
        const times = asked.get(name) ?? 0;
        asked.set(name, dryRun === true ? 0 : times + 1);
        return dryRun === true || times > 0 ? undefined : 'the budget forbids it';
      },
    },
  );
  const ready = ['n', 'n', 'n', 'm'].map((node, index) => ({
    name: `${index}`,
    createdAt: index,
    wait: 0,
    node,
  }));
  const lives = { ...options.lives, all: ready, ready } as unknown as PodLives;
  // Each takes a second: the second one ends after the time is over, the third may not begin to wait.
  await expect(prove({ ...options, lives })).rejects.toThrow(/pod [12] still forbidden after 1.5s/);
});

it('sends from before the calm until after the longest run', () => {
  expect(runSeconds(300, 600)).toBeGreaterThan(900);
});

it('uncordons the node although the API server is away for a moment', async () => {
  const notes: string[] = [];
  let attempts = 0;
  const cordon: WorkloadAccess['cordon'] = async (_node, _signal, begin) =>
    begin(async () => {
      attempts += 1;
      if (attempts === 1) throw new Error('connect ECONNREFUSED');
    });
  const note = (line: string) => void notes.push(line);
  await prove(optionsFor({ disturbance: { type: 'drain', node: 'a' }, longest: 0.2, note }, { cordon }));
  expect(attempts).toBe(2);
  expect(notes.filter((line) => line.startsWith('could not undo'))).toEqual([]);
});

it.each([
  ['after it', 12_000, 12_000],
  ['in the second of it, of which the node reports the beginning', 9_100, 10_000],
  ['long before it: it had ended by itself', 4_000, 4_000],
])('an end %s stands where it belongs beside a deletion', (_, endedAt, expected) => {
  expect(endOf(endedAt, 10_000)).toBe(expected);
});

it('says how many pods were terminating already, whose losses count', async () => {
  const at = wallClock() - 3_000;
  const leaving = { name: 'old', createdAt: 0, wait: 30, node: 'a', deletedAt: at, goneAt: at + 60_000 };
  const { notes } = await prove(optionsFor({}, {}, [leaving]));
  expect(notes.join()).toContain('pods that were terminating before anything was disturbed: 1');
});
