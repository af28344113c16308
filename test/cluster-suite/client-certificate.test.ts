import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import https from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { blocksOf } from '../docs/markdown.ts';
import { ownConnection } from '../testbed/api.ts';
import { ApiClient, type ApiServer, openCluster, waitUntil } from '../testbed/cluster.ts';
import { type Linger, SERVICE_NAME } from './support/linger.ts';
import { type PodObject, pod } from './support/manifests.ts';
import { hookOf, planOf } from './support/outcome.ts';
import { clusterPolicy, fixedWait, policyFile } from './support/policies.ts';
import { openStage, type Stage } from './support/stage.ts';

/** What docs/reference/operations.md has the operator run and write, by a text that stands in it. */
function documented(language: string, text: string): string {
  const found = blocksOf('docs/reference/operations.md').filter(
    (block) => block.language === language && block.text.includes(text),
  );
  if (found.length !== 1)
    throw new Error(`docs/reference/operations.md: ${found.length} blocks with ${text}`);
  return found[0]!.text;
}

const FILES = '/etc/kubernetes/webhooks';

/** The documented files in a folder; returns the flag that leads an API server to them. */
function prepare(folder: string): string {
  mkdirSync(folder);
  const made = documented('sh', '/CN=webhook-clients');
  execFileSync('sh', ['-euc', made], { cwd: folder, stdio: 'pipe' });
  const moved = (text: string) => text.replaceAll(FILES, folder);
  writeFileSync(join(folder, 'kubeconfig'), moved(documented('yaml', `name: ${SERVICE_NAME}`)));
  const configuration = join(folder, 'admission.yaml');
  writeFileSync(configuration, moved(documented('yaml', 'kind: AdmissionConfiguration')));
  return `--admission-control-config-file=${configuration}`;
}

/** A foreign cluster cannot be given another API server. */
async function isOwn(): Promise<boolean> {
  const opened = await openCluster();
  await opened.close();
  return opened.own;
}

describe.runIf(await isOwn())('Linger that answers only clients with a certificate', () => {
  let stage: Stage;
  let namespace = '';
  let folder = '';
  let known: ApiServer;
  /** Client of the API server with the documented configuration. */
  let api: ApiClient;
  let linger: Linger;
  let foreignFlag = '';

  beforeAll(async () => {
    stage = await openStage(() => policyFile(clusterPolicy('base', fixedWait('5s'))));
    folder = mkdtempSync(join(tmpdir(), 'linger-client-ca-'));
    namespace = await stage.cluster.namespace('client-certificate');
    // In the documented order: first the API server gets its certificate, then Linger asks for it.
    known = await stage.cluster.startApiServer([prepare(join(folder, 'known'))]);
    foreignFlag = prepare(join(folder, 'foreign'));
    api = new ApiClient({
      ...ownConnection(stage.cluster.kubeconfig),
      url: new URL(`https://${known.host}:${known.port}`),
    });
    linger = await stage.startLinger({ clientCa: join(folder, 'known', 'client-ca.crt') });
    await stage.registration.setEndpoints([{ address: linger.host, port: linger.port }]);
    // An API server keeps the connections that it has.
    await stage.linger.stop('SIGKILL');
    await waitUntil('the endpoint to be known', async () => (await created(api)).mutated, {
      timeoutMs: 30_000,
    });
  }, 240_000);

  afterAll(async () => {
    api?.close();
    await stage?.close();
    rmSync(folder, { recursive: true, force: true });
  }, 120_000);

  let pods = 0;
  /** A pod that one of the API servers is asked for, as a dry run: admission is the same, and nothing is started. */
  async function created(by: ApiClient) {
    pods += 1;
    const object = pod(namespace, `pod-${pods}`, {});
    const before = performance.now();
    const { status, body } = await by.request<PodObject>(
      'POST',
      `/api/v1/namespaces/${namespace}/pods?dryRun=All`,
      {
        body: object,
      },
    );
    const seconds = (performance.now() - before) / 1000;
    return { status, seconds, mutated: status === 201 && planOf(body) !== undefined, pod: body };
  }

  const refused = () => linger.metric('linger_http_responses_total{code="403"}');

  /** The status with which Linger answers a review that comes from this client. */
  function ask(client: { readonly cert?: string; readonly key?: string }): Promise<number | undefined> {
    const { host, port, authority } = linger;
    const target = { host, port, servername: SERVICE_NAME, ca: authority, path: '/mutate', method: 'POST' };
    const review = {
      apiVersion: 'admission.k8s.io/v1',
      kind: 'AdmissionReview',
      request: {
        uid: '1',
        operation: 'CREATE',
        namespace: 'nowhere',
        dryRun: true,
        object: pod('x', 'x', {}),
      },
    };
    return new Promise((resolve, reject) => {
      const request = https.request({ ...target, ...client, agent: false }, (response) => {
        response.resume().on('end', () => resolve(response.statusCode));
      });
      request.on('error', reject).end(JSON.stringify(review));
    });
  }

  const clientOf = (name: string) => ({
    cert: readFileSync(join(folder, name, 'client.crt'), 'utf8'),
    key: readFileSync(join(folder, name, 'client.key'), 'utf8'),
  });

  it('mutates the pods of an API server that is configured as documented', async () => {
    const before = await refused();
    for (let count = 0; count < 5; count++) {
      const { status, pod: stored } = await created(api);
      expect(status).toBe(201);
      expect(stored.spec.containers.map(hookOf)).toEqual(['sleep 5']);
    }
    expect(await refused()).toBe(before);
  });

  it('refuses a stranger without a certificate, and one with a certificate of another authority', async () => {
    expect(await ask({})).toBe(403);
    expect(await ask(clientOf('foreign'))).toBe(403);
    expect(await ask(clientOf('known'))).toBe(200);
  });

  it('refuses an API server without the configuration, which creates its pods all the same', async () => {
    const before = await refused();
    const { status, mutated, seconds } = await created(stage.cluster.api);
    expect({ status, mutated }).toEqual({ status: 201, mutated: false });
    expect(await refused()).toBeGreaterThan(before);
    console.log(`refused by Linger, the pod was created in ${Math.round(seconds * 1000)} ms`);
    expect(seconds).toBeLessThan(2);
  });

  it('refuses an API server with a certificate of another authority, which creates its pods all the same', async () => {
    await known.restart([foreignFlag]);
    const before = await refused();
    // Until it knows the endpoint again it calls no webhook.
    await waitUntil('Linger to refuse it', async () => {
      const { status, mutated } = await created(api);
      expect({ status, mutated }).toEqual({ status: 201, mutated: false });
      return (await refused()) > before;
    });
    // The operator mends it.
    await known.restart();
    await waitUntil('a pod to be mutated again', async () => (await created(api)).mutated);
  });
});
