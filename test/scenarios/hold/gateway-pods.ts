import { MAIN } from '../../cli/linger.ts';
import { appContainer, type PodObject, pod, workload } from '../../cluster-suite/support/manifests.ts';
import { isReady } from '../../cluster-suite/support/termination.ts';
import { contourCrds } from '../../testbed/binaries.ts';
import {
  type Cluster,
  images,
  type NewObject,
  type ObjectReference,
  waitUntil,
} from '../../testbed/cluster.ts';
import { contourInPod, type Gateway, type GatewayInPod, NODE_FILES } from '../../testbed/gateways.ts';
import { clusterSettings } from '../../testbed/settings.ts';

/** Contour and its Envoy, which is a pod with a witness in it. */
export interface RunningContour {
  readonly gateway: Gateway;
  /** Sends a signal to Contour itself, which passes every change on to Envoy. */
  signal(signal: 'SIGSTOP' | 'SIGCONT'): void;
  stop(): Promise<void>;
}

/** The Deployment of a gateway: it names the label `app` of its pods, too. */
export interface GatewayDeployment {
  readonly name: string;
  /** What its containers have instead of the usual image, and do not run either. */
  readonly image?: string;
  /** Annotations of its pods. */
  readonly annotations?: Readonly<Record<string, string>>;
}

/**
 * Starts them, with an Ingress for the Service `web`.
 * @param where Envoy runs
 * @param namespace of the Service
 */
export async function startContour(
  cluster: Cluster,
  where: string,
  namespace: string,
  deployment: GatewayDeployment = { name: 'contour' },
): Promise<RunningContour> {
  for (const verb of [
    ['apply', '--server-side'],
    ['wait', '--for=condition=Established', '--timeout=30s'],
  ])
    await cluster.mustKubectl([...verb, '--filename', await contourCrds()]);
  await createIngress(cluster, namespace, 'web', 'contour');
  const witness = [process.execPath, MAIN, 'witness'];
  const inPod = await contourInPod(clusterSettings(), { kubeconfig: cluster.kubeconfig, witness });
  const gateway = await startInPod(cluster, where, deployment, inPod).catch(async (error: unknown) => {
    await inPod.stop();
    throw error;
  });
  return { gateway, signal: inPod.signal, stop: inPod.stop };
}

/** A pod of the Service `web`, by itself. */
export const webPod = (namespace: string, name: string) =>
  pod(namespace, name, { containers: [appContainer('app')] }, { labels: { app: 'web' } }) as NewObject &
    ObjectReference;

/** @returns '' while it has none */
export async function addressOf(cluster: Cluster, reference: ObjectReference): Promise<string> {
  const found = await cluster.get<{ readonly status: { readonly podIP?: string } }>(reference);
  return found?.status.podIP ?? '';
}

/** Creates an Ingress that routes everything to the Service `web`. */
export async function createIngress(
  cluster: Cluster,
  namespace: string,
  name: string,
  ingressClassName: string,
): Promise<void> {
  const backend = { service: { name: 'web', port: { number: 80 } } };
  const rules = [{ http: { paths: [{ path: '/', pathType: 'Prefix', backend }] } }];
  await cluster.create({
    apiVersion: 'networking.k8s.io/v1',
    kind: 'Ingress',
    metadata: { namespace, name },
    spec: { ingressClassName, rules },
  } as NewObject);
}

/** Runs a gateway as a Deployment whose pods are labelled by its name. */
export async function startInPod(
  cluster: Cluster,
  where: string,
  { name, image = images.busybox, annotations = {} }: GatewayDeployment,
  inPod: GatewayInPod,
): Promise<Gateway> {
  const common = { image, imagePullPolicy: 'Never' };
  const volumeMounts = [{ name: 'node', mountPath: NODE_FILES }];
  const template = {
    metadata: { labels: { gateway: name }, annotations },
    terminationGracePeriodSeconds: 0,
    containers: inPod.containers.map((each) => ({ ...each, ...common, volumeMounts })),
    volumes: [{ name: 'node', hostPath: { path: '/' } }],
  };
  await cluster.create(workload('Deployment', where, name, {}, template));
  const address = await waitUntil('the address of the gateway', async () => {
    const pods = await cluster.list<PodObject & { readonly status?: { readonly podIP?: string } }>(
      { apiVersion: 'v1', kind: 'Pod', namespace: where },
      `app=${name}`,
    );
    const [found] = pods;
    return found === undefined || !isReady(found) ? undefined : found.status?.podIP;
  });
  return inPod.at(address);
}
