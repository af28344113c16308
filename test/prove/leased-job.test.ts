import { expect, onTestFinished, test } from 'vitest';
import { LeasedJob } from '../../src/prove/leased-job.ts';
import { ModelApi } from '../leader/model-api.ts';

const OPTIONS = { namespace: 'shop', image: 'linger:none', pods: 1, args: ['prove-send'] };

async function starting(reason: string, within: { readonly start: number; readonly pull: number }) {
  const api = await ModelApi.start();
  onTestFinished(() => api.close());
  const waiting = { reason, message: 'back-off' };
  const status = { phase: 'Pending', containerStatuses: [{ state: { waiting } }] };
  const list = { kind: 'PodList', items: [{ metadata: { name: 'p' }, status }], metadata: {} };
  api.put('/api/v1/namespaces/shop/pods', list);
  api.put('/apis/batch/v1/namespaces/shop/jobs', { kind: 'Job', metadata: {} });
  const connection = { server: api.url, credentials: async () => ({}) };
  const job = new LeasedJob(connection, OPTIONS, new AbortController().signal, within);
  const failure = await job.start(() => undefined).catch((error: Error) => error.message);
  job.release();
  return failure;
}

test('an image that cannot be pulled is named long before pods count as late', async () => {
  expect(await starting('ImagePullBackOff', { start: 600, pull: 0 })).toMatch(
    /\(image linger:none\) did not start within 0s: pod p: ImagePullBackOff: back-off; --image names/,
  );
});

test('a pod that is slow to start has its time', async () => {
  expect(await starting('ContainerCreating', { start: 0, pull: 0 })).toMatch(/ContainerCreating/);
});
