import { isRecord, isString, type Labels, memberAt, recordsAt } from '../core/api/index.ts';
import type { Plan } from '../core/decision/index.ts';
import { RUN_LABEL } from './leased-job.ts';
import { fullName, type WorkloadName } from './provable-workload.ts';

/** With the waits that Linger gives, or without. */
export type Side = 'with' | 'without';

export interface Original {
  readonly named: WorkloadName;
  /** As returned by the API server, like the other members. */
  readonly workload: unknown;
  readonly replicas: number;
  /** The Services that select its pods. */
  readonly services: readonly unknown[];
  readonly namespace: unknown;
  readonly policies: readonly unknown[];
  /** The plan of its newest pod. */
  readonly plan: Plan | undefined;
}

export interface References {
  readonly configMaps: readonly string[];
  readonly secrets: readonly string[];
  /** Why two copies of this template's pods cannot run at the same time. */
  readonly obstacles: readonly string[];
}

/** A copy should show what a disturbance loses; more pods would cost the cluster more than they would show. */
export const MOST_COPIES = 20;
/** A ConfigMap that every namespace has of its own, so it is not copied. */
const ROOT_CA = 'kube-root-ca.crt';
const CONFIG_MAP_KEYS: readonly string[] = ['configMap', 'configMapRef', 'configMapKeyRef'];
const SECRET_KEYS: readonly string[] = ['secret', 'secretRef', 'secretKeyRef', 'nodePublishSecretRef'];

/** The objects on which the pods of a workload depend: volumes, environment and image pull secrets. */
export function referencesOf({ named, workload }: Pick<Original, 'named' | 'workload'>): References {
  const [configMaps, secrets, obstacles] = [new Set<string>(), new Set<string>(), new Set<string>()];
  const visit = (value: unknown): void => {
    if (typeof value !== 'object' || value === null) return;
    for (const [key, inner] of Object.entries(value)) {
      const name = memberAt(inner, ['name']) ?? memberAt(inner, ['secretName']);
      if (CONFIG_MAP_KEYS.includes(key) && isString(name)) configMaps.add(name);
      if (SECRET_KEYS.includes(key) && isString(name)) secrets.add(name);
      if (key === 'secretName' && isString(inner)) secrets.add(inner);
      if (key === 'persistentVolumeClaim')
        obstacles.add(`they share the volume of claim ${memberAt(inner, ['claimName'])}`);
      if (key === 'hostPort' && inner !== 0) obstacles.add(`they take port ${inner} of their node`);
      visit(inner);
    }
  };
  const spec = memberAt(workload, ['spec', 'template', 'spec']);
  visit(spec);
  for (const { name } of recordsAt(spec, 'imagePullSecrets')) if (isString(name)) secrets.add(name);
  if (memberAt(spec, ['hostNetwork']) === true) obstacles.add('they use the network of their node');
  if (recordsAt(workload, 'spec', 'volumeClaimTemplates').length > 0)
    obstacles.add('each has a volume of its own, which would be empty in a copy');
  if (named.kind.kind === 'DaemonSet') obstacles.add('a second one would run on every node');
  configMaps.delete(ROOT_CA);
  return { configMaps: [...configMaps], secrets: [...secrets], obstacles: [...obstacles] };
}

/** Why a workload cannot be copied; undefined: it can. */
export function obstacleToCopy(
  { named }: Pick<Original, 'named'>,
  { obstacles, secrets }: References,
  copySecrets: boolean,
): string | undefined {
  const pods = `the pods of ${fullName(named)} cannot be copied`;
  if (obstacles.length > 0) return `${pods}: ${obstacles.join('; ')}`;
  if (secrets.length > 0 && !copySecrets)
    return `${pods} without Secrets ${secrets.join(', ')}: --copy-secrets reads them and copies them into the namespaces of the copies`;
  return undefined;
}

/** Labels and annotations by which a tool would take the copy's namespace for its own, and remove or change it. */
const MANAGED =
  /^(kubernetes\.io\/metadata\.name$|app\.kubernetes\.io\/)|argoproj\.io|fluxcd\.io|helm|kustomize|cattle\.io/;
const OWN = /^linger\.dev\//;

function kept(of: unknown, which: 'labels' | 'annotations', isKept: (key: string) => boolean): Labels {
  const all = memberAt(of, ['metadata', which]);
  const pairs = isRecord(all) ? Object.entries(all) : [];
  return Object.fromEntries(
    pairs.filter((pair): pair is [string, string] => isKept(pair[0]) && isString(pair[1])),
  );
}

const unmanaged = (key: string): boolean => !MANAGED.test(key);

/** A namespace with the labels by which policies and meshes select, and with Linger's annotations. */
export function namespaceCopy({ namespace }: Original, name: string, run: string): object {
  const labels = { ...kept(namespace, 'labels', unmanaged), [RUN_LABEL]: run };
  const annotations = kept(namespace, 'annotations', (key) => OWN.test(key));
  return { apiVersion: 'v1', kind: 'Namespace', metadata: { name, labels, annotations } };
}

/**
 * A Service that is reachable only inside the cluster, whatever the original's type is: nothing outside may start to send to
 * a copy.
 */
export function serviceCopy(service: unknown): object {
  const spec = memberAt(service, ['spec']);
  const of: Readonly<Record<string, unknown>> = isRecord(spec) ? spec : {};
  const { selector, clusterIP, publishNotReadyAddresses, sessionAffinity, internalTrafficPolicy } = of;
  const ports = recordsAt(spec, 'ports').map(({ nodePort: _, ...port }) => port);
  const headless = clusterIP === 'None' ? { clusterIP } : {};
  const metadata = {
    name: memberAt(service, ['metadata', 'name']),
    labels: kept(service, 'labels', unmanaged),
  };
  const families = { ipFamilies: of.ipFamilies, ipFamilyPolicy: of.ipFamilyPolicy };
  const rest = { publishNotReadyAddresses, sessionAffinity, internalTrafficPolicy, ...families };
  return { apiVersion: 'v1', kind: 'Service', metadata, spec: { selector, ports, ...headless, ...rest } };
}

/** A copy of a policy, ConfigMap or Secret without what the API server has added. */
export function plainCopy(object: unknown): object {
  const { metadata, status: _, ...rest } = isRecord(object) ? object : {};
  return { ...rest, metadata: { name: memberAt(metadata, ['name']) } };
}

/** The template without its ServiceAccount: a copy must not have the original's rights. */
export function templateCopy({ workload }: Pick<Original, 'workload'>, side: Side) {
  const template = memberAt(workload, ['spec', 'template']);
  const {
    serviceAccountName: _,
    serviceAccount: __,
    ...spec
  } = (memberAt(template, ['spec']) ?? {}) as Record<string, unknown>;
  const labels = {
    ...kept(template, 'labels', () => true),
    ...(side === 'without' && { 'linger.dev/inject': 'false' }),
  };
  const metadata = { labels, annotations: kept(template, 'annotations', () => true) };
  return { metadata, spec: { ...spec, automountServiceAccountToken: false } };
}

export function workloadCopy(original: Original, side: Side): object {
  const { named, workload, replicas } = original;
  const spec = memberAt(workload, ['spec']);
  return {
    apiVersion: named.kind.apiVersion,
    kind: named.kind.kind,
    metadata: { name: named.name },
    spec: { ...(isRecord(spec) && spec), replicas, template: templateCopy(original, side) },
  };
}
