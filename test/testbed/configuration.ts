import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { NodeNetwork } from './network.ts';
import type { StatePaths } from './settings.ts';

export interface ConfigurationInput {
  readonly name: string;
  readonly node: NodeNetwork;
  readonly paths: StatePaths;
  readonly cniDirectory: string;
  readonly pauseImage: string;
}

/** Writes the configuration files that components read at their start. */
export function writeConfiguration(input: ConfigurationInput): void {
  const { paths } = input;
  for (const directory of [paths.config, paths.cniConfig, paths.staticPods, paths.podLogs]) {
    mkdirSync(directory, { recursive: true });
  }
  const json = (file: string, value: unknown) => writeFileSync(file, JSON.stringify(value, null, 2));
  writeFileSync(join(paths.config, 'containerd.toml'), containerdConfiguration(input));
  json(join(paths.config, 'kubelet.json'), kubeletConfiguration(input));
  json(join(paths.config, 'audit.json'), auditPolicy());
  json(join(paths.cniConfig, '10-linger.conflist'), cniConfiguration(input));
}

/** Every path is ours, so that nothing is left outside the state directory after a crash. */
function containerdConfiguration({ paths, cniDirectory, pauseImage }: ConfigurationInput): string {
  return `version = 3
root = "${paths.containerd}/root"
state = "${paths.containerd}/state"
[grpc]
  address = "${paths.containerdSocket}"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "${pauseImage}"
[plugins."io.containerd.cri.v1.runtime"]
  # Lowering a score takes CAP_SYS_RESOURCE, which a container or a small VM often lacks:
  # runc then dies with "can't get final child's PID from pipe: EOF".
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["${cniDirectory}"]
    conf_dir = "${paths.cniConfig}"
    # Without the loopback plugin, whose results would stay in /var/lib/cni after a crash.
    use_internal_loopback = true
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      Root = "${paths.containerd}/runc"
      SystemdCgroup = false
`;
}

function kubeletConfiguration({ name, node, paths }: ConfigurationInput): object {
  return {
    apiVersion: 'kubelet.config.k8s.io/v1beta1',
    kind: 'KubeletConfiguration',
    authentication: {
      x509: { clientCAFile: join(paths.pki, 'ca.crt') },
      webhook: { enabled: false },
      anonymous: { enabled: false },
    },
    authorization: { mode: 'AlwaysAllow' },
    tlsCertFile: join(paths.pki, `${node.name}.crt`),
    tlsPrivateKeyFile: join(paths.pki, `${node.name}.key`),
    // Asked from the first node's network.
    healthzBindAddress: node.address,
    containerRuntimeEndpoint: `unix://${paths.containerdSocket}`,
    staticPodPath: paths.staticPods,
    podLogsDir: paths.podLogs,
    volumePluginDir: join(paths.kubelet, 'volume-plugins'),
    clusterDomain: 'cluster.local',
    // There is no cluster DNS, and no packet leaves the namespace: the host's servers would only time out.
    resolvConf: '/dev/null',
    maxPods: 250,
    ...nodeResources(name),
  };
}

/** What lets kubelet run on a machine that it does not own, with cgroup v1 or v2. */
function nodeResources(name: string): object {
  return {
    cgroupDriver: 'cgroupfs',
    failCgroupV1: false,
    cgroupsPerQOS: true,
    // Made by createCgroup; removeCluster finds the containers by it.
    cgroupRoot: `/${name}`,
    enforceNodeAllocatable: [],
    failSwapOn: false,
    // Measuring and evicting by disk use: the disk is shared with everything else on this machine.
    localStorageCapacityIsolation: false,
    evictionHard: {},
    imageGCHighThresholdPercent: 100,
  };
}

/**
 * ptp and not bridge: pods are reached by routes, so that a Service reaches a pod on
 * its own node without the br_netfilter module.
 */
function cniConfiguration({ name, node, paths }: ConfigurationInput): object {
  return {
    cniVersion: '1.0.0',
    name,
    plugins: [
      {
        type: 'ptp',
        ipMasq: false,
        ipam: {
          type: 'host-local',
          ranges: [[{ subnet: node.podRange, rangeEnd: node.lastPodAddress }]],
          routes: [{ dst: '0.0.0.0/0' }],
          dataDir: paths.cniLeases,
        },
      },
      { type: 'portmap', capabilities: { portMappings: true } },
    ],
  };
}

/**
 * Who created and deleted which pod, with the audit annotations that webhooks add; and every endpoint that was ever
 * written, with the instant: what measurements are held against.
 */
/** Namespaces in which the suite installs Linger. */
const INSTALLED_IN = ['linger', 'tools'];

function auditPolicy(): object {
  const writes = ['create', 'update', 'patch', 'delete', 'deletecollection'];
  const slices = { group: 'discovery.k8s.io', resources: ['endpointslices'] };
  return {
    apiVersion: 'audit.k8s.io/v1',
    kind: 'Policy',
    omitStages: ['RequestReceived'],
    rules: [
      { level: 'Metadata', verbs: writes, resources: [{ group: '', resources: ['pods', 'pods/eviction'] }] },
      // A slice is given its name by the API server, so only the answer to its creation says it.
      { level: 'RequestResponse', verbs: ['create'], resources: [slices], omitManagedFields: true },
      {
        level: 'Request',
        verbs: writes,
        resources: [{ group: '', resources: ['endpoints'] }, slices],
        omitManagedFields: true,
      },
      // All that Linger asks for where deploy/ or the chart has installed it, to see that it is allowed.
      { level: 'Metadata', userGroups: INSTALLED_IN.map((name) => `system:serviceaccounts:${name}`) },
      { level: 'None' },
    ],
  };
}
