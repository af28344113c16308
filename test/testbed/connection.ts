import { spawn } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { type ApiConnection, ownConnection } from './api.ts';
import { type ApiServer, startApiServer } from './api-servers.ts';
import { ensureBinaries } from './binaries.ts';
import { importImages, restartComponent, whyNotBooted } from './boot.ts';
import { eachLine } from './command.ts';
import { insideNamespace, network } from './network.ts';
import { type SecondNode, startSecondNode } from './second-node.ts';
import { type ClusterSettings, type ComponentName, clusterSettings, statePaths } from './settings.ts';

export interface Addresses {
  /** Where the API server and pods reach a server that the suite starts. */
  readonly nodeAddress: string;
  /** Addresses of this machine from which load clients may connect. */
  readonly clientAddresses: readonly string[];
}

/** How a suite reaches a cluster: the one thing in which our own and a foreign one differ. */
export interface ClusterAccess {
  /** Whether it is the cluster that this project boots. */
  readonly own: boolean;
  readonly connection: ApiConnection;
  /** The words that run kubectl against it. */
  readonly kubectl: readonly string[];
  readonly kubeconfig: string;
  /** This machine's addresses, given that of a node. */
  readonly addresses: (node: () => Promise<string>) => Promise<Addresses>;
  /** Where kubelet looks for static pods; undefined when that is out of reach. */
  readonly staticPodDirectory: string | undefined;
  readonly auditLog: string | undefined;
  readonly restart: ((name: ComponentName, flags: readonly string[]) => Promise<void>) | undefined;
  /** Starts one more API server on the same etcd; undefined where that is out of reach. */
  readonly startApiServer: ((number: number, flags: readonly string[]) => Promise<ApiServer>) | undefined;
  /** Starts a second node; undefined where that is out of reach. */
  readonly startNode: (() => Promise<SecondNode>) | undefined;
  /** Makes the images of a docker-archive known to the node; undefined where that is out of reach. */
  readonly importImages: ((archive: Buffer) => Promise<void>) | undefined;
  readonly close: () => void;
}

/** What only the machine that boots a cluster can do to it. */
export const OUT_OF_REACH = {
  own: false,
  staticPodDirectory: undefined,
  auditLog: undefined,
  restart: undefined,
  startApiServer: undefined,
  startNode: undefined,
  importImages: undefined,
} as const satisfies Partial<ClusterAccess>;

/** The cluster that KUBECONFIG names, else our own, which must be up and around us. */
export async function accessCluster(env: NodeJS.ProcessEnv = process.env): Promise<ClusterAccess> {
  const kubeconfig = env.KUBECONFIG;
  return kubeconfig === undefined || kubeconfig === ''
    ? accessOwn(clusterSettings(env))
    : accessNamed(kubeconfig, env.LINGER_NODE_ADDRESS);
}

async function accessOwn(settings: ClusterSettings): Promise<ClusterAccess> {
  if (!insideNamespace(settings.name)) {
    throw new Error(
      `this process is not in the network of cluster ${settings.name}, so it cannot reach it. ` +
        'Bring it up (npm run cluster:up) and start this with: node test/testbed/main.ts exec COMMAND. ' +
        'Or set KUBECONFIG to use another cluster',
    );
  }
  const paths = statePaths(settings.stateDir);
  const binaries = await ensureBinaries(settings.cacheDir, console.error);
  const reason = whyNotBooted(settings, binaries);
  if (reason !== undefined) throw new Error(`cluster ${settings.name}: ${reason}; npm run cluster:up`);
  return {
    own: true,
    connection: ownConnection(paths.kubeconfig),
    kubectl: [binaries.kube, 'kubectl', `--kubeconfig=${paths.kubeconfig}`],
    kubeconfig: paths.kubeconfig,
    addresses: () => Promise.resolve(network),
    staticPodDirectory: paths.staticPods,
    auditLog: paths.auditLog,
    restart: (name, flags) => restartComponent(settings, binaries, name, flags),
    startApiServer: (number, flags) => startApiServer({ settings, binaries, number, flags }),
    startNode: () => startSecondNode(settings, binaries),
    importImages: (archive) => importImages(archive, paths, binaries),
    close: () => {},
  };
}

/**
 * kubectl's proxy lets every user of this machine act as we do, so it ends with this process, however that ends: descriptor 3
 * is closed then.
 */
const PROXY = '(cat <&3; kill $$) >/dev/null 2>&1 & exec kubectl proxy --port=0 3<&-';

/**
 * Somebody else's cluster, through `kubectl proxy`: kubectl then does whatever the
 * kubeconfig asks for (tokens, exec plugins, proxies, several files), and we speak plain HTTP.
 */
async function accessNamed(kubeconfig: string, address: string | undefined): Promise<ClusterAccess> {
  // In a session of its own: a terminal sends Ctrl-C to all of ours, and namespaces are deleted through the proxy after that.
  const proxy = spawn('sh', ['-c', PROXY], { detached: true, stdio: ['ignore', 'pipe', 'pipe', 'pipe'] });
  const close = () => void proxy.stdio[3]?.destroy();
  proxy.on('exit', close);
  let said = '';
  const url = await new Promise<URL>((resolve, reject) => {
    const look = (line: string) => {
      said += `${line}\n`;
      const served = /^Starting to serve on (\S+)/.exec(line)?.[1];
      if (served !== undefined) resolve(new URL(`http://${served}`));
    };
    for (const stream of [proxy.stdout, proxy.stderr]) if (stream !== null) eachLine(stream, look);
    proxy.on('error', (error) => reject(new Error(`cannot start kubectl: ${error.message}`)));
    proxy.on('close', (code) => reject(new Error(`kubectl proxy: exit ${code}\n${said}`)));
  });
  return {
    ...OUT_OF_REACH,
    connection: { url },
    kubectl: ['kubectl'],
    kubeconfig,
    addresses: async (node) => {
      const ours = await addressTowards(await node());
      return { nodeAddress: address ?? ours, clientAddresses: [ours] };
    },
    close,
  };
}

/**
 * This machine's address on the way to a node: for kind and k3d the gateway of their
 * container network, which is how their API server reaches us.
 */
async function addressTowards(node: string): Promise<string> {
  const socket = createSocket(node.includes(':') ? 'udp6' : 'udp4');
  try {
    // Connecting a UDP socket sends nothing; it asks the routing table.
    socket.connect(9, node);
    await once(socket, 'connect');
    return socket.address().address;
  } finally {
    socket.close();
  }
}
