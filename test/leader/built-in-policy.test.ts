import { describe, expect, it, onTestFinished } from 'vitest';
import { CLUSTER_TERMINATION_POLICIES, customResource } from '../../src/informers/index.ts';
import { createBuiltInPolicy } from '../../src/leader/built-in-policy.ts';
import { createLogger } from '../../src/telemetry/index.ts';
import { pause } from '../../src/timing/index.ts';
import { ModelApi } from './model-api.ts';

const POLICY = '/apis/linger.dev/v1alpha1/clusterterminationpolicies/built-in';
const RECORD = '/api/v1/namespaces/linger/configmaps/linger-built-in-policy';

/** One term; time passes as fast as it can. Ends by itself when there is nothing left to do, or after many seconds. */
async function term(api: ModelApi, wanted: () => boolean = () => true): Promise<readonly string[]> {
  const leading = new AbortController();
  const { signal } = leading;
  const logs: string[] = [];
  let now = 0;
  await createBuiltInPolicy(
    { signal, holds: () => !signal.aborted },
    {
      connection: { server: api.url, credentials: async () => ({}) },
      place: { namespace: 'linger', identity: 'a' },
      wanted,
      logger: createLogger('info', {
        write: (line) => void logs.push((JSON.parse(line) as { msg: string }).msg),
      }),
      clock: () => now,
      random: () => 0.5,
      pause: async (milliseconds) => {
        now += milliseconds;
        if (now > 100_000) leading.abort();
        return pause(0, signal);
      },
    },
  );
  return logs;
}

async function openApi(): Promise<ModelApi> {
  const api = await ModelApi.start();
  onTestFinished(() => api.close());
  return api;
}

describe('the policy that shows the built-in values', () => {
  it('is created, sets nothing, and is below all others', async () => {
    const api = await openApi();
    expect(await term(api)).toEqual(['built-in policy created']);
    const { value, problem } = customResource(CLUSTER_TERMINATION_POLICIES).project(
      api.objects.get(POLICY) as never,
    );
    expect(problem).toBeUndefined();
    expect(value?.spec).toEqual({ priority: -1_000_000 });
    expect(api.objects.get(POLICY)?.metadata.labels).toMatchObject({
      'app.kubernetes.io/managed-by': 'linger',
    });
  });

  it('is not created again after it was deleted, and nothing is written any more', async () => {
    const api = await openApi();
    await term(api);
    api.delete(POLICY);
    const before = api.requests.length;
    expect(await term(api)).toEqual([]);
    expect(api.requests.slice(before).map(({ method }) => method)).toEqual(['GET']);
    expect(api.objects.has(POLICY)).toBe(false);
  });

  it('is left as it is where another leader, or a person, was quicker', async () => {
    const api = await openApi();
    const theirs = api.put(POLICY, { metadata: { name: 'built-in' }, spec: { mode: 'Off' } });
    expect(await term(api)).toEqual([]);
    expect(api.objects.get(POLICY)).toEqual(theirs);
    expect(api.objects.has(RECORD)).toBe(true);
  });

  it('waits for the policies to be listed, and does nothing where there are others', async () => {
    const api = await openApi();
    let asked = 0;
    expect(await term(api, () => ++asked > 3)).toEqual(['built-in policy created']);
    const other = await openApi();
    expect(await term(other, () => false)).toEqual([]);
    expect(other.requests).toEqual([]);
  });

  it('is tried again after a failure, which is logged once, and recorded only when it is there', async () => {
    const api = await openApi();
    let failures = 0;
    api.refuse = ({ method }) => {
      if (method !== 'PATCH') return undefined;
      failures += 1;
      return failures < 4 ? { status: 403 } : undefined;
    };
    api.before = ({ method }) => {
      if (method === 'PATCH') expect(api.objects.has(RECORD)).toBe(false);
    };
    expect(await term(api)).toEqual([
      'creating the built-in policy failed; retrying, decisions do not depend on it',
      'built-in policy created',
    ]);
    expect(api.objects.has(RECORD)).toBe(true);
  });
});
