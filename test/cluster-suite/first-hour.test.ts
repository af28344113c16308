import { afterAll, beforeAll, expect, it } from 'vitest';
import { type Cluster, openCluster, waitUntil } from '../testbed/cluster.ts';
import { Installation } from './support/installation.ts';

const POLICY = JSON.stringify({
  apiVersion: 'linger.dev/v1alpha1',
  kind: 'ClusterTerminationPolicy',
  metadata: { name: 'base' },
  spec: { mode: 'Audit' },
});
const SAMPLES = 8;
/** A hundred samples in 20 minutes. */
const SECONDS_A_SAMPLE = 12;

let cluster: Cluster;
let linger: Installation;

beforeAll(async () => {
  cluster = await openCluster();
  if (cluster.own) linger = await Installation.create(cluster, { policies: POLICY, flags: [] });
}, 240_000);

afterAll(async () => {
  await linger?.remove();
  await cluster?.close();
}, 240_000);

it('cluster-ip gets its samples at a rate of a hundred in 20 minutes after an installation', {
  timeout: 300_000,
}, async () => {
  if (!cluster.own) return;
  const samples = async () => {
    const counts = await linger.replicas.sums('linger_consumer_samples{consumer="cluster-ip"}');
    return Math.max(0, ...counts.values());
  };
  const reach = (count: number) =>
    waitUntil(`${count} samples`, async () => (await samples()) >= count, {
      timeoutMs: 120_000,
      intervalMs: 500,
    });
  await reach(1);
  const [begun, first] = [performance.now(), await samples()];
  await reach(first + SAMPLES);
  const seconds = (performance.now() - begun) / 1000 / SAMPLES;
  console.log(
    `a sample of cluster-ip every ${seconds.toFixed(1)} s: 100 in ${((seconds * 100) / 60).toFixed(0)} min`,
  );
  expect(seconds).toBeLessThan(SECONDS_A_SAMPLE);
});
