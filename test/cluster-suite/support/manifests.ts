import { images, type KubernetesObject } from '../../testbed/cluster.ts';

/** Linger's CustomResourceDefinitions. */
export const CRDS = ['discoveryconsumers', 'clusterterminationpolicies', 'terminationpolicies'].map(
  (plural) => ({
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: `${plural}.linger.dev` },
  }),
);

export type Json = Readonly<Record<string, unknown>>;

export interface ContainerObject {
  readonly name: string;
  readonly lifecycle?: { readonly preStop?: Json };
}

/** The part of a stored Pod that the suite reads. */
export interface PodObject extends KubernetesObject {
  readonly spec: {
    readonly terminationGracePeriodSeconds: number;
    readonly containers: readonly ContainerObject[];
    readonly initContainers?: readonly ContainerObject[];
  };
  readonly status?: {
    readonly phase?: string;
    readonly conditions?: readonly { readonly type: string; readonly status: string }[];
    readonly containerStatuses?: readonly {
      readonly name: string;
      readonly state?: { readonly terminated?: { readonly exitCode: number; readonly finishedAt: string } };
    }[];
  };
}

export interface PodMetadata {
  readonly ownerReferences?: readonly Json[];
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
}

/** A container of the test application, ready as soon as it listens. */
export function appContainer(name: string, more: Json = {}, port = 8080): ContainerObject & Json {
  return {
    name,
    image: images.app,
    imagePullPolicy: 'Never',
    env: [{ name: 'PORT', value: String(port) }],
    ports: [{ containerPort: port }],
    readinessProbe: { httpGet: { path: '/', port }, periodSeconds: 1 },
    ...more,
  };
}

/** The test application without any sign of traffic: no port, no probe. */
export function silentContainer(name: string, more: Json = {}): ContainerObject & Json {
  return { name, image: images.app, imagePullPolicy: 'Never', ...more };
}

/** A container that ends at once, as those of Jobs do. */
export function shortLivedContainer(name: string): ContainerObject & Json {
  return { name, image: images.busybox, imagePullPolicy: 'Never', command: ['true'] };
}

/**
 * Objects for `kubectl apply`. JSON quotes what YAML 1.1 takes for a boolean; without the first separator kubectl 1.32 takes
 * all of it for one JSON text.
 */
export function manifestText(objects: readonly unknown[]): string {
  return objects.map((object) => `---\n${JSON.stringify(object)}\n`).join('');
}

/** An init container that the kubelet keeps running beside the others (KEP-753). */
export function sidecar(name: string, port: number, more: Json = {}): ContainerObject & Json {
  return appContainer(name, { restartPolicy: 'Always', ...more }, port);
}

/** Why a test of an author's own `sleep: 0` is skipped on this API server; undefined: it is not. */
export function noSleepZero(written: object, { minor }: { readonly minor: number }): string | undefined {
  const has = JSON.stringify(written).includes('"sleep":{"seconds":0}');
  return has && minor < 33
    ? `Kubernetes 1.${minor} rejects \`sleep: 0\`, which is valid from 1.33 on`
    : undefined;
}

export function preStop(handler: Json): Json {
  return { lifecycle: { preStop: handler } };
}

export function pod(namespace: string, name: string, spec: Json, metadata: PodMetadata = {}) {
  const containers = [appContainer('app')];
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, namespace, ...metadata },
    spec: { containers, ...spec },
  };
}

/** A workload of apps/v1 whose pods carry the label `app: NAME`. */
export function workload(
  kind: string,
  namespace: string,
  name: string,
  spec: Json = {},
  template: Json = {},
) {
  const labels = { app: name };
  const { metadata, ...podSpec } = template as { metadata?: PodMetadata };
  return {
    apiVersion: 'apps/v1',
    kind,
    metadata: { name, namespace },
    spec: {
      selector: { matchLabels: labels },
      template: {
        metadata: { ...metadata, labels: { ...metadata?.labels, ...labels } },
        spec: { containers: [appContainer('app')], ...podSpec },
      },
      ...spec,
    },
  };
}

export function service(namespace: string, name: string, app: string = name) {
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name, namespace },
    spec: { selector: { app }, ports: [{ port: 80, targetPort: 8080 }] },
  };
}

const JOB_TEMPLATE = { spec: { restartPolicy: 'Never', containers: [shortLivedContainer('work')] } };

export function job(namespace: string, name: string) {
  const template = { metadata: { labels: { app: name } }, ...JOB_TEMPLATE };
  return { apiVersion: 'batch/v1', kind: 'Job', metadata: { name, namespace }, spec: { template } };
}

/** Never due by itself: the suite creates a Job from it. */
export function cronJob(namespace: string, name: string) {
  const spec = { schedule: '0 0 29 2 *', jobTemplate: { spec: { template: JOB_TEMPLATE } } };
  return { apiVersion: 'batch/v1', kind: 'CronJob', metadata: { name, namespace }, spec };
}

/** What Pod Security *restricted* requires of a container. */
export const RESTRICTED: Json = {
  securityContext: {
    allowPrivilegeEscalation: false,
    runAsNonRoot: true,
    capabilities: { drop: ['ALL'] },
    seccompProfile: { type: 'RuntimeDefault' },
  },
};

/** A pod from elsewhere, to be created in this namespace. */
export function sentTo(namespace: string, object: Json) {
  const metadata = (object.metadata ?? {}) as { name?: string; generateName?: string };
  return { apiVersion: 'v1', kind: 'Pod', ...object, metadata: { ...metadata, namespace } };
}
