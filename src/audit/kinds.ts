import type { RawObject, Resource } from '../cluster/index.ts';

export interface Kind {
  readonly apiVersion: string;
  readonly kind: string;
  /** The plural, if it is not formed like those of Kubernetes' own kinds. */
  readonly plural?: string;
}

/** A kind that creates pods. */
export interface WorkloadKind extends Kind {
  /** Its short name in kubectl. */
  readonly short?: string;
  /** Listed by audits; other kinds belong to one of these, or serve no traffic. */
  readonly audited?: true;
  /** The template of its pods may be in another workload. */
  readonly refers?: true;
}

export const POD: WorkloadKind = { apiVersion: 'v1', kind: 'Pod', short: 'po' };

/** Kinds that are not Kubernetes' own may not be served. */
export const WORKLOAD_KINDS: readonly WorkloadKind[] = [
  POD,
  { apiVersion: 'apps/v1', kind: 'Deployment', short: 'deploy', audited: true },
  { apiVersion: 'apps/v1', kind: 'StatefulSet', short: 'sts', audited: true },
  { apiVersion: 'apps/v1', kind: 'DaemonSet', short: 'ds', audited: true },
  { apiVersion: 'apps/v1', kind: 'ReplicaSet', short: 'rs' },
  { apiVersion: 'batch/v1', kind: 'Job' },
  { apiVersion: 'batch/v1', kind: 'CronJob', short: 'cj' },
  { apiVersion: 'argoproj.io/v1alpha1', kind: 'Rollout', audited: true, refers: true },
];

export function pluralOf({ kind, plural }: Kind): string {
  const word = kind.toLowerCase();
  if (plural !== undefined) return plural;
  return /[^aeiou]y$/.test(word) ? `${word.slice(0, -1)}ies` : `${word}${word.endsWith('s') ? 'es' : 's'}`;
}

/**
 * @param text in kubectl's syntax: `deployment/web`, `deploy/web`, `deployments.apps/web` @returns undefined for anything
 * else
 */
export function kindAndName(
  text: string,
): { readonly kind: WorkloadKind; readonly name: string } | undefined {
  const [word = '', name = '', ...more] = text.split('/');
  const [plain = '', ...group] = word.toLowerCase().split('.');
  const kind = WORKLOAD_KINDS.find(
    (each) =>
      [each.kind.toLowerCase(), pluralOf(each), each.short].includes(plain) &&
      (group.length === 0 || each.apiVersion.startsWith(`${group.join('.')}/`)),
  );
  return kind === undefined || name === '' || more.length > 0 ? undefined : { kind, name };
}

/**
 * @param namespace undefined: all. It is escaped, because a manifest may contain any text as a namespace, which must not
 * lead to another path
 */
export function pathOf(each: Kind, namespace?: string): string {
  const root = each.apiVersion === 'v1' ? '/api/v1' : `/apis/${each.apiVersion}`;
  const within = namespace === undefined ? '' : `/namespaces/${encodeURIComponent(namespace)}`;
  return `${root}${within}/${pluralOf(each)}`;
}

/**
 * Objects without their statuses. Their kind is added, because items of a list do not contain it. @param name of a single
 * object
 */
export function objectsIn(
  namespace: string | undefined,
  { apiVersion, kind, plural }: Kind,
  name?: string,
): Resource<RawObject & Kind & { readonly webhooks?: unknown }> {
  return {
    path: pathOf({ apiVersion, kind, ...(plural !== undefined && { plural }) }, namespace),
    ...(name !== undefined && { query: { fieldSelector: `metadata.name=${name}` } }),
    project: ({ metadata, spec, ...rest }) => ({
      apiVersion,
      kind,
      metadata,
      spec,
      ...('webhooks' in rest && { webhooks: rest.webhooks }),
    }),
  };
}
