import type { Labels } from '../api/index.ts';

export interface Version {
  readonly major: number;
  readonly minor: number;
}

/**
 * The versions that serve the cluster's pods: the API server's, and the oldest kubelet's of all real nodes. A version that
 * does not parse is undefined and ignored.
 */
export interface Fleet {
  readonly apiServer: Version | undefined;
  readonly oldestKubelet: Version | undefined;
  /** The nodes whose kubelet has reported its platform. Pods start on no others. */
  readonly nodes: readonly NodeFacts[];
}

export interface NodeVersion {
  readonly kubeletVersion: string;
  /**
   * A virtual node, such as that of a serverless provider, does not run a kubelet, so it shows nothing about what real nodes
   * support.
   */
  readonly virtual: boolean;
}

/** The properties that decide whether a pod may run on the node, as text from the Node object; empty where it has none. */
export interface NodeFacts extends NodeVersion {
  readonly name: string;
  readonly labels: Labels;
  /** Addresses from which the node's own processes connect: the kubelet's probes, and pods in the node's network. */
  readonly addresses: readonly string[];
  /** `linux`, `windows` */
  readonly operatingSystem: string;
  /** `amd64`, `arm64` */
  readonly architecture: string;
  readonly osImage: string;
  readonly containerRuntimeVersion: string;
}

/** The kind of a node. Nodes of one kind are alike: what works on one works on all. */
export function nodeKind(node: NodeFacts): string {
  const { architecture, osImage, containerRuntimeVersion, kubeletVersion } = node;
  return [architecture, osImage, containerRuntimeVersion, kubeletVersion].join('|');
}

/** Native sleep is on by default from 1.30; below, the API server or the kubelet drops it silently. Source: KEP-3960. */
const NATIVE_SLEEP: Version = { major: 1, minor: 30 };

/** Below, the API server silently drops image volumes and their mounts. Source: KEP-4639 (on by default from 1.35). */
const IMAGE_VOLUMES: Version = { major: 1, minor: 35 };

/** @returns undefined for a text that is no version, such as the free-form ones of virtual kubelets. */
export function parseVersion(text: string): Version | undefined {
  const match = /^v?(\d{1,4})\.(\d{1,4})(?:[.+-]|$)/.exec(text);
  if (match === null) return undefined;
  return { major: Number(match[1]), minor: Number(match[2]) };
}

export function atLeast(version: Version, bound: Version): boolean {
  return version.major > bound.major || (version.major === bound.major && version.minor >= bound.minor);
}

export function fleetOf(apiServer: string, nodes: readonly NodeFacts[]): Fleet {
  let oldest: Version | undefined;
  for (const node of nodes) {
    const version = node.virtual ? undefined : parseVersion(node.kubeletVersion);
    if (version !== undefined && (oldest === undefined || !atLeast(version, oldest))) oldest = version;
  }
  // A kubelet says its architecture when it creates its Node. Source: k8s.io/kubernetes pkg/kubelet/nodestatus (MachineInfo).
  const real = nodes.filter((node) => !node.virtual && node.architecture !== '');
  return { apiServer: parseVersion(apiServer), oldestKubelet: oldest, nodes: real };
}

/** Whether native sleep works everywhere. Without a cluster, current versions are assumed. */
export function supportsNativeSleep(fleet: Fleet | undefined): boolean {
  const versions = [fleet?.apiServer, fleet?.oldestKubelet];
  return versions.every((version) => version === undefined || atLeast(version, NATIVE_SLEEP));
}

/** Whether image volumes work everywhere. Without a cluster, no: if the volume were dropped, every wait would be lost. */
export function supportsImageVolumes(fleet: Fleet | undefined): boolean {
  const versions = [fleet?.apiServer, fleet?.oldestKubelet];
  return versions.every((version) => version !== undefined && atLeast(version, IMAGE_VOLUMES));
}

export interface SettlingFleet {
  readonly inForce: Fleet | undefined;
  readonly candidate: Fleet | undefined;
  /** When the candidate’s answer first differed from the current one, in seconds of a monotonic clock. */
  readonly since: number;
}

export const UNSETTLED: SettlingFleet = { inForce: undefined, candidate: undefined, since: 0 };

/**
 * A changed answer must hold this long, so that a node pool that scales from zero does not switch the hook of every pod back
 * and forth.
 */
export const FLEET_SETTLE_SECONDS = 600;

/**
 * Takes a new observation. The answer of `Auto` changes only when the new answer has held for ten minutes; the first
 * observation counts at once. The list of nodes is updated at once, because it decides where a pod can run now.
 */
export function settle(state: SettlingFleet, observed: Fleet, now: number): SettlingFleet {
  const settled = { inForce: observed, candidate: undefined, since: now };
  const { inForce } = state;
  if (inForce === undefined || supportsNativeSleep(observed) === supportsNativeSleep(inForce)) return settled;
  const since = state.candidate === undefined ? now : state.since;
  if (now - since >= FLEET_SETTLE_SECONDS) return settled;
  return { inForce: { ...inForce, nodes: observed.nodes }, candidate: observed, since };
}
