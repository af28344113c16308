import https from 'node:https';
import { parseAllDocuments } from 'yaml';
import { blocksOf } from '../../docs/markdown.ts';
import type { Cluster, KubernetesObject, NewObject, ObjectReference } from '../../testbed/cluster.ts';

export interface ReportAnswer {
  readonly status: number;
  readonly body: { readonly reason?: string; readonly cursor?: string };
}

/** The endpoint of reports, and the CA of its certificate. */
export interface ReportPlace {
  readonly url: string;
  readonly ca: string;
  /** The name in its certificate, if it differs from that of the URL. */
  readonly servername?: string;
}

/** Sends a report on its own connection. @param token empty: none */
export function sendReport({ url, ...tls }: ReportPlace, token: string, body: object): Promise<ReportAnswer> {
  const { promise, resolve, reject } = Promise.withResolvers<ReportAnswer>();
  const text = JSON.stringify(body);
  const headers = {
    'content-length': Buffer.byteLength(text),
    ...(token === '' ? {} : { authorization: `Bearer ${token}` }),
  };
  let answered = false;
  const request = https.request(url, { method: 'POST', headers, agent: false, ...tls }, async (response) => {
    answered = true;
    const chunks: Buffer[] = [];
    for await (const chunk of response) chunks.push(chunk as Buffer);
    const said = JSON.parse(Buffer.concat(chunks).toString()) as ReportAnswer['body'];
    resolve({ status: response.statusCode ?? 0, body: said });
  });
  // A client that is refused in the middle of a long body may find the connection closed.
  request.on('error', (error) => {
    if (!answered) reject(error);
  });
  request.end(text);
  return promise;
}

export interface TokenOptions {
  /** The token's audience; undefined: the API server itself. */
  readonly audience?: string | undefined;
  /** The pod that it is bound to, created if missing: no node runs it, a process represents it. */
  readonly pod?: string;
  /** Default: an hour. */
  readonly seconds?: number;
}

/** A ServiceAccount's token. */
export async function tokenOf(
  cluster: Cluster,
  namespace: string,
  account: string,
  { audience, pod, seconds }: TokenOptions = {},
): Promise<string> {
  const path = `/api/v1/namespaces/${namespace}/serviceaccounts/${account}/token`;
  const spec = {
    ...(audience === undefined ? {} : { audiences: [audience] }),
    ...(pod === undefined ? {} : { boundObjectRef: await podOf(cluster, namespace, account, pod) }),
    ...(seconds === undefined ? {} : { expirationSeconds: seconds }),
  };
  const { status } = await cluster.api.call<{ status: { token: string } }>('POST', path, {
    body: { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenRequest', spec },
  });
  return status.token;
}

async function podOf(cluster: Cluster, namespace: string, account: string, name: string) {
  const reference = { apiVersion: 'v1', kind: 'Pod', metadata: { namespace, name } };
  const spec = {
    serviceAccountName: account,
    nodeSelector: { 'linger.test/no': 'node' },
    containers: [{ name: 'gateway', image: 'gateway' }],
  };
  const known = await cluster.get<KubernetesObject>(reference);
  const { metadata } = known ?? (await cluster.create<KubernetesObject>({ ...reference, spec } as NewObject));
  return { apiVersion: 'v1', kind: 'Pod', name, uid: metadata.uid };
}

/**
 * Gives a namespace's ServiceAccount `gateway` the rights of docs/gateways.md: to report for the consumer `edge`.
 * @returns the objects that were created outside of the namespace, to be deleted
 */
export async function allowReports(cluster: Cluster, namespace: string): Promise<readonly ObjectReference[]> {
  await cluster.create({
    apiVersion: 'v1',
    kind: 'ServiceAccount',
    metadata: { namespace, name: 'gateway' },
  });
  const example = blocksOf('docs/gateways.md').find(({ text }) => text.includes('kind: ClusterRole\n'));
  const text = (example?.text ?? '')
    .replaceAll('linger-reports-edge', `linger-reports-${namespace}`)
    .replace('namespace: edge', `namespace: ${namespace}`);
  const objects = parseAllDocuments(text).map((document) => document.toJS() as NewObject);
  if (objects.length !== 2) throw new Error('docs/gateways.md has no ClusterRole with its binding');
  for (const object of objects) await cluster.create(object);
  return objects;
}
