import { isRecord, memberAt } from '../api/index.ts';
import { type Workload, workloadOf } from '../decision/index.ts';

/** API versions that no Kubernetes serves any more, for the kinds that matter here. Source: the deprecation guide. */
const GONE: readonly (readonly [apiVersion: RegExp, kinds: RegExp, instead: string])[] = [
  [
    /^(extensions|apps)\/v1(alpha1|beta1|beta2)$/,
    /^(Deployment|ReplicaSet|DaemonSet|StatefulSet)$/,
    'apps/v1',
  ],
  [/^batch\/(v1beta1|v2alpha1)$/, /^(Cron|Scheduled)?Job$/, 'batch/v1'],
  [/^(extensions|networking\.k8s\.io)\/v1beta1$/, /^Ingress$/, 'networking.k8s.io/v1'],
  [/^policy\/v1beta1$/, /^PodDisruptionBudget$/, 'policy/v1'],
  [/^autoscaling\/v2beta[12]$/, /^HorizontalPodAutoscaler$/, 'autoscaling/v2'],
];

/** A sentence about an object in an API version that is gone. */
export function replacementOf(value: unknown): string | undefined {
  if (!isRecord(value)) return undefined;
  const [apiVersion, kind] = [String(value.apiVersion), String(value.kind)];
  const gone = GONE.find(([versions, kinds]) => versions.test(apiVersion) && kinds.test(kind));
  const subject = `${kind} ${nameOf(value)}`;
  return gone && `${subject}: Kubernetes no longer serves ${apiVersion}: write ${gone[2]}`;
}

function nameOf(value: unknown): string {
  return String(memberAt(value, ['metadata', 'name']) ?? '(no name)');
}

/** Deep enough for an operator's nested templates. */
const TEMPLATE_DEPTH = 8;

/** The pods that an object of a kind that Linger does not know seems to make, and what is to be said about that. */
export function foreignWorkload(
  value: unknown,
): { readonly workload: Workload; readonly unknown: string } | undefined {
  if (!isRecord(value)) return undefined;
  const [apiVersion, kind] = [String(value.apiVersion), String(value.kind)];
  const metadata = isRecord(value.metadata) ? value.metadata : {};
  const as = (pointer: string, pod: unknown, unknown: string) => {
    // Of a known kind, a template that is missing.
    const workload = workloadOf({ apiVersion: 'v1', kind: 'Pod', metadata, spec: {} });
    return workload && { workload: { ...workload, kind, pointer, pod }, unknown };
  };
  const subject = `${kind} ${nameOf(value)}`;
  if (/^(pool\.)?kubevirt\.io\//.test(apiVersion) && /^VirtualMachine/.test(kind)) {
    const pod = { metadata: {}, spec: { restartPolicy: 'Never', containers: [{ name: 'compute' }] } };
    return as('', pod, `${subject} runs in a pod of KubeVirt’s, and is no kind that Linger knows`);
  }
  const found = podSpecIn(value, '', 0);
  if (found === undefined) return undefined;
  const { path, spec } = found;
  const unknown = `${subject} has a pod template (${path}/containers), but ${apiVersion} ${kind} is no kind that Linger knows`;
  const pointer = path.replace(/\/spec$/, '');
  const template = pointer === path ? {} : memberAt(value, pointer.split('/').slice(1));
  const own = pointer === '' ? {} : memberAt(template, ['metadata']);
  const labels = {
    ...(isRecord(own) && isRecord(own.labels) && own.labels),
    // As Knative labels the pods of a revision.
    ...(apiVersion.startsWith('serving.knative.dev/') && { 'serving.knative.dev/revision': nameOf(value) }),
  };
  return as(pointer, { metadata: { ...(isRecord(own) && own), labels }, spec }, unknown);
}

/** The first list of containers in an object. */
function podSpecIn(
  value: unknown,
  path: string,
  depth: number,
): { readonly path: string; readonly spec: unknown } | undefined {
  if (depth > TEMPLATE_DEPTH || typeof value !== 'object' || value === null) return undefined;
  if (isRecord(value) && Array.isArray(value.containers)) {
    const isContainer = (item: unknown) => isRecord(item) && typeof item.image === 'string';
    if (value.containers.some(isContainer)) return { path, spec: value };
  }
  for (const [key, member] of Object.entries(value)) {
    const found = podSpecIn(member, `${path}/${key}`, depth + 1);
    if (found !== undefined) return found;
  }
  return undefined;
}
