import { describe, expect, it } from 'vitest';
import { quantileOf } from '../../src/core/lag/index.ts';
import { PLANNED_KEY } from '../../src/leader/codec.ts';
import type { ApiObject, ModelApi } from './model-api.ts';
import {
  annotationsOf,
  HISTORY,
  LEASE,
  leads,
  Measured,
  msgs,
  openApi,
  PLANNED,
  p99,
  soon,
  startReplica,
  textOf,
  wall,
  withLeader,
} from './replica.ts';

/** Curves are published at most this often. */
const PUBLISH_SECONDS = 600;

describe('the leader', () => {
  it('publishes what it measures, with who and when', async () => {
    const { api, leader } = await withLeader();
    expect(textOf(api)).toBe(leader.measured.inForce);
    expect(p99(leader.measured)).toBeCloseTo(4, 0);
    const { holder } = leader.status;
    expect(holder).toMatch(/^a_[0-9a-f]{8}$/);
    expect(annotationsOf(api, PLANNED)).toEqual({
      'linger.dev/format': '2',
      'linger.dev/term': '5',
      'linger.dev/writer': holder,
      'linger.dev/written-at': '2026-11-21T12:00:00.000Z',
    });
    await soon('the histories', () => api.objects.has(HISTORY));
    await soon('the status', () => leader.status.published.history.writes > 0);
    expect(leader.status.published.planned).toMatchObject({ writtenAt: wall.now, refusal: undefined });
    expect(leader.status.published.history.bytes).toBeGreaterThan(100);
  });

  it('writes nothing while nothing changes', async () => {
    const { api, leader } = await withLeader();
    await soon('the histories', () => leader.status.published.history.writes === 1);
    const writes = api.writes(PLANNED);
    const renewals = api.writes(LEASE);
    await soon('some renewals', () => api.writes(LEASE) > renewals + 10);
    expect(api.writes(PLANNED)).toBe(writes);
    expect(api.writes(HISTORY)).toBe(1);
  });

  it('takes a table for its waits only once that is written', async () => {
    const api = await openApi();
    api.refuse = ({ path, method }) =>
      method !== 'GET' && path.includes('configmaps') ? { status: 500 } : undefined;
    const leader = startReplica(api, 'a');
    leader.measured.record(4);
    await leads(leader);
    await soon('some failures', () => (leader.status.failures.planned.ServerError ?? 0) > 3);
    expect(p99(leader.measured)).toBeUndefined();
    expect(msgs(leader.lines).filter((msg) => msg.startsWith('publishing failed'))).toHaveLength(2);
    api.refuse = () => undefined;
    await soon('the table in force', () => p99(leader.measured) !== undefined);
    await soon('a line', () => msgs(leader.lines).includes('publishing recovered'));
  });

  it.each<{ name: string; harm: (api: ModelApi) => void }>([
    { name: 'deleted', harm: (api) => api.delete(PLANNED) },
    {
      name: 'changed',
      harm: (api) => {
        const object = api.objects.get(PLANNED) as ApiObject;
        api.put(PLANNED, { ...object, data: { [PLANNED_KEY]: '{"v":2,"namespaces":{},"consumers":{}}' } });
      },
    },
    {
      name: 'damaged',
      harm: (api) => {
        const object = api.objects.get(PLANNED) as ApiObject;
        api.put(PLANNED, { ...object, data: { [PLANNED_KEY]: '{' } });
      },
    },
  ])('writes it again when it is $name', async ({ harm }) => {
    const { api, leader } = await withLeader();
    const text = textOf(api);
    harm(api);
    expect(textOf(api)).not.toBe(text);
    await soon('the text of before', () => textOf(api) === text);
    expect(leader.measured.inForce).toBe(text);
    await soon('no refusal', () => leader.status.published.planned.refusal === undefined);
  });

  it('written by another before the leader has its answer are written over, too', async () => {
    const { api, leader } = await withLeader();
    const before = api.objects.get(PLANNED) as ApiObject;
    const { onChange } = api;
    let others = 0;
    api.onChange = (path) => {
      onChange(path);
      if (path === PLANNED && others++ === 0) api.put(PLANNED, before);
    };
    leader.measured.record(9, 3_000);
    wall.now += 1_800;
    await soon('the other to write', () => others > 1);
    await soon('the new curves', () => (p99(leader.measured) ?? 0) > 8);
    await soon('the leader’s curves', () => textOf(api) === leader.measured.inForce);
    expect(p99(leader.measured)).toBeGreaterThan(8);
  });

  it('reads again when another writer was faster', async () => {
    const { api, leader } = await withLeader({ historyEveryMs: 1e9 });
    let disturbed = 0;
    api.before = ({ method, path }) => {
      const object = api.objects.get(PLANNED);
      if (method !== 'PUT' || path !== PLANNED || object === undefined || disturbed++ > 0) return;
      api.put(PLANNED, { ...object, metadata: { ...object.metadata, labels: { theirs: 'x' } } });
    };
    api.delete(HISTORY);
    wall.now += 60;
    leader.measured.record(20, 3_000);
    api.put(PLANNED, { ...(api.objects.get(PLANNED) as ApiObject), data: {} });
    await soon('the conflict', () => (leader.status.failures.planned.Conflict ?? 0) > 0);
    await soon('the text', () => textOf(api) === leader.measured.inForce);
    expect(api.objects.get(PLANNED)?.metadata.labels).toEqual({ theirs: 'x' });
  });

  it('waits as long as a throttled server asks', async () => {
    const { api, leader } = await withLeader();
    const asked: number[] = [];
    api.refuse = ({ method, path }) => {
      if (method !== 'GET' || path !== PLANNED) return undefined;
      asked.push(performance.now());
      return asked.length === 1 ? { status: 429, retryAfter: 1 } : undefined;
    };
    api.delete(PLANNED);
    await soon('the text', () => textOf(api) !== undefined);
    expect(leader.status.failures.planned.Throttled).toBe(1);
    // Here the longest pause is 40 ms, so no holder is followed for longer.
    expect(asked[1]! - asked[0]!).toBeGreaterThan(40);
  });
});

