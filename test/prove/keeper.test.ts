import { expect, onTestFinished, test } from 'vitest';
import { removeNamespace } from '../../src/prove/workload-copy.ts';
import { ModelApi } from '../leader/model-api.ts';

const NAMESPACE = '/api/v1/namespaces/copy';
const LIMITS = { forMs: 60_000, everyMs: 1 };

/** @param answers statuses of the first requests, and of all others if there is a last one for them */
async function removing(answers: readonly number[], last?: number, limits = LIMITS) {
  const api = await ModelApi.start();
  onTestFinished(() => api.close());
  api.put(NAMESPACE, { kind: 'Namespace', metadata: { name: 'copy' } });
  const left = [...answers];
  api.refuse = () => {
    const status = left.shift() ?? last;
    return status === undefined ? undefined : { status };
  };
  const removed = removeNamespace({ server: api.url, credentials: async () => ({}) }, 'copy', limits);
  const failure = await removed.then(
    () => undefined,
    (thrown: { reason: string }) => thrown.reason,
  );
  const others = api.requests.filter(({ method, path }) => method !== 'DELETE' || path !== NAMESPACE);
  expect(others).toEqual([]);
  return { failure, tries: api.requests.length };
}

test('the namespace is removed once the API server is back, although it denies that at first', async () => {
  expect(await removing([503, 503, 429, 403, 403])).toEqual({ failure: undefined, tries: 6 });
});

test('one that is gone, or going, is no failure', async () => {
  expect(await removing([503, 404])).toEqual({ failure: undefined, tries: 2 });
  expect(await removing([503, 409])).toEqual({ failure: undefined, tries: 2 });
});

test('it gives up without the right, which may have gone with the namespace, and after its time', async () => {
  expect(await removing([], 403)).toEqual({ failure: 'Forbidden', tries: 9 });
  expect(await removing([], 503, { ...LIMITS, forMs: 0 })).toEqual({ failure: 'ServerError', tries: 1 });
});
