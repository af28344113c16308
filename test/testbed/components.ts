import { join } from 'node:path';
import type { Binaries } from './binaries.ts';
import { firstNode, type NodeNetwork, network } from './network.ts';
import type { ComponentName, StatePaths } from './settings.ts';

/** How one component is started and how it is known to work. */
export interface Component<Name extends string = ComponentName> {
  /** Names its record, its log and, for those of Kubernetes, the program. */
  readonly name: Name;
  readonly argv: readonly string[];
  /** containerd has none: it is asked with ctr. */
  readonly health?: HealthCheck;
}

export interface HealthCheck {
  /** Answers 200 when the component works. */
  readonly url: string;
  /** What the answer must hold besides. */
  readonly says?: string;
}

/** Every component's command line. Written for nodes whose network and disks nobody else uses. */
export function components(
  paths: StatePaths,
  binaries: Binaries,
  node: NodeNetwork = firstNode,
): Component[] {
  const pki = (file: string) => join(paths.pki, file);
  const kube = (name: ComponentName, url: string, flags: readonly string[], says?: string): Component => ({
    name,
    health: says === undefined ? { url } : { url, says },
    argv: [binaries.kube, name, ...flags],
  });
  return [
    kube('etcd', 'http://127.0.0.1:2379/health', etcdFlags(paths)),
    {
      name: 'containerd',
      argv: [
        join(binaries.containerdDirectory, 'containerd'),
        '--config',
        join(paths.config, 'containerd.toml'),
      ],
    },
    kube(
      'kube-apiserver',
      `https://${network.nodeAddress}:${network.apiPort}/readyz`,
      apiServerFlags(paths, pki),
    ),
    kube(
      'kube-controller-manager',
      'https://127.0.0.1:10257/healthz?verbose',
      controllerManagerFlags(pki),
      // It is "ok" long before it has any controllers, and ends when the API server goes away while it makes them.
      'endpointslice-controller ok',
    ),
    kube('kube-scheduler', 'https://127.0.0.1:10259/healthz', [
      `--kubeconfig=${pki('scheduler.kubeconfig')}`,
      `--authentication-kubeconfig=${pki('scheduler.kubeconfig')}`,
      `--authorization-kubeconfig=${pki('scheduler.kubeconfig')}`,
      '--leader-elect=false',
    ]),
    kube('kubelet', `http://${node.address}:10248/healthz`, kubeletFlags(paths, pki, node)),
    kube('kube-proxy', `http://${node.address}:10256/healthz`, proxyFlags(pki, node)),
  ];
}

function etcdFlags(paths: StatePaths): string[] {
  return [
    `--data-dir=${paths.etcd}`,
    // Nothing here outlives the machine's power; syncing only slows a small disk down.
    '--unsafe-no-fsync',
    '--listen-client-urls=http://127.0.0.1:2379',
    '--advertise-client-urls=http://127.0.0.1:2379',
    '--listen-peer-urls=http://127.0.0.1:2380',
  ];
}

function apiServerFlags(paths: StatePaths, pki: (file: string) => string): string[] {
  return [
    '--etcd-servers=http://127.0.0.1:2379',
    `--bind-address=${network.nodeAddress}`,
    `--advertise-address=${network.nodeAddress}`,
    `--secure-port=${network.apiPort}`,
    `--tls-cert-file=${pki('apiserver.crt')}`,
    `--tls-private-key-file=${pki('apiserver.key')}`,
    `--client-ca-file=${pki('ca.crt')}`,
    `--kubelet-client-certificate=${pki('admin.crt')}`,
    `--kubelet-client-key=${pki('admin.key')}`,
    `--kubelet-certificate-authority=${pki('ca.crt')}`,
    // Not by host name: no DNS server knows the node's.
    '--kubelet-preferred-address-types=InternalIP',
    `--service-account-key-file=${pki('sa.pub')}`,
    `--service-account-signing-key-file=${pki('sa.key')}`,
    '--service-account-issuer=https://kubernetes.default.svc',
    `--service-cluster-ip-range=${network.serviceRange}`,
    '--authorization-mode=Node,RBAC',
    '--enable-admission-plugins=NodeRestriction',
    '--allow-privileged=true',
    `--audit-policy-file=${join(paths.config, 'audit.json')}`,
    `--audit-log-path=${paths.auditLog}`,
  ];
}

function controllerManagerFlags(pki: (file: string) => string): string[] {
  const kubeconfig = pki('controller-manager.kubeconfig');
  return [
    `--kubeconfig=${kubeconfig}`,
    `--authentication-kubeconfig=${kubeconfig}`,
    `--authorization-kubeconfig=${kubeconfig}`,
    `--root-ca-file=${pki('ca.crt')}`,
    `--service-account-private-key-file=${pki('sa.key')}`,
    `--cluster-signing-cert-file=${pki('ca.crt')}`,
    `--cluster-signing-key-file=${pki('ca.key')}`,
    '--use-service-account-credentials=true',
    '--leader-elect=false',
  ];
}

function kubeletFlags(paths: StatePaths, pki: (file: string) => string, node: NodeNetwork): string[] {
  return [
    `--config=${join(paths.config, 'kubelet.json')}`,
    `--kubeconfig=${pki(`${node.name}.kubeconfig`)}`,
    `--hostname-override=${node.name}`,
    `--node-ip=${node.address}`,
    `--root-dir=${paths.kubelet}`,
    // Its log then says when it runs hooks and kills containers.
    '--v=2',
  ];
}

/** By flags and not by a file: with --config kube-proxy ignores every other flag, extra ones too. */
function proxyFlags(pki: (file: string) => string, node: NodeNetwork): string[] {
  return [
    `--kubeconfig=${pki('proxy.kubeconfig')}`,
    `--hostname-override=${node.name}`,
    `--cluster-cidr=${network.podRanges}`,
    // nftables mode asks for IPv6 parts that small kernels lack.
    '--proxy-mode=iptables',
    // 0 leaves nf_conntrack_max alone: it belongs to the machine, not to this network namespace.
    '--conntrack-max-per-core=0',
  ];
}
