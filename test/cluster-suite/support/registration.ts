import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse } from 'yaml';
import { type Cluster, type KubernetesObject, waitUntil } from '../../testbed/cluster.ts';
import { appContainer, type PodObject, pod } from './manifests.ts';

const DEPLOY = join(import.meta.dirname, '..', '..', '..', 'deploy');

/** Where one replica listens, in the form of an EndpointSlice. */
export interface ReplicaEndpoint {
  readonly address: string;
  readonly port: number;
  readonly ready?: boolean;
}

export interface WebhookConfiguration extends KubernetesObject {
  readonly webhooks: readonly Readonly<Record<string, unknown>>[];
}

/** Marks the namespace as the suite's: a test must not replace an existing installation. */
const OWNER_LABEL = { 'app.kubernetes.io/managed-by': 'linger-cluster-suite' };

const NAMESPACE = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'linger' } };
const CONFIGURATION = {
  apiVersion: 'admissionregistration.k8s.io/v1',
  kind: 'MutatingWebhookConfiguration',
  metadata: { name: 'linger' },
};

/**
 * Linger registered as deploy/ says, except that the Service selects no pods: its endpoints are processes that the
 * suite started. The API server reaches them in the same way: Service reference, ClusterIP, kube-proxy.
 */
export class Registration {
  readonly #cluster: Cluster;

  private constructor(cluster: Cluster) {
    this.#cluster = cluster;
  }

  /** Resolves once a pod has been mutated. */
  static async create(
    cluster: Cluster,
    authority: string,
    endpoints: readonly ReplicaEndpoint[],
  ): Promise<Registration> {
    await refuseForeignInstallation(cluster);
    const namespace = manifest('namespace.yaml');
    const labels = { ...namespace.metadata.labels, ...OWNER_LABEL };
    await ensure(cluster, { ...namespace, metadata: { name: 'linger', labels } });
    const service = manifest('service.yaml');
    await ensure(cluster, { ...service, spec: { ...service.spec, selector: undefined } });
    const registration = new Registration(cluster);
    await registration.setEndpoints(endpoints);
    await cluster.mustKubectl(['apply', '-f', join(DEPLOY, 'webhook.yaml')]);
    const caBundle = Buffer.from(authority).toString('base64');
    const patch = [{ op: 'add', path: '/webhooks/0/clientConfig/caBundle', value: caBundle }];
    const target = ['mutatingwebhookconfiguration', 'linger'];
    await cluster.mustKubectl(['patch', ...target, '--type=json', '-p', JSON.stringify(patch)]);
    await registration.untilMutated();
    return registration;
  }

  /** Replaces the endpoints, with one slice each, since each may have its own port. */
  async setEndpoints(endpoints: readonly ReplicaEndpoint[]): Promise<void> {
    const known = await this.#cluster.list({ ...SLICE, namespace: 'linger' }, SLICE_LABELS);
    const names = endpoints.map((_, index) => `linger-${index}`);
    const surplus = known.filter(({ metadata }) => !names.includes(metadata.name));
    await Promise.all(surplus.map((slice) => this.#cluster.delete({ ...SLICE, metadata: slice.metadata })));
    await Promise.all(endpoints.map((each, index) => this.#setEndpoint(names[index] ?? '', each)));
  }

  async #setEndpoint(name: string, { address, port, ready = true }: ReplicaEndpoint): Promise<void> {
    const slice = {
      ...SLICE,
      metadata: { name, namespace: 'linger', labels: { 'kubernetes.io/service-name': 'linger' } },
      addressType: 'IPv4',
      endpoints: [{ addresses: [address], conditions: { ready, serving: ready } }],
      ports: [{ name: 'webhook', port, protocol: 'TCP' }],
    };
    if (!(await ensure(this.#cluster, slice))) await this.#cluster.patch(slice, slice);
  }

  /** Changes the webhook as an operator may; the caller waits until it takes effect. */
  async edit(change: (webhook: Readonly<Record<string, unknown>>) => object): Promise<void> {
    const { webhooks } = await this.#configuration();
    await this.#cluster.patch(CONFIGURATION, { webhooks: webhooks.map(change) });
  }

  /** As deploy/fail-closed changes it. */
  async failClosed(): Promise<void> {
    const patch = ['--type=json', `--patch-file=${join(DEPLOY, 'fail-closed', 'webhook.yaml')}`];
    await this.#cluster.mustKubectl(['patch', 'mutatingwebhookconfiguration', 'linger', ...patch]);
  }

  async #configuration(): Promise<WebhookConfiguration> {
    const found = await this.#cluster.get<WebhookConfiguration>(CONFIGURATION);
    if (found === undefined) throw new Error('the webhook configuration is gone');
    return found;
  }

  /** The API server reads changed configurations and endpoints within a second or so. */
  async untilMutated(): Promise<void> {
    await waitUntil('a pod to be mutated', () => isMutated(this.#cluster), {
      timeoutMs: 30_000,
      intervalMs: 100,
    });
  }

  /** Removes everything except the namespace, which is deleted separately. */
  async remove(): Promise<void> {
    await this.#cluster.delete(CONFIGURATION);
    await this.#cluster.delete(NAMESPACE);
  }
}

const SLICE = { apiVersion: 'discovery.k8s.io/v1', kind: 'EndpointSlice' };
const SLICE_LABELS = 'kubernetes.io/service-name=linger';

async function isMutated(cluster: Cluster): Promise<boolean> {
  const annotations = { 'linger.dev/inject': 'true', 'linger.dev/wait': '1s', 'linger.dev/mode': 'Enforce' };
  const probe = pod('default', 'linger-probe', { containers: [appContainer('app')] }, { annotations });
  const created = await cluster.create<PodObject>(probe, { dryRun: true });
  return created.metadata.annotations?.['linger.dev/plan'] !== undefined;
}

async function refuseForeignInstallation(cluster: Cluster): Promise<void> {
  await waitUntil('an earlier namespace linger to be gone', async () => {
    const found = await cluster.get(NAMESPACE);
    return found?.metadata.deletionTimestamp === undefined;
  });
  const namespace = await cluster.get(NAMESPACE);
  const configuration = await cluster.get(CONFIGURATION);
  const owner = namespace?.metadata.labels?.['app.kubernetes.io/managed-by'];
  const ours = owner === OWNER_LABEL['app.kubernetes.io/managed-by'];
  if (ours || (namespace === undefined && configuration === undefined)) return;
  throw new Error('Linger is installed in this cluster, and the suite would replace it: use another cluster');
}

interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly labels?: Readonly<Record<string, string>> };
  readonly spec?: object;
}

function manifest(file: string): Manifest {
  return parse(readFileSync(join(DEPLOY, file), 'utf8')) as Manifest;
}

/** Creates an object unless it exists. @returns whether it did */
async function ensure(cluster: Cluster, object: Manifest): Promise<boolean> {
  const { status, body } = await cluster.tryCreate(object);
  if (status >= 300 && status !== 409) throw new Error(JSON.stringify(body));
  return status < 300;
}
