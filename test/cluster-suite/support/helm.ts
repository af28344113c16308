import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseAllDocuments } from 'yaml';
import { ROOT } from '../../cli/linger.ts';
import { ensureHelm } from '../../testbed/binaries.ts';
import type { Cluster, KubernetesObject } from '../../testbed/cluster.ts';
import { run } from '../../testbed/command.ts';
import { clusterSettings } from '../../testbed/settings.ts';
import { CRDS } from './manifests.ts';

export const CHART = join(ROOT, 'deploy', 'chart');
/** The pages with commands of Helm. */
export const HELM_PAGES = ['docs/install.md', 'docs/reference/operations.md'] as const;

export function documentation(): string {
  return HELM_PAGES.map((page) => readFileSync(join(ROOT, page), 'utf8')).join('\n');
}

/** Helm, built where it is not cached, and what it does in a cluster. */
export function helmOf(cluster: Cluster) {
  /** @param more variables of its environment */
  const helm = async (args: readonly string[], more: Readonly<Record<string, string>> = {}) => {
    const program = await ensureHelm(clusterSettings().cacheDir, (line) => console.log(line));
    const env = { ...process.env, KUBECONFIG: cluster.kubeconfig, ...more };
    return run([program, ...args], { env });
  };
  /** @returns what it says on standard output */
  const must = async (...args: string[]) => {
    const { code, stdout, stderr } = await helm(args);
    if (code !== 0) throw new Error(`helm ${args.join(' ')}: ${stderr}`);
    return stdout;
  };
  /** Takes a release away, with what uninstalling it leaves: the CRDs, and the namespace. */
  const remove = async (release: string, namespace: string) => {
    await helm(['uninstall', release, '--namespace', namespace, '--ignore-not-found']);
    for (const definition of CRDS) await cluster.delete(definition);
    const whole = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } };
    await cluster.delete(whole, { wait: true });
  };
  return { helm, must, remove };
}

export function objectsIn<T extends KubernetesObject>(text: string): readonly T[] {
  return parseAllDocuments(text)
    .map((document) => document.toJS() as T | null)
    .filter((object) => object !== null);
}
