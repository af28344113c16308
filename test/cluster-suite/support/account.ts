import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseAllDocuments } from 'yaml';
import { readKubeconfig } from '../../../src/cluster/index.ts';
import type { Cluster, NewObject, ObjectReference } from '../../testbed/cluster.ts';
import { tokenOf } from './reports.ts';

const DEPLOY = join(import.meta.dirname, '..', '..', '..', 'deploy');

type Installed = NewObject & {
  readonly subjects?: readonly object[];
  readonly roleRef?: { readonly name: string };
};

/**
 * Gives a namespace's ServiceAccount `linger` the rights of a file of deploy/.
 * @returns what was created outside of the namespace, under its name, to be deleted
 */
export async function installRights(
  cluster: Cluster,
  namespace: string,
  file: string,
): Promise<readonly ObjectReference[]> {
  const outside: ObjectReference[] = [];
  for (const document of parseAllDocuments(readFileSync(join(DEPLOY, file), 'utf8'))) {
    const object = document.toJS() as Installed & { metadata: { name: string } };
    const inside = object.metadata.namespace !== undefined;
    const name = inside ? object.metadata.name : `${object.metadata.name}-${namespace}`;
    const metadata = inside ? { ...object.metadata, namespace } : { ...object.metadata, name };
    const subjects = object.subjects?.map((subject) => ({ ...subject, namespace }));
    const roleRef = object.roleRef && { ...object.roleRef, name: inside ? object.roleRef.name : name };
    await cluster.create({
      ...object,
      metadata,
      ...(subjects && { subjects }),
      ...(roleRef && { roleRef }),
    } as Installed);
    if (!inside) outside.push({ apiVersion: object.apiVersion, kind: object.kind, metadata: { name } });
  }
  return outside;
}

/** A kubeconfig by which one is a ServiceAccount of the namespace. */
export async function kubeconfigOf(cluster: Cluster, namespace: string, account: string): Promise<string> {
  const { server, credentials } = await readKubeconfig(cluster.kubeconfig);
  const { ca = '' } = await credentials();
  const here = {
    server: server.href,
    'certificate-authority-data': Buffer.from(String(ca)).toString('base64'),
  };
  return JSON.stringify({
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [{ name: 'here', cluster: here }],
    users: [{ name: account, user: { token: await tokenOf(cluster, namespace, account) } }],
    contexts: [{ name: account, context: { cluster: 'here', user: account } }],
    'current-context': account,
  });
}
