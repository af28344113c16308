import type { Json } from './manifests.ts';

/** The text of a policy file. JSON is YAML, and quotes every `Off`. */
export function policyFile(...documents: readonly Json[]): string {
  return documents.map((document) => JSON.stringify(document)).join('\n---\n');
}

export function clusterPolicy(name: string, spec: Json): Json {
  return {
    apiVersion: 'linger.dev/v1alpha1',
    kind: 'ClusterTerminationPolicy',
    metadata: { name },
    spec,
  };
}

/** A policy for the pods that carry the label `policy: NAME`, so that one file serves many cases. */
export function labelledPolicy(name: string, spec: Json): Json {
  // Above the policies that hold for every pod.
  return clusterPolicy(name, { priority: 1, podSelector: { matchLabels: { policy: name } }, ...spec });
}

export function fixedWait(duration: string): Json {
  return { wait: { from: 'Fixed', fixed: duration } };
}

/** What Linger knows about a namespace of the cluster. */
export function knownNamespace(name: string, annotations: Readonly<Record<string, string>>): Json {
  return { apiVersion: 'v1', kind: 'Namespace', metadata: { name, annotations } };
}

/** A Service that Linger knows. In a namespace with one, all Services count as known. */
export function knownService(namespace: string, selector: Readonly<Record<string, string>>): Json {
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: 'known', namespace },
    spec: { selector, ports: [{ port: 80 }] },
  };
}
