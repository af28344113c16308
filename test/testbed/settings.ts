import { homedir } from 'node:os';
import { join } from 'node:path';

/** Everything that runs as a process of its own, in the order in which it is started. */
export const componentNames = [
  'etcd',
  'containerd',
  'kube-apiserver',
  'kube-controller-manager',
  'kube-scheduler',
  'kubelet',
  'kube-proxy',
] as const;

export type ComponentName = (typeof componentNames)[number];

/** What every node runs, in the order in which it is started. */
export const nodeComponents = ['containerd', 'kubelet', 'kube-proxy'] as const satisfies ComponentName[];
export type NodeComponent = (typeof nodeComponents)[number];

/** Flags appended to a component's own, so they win: the last of two equal flags counts. */
export type ExtraFlags = Partial<Record<ComponentName, readonly string[]>>;

export interface ClusterSettings {
  /** Names the network namespace, the cgroup and the CNI network: what `down` looks for. */
  readonly name: string;
  /** Where built binaries and images are kept between boots. */
  readonly cacheDir: string;
  /** Where this cluster keeps certificates, etcd, containerd, kubelet and logs. */
  readonly stateDir: string;
}

/**
 * A Unix socket's path has at most 107 bytes (sun_path of unix(7)); the longest below
 * the second node's is kubelet's `/kubelet/pod-resources/kubelet.sock` and a suffix.
 */
const LONGEST_STATE_DIR = 107 - '.node-2/kubelet/pod-resources/kubelet.sock.0123456789'.length;

/** The only reader of the environment for the cluster itself. Throws when a value cannot work. */
export function clusterSettings(env: NodeJS.ProcessEnv = process.env): ClusterSettings {
  const version = env.LINGER_KUBERNETES;
  // Clusters of different versions run beside each other.
  const usual = version ? `linger-${version.replaceAll('.', '-')}` : 'linger-test';
  const name = env.LINGER_CLUSTER_NAME || usual;
  if (!/^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$/.test(name)) {
    throw new Error(`LINGER_CLUSTER_NAME: expected up to 32 of a-z, 0-9 and -, got ${JSON.stringify(name)}`);
  }
  const cacheRoot = env.LINGER_CACHE || env.XDG_CACHE_HOME || join(homedir(), '.cache');
  const cacheDir = join(cacheRoot, 'linger', 'cluster');
  const stateDir = env.LINGER_CLUSTER_DIR || join(cacheDir, 'state', name);
  if (Buffer.byteLength(stateDir) > LONGEST_STATE_DIR || !stateDir.startsWith('/')) {
    throw new Error(
      `LINGER_CLUSTER_DIR: expected an absolute path of at most ${LONGEST_STATE_DIR} bytes ` +
        `(it holds Unix sockets), got ${stateDir}`,
    );
  }
  return { name, cacheDir, stateDir };
}

/** For processes that are about this cluster, whatever this process's environment names. */
export function environmentOf({ name, stateDir }: ClusterSettings): NodeJS.ProcessEnv {
  return { ...process.env, LINGER_CLUSTER_NAME: name, LINGER_CLUSTER_DIR: stateDir };
}

/** A cluster beside this one. */
export function besides({ name, cacheDir, stateDir }: ClusterSettings): ClusterSettings {
  return { name: `${name}-2`, cacheDir, stateDir: `${stateDir}-2` };
}

/**
 * The second node of this cluster: with a name and a state directory of its own it leaves the same traces, and these are
 * removed in the same way. No cluster's name has a dot.
 */
export function secondNodeOf({ name, cacheDir, stateDir }: ClusterSettings): ClusterSettings {
  return { name: `${name}.node-2`, cacheDir, stateDir: `${stateDir}.node-2` };
}

/** The places below a cluster's state directory. */
export function statePaths(stateDir: string) {
  return {
    /** Survives `down`, so that a failure can be read afterwards. */
    logs: join(stateDir, 'logs'),
    auditLog: join(stateDir, 'logs', 'audit.log'),
    lock: join(stateDir, 'lock'),
    /** Holds the cluster's name: the mark that this directory may be emptied. */
    owner: join(stateDir, 'cluster-name'),
    /** One JSON record per running component. */
    run: join(stateDir, 'run'),
    booted: join(stateDir, 'run', 'booted.json'),
    pki: join(stateDir, 'pki'),
    kubeconfig: join(stateDir, 'pki', 'admin.kubeconfig'),
    config: join(stateDir, 'config'),
    etcd: join(stateDir, 'etcd'),
    containerd: join(stateDir, 'containerd'),
    containerdSocket: join(stateDir, 'containerd', 'c.sock'),
    cniConfig: join(stateDir, 'config', 'cni'),
    cniLeases: join(stateDir, 'cni'),
    kubelet: join(stateDir, 'kubelet'),
    podLogs: join(stateDir, 'pod-logs'),
    staticPods: join(stateDir, 'static-pods'),
  };
}

export type StatePaths = ReturnType<typeof statePaths>;
