import type { Labels } from '../api/index.ts';

export interface Version {
  readonly major: number;
  readonly minor: number;
}

/**
 * What serves the cluster's pods: the API server, and the oldest kubelet of any real node. A version that
 * does not parse is undefined, and does not count.
 */
export interface Fleet {
  readonly apiServer: Version | undefined;
  readonly oldestKubelet: Version | undefined;
  /** The nodes whose kubelet has said what it runs on: no pod starts on another one. */
  readonly nodes: readonly NodeFacts[];
}

export interface NodeVersion {
  readonly kubeletVersion: string;
  /** A virtual node (a kubelet that is no kubelet) says nothing about what the real ones can do. */
  readonly virtual: boolean;
}

/** The properties of a node that decide whether a pod may run on it. Texts are the Node's own; empty where it has none. */
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

/** Nodes of one kind are alike: what works on one works on all. */
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

/** Whether native sleep works everywhere. An unknown fleet (no cluster) is taken for a current one. */
export function supportsNativeSleep(fleet: Fleet | undefined): boolean {
  const versions = [fleet?.apiServer, fleet?.oldestKubelet];
  return versions.every((version) => version === undefined || atLeast(version, NATIVE_SLEEP));
}

/** Whether image volumes work everywhere. An unknown fleet counts as not: a dropped volume would cost every wait. */
export function supportsImageVolumes(fleet: Fleet | undefined): boolean {
  const versions = [fleet?.apiServer, fleet?.oldestKubelet];
  return versions.every((version) => version !== undefined && atLeast(version, IMAGE_VOLUMES));
}

export interface SettlingFleet {
  readonly inForce: Fleet | undefined;
  readonly candidate: Fleet | undefined;
  /** When the candidate’s answer first differed, in seconds on any monotonic clock. */
  readonly since: number;
}

export const UNSETTLED: SettlingFleet = { inForce: undefined, candidate: undefined, since: 0 };

/** A node pool that scales from zero must not switch the hook of every pod back and forth. */
export const FLEET_SETTLE_SECONDS = 600;

/**
 * Takes a new observation. The answer of `Auto` changes only when the new answer has held for ten minutes; the first
 * observation counts at once. The nodes are always the current ones, since they decide where a pod may run now.
 */
export function settle(state: SettlingFleet, observed: Fleet, now: number): SettlingFleet {
  const settled = { inForce: observed, candidate: undefined, since: now };
  const { inForce } = state;
  if (inForce === undefined || supportsNativeSleep(observed) === supportsNativeSleep(inForce)) return settled;
  const since = state.candidate === undefined ? now : state.since;
  if (now - since >= FLEET_SETTLE_SECONDS) return settled;
  return { inForce: { ...inForce, nodes: observed.nodes }, candidate: observed, since };
}
