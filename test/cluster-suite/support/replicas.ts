import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { parseAllDocuments } from 'yaml';
import type { KubeConnection } from '../../../src/kube/connection.ts';
import { PUBLISH_LIMITS } from '../../../src/publish/limits.ts';
import { type Publishing, startPublishing } from '../../../src/publish/publishing.ts';
import { pause } from '../../../src/sources/pause.ts';
import { followPublished } from '../../../src/sources/published.ts';
import { createLogger } from '../../../src/telemetry/logs.ts';
import { Balancer } from '../../cluster/balancer.ts';
import type { Cluster, NewObject } from '../../cluster/cluster.ts';
import { Measured } from '../../publish/replica.ts';

const DEPLOY = join(import.meta.dirname, '..', '..', '..', 'deploy');
const ACCOUNT = 'linger';

type Installed = NewObject & { readonly subjects?: readonly object[] };

/**
 * A namespace in which the ServiceAccount `linger` has exactly the rights of deploy/role-publish.yaml.
 * @returns the namespace, and the account's token
 */
export async function placeToPublish(
  cluster: Cluster,
): Promise<{ readonly namespace: string; readonly token: string }> {
  const namespace = await cluster.namespace('publish');
  await cluster.create({ apiVersion: 'v1', kind: 'ServiceAccount', metadata: { namespace, name: ACCOUNT } });
  const text = readFileSync(join(DEPLOY, 'role-publish.yaml'), 'utf8');
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
  /** What stands between it and the API server. */
  readonly balancer: Balancer;
  /** When it began and ceased to lead. Milliseconds of performance.now. */
  readonly led: readonly { readonly from: number; until: number | undefined }[];
  /** As by SIGTERM. */
  readonly stop: () => Promise<void>;
  /** Its machine is gone: nothing that it sends arrives, and nobody is told. */
  readonly vanish: () => void;
  readonly watchRestarts: () => Readonly<Record<string, number>>;
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
    limits: { ...PUBLISH_LIMITS, stepMs: 1_000, firstStepMs: 1_000 },
    signal: stopping.signal,
  });
  const handlers = { onPlanned: publishing.saw, ...SILENT };
  const { signal } = ending;
  const watch = followPublished(connection, namespace, handlers, { signal, clock, random: Math.random });
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
    watchRestarts: () => watch.stats.restarts,
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
    serverName: 'kubernetes.default.svc',
    credentials: async () => ({ ca, token }),
  };
  return { balancer, connection };
}

/** What a replica has said, and when it led by that. */
function notes() {
  const lines: ClusterReplica['lines'][number][] = [];
  const led: { from: number; until: number | undefined }[] = [];
  const write = (line: string) => {
    const said = JSON.parse(line) as ClusterReplica['lines'][number];
    lines.push(said);
    if (said.msg === 'this replica leads: it publishes') led.push({ from: clock(), until: undefined });
    const last = led.at(-1);
    if (said.msg === 'this replica leads no more' && last !== undefined) last.until = clock();
  };
  return { lines, led, write };
}