describe('two replicas', () => {
  it('agree exactly on the planned lags, though they measure differently', async () => {
    const { api, leader } = await withLeader();
    const other = startReplica(api, 'b');
    other.measured.record(50, 1_000);
    const { holder } = leader.status;
    await soon('the other to follow', () => other.status.holder === holder);
    wall.now += 60;
    leader.measured.record(7, 3_000);
    await soon('a table to rise', () => {
      wall.now += PUBLISH_SECONDS / 10;
      leader.measured.record(7, 10);
      return (p99(leader.measured) ?? 0) > 6;
    });
    await soon('both to agree', () => other.measured.inForce === leader.measured.inForce);
    expect(other.measured.inForce).toBe(textOf(api));
    expect(other.status).toMatchObject({ leading: false, term: 5 });
  });

  it('change places when the leader stops, and lose nothing', async () => {
    const { api, leader } = await withLeader({ historyEveryMs: 1e9 });
    const other = startReplica(api, 'b');
    await soon('the other to follow', () => other.measured.inForce === leader.measured.inForce);
    // Half of the time between two tables.
    for (let half = 0; half < PUBLISH_SECONDS / 2; half += 60) {
      wall.now += 60;
      leader.measured.record(20, 1_000);
      other.measured.record(20, 1_000);
      const { steps } = leader.measured;
      await soon('a step', () => leader.measured.steps > steps + 1);
    }
    await leader.stop();
    await leads(other);
    expect(msgs(leader.lines)).toContain('lease lost, stepping down');
    expect(api.objects.has(HISTORY)).toBe(true);
    expect(other.status.term).toBe(6);
    wall.now += PUBLISH_SECONDS / 2 + 60;
    other.measured.record(20, 1_000);
    await soon('the longer lag', () => (p99(other.measured) ?? 0) > 15);
    expect(annotationsOf(api, PLANNED)['linger.dev/term']).toBe('6');
  });

  it('begin with the histories of those before them', async () => {
    const { api, leader } = await withLeader();
    const writer = leader.status.holder;
    for (let slice = 0; slice < 40; slice++) {
      wall.now += 900;
      for (let each = 0; each < 30; each++) leader.measured.record(0.01 * 1.2 ** each, 3);
    }
    await leader.stop();
    const measured = new Measured();
    const restarted = startReplica(api, 'a', {}, measured);
    await restarted.restored;
    expect(restarted.lines).toContainEqual(
      expect.objectContaining({ msg: 'history restored', writer, ageSeconds: 0 }),
    );
    for (const percentile of [50, 99]) {
      const [before, after] = [leader.measured, measured].map(({ estimator }) => {
        const lag = estimator.measured('shop', wall.now);
        return lag === undefined ? Number.NaN : quantileOf(lag.density, percentile);
      });
      expect(Math.abs(after! / before! - 1)).toBeLessThan(0.02);
    }
    await soon('the planned lags', () => measured.inForce === textOf(api));
  });
});

