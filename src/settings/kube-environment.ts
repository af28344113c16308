import { delimiter, join } from 'node:path';

/** What the environment says about where a cluster is, as kubectl reads it. */
export interface KubeEnvironment {
  /** The files of KUBECONFIG, taken together; none: it is not set. */
  readonly kubeconfigs: readonly string[];
  /** Where kubectl looks otherwise. Undefined: there is no home. */
  readonly homeKubeconfig: string | undefined;
  /** KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT: set in every pod. */
  readonly service: { readonly host: string | undefined; readonly port: string | undefined };
  /** All of it, for the programs that a kubeconfig runs to get credentials. */
  readonly variables: Readonly<Record<string, string | undefined>>;
}

/** Source: k8s.io/client-go tools/clientcmd (NewDefaultClientConfigLoadingRules). */
export function kubeEnvironment(variables: KubeEnvironment['variables']): KubeEnvironment {
  // Windows has USERPROFILE.
  const home = variables.HOME || variables.USERPROFILE;
  return {
    kubeconfigs: (variables.KUBECONFIG ?? '').split(delimiter).filter((file) => file !== ''),
    homeKubeconfig: home ? join(home, '.kube', 'config') : undefined,
    service: { host: variables.KUBERNETES_SERVICE_HOST, port: variables.KUBERNETES_SERVICE_PORT },
    variables,
  };
}
