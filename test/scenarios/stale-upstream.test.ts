import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { emptyDirectory } from '../cli/linger.ts';
import { installRights, kubeconfigOf } from '../cluster-suite/support/account.ts';
import { CrdJudge } from '../cluster-suite/support/crd-judge.ts';
import { standIn } from '../cluster-suite/support/gateways.ts';
import { Linger } from '../cluster-suite/support/linger.ts';
import { appContainer, pod, service } from '../cluster-suite/support/manifests.ts';
import { startPod } from '../cluster-suite/support/termination.ts';
import { type NewObject, type ObjectReference, waitUntil } from '../testbed/cluster.ts';
import { atEndOfFile } from '../webhook/connection.ts';
import { LONG } from './form.ts';

// In the long form alone: instances at rest are asked every two minutes.
const NAME = 'stale-edge';
/** A dead address is named within three minutes; and some for a machine that does other things. */
const NAMED_WITHIN_MS = 180_000;
const atEnd = atEndOfFile();
const outside: ObjectReference[] = [];
let judge: CrdJudge;
let linger: Linger;
let namespace = '';
let shown: readonly string[] = [];
const page = createServer((_, response) => response.end(shown.join('\n')));

describe.runIf(LONG)('a gateway that keeps a dead address', () => {
  beforeAll(async () => {
    judge = await CrdJudge.open({ kind: 'DiscoveryConsumer', plural: 'discoveryconsumers' });
    const { cluster } = judge;
    page.listen(0, cluster.nodeAddress);
    await once(page, 'listening');
    namespace = await cluster.namespace('stale');
    await cluster.create({
      apiVersion: 'v1',
      kind: 'ServiceAccount',
      metadata: { namespace, name: 'linger' },
    });
    for (const file of ['role-publish.yaml', 'rbac.yaml'])
      outside.push(...(await installRights(cluster, namespace, file)));
    const only = { matchLabels: { 'kubernetes.io/metadata.name': namespace } };
    const { port } = page.address() as AddressInfo;
    const instances = {
      namespaceSelector: only,
      podSelector: { matchLabels: { gateway: 'edge' } },
      port,
      path: '/',
    };
    const spec = {
      appliesTo: { namespaceSelector: only },
      measure: { inspect: { format: 'Text', instances } },
    };
    await cluster.api.call('POST', judge.path, { body: judge.objectOf(spec, NAME) });
    await standIn(cluster, namespace, 'edge');
    await cluster.create(service(namespace, 'web'));
    const directory = await emptyDirectory(atEnd);
    const kubeconfig = join(directory, 'config');
    await writeFile(kubeconfig, await kubeconfigOf(cluster, namespace, 'linger'));
    const flags = { 'audit-every': '0', 'hold-port': '0', 'canary-every': '0' };
    linger = await Linger.start({ host: cluster.nodeAddress, kubeconfig, directory, namespace, flags });
  }, 120_000);

  afterAll(async () => {
    page.close();
    await linger?.stop();
    await judge.cluster.api.request('DELETE', `${judge.path}/${NAME}`);
    for (const object of outside) await judge.cluster.delete(object);
    await judge.close();
  }, 120_000);

  interface Stored {
    readonly status?: {
      readonly conditions?: readonly { readonly reason: string; readonly message: string }[];
    };
  }

  it('a page that keeps a dead address is named within 3 minutes, in status, metric and Event, until it has let go', {
    timeout: 420_000,
  }, async () => {
    const { cluster } = judge;
    const web = pod(namespace, 'web', { containers: [appContainer('app')] }, { labels: { app: 'web' } });
    const running = await startPod(cluster, web as NewObject);
    const { status } = (await cluster.get(web as NewObject)) as unknown as { status: { podIP: string } };
    shown = [`${status.podIP}:8080`];
    await waitUntil(
      'the page to be read',
      async () => (await linger.metric('linger_inspect_instances')) > 0,
      {
        timeoutMs: 60_000,
      },
    );
    await running.terminate();
    const goneAt = performance.now();
    const condition = async () =>
      (await cluster.api.call<Stored>('GET', `${judge.path}/${NAME}`)).status?.conditions?.[0];
    const isNamed = async () => (await condition())?.reason === 'StaleUpstream';
    await waitUntil('the condition', isNamed, { timeoutMs: NAMED_WITHIN_MS + 30_000, intervalMs: 500 });
    const seconds = (performance.now() - goneAt) / 1000;
    console.log(`a dead address is named after ${seconds.toFixed(0)} s`);
    expect(seconds).toBeLessThan(NAMED_WITHIN_MS / 1000 + 5);
    expect((await condition())?.message).toBe(
      `${namespace}/edge still sends to ${status.podIP} (of Service ${namespace}/web), which no slice lists: restart it, and see why it does not follow.`,
    );
    const path = `/api/v1/namespaces/${namespace}/events?fieldSelector=involvedObject.kind%3DService`;
    await waitUntil('the Event', async () => {
      const { items } = await cluster.api.call<{ items: { reason: string }[] }>('GET', path);
      return items.some(({ reason }) => reason === 'StaleUpstream');
    });
    expect(await linger.metric('linger_inspect_stale_upstreams')).toBe(1);
    shown = [];
    await waitUntil('the condition to be over', async () => !(await isNamed()), {
      timeoutMs: 160_000,
      intervalMs: 500,
    });
  });
});
