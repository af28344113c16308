import { images } from './images.ts';

export interface ApplicationOptions {
  readonly namespace: string;
  /** Names the Deployment, its Service and the label `app`. */
  readonly name: string;
  /** Default 2. */
  readonly replicas?: number;
  /** Merged over the pod's spec, for graces, security contexts and the like. */
  readonly podSpec?: Readonly<Record<string, unknown>>;
  /** Merged over the container, for hooks, environment and the like. */
  readonly container?: Readonly<Record<string, unknown>>;
  /** Containers beside the application's. */
  readonly containers?: readonly Readonly<Record<string, unknown>>[];
  /** Annotations of the pods. */
  readonly annotations?: Readonly<Record<string, string>>;
}

/** A Deployment of the test application with a readiness probe, as an ordinary author writes it. */
export function applicationDeployment(options: ApplicationOptions) {
  const { namespace, name, replicas = 2, podSpec = {}, container = {}, containers = [] } = options;
  const { annotations = {} } = options;
  const labels = { app: name };
  const app = {
    name: 'app',
    image: images.app,
    imagePullPolicy: 'Never',
    ports: [{ containerPort: 8080 }],
    readinessProbe: { httpGet: { path: '/', port: 8080 }, periodSeconds: 1 },
    ...container,
  };
  return {
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name, namespace },
    spec: {
      replicas,
      selector: { matchLabels: labels },
      strategy: { rollingUpdate: { maxSurge: 1, maxUnavailable: 0 } },
      template: {
        metadata: { labels, annotations },
        spec: { containers: [app, ...containers], ...podSpec },
      },
    },
  };
}

/** The Service of {@link applicationDeployment}: port 80, with a ClusterIP. */
export function applicationService({ namespace, name }: Pick<ApplicationOptions, 'namespace' | 'name'>) {
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name, namespace },
    spec: { selector: { app: name }, ports: [{ port: 80, targetPort: 8080 }] },
  };
}

/** As much of a Deployment's status as tells whether it has settled. */
export interface DeploymentObject {
  readonly metadata: { readonly generation: number };
  readonly status: {
    readonly observedGeneration?: number;
    readonly replicas?: number;
    readonly updatedReplicas?: number;
    readonly availableReplicas?: number;
  };
}

/** Whether a Deployment's last change is complete: what `kubectl rollout status` waits for. */
export function isRolledOut(deployment: DeploymentObject, replicas: number): boolean {
  const { observedGeneration = 0, replicas: all, updatedReplicas, availableReplicas } = deployment.status;
  return (
    observedGeneration >= deployment.metadata.generation &&
    [all, updatedReplicas, availableReplicas].every((count) => count === replicas)
  );
}
