import { CONTROLLER_METRICS, type Look } from '../../core/diagnose/facts.ts';
import { type ApiReader, messageOf } from './api-reader.ts';
import { type ControllerPod, metricsPathOf } from './controller-pods.ts';

/** A way to the metrics that has worked once. */
export interface MetricsWay {
  readonly from: string;
  /** What it gave. */
  readonly first: string;
  readonly again: () => Promise<string>;
}

export interface SoughtMetrics {
  readonly way: MetricsWay | undefined;
  /** Where it was looked, in vain. */
  readonly looks: readonly Look[];
}

/** Amazon EKS serves the controller-manager's metrics in an API of its own (user guide, "control plane raw metrics"). */
const EKS_PATH = '/apis/metrics.eks.amazonaws.com/v1/kcm/container/metrics';

/**
 * Looks for the metrics of the controller-manager by what the API server itself can reach.
 * @param pods undefined: which there are could not be learnt
 */
export async function seekMetrics(
  api: ApiReader,
  pods: readonly ControllerPod[] | undefined,
  signal: AbortSignal,
): Promise<SoughtMetrics> {
  const looks: Look[] = [];
  for (const [path, remedyOf] of waysTo(pods)) {
    const again = () => api.text(path);
    try {
      return { way: { from: path, first: await again(), again }, looks };
    } catch (thrown) {
      const message = messageOf(thrown, signal);
      const text = `${path}: ${message}`;
      looks.push({ what: CONTROLLER_METRICS, seen: false, text, remedy: remedyOf(message) });
    }
  }
  return { way: undefined, looks };
}

type Way = readonly [path: string, remedyOf: (message: string) => string];

function waysTo(pods: readonly ControllerPod[] | undefined): readonly Way[] {
  if (pods === undefined) return [[EKS_PATH, unlistedRemedy]];
  if (pods.length === 0) return [[EKS_PATH, managedRemedy]];
  return pods.map((pod) => [metricsPathOf(pod), (message) => podRemedy(pod, message)]);
}

/**
 * Why a proxied request fails, by the words of Kubernetes: the API server drops the credentials of whoever it proxies
 * for (WithAuthentication), and kubeadm has the controller-manager listen on 127.0.0.1 only.
 */
function podRemedy({ name, port }: ControllerPod, message: string): string {
  const why = message.includes('system:anonymous')
    ? 'The API server passes nobody’s credentials on, so the controller-manager was asked by nobody. '
    : /refused|unreachable|timed? ?out/i.test(message)
      ? 'It listens on 127.0.0.1 of its node only (--bind-address), as kubeadm sets it up. '
      : message.startsWith('403')
        ? 'It takes the right to get pods/proxy in kube-system. '
        : '';
  return `${why}Forward its port, and name it: kubectl --namespace kube-system port-forward pod/${name} ${port} and linger diagnose --controller-metrics https://127.0.0.1:${port}/metrics`;
}

function managedRemedy(message: string): string {
  const why = message.startsWith('403')
    ? 'On Amazon EKS it takes the right to get kcm/metrics of metrics.eks.amazonaws.com. '
    : '';
  return `${why}No pod of kube-system is labelled component=kube-controller-manager: the provider runs it, or it is a process of a node. Give a scrape: --controller-metrics with its address on that node, or a file that your Prometheus or provider gives`;
}

function unlistedRemedy(): string {
  return 'It takes the right to list pods in kube-system to find the controller-manager; or give its metrics: --controller-metrics';
}
