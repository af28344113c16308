/** A Kubernetes version, as far as decisions need it. */
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
}

export interface NodeVersion {
  readonly kubeletVersion: string;
  /** A virtual node (a kubelet that is no kubelet) says nothing about what the real ones can do. */
  readonly virtual: boolean;
}

/** Native sleep is on by default from 1.30; below, the API server or the kubelet drops it silently. Source: KEP-3960. */
const NATIVE_SLEEP: Version = { major: 1, minor: 30 };

/** @returns undefined for a text that is no version, such as the free-form ones of virtual kubelets. */
export function parseVersion(text: string): Version | undefined {
  const match = /^v?(\d{1,4})\.(\d{1,4})(?:[.+-]|$)/.exec(text);
  if (match === null) return undefined;
  return { major: Number(match[1]), minor: Number(match[2]) };
}

export function atLeast(version: Version, bound: Version): boolean {
  return version.major > bound.major || (version.major === bound.major && version.minor >= bound.minor);
}

/** The fleet that these versions make. */
export function fleetOf(apiServer: string, nodes: readonly NodeVersion[]): Fleet {
  let oldest: Version | undefined;
  for (const node of nodes) {
    const version = node.virtual ? undefined : parseVersion(node.kubeletVersion);
    if (version !== undefined && (oldest === undefined || !atLeast(version, oldest))) oldest = version;
  }
  return { apiServer: parseVersion(apiServer), oldestKubelet: oldest };
}

/** Whether native sleep works everywhere. An unknown fleet (no cluster) is taken for a current one. */
export function supportsNativeSleep(fleet: Fleet | undefined): boolean {
  const versions = [fleet?.apiServer, fleet?.oldestKubelet];
  return versions.every((version) => version === undefined || atLeast(version, NATIVE_SLEEP));
}

/** The fleet in force, and the one that may replace it. */
export interface SettlingFleet {
  readonly inForce: Fleet | undefined;
  readonly candidate: Fleet | undefined;
  /** When the candidate was first seen to differ in its answer, in seconds on any monotonic clock. */
  readonly since: number;
}

export const UNSETTLED: SettlingFleet = { inForce: undefined, candidate: undefined, since: 0 };

/** A node pool that scales from zero must not switch the hook of every pod back and forth. */
export const FLEET_SETTLE_SECONDS = 600;

/**
 * Takes a new observation: what `Auto` answers changes only when the new answer has held for ten minutes.
 * The first observation counts at once, since there is no answer yet that it could disturb.
 */
export function settle(state: SettlingFleet, observed: Fleet, now: number): SettlingFleet {
  const settled = { inForce: observed, candidate: undefined, since: now };
  const { inForce } = state;
  if (inForce === undefined || supportsNativeSleep(observed) === supportsNativeSleep(inForce)) return settled;
  const since = state.candidate === undefined ? now : state.since;
  return now - since >= FLEET_SETTLE_SECONDS ? settled : { inForce, candidate: observed, since };
}
