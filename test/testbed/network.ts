import { existsSync, statSync, writeFileSync } from 'node:fs';
import { must, run } from './command.ts';

/**
 * The cluster's addresses. They repeat in every cluster: each has a network namespace
 * of its own, from which no packet leaves.
 */
export const network = {
  nodeName: 'node-1',
  nodeAddress: '10.200.0.1',
  apiPort: 6443,
  serviceRange: '10.201.0.0/16',
  /** The API server takes the first address of the service range for `kubernetes.default`. */
  serviceApiAddress: '10.201.0.1',
  /** Range of the pods of both nodes. */
  podRanges: '10.202.0.0/15',
  /** A whole /16 for one node: an address comes back only after 65,000 pods, never within a test. */
  podRange: '10.202.0.0/16',
  /** The last address that a pod may get; what lies behind it is for load clients. */
  lastPodAddress: '10.202.254.254',
  /**
   * Source addresses for load clients. They lie in the pod range because kube-proxy
   * masquerades what comes to a ClusterIP from elsewhere, with a source port of the
   * kernel's choice: the port that a client chose would not be the one that a pod sees.
   * One address has about 36,000 usable ports (load/ports.ts); sixteen last an hour
   * of 150 connections a second without using one twice.
   */
  clientAddresses: Array.from({ length: 16 }, (_, i) => `10.202.255.${16 + i}`),
  /** The ends of a link to a network of their own for hooks that no kubelet runs. */
  hooks: { ofNode: '10.200.1.1', own: '10.200.1.2' },
  /** The ends of a link to another cluster, whose API server the first one reaches at its end. */
  joined: { own: '10.210.0.1', other: '10.210.0.2' },
} as const;

/** In what one node differs from the other. */
export interface NodeNetwork {
  readonly name: string;
  readonly address: string;
  readonly podRange: string;
  readonly lastPodAddress: string;
}

export const firstNode: NodeNetwork = {
  name: network.nodeName,
  address: network.nodeAddress,
  podRange: network.podRange,
  lastPodAddress: network.lastPodAddress,
};

export const secondNode: NodeNetwork = {
  name: 'node-2',
  address: '10.200.0.2',
  podRange: '10.203.0.0/16',
  lastPodAddress: '10.203.255.254',
};

export function namespacePath(name: string): string {
  return `/run/netns/${name}`;
}

export function namespaceExists(name: string): boolean {
  return existsSync(namespacePath(name));
}

/** Whether this process runs in the cluster's network namespace. */
export function insideNamespace(name: string): boolean {
  if (!namespaceExists(name)) return false;
  const ours = statSync('/proc/self/ns/net');
  const theirs = statSync(namespacePath(name));
  return ours.ino === theirs.ino && ours.dev === theirs.dev;
}

/**
 * The words to put before a command so that it runs in the cluster's network.
 * nsenter, not `ip netns exec`: the latter mounts a fresh /sys, without the cgroup
 * mounts that kubelet and runc need.
 */
export function enter(name: string): string[] {
  return ['nsenter', `--net=${namespacePath(name)}`, '--'];
}

export async function createNamespace(name: string): Promise<void> {
  if (!namespaceExists(name)) await must(['ip', 'netns', 'add', name]);
}

export async function deleteNamespace(name: string): Promise<void> {
  if (namespaceExists(name)) await must(['ip', 'netns', 'delete', name]);
}

/** Gives the node its addresses. Runs inside a namespace that is still empty. */
export async function configureNode(): Promise<void> {
  await must(['ip', 'link', 'set', 'lo', 'up']);
  // A bridge without ports: always up, and unlike a dummy device present in every kernel with containers.
  await must(['ip', 'link', 'add', 'node0', 'type', 'bridge']);
  const addresses = [
    `${network.nodeAddress}/24`,
    ...network.clientAddresses.map((address) => `${address}/32`),
  ];
  for (const address of addresses) await must(['ip', 'address', 'add', address, 'dev', 'node0']);
  await must(['ip', 'link', 'set', 'node0', 'up']);
  // kube-proxy and the API server look up the host's address by its default route; nothing answers behind it.
  await must(['ip', 'route', 'add', 'default', 'dev', 'node0', 'src', network.nodeAddress]);
  // /proc/sys/net shows the reader's own network namespace.
  writeFileSync('/proc/sys/net/ipv4/ip_forward', '1');
}

/**
 * Makes the second node's network namespace, with a link to the first node's bridge and routes between the pods of both.
 * Runs inside the first node's.
 */
export async function connectSecondNode(namespace: string): Promise<void> {
  const { name: link, address } = secondNode;
  // Left over from a node that was removed just now: the kernel takes its network namespace down a moment later.
  await run(['ip', 'link', 'delete', link]);
  await createNamespace(namespace);
  await must(['ip', 'link', 'add', link, 'type', 'veth', 'peer', 'name', 'node0', 'netns', namespace]);
  await must(['ip', 'link', 'set', link, 'master', 'node0', 'up']);
  const commands = [
    'ip link set lo up',
    `ip address add ${address}/24 dev node0`,
    'ip link set node0 up',
    `ip route add default dev node0 src ${address}`,
    `ip route add ${firstNode.podRange} via ${firstNode.address}`,
    'echo 1 > /proc/sys/net/ipv4/ip_forward',
  ];
  await must([...enter(namespace), 'sh', '-ec', commands.join('\n')]);
  await must(['ip', 'route', 'replace', secondNode.podRange, 'via', address]);
}

const JOINED_LINK = 'joined0';
/** Both translate what they send, because both have the same addresses. */
const MASQUERADED = ['POSTROUTING', '-o', JOINED_LINK, '-j', 'MASQUERADE'];

/**
 * Links another cluster's network namespace to this one: its API server is reached at {@link network.joined}`.other`, and it
 * reaches this cluster's pods, whose addresses it gives none itself. Runs inside this cluster's.
 */
export async function joinCluster(namespace: string): Promise<void> {
  const { own, other } = network.joined;
  const link = JOINED_LINK;
  await run(['ip', 'link', 'delete', link]);
  await must(['ip', 'link', 'add', link, 'type', 'veth', 'peer', 'name', link, 'netns', namespace]);
  // More specific than the route to its own pods.
  const halves = ['10.202.0.0/17', '10.202.128.0/17'];
  const common = (address: string) => [
    `ip address add ${address}/30 dev ${link}`,
    `ip link set ${link} up`,
    `iptables -w -t nat -A ${MASQUERADED.join(' ')}`,
  ];
  await must(['sh', '-ec', common(own).join('\n')]);
  const there = [
    ...common(other),
    ...halves.map((half) => `ip route add ${half} via ${own}`),
    `iptables -w -t nat -A PREROUTING -d ${other} -p tcp --dport ${network.apiPort} -j DNAT --to-destination ${network.nodeAddress}:${network.apiPort}`,
  ];
  await must([...enter(namespace), 'sh', '-ec', there.join('\n')]);
}

export async function leaveCluster(): Promise<void> {
  await run(['ip', 'link', 'delete', JOINED_LINK]);
  await run(['iptables', '-w', '-t', 'nat', '-D', ...MASQUERADED]);
}
