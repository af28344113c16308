import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Cluster, type KubernetesObject, openCluster, waitUntil } from '../testbed/cluster.ts';
import { Linger } from './support/linger.ts';
import { pod, silentContainer } from './support/manifests.ts';
import { createPod, summaryOf } from './support/outcome.ts';
import { Registration } from './support/registration.ts';

/** As long as a change may take from the API server's answer to the next decision, this machine's pauses included. */
const SEEN_WITHIN_MS = 2_000;

/** A server that follows the cluster in which it decides. */
describe('what a server knows of its cluster', () => {
  const directory = mkdtempSync(join(tmpdir(), 'linger-following-'));
  let cluster: Cluster;
  let linger: Linger;
  let registration: Registration;

  beforeAll(async () => {
    cluster = await openCluster();
    linger = await Linger.start({ host: cluster.nodeAddress, directory, kubeconfig: cluster.kubeconfig });
    const endpoint = { address: linger.host, port: linger.port };
    registration = await Registration.create(cluster, linger.authority, [endpoint]);
  });

  afterAll(async () => {
    await linger?.stop('SIGKILL');
    await registration?.remove();
    await cluster?.close();
    rmSync(directory, { recursive: true, force: true });
  });

  /** Says what would become of a pod that nothing but a Service marks as serving. */
  async function decided(namespace: string): Promise<string> {
    const quiet = { containers: [silentContainer('app')] };
    const object = pod(namespace, 'quiet', quiet, { labels: { app: 'web' } });
    return summaryOf(await createPod({ cluster, linger }, object, { dryRun: true }));
  }

  const becomes = (namespace: string, summary: string) =>
    waitUntil(`${summary} in ${namespace}`, async () => (await decided(namespace)) === summary, {
      intervalMs: 50,
      timeoutMs: SEEN_WITHIN_MS,
    });

  const service = (namespace: string) => ({
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { namespace, name: 'web' },
    spec: { selector: { app: 'web' }, ports: [{ port: 80 }] },
  });

  it('Services: whether one selects a pod, as soon as it is there, and no longer than that', async () => {
    const namespace = await cluster.namespace('following');
    expect(await decided(namespace)).toBe('NotServing: app -; grace 30');
    await cluster.create(service(namespace));
    await becomes(namespace, 'Injected: app sleep 30; grace 60');
    await cluster.patch(service(namespace), { spec: { selector: { app: 'other' } } });
    await becomes(namespace, 'NotServing: app -; grace 30');
    await cluster.patch(service(namespace), { spec: { selector: { app: 'web' } } });
    await becomes(namespace, 'Injected: app sleep 30; grace 60');
    await cluster.delete(service(namespace));
    await becomes(namespace, 'NotServing: app -; grace 30');
  });

  it('Namespaces: their annotations are a layer of the policy', async () => {
    const namespace = await cluster.namespace('following');
    await cluster.create(service(namespace));
    await becomes(namespace, 'Injected: app sleep 30; grace 60');
    const object = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } };
    await cluster.patch(object, { metadata: { annotations: { 'linger.dev/wait': '7s' } } });
    await becomes(namespace, 'Injected: app sleep 7; grace 37');
    await cluster.patch(object, { metadata: { annotations: { 'linger.dev/hook': 'Exec' } } });
    await becomes(namespace, 'Injected: app ["sleep","7"]; grace 37');
  });

  it('nothing less while the API server is away, and what has changed when it is back', {
    timeout: 120_000,
  }, async () => {
    if (!cluster.own) return;
    const namespace = await cluster.namespace('following');
    await cluster.create(service(namespace));
    await becomes(namespace, 'Injected: app sleep 30; grace 60');
    // The Services that other tests have left go with their namespaces.
    const namespaces = () => cluster.list({ apiVersion: 'v1', kind: 'Namespace' });
    const isGoing = ({ metadata }: KubernetesObject) => 'deletionTimestamp' in metadata;
    await waitUntil('namespaces to be gone', async () => !(await namespaces()).some(isGoing));
    const stillKnown = await linger.metric('linger_watch_objects{resource="services"}');

    let over = false;
    const restarted = cluster.restart('kube-apiserver').finally(() => {
      over = true;
    });
    const answers: boolean[] = [];
    while (!over) {
      // Asks about a review of its own, past the API server.
      await linger.decisions(namespace);
      answers.push(await linger.ready());
    }
    await restarted;
    expect(answers.length).toBeGreaterThan(3);
    expect(answers).not.toContain(false);
    expect(await linger.metric('linger_watch_objects{resource="services"}')).toBe(stillKnown);
    console.log(`ready and answering ${answers.length} times while the API server restarted`);

    const current = async () => (await linger.metric('linger_watch_current')) === 6;
    await waitUntil('every watch to be current again', current, { timeoutMs: 60_000 });
    await waitUntil('the API server to ask again', async () =>
      (await decided(namespace)).startsWith('Injected'),
    );
    await cluster.delete(service(namespace));
    await becomes(namespace, 'NotServing: app -; grace 30');
  });
});
