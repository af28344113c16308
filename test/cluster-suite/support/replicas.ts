import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { parseAllDocuments } from 'yaml';
import type { KubeConnection, WatchStats } from '../../../src/cluster/index.ts';
import { followPublished, PUBLISH_LIMITS, startPublishing } from '../../../src/leader/index.ts';
import type { Publishing } from '../../../src/leader/publishing.ts';
import { createLogger } from '../../../src/telemetry/index.ts';

import { pause } from '../../../src/timing/index.ts';
import { bearer } from '../../cluster/bearer.ts';
import { Measured } from '../../leader/replica.ts';
import { Balancer } from '../../testbed/balancer.ts';
import type { Cluster, NewObject } from '../../testbed/cluster.ts';

const DEPLOY = join(import.meta.dirname, '..', '..', '..', 'deploy');
const ACCOUNT = 'linger';

type Installed = NewObject & { readonly subjects?: readonly object[] };

/**
 * A namespace in which the ServiceAccount `linger` has exactly the rights of deploy/role-publish.yaml, or of these files.
 * @returns the namespace, and the account's token
 */
export async function placeToPublish(
  cluster: Cluster,
  ...files: readonly string[]
): Promise<{ readonly namespace: string; readonly token: string }> {
  if (files.length === 0) return placeToPublish(cluster, 'role-publish.yaml');
  const namespace = await cluster.namespace('publish');
  await cluster.create({ apiVersion: 'v1', kind: 'ServiceAccount', metadata: { namespace, name: ACCOUNT } });
  const text = files.map((file) => readFileSync(join(DEPLOY, file), 'utf8')).join('---\n');
  for (const document of parseAllDocuments(text)) {
    const object = document.toJS() as Installed;
    const metadata = { ...object.metadata, namespace };
    const subjects = object.subjects?.map((subject) => ({ ...subject, namespace }));
    await cluster.create({
      ...object,
      metadata,
      ...(subjects === undefined ? {} : { subjects }),
    } as NewObject);
  }
  const path = `/api/v1/namespaces/${namespace}/serviceaccounts/${ACCOUNT}/token`;
  const { status } = await cluster.api.call<{ status: { token: string } }>('POST', path, {
    body: { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenRequest', spec: {} },
  });
  return { namespace, token: status.token };
}

export interface ClusterReplica extends Publishing {
  readonly measured: Measured;
  readonly lines: readonly { readonly msg: string; readonly [member: string]: unknown }[];
  /** The balancer between it and the API server. */
  readonly balancer: Balancer;
  /** When it started and stopped leading, by performance.now. */
  readonly led: readonly { readonly from: number; until: number | undefined }[];
  /** As by SIGTERM. */
  readonly stop: () => Promise<void>;
  /** Its machine is lost: nothing that it sends arrives, without any error. */
  readonly vanish: () => void;
  /** The namespace of what is published, and of the Lease. */
  readonly watches: readonly WatchStats[];
}

/** A replica with the limits of production, behind a TCP balancer of its own, until the test's end. */
export async function startClusterReplica(
  server: KubeConnection,
  { namespace, token }: { readonly namespace: string; readonly token: string },
  identity: string,
  measured: Measured = new Measured(() => Date.now() / 1000),
): Promise<ClusterReplica> {
  const { balancer, connection } = await throughBalancer(server, token);
  const stopping = new AbortController();
  const ending = new AbortController();
  const { lines, led, write } = notes();
  const publishing = startPublishing({
    connection,
    namespace,
    identity,
    measurement: measured,
    onLeading: () => undefined,
    logger: createLogger('debug', { write }),
    time: { clock, random: Math.random, pause, wallMicroseconds: () => Date.now() * 1000 },
    epochSeconds: () => Date.now() / 1000,
    limits: { ...PUBLISH_LIMITS, stepMs: 1_000 },
    signal: stopping.signal,
  });
  const handlers = { onObject: publishing.saw, ...SILENT };
  const { signal } = ending;
  const options = { signal, clock, random: Math.random };
  const watch = followPublished(connection, namespace, handlers, options);
  const stop = () => {
    stopping.abort();
    return publishing.ended;
  };
  onTestFinished(async () => {
    await balancer.close();
    ending.abort();
    await Promise.all([stop(), watch.ended]);
  });
  const vanish = () => {
    balancer.refusing = true;
    balancer.freeze();
  };
  return {
    ...publishing,
    measured,
    lines,
    balancer,
    led,
    stop,
    vanish,
    watches: [watch.stats],
  };
}

const clock = () => performance.now();

const SILENT = {
  onFailure: () => undefined,
  onCurrent: () => undefined,
  onHandlerError: (error: Error) => {
    throw error;
  },
};

async function throughBalancer({ server, credentials }: KubeConnection, token: string) {
  const target = { name: 'api', host: server.hostname, port: Number(server.port) };
  const balancer = await Balancer.start('127.0.0.1', [target]);
  const { ca } = await credentials();
  const connection: KubeConnection = {
    server: new URL(`https://127.0.0.1:${balancer.address.port}`),
    // Its certificate is for that name, and for addresses that the balancer does not have.
    credentials: async () => ({ ca, servername: 'kubernetes.default.svc', ...bearer(token) }),
  };
  return { balancer, connection };
}

/** A replica's log, and when it led by that. */
function notes() {
  const lines: ClusterReplica['lines'][number][] = [];
  const led: { from: number; until: number | undefined }[] = [];
  const write = (line: string) => {
    const said = JSON.parse(line) as ClusterReplica['lines'][number];
    lines.push(said);
    if (said.msg === 'lease acquired, leading') led.push({ from: clock(), until: undefined });
    const last = led.at(-1);
    if (said.msg === 'lease lost, stepping down' && last !== undefined) last.until = clock();
  };
  return { lines, led, write };
}