describe('where one ConfigMap is Forbidden', () => {
  const startWithout = async (path: string) => {
    const { api, leader } = await withLeader();
    await soon('the histories', () => leader.status.published.history.writes > 0);
    await leader.stop();
    api.refuse = (asked) => (asked.path === path && asked.method === 'GET' ? { status: 403 } : undefined);
    const before = { [PLANNED]: api.objects.get(PLANNED), [HISTORY]: api.objects.get(HISTORY) };
    const terms: string[] = [];
    const onLeading = () => void terms.push(next.status.holder);
    const next = startReplica(api, 'b', { takeOverMs: 100 }, new Measured(), undefined, true, [], {
      onLeading,
    });
    await soon('a term', () => terms.length === 1);
    // Later than what is stored: of two histories of one quarter of an hour, the fuller counts.
    wall.now += 3_600;
    next.measured.record(20, 3_000);
    await soon('the deadline', () => next.lines.some(({ msg }) => msg.startsWith('stored state unreadable')));
    return { api, next, before };
  };

  it('a leader does without the history, does not write over it, and takes it over once it may', async () => {
    const { api, next, before } = await startWithout(HISTORY);
    let recorded = 3_000;
    await soon('new curves', () => {
      wall.now += PUBLISH_SECONDS;
      next.measured.record(20, 100);
      recorded += 100;
      return api.objects.get(PLANNED) !== before[PLANNED];
    });
    expect(api.objects.get(HISTORY)).toEqual(before[HISTORY]);
    api.refuse = () => undefined;
    await soon('the histories', () => next.status.published.history.writes > 0);
    expect(next.lines).toContainEqual(expect.objectContaining({ msg: 'history restored' }));
    expect(next.measured.estimator.measured('shop', wall.now)?.samples).toBe(recorded + 300);
  });

  it('a leader does not write over curves that it could not read, and stores the history all the same', async () => {
    const { api, next, before } = await startWithout(PLANNED);
    await soon('the histories', () => next.status.published.history.writes > 0);
    expect(api.objects.get(PLANNED)).toEqual(before[PLANNED]);
    await next.stop();
    expect(api.objects.get(PLANNED)).toEqual(before[PLANNED]);
  });
});

it('a replica that leads before its watch has brought the curves takes them over with the lease', async () => {
  const { api, leader } = await withLeader();
  await soon('the histories', () => leader.status.published.history.writes > 0);
  await leader.stop();
  const blind = startReplica(api, 'a', {}, new Measured(), undefined, false);
  await leads(blind);
  await soon('the curves to be in force', () => blind.measured.inForce === leader.measured.inForce);
});

describe('a leader that has been deposed', () => {
  it('does not write over a later one’s, and learns of its end', async () => {
    const { api, leader } = await withLeader();
    // Another has taken the lease and has written, in one instant.
    const lease = api.objects.get(LEASE) as ApiObject & { spec: object };
    const spec = {
      ...lease.spec,
      holderIdentity: 'c',
      leaseTransitions: 6,
      renewTime: '2030-01-01T00:00:00.000000Z',
    };
    api.put(LEASE, { ...lease, spec });
    const object = api.objects.get(PLANNED) as ApiObject;
    const annotations = { ...object.metadata.annotations, 'linger.dev/term': '6', 'linger.dev/writer': 'c' };
    const theirs = { ...object, metadata: { ...object.metadata, annotations } };
    api.put(PLANNED, { ...theirs, data: { [PLANNED_KEY]: '{"v":2,"namespaces":{},"consumers":{}}' } });
    await soon('the leader to know', () => leader.status.holder === 'c');
    expect(textOf(api)).toBe('{"v":2,"namespaces":{},"consumers":{}}');
    // And its waits are those of the other.
    await soon('their table in force', () => p99(leader.measured) === undefined);
  });

  it('does not count as one if only the Lease was recreated: then it raises its term', async () => {
    const { api, leader } = await withLeader();
    const object = api.objects.get(PLANNED) as ApiObject;
    const annotations = { ...object.metadata.annotations, 'linger.dev/term': '40', 'linger.dev/writer': 'c' };
    api.put(PLANNED, { ...object, metadata: { ...object.metadata, annotations }, data: {} });
    await soon('the text', () => textOf(api) === leader.measured.inForce);
    expect(annotationsOf(api, PLANNED)['linger.dev/term']).toBe('41');
    expect(leader.status).toMatchObject({ leading: true, term: 41 });
  });
});

it('an internal error ends the term and is logged; the next term begins with the next renewal', async () => {
  const api = await openApi();
  const measured = new Measured();
  const next = measured.next.bind(measured);
  let mistakes = 0;
  measured.next = (table, now) => {
    if (mistakes++ < 2) throw new Error('a mistake');
    return next(table, now);
  };
  measured.record(4);
  const leader = startReplica(api, 'a', {}, measured);
  await soon('the lags in force', () => p99(measured) !== undefined);
  expect(
    msgs(leader.lines).filter((msg) => msg === 'internal error while publishing; restarting the term'),
  ).toHaveLength(2);
});

it('without a server it ends at once, and has disturbed nothing', async () => {
  const api = await openApi();
  api.refuse = () => ({ status: 503 });
  const replica = startReplica(api, 'a');
  await soon('failures', () => (replica.status.failures.lease.ServerError ?? 0) > 2);
  expect(msgs(replica.lines).filter((msg) => msg.startsWith('publishing failed'))).toHaveLength(2);
  await replica.stop();
  expect(replica.status.leading).toBe(false);
});
