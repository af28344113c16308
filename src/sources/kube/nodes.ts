import type { NodeVersion } from '../../core/cluster/fleet.ts';
import { isRecord, isString } from '../../core/schema/shape.ts';
import type { RawObject, Resource } from './resource.ts';

export interface NodeProjection extends NodeVersion {
  readonly name: string;
}

/**
 * Labels by which virtual nodes say so: `type=virtual-kubelet` is set by virtual-kubelet and the clouds' nodes that are
 * made of it, `type=kwok` by KWOK's; Liqo has one of its own.
 */
const VIRTUAL_TYPES: ReadonlySet<string> = new Set(['virtual-kubelet', 'kwok']);
const LIQO_TYPE = 'liqo.io/type';

/** Keeps ordinary pods off a virtual node. Source: virtual-kubelet cmd/virtual-kubelet (DefaultTaintKey). */
const VIRTUAL_TAINT = 'virtual-kubelet.io/provider';

/** Nodes whole: their metadata do not say which kubelet they run. */
export function nodesResource(): Resource<NodeProjection> {
  return { path: '/api/v1/nodes', afterMetadata: 'spec', project: projectNode };
}

export function projectNode({ metadata, spec, status }: RawObject): NodeProjection {
  const { name, labels = {} } = metadata;
  const nodeInfo = isRecord(status) ? status.nodeInfo : undefined;
  const version = isRecord(nodeInfo) ? nodeInfo.kubeletVersion : undefined;
  const virtual =
    VIRTUAL_TYPES.has(labels.type ?? '') || labels[LIQO_TYPE] === 'virtual-node' || isTaintedVirtual(spec);
  return { name, kubeletVersion: isString(version) ? version : '', virtual };
}

function isTaintedVirtual(spec: unknown): boolean {
  const taints = isRecord(spec) ? spec.taints : undefined;
  return Array.isArray(taints) && taints.some((taint) => isRecord(taint) && taint.key === VIRTUAL_TAINT);
}
