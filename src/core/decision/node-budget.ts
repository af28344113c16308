import { GROUP, type Labels, labelOf } from '../api/index.ts';

/**
 * How long pods may keep running once their node is being taken away, by the labels of such nodes. Seconds.
 * - GKE: the kubelet gives pods that are not critical 15 s (graceful termination of Spot and preemptible VMs).
 * - EKS, Karpenter, self-managed nodes on AWS: the notice before an interruption is two minutes.
 * - AKS: the Preempt event comes 30 s before.
 */
const BUDGETS: readonly (readonly [label: string, value: string, seconds: number])[] = [
  ['cloud.google.com/gke-provisioning', 'spot', 15],
  ['cloud.google.com/gke-provisioning', 'preemptible', 15],
  ['cloud.google.com/gke-spot', 'true', 15],
  ['cloud.google.com/gke-preemptible', 'true', 15],
  ['kubernetes.azure.com/scalesetpriority', 'spot', 30],
  ['eks.amazonaws.com/capacityType', 'SPOT', 120],
  ['karpenter.sh/capacity-type', 'spot', 120],
  ['node.kubernetes.io/lifecycle', 'spot', 120],
  ['lifecycle', 'Ec2Spot', 120],
];

/** Set by the operator on a node: seconds. */
export const NODE_BUDGET_LABEL = `${GROUP}/node-budget`;

/** How much of a node's budget a wait or a hold may take: the application needs the rest. */
export const NODE_BUDGET_SHARE = 1 / 3;

/** @returns undefined for a node with none of these labels */
export function nodeBudgetOf(labels: Labels): number | undefined {
  const own = /^[1-9]\d{0,4}$/.exec(labelOf(labels, NODE_BUDGET_LABEL) ?? '')?.[0];
  if (own !== undefined) return Number(own);
  return BUDGETS.find(([label, value]) => labelOf(labels, label) === value)?.[2];
}
