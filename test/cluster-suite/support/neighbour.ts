import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { json } from 'node:stream/consumers';
import { ensureCertificates } from '../../../src/certs/index.ts';
import { type Cluster, waitUntil } from '../../testbed/cluster.ts';
import { type Json, type PodObject, pod, silentContainer } from './manifests.ts';

export interface PatchOperation {
  readonly op: 'add' | 'replace' | 'remove';
  readonly path: string;
  readonly value?: unknown;
}

/** A neighbour's patch of a pod: RFC 6902 operations, or none. */
export type Mutation = (pod: PodObject) => readonly PatchOperation[];

export interface NeighbourOptions {
  /** Decides the order: the API server calls configurations in the order of their names. */
  readonly name: string;
  readonly namespace: string;
  readonly reinvocationPolicy?: 'Never' | 'IfNeeded';
  /** Whether it is called by a Service of its namespace; otherwise by its address. */
  readonly byService?: boolean;
  readonly mutate: Mutation;
}

interface Review {
  readonly request: { readonly uid: string; readonly object: PodObject };
}

const CONFIGURATION = { apiVersion: 'admissionregistration.k8s.io/v1', kind: 'MutatingWebhookConfiguration' };

/** Another mutating webhook: a real server, registered beside Linger for one namespace. */
export class Neighbour {
  readonly #cluster: Cluster;
  readonly #server: Server;
  readonly #reference: typeof CONFIGURATION & { metadata: { name: string } };

  private constructor(cluster: Cluster, server: Server, name: string) {
    this.#cluster = cluster;
    this.#server = server;
    this.#reference = { ...CONFIGURATION, metadata: { name } };
  }

  /** Resolves when the API server calls it. */
  static async start(cluster: Cluster, options: NeighbourOptions): Promise<Neighbour> {
    const directory = mkdtempSync(join(tmpdir(), 'linger-neighbour-'));
    const { nodeAddress } = cluster;
    const { name, namespace, byService = false } = options;
    const names = [nodeAddress, `${name}.${namespace}.svc`];
    const certificate = await ensureCertificates({ directory, names }, new Date());
    rmSync(directory, { recursive: true });
    let called = false;
    const mutate: Mutation = (object) => {
      called = true;
      return options.mutate(object);
    };
    const server = reviewServer(certificate, mutate);
    await new Promise<void>((resolve) => server.listen(0, nodeAddress, resolve));
    const neighbour = new Neighbour(cluster, server, options.name);
    const { port } = server.address() as AddressInfo;
    if (byService) await inFrontOf(cluster, { namespace, name }, port);
    const clientConfig = {
      ...(byService
        ? { service: { namespace, name, path: '/' } }
        : { url: `https://${nodeAddress}:${port}/` }),
      caBundle: Buffer.from(certificate.caBundle ?? '').toString('base64'),
    };
    await cluster.create({ ...neighbour.#reference, webhooks: [webhook(options, clientConfig)] } as never);
    await waitUntil('the API server to call the neighbour', async () => {
      await cluster.create(pod(options.namespace, 'neighbour-probe', {}), { dryRun: true });
      return called;
    });
    return neighbour;
  }

  async stop(): Promise<void> {
    await this.#cluster.delete(this.#reference);
    this.#server.close();
    this.#server.closeAllConnections();
  }
}

function webhook({ namespace, reinvocationPolicy = 'Never' }: NeighbourOptions, clientConfig: Json): Json {
  return {
    name: 'neighbour.example.dev',
    admissionReviewVersions: ['v1'],
    sideEffects: 'None',
    // A neighbour that cannot be called must fail the test and not pass unnoticed.
    failurePolicy: 'Fail',
    timeoutSeconds: 5,
    reinvocationPolicy,
    clientConfig,
    rules: [{ apiGroups: [''], apiVersions: ['v1'], resources: ['pods'], operations: ['CREATE'] }],
    namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': namespace } },
  };
}

/**
 * A Service without a selector; from its Endpoints a controller makes a slice. API servers proxy only to addresses of pods:
 * there is one that has the node's.
 */
async function inFrontOf(
  cluster: Cluster,
  metadata: { readonly namespace: string; readonly name: string },
  port: number,
): Promise<void> {
  await cluster.create({
    apiVersion: 'v1',
    kind: 'Service',
    metadata,
    spec: { ports: [{ port: 443 }] },
  } as never);
  const spec = { hostNetwork: true, containers: [silentContainer('server')] };
  const server = pod(metadata.namespace, metadata.name, spec);
  await cluster.create(server as never);
  await cluster.waitFor<PodObject & { status?: { podIP?: string } }>(
    server,
    ({ status }) => status?.podIP !== undefined,
  );
  const targetRef = { kind: 'Pod', ...metadata };
  const subsets = [{ addresses: [{ ip: cluster.nodeAddress, targetRef }], ports: [{ port }] }];
  await cluster.create({ apiVersion: 'v1', kind: 'Endpoints', metadata, subsets } as never);
}

function reviewServer({ cert, key }: { cert: string; key: string }, mutate: Mutation): Server {
  return createServer({ cert, key }, (request, response) => {
    void json(request).then((body) => {
      const { uid, object } = (body as Review).request;
      const patch = Buffer.from(JSON.stringify(mutate(object))).toString('base64');
      const answer = { uid, allowed: true, patchType: 'JSONPatch', patch };
      const review = { apiVersion: 'admission.k8s.io/v1', kind: 'AdmissionReview', response: answer };
      response.setHeader('Content-Type', 'application/json').end(JSON.stringify(review));
    });
  });
}

/** Sets the grace, whatever it was. */
export function graceOf(seconds: number): Mutation {
  return () => [{ op: 'add', path: '/spec/terminationGracePeriodSeconds', value: seconds }];
}

/** Lowers the grace if it is longer, as a cluster's policy engine may. */
export function clampGrace(seconds: number): Mutation {
  return (object) => (object.spec.terminationGracePeriodSeconds > seconds ? graceOf(seconds)(object) : []);
}

/** Adds a container to the end unless it is there. */
export function addContainer(container: Json & { readonly name: string }): Mutation {
  return ({ spec }) =>
    spec.containers.some(({ name }) => name === container.name)
      ? []
      : [{ op: 'add', path: '/spec/containers/-', value: container }];
}
