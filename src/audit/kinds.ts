import type { RawObject, Resource } from '../cluster/index.ts';

export interface Kind {
  readonly apiVersion: string;
  readonly kind: string;
}

/** A kind that makes pods. */
export interface WorkloadKind extends Kind {
  /** What kubectl calls it, too. */
  readonly short?: string;
  /** Listed by audits; the other kinds belong to one of these, or serve no traffic. */
  readonly audited?: true;
}

export const POD: WorkloadKind = { apiVersion: 'v1', kind: 'Pod', short: 'po' };

/** Those that are no part of Kubernetes may not be served. */
export const WORKLOAD_KINDS: readonly WorkloadKind[] = [
  POD,
  { apiVersion: 'apps/v1', kind: 'Deployment', short: 'deploy', audited: true },
  { apiVersion: 'apps/v1', kind: 'StatefulSet', short: 'sts', audited: true },
  { apiVersion: 'apps/v1', kind: 'DaemonSet', short: 'ds', audited: true },
  { apiVersion: 'apps/v1', kind: 'ReplicaSet', short: 'rs' },
  { apiVersion: 'batch/v1', kind: 'Job' },
  { apiVersion: 'batch/v1', kind: 'CronJob', short: 'cj' },
  { apiVersion: 'argoproj.io/v1alpha1', kind: 'Rollout', audited: true },
];

export function pluralOf({ kind }: Kind): string {
  return `${kind.toLowerCase()}${kind.endsWith('s') ? 'es' : 's'}`;
}

/** @param namespace undefined: all of them; of a manifest it may be any text, and must not become another path */
export function pathOf(each: Kind, namespace?: string): string {
  const root = each.apiVersion === 'v1' ? '/api/v1' : `/apis/${each.apiVersion}`;
  const within = namespace === undefined ? '' : `/namespaces/${encodeURIComponent(namespace)}`;
  return `${root}${within}/${pluralOf(each)}`;
}

/** Objects but for their statuses; a list does not say of which kind they are. @param name of the one that is asked for */
export function objectsIn(
  namespace: string | undefined,
  { apiVersion, kind }: Kind,
  name?: string,
): Resource<RawObject & Kind & { readonly webhooks?: unknown }> {
  return {
    path: pathOf({ apiVersion, kind }, namespace),
    ...(name !== undefined && { query: { fieldSelector: `metadata.name=${name}` } }),
    project: ({ metadata, spec, ...rest }) => ({
      ...{ apiVersion, kind, metadata, spec },
      ...('webhooks' in rest && { webhooks: rest.webhooks }),
    }),
  };
}
