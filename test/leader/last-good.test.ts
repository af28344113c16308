import { expect, it, onTestFinished } from 'vitest';
import { readLastGood } from '../../src/leader/last-good.ts';
import type { ModelApi } from './model-api.ts';
import { leads, Measured, openApi, soon, startReplica } from './replica.ts';

const POLICIES = '/api/v1/namespaces/linger/configmaps/linger-last-good';

interface Seen {
  readonly namespace: string;
  readonly name: string;
  readonly good?: string;
  readonly problem?: string;
}

const uidOf = ({ namespace, name }: Seen) => `uid of ${namespace}/${name}`;

function reading(api: ModelApi) {
  const stopping = new AbortController();
  onTestFinished(() => stopping.abort());
  const failures: unknown[] = [];
  const connection = { server: api.url, credentials: async () => ({}) };
  const stored = readLastGood(connection, 'linger', stopping.signal, (thrown) => void failures.push(thrown));
  return { stored, failures };
}

/** A leader that sees these policies; tests change them. */
async function leading(api: ModelApi, ...objects: Seen[]) {
  const { stored } = reading(api);
  await stored.read;
  const state = { objects, known: true };
  const policies = {
    TerminationPolicy: {
      known: () => state.known,
      objects: () => state.objects.map((each) => ({ ...each, uid: uidOf(each) })) as never,
    },
  };
  const more = { lastGood: { policies, stored } };
  const leader = startReplica(api, 'a', {}, new Measured(), undefined, true, [], more);
  await leads(leader);
  return { leader, state };
}

const storedIn = async (api: ModelApi) => {
  const { stored } = reading(api);
  await stored.read;
  return [...(stored.of('TerminationPolicy') ?? [])].map(([key, { uid, spec }]) => [key, uid, spec]);
};

const own = { namespace: 'shop', name: 'own', good: '{"mode":"Off"}' };

it('good specs are stored, followed, and read by the next replica', async () => {
  const api = await openApi();
  const { leader, state } = await leading(api, own);
  await soon('them', () => api.objects.has(POLICIES));
  expect(await storedIn(api)).toEqual([['shop/own', uidOf(own), own.good]]);
  // Broken now: what is known of it stays.
  state.objects = [
    { ...own, problem: 'mode' },
    { namespace: 'shop', name: 'new', good: '{}' },
  ];
  const { writes } = leader.status.published.policies;
  await soon('a write', () => leader.status.published.policies.writes > writes);
  expect(await storedIn(api)).toEqual([
    ['shop/own', uidOf(own), own.good],
    ['shop/new', 'uid of shop/new', '{}'],
  ]);
  expect(leader.status.published.policies.bytes).toBeGreaterThan(50);
});

it('what this version cannot read is kept for one that can', async () => {
  const api = await openApi();
  const first = await leading(api, own);
  await soon('it', () => api.objects.has(POLICIES));
  await first.leader.stop();
  const { good: _, ...unreadable } = own;
  const { leader } = await leading(api, { ...unreadable, problem: 'later' });
  await soon('a write', () => leader.status.published.planned !== undefined && leader.status.leading);
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect(await storedIn(api)).toEqual([['shop/own', uidOf(own), own.good]]);
});

it('nothing is written before all policies have been read', async () => {
  const api = await openApi();
  const { state } = await leading(api);
  state.known = false;
  state.objects = [own];
  await new Promise((resolve) => setTimeout(resolve, 100));
  const before = await storedIn(api);
  state.known = true;
  await soon('it', () => api.objects.has(POLICIES));
  expect(before).toEqual([]);
});

it('more than there is room for: broken ones first, and no namespace crowds out the others', async () => {
  const api = await openApi();
  const long = JSON.stringify({
    containers: Array.from({ length: 250 }, (_, each) => `${each}`.padEnd(60, 'x')),
  });
  const greedy = Array.from({ length: 60 }, (_, each) => ({ namespace: 'a', name: `p${each}`, good: long }));
  const broken = { namespace: 'z', name: 'broken', good: '{}', problem: 'x' };
  await leading(api, ...greedy, { namespace: 'b', name: 'one', good: '{}' }, broken);
  await soon('it', () => api.objects.has(POLICIES));
  const keys = (await storedIn(api)).map(([key]) => key);
  expect(keys).toContain('z/broken');
  expect(keys).toContain('b/one');
  expect(keys.length).toBeGreaterThan(15);
  expect(keys.length).toBeLessThan(60);
});

it('they are read as soon as that is possible', async () => {
  const api = await openApi();
  let refusing = true;
  api.refuse = () => (refusing ? { status: 503 } : undefined);
  const { stored, failures } = reading(api);
  await soon('a failure', () => failures.length > 0);
  expect(stored.of('TerminationPolicy')).toBeUndefined();
  refusing = false;
  await stored.read;
  expect(stored.of('TerminationPolicy')).toEqual(new Map());
});
