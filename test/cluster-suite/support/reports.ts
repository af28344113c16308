import https from 'node:https';
import { parseAllDocuments } from 'yaml';
import type { Cluster, NewObject, ObjectReference } from '../../cluster/cluster.ts';
import { blocksOf } from '../../docs/markdown.ts';

export interface ReportAnswer {
  readonly status: number;
  readonly body: { readonly reason?: string; readonly cursor?: string };
}

/** Where reports go, and who vouches for it. */
export interface ReportPlace {
  readonly url: string;
  readonly ca: string;
  /** The name that its certificate must have, where it is not that of the URL. */
  readonly servername?: string;
}

/** Sends a report on a connection of its own. @param token empty: none */
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
  // Whoever is refused in the middle of a long body may find the connection closed.
  request.on('error', (error) => {
    if (!answered) reject(error);
  });
  request.end(text);
  return promise;
}

/** A ServiceAccount's token, made for an audience; undefined: for the API server itself. */
export async function tokenOf(
  cluster: Cluster,
  namespace: string,
  account: string,
  audience?: string,
): Promise<string> {
  const path = `/api/v1/namespaces/${namespace}/serviceaccounts/${account}/token`;
  const spec = audience === undefined ? {} : { audiences: [audience] };
  const { status } = await cluster.api.call<{ status: { token: string } }>('POST', path, {
    body: { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenRequest', spec },
  });
  return status.token;
}

/**
 * Gives a namespace's ServiceAccount `gateway` the rights of docs/reports.md: to report for the consumer `edge`.
 * @returns what was created outside of the namespace, to be deleted
 */
export async function allowReports(cluster: Cluster, namespace: string): Promise<readonly ObjectReference[]> {
  await cluster.create({
    apiVersion: 'v1',
    kind: 'ServiceAccount',
    metadata: { namespace, name: 'gateway' },
  });
  const example = blocksOf('docs/reports.md').find(({ text }) => text.includes('kind: ClusterRole\n'));
  const text = (example?.text ?? '')
    .replaceAll('linger-reports-edge', `linger-reports-${namespace}`)
    .replace('namespace: edge', `namespace: ${namespace}`);
  const objects = parseAllDocuments(text).map((document) => document.toJS() as NewObject);
  if (objects.length !== 2) throw new Error('docs/reports.md has no ClusterRole with its binding');
  for (const object of objects) await cluster.create(object);
  return objects;
}
