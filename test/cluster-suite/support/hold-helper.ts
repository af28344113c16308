import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { readHelperObject } from '../../../src/hold/index.ts';
import type { Cluster, KubernetesObject } from '../../testbed/cluster.ts';

const ROOT = join(import.meta.dirname, '..', '..', '..');

export const HELPER = readHelperObject();

/** Lets its ConfigMap be deleted, against deploy/hold-policy.yaml. */
export const UNUSED = 'linger.dev/unused=true';

export type HelperObject = KubernetesObject & { readonly binaryData: Readonly<Record<string, string>> };

/** `linger hold manifest | kubectl apply` */
export async function bringHelper(cluster: Cluster, namespace: string): Promise<void> {
  const command = ['src/main.ts', 'hold', 'manifest', '--namespace', namespace];
  const stdin = execFileSync(process.execPath, command, { cwd: ROOT, encoding: 'utf8' });
  await cluster.mustKubectl(['apply', '--filename', '-'], { stdin });
}
