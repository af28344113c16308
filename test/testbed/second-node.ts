import { cpSync } from 'node:fs';
import { ApiClient, ownConnection } from './api.ts';
import type { Binaries } from './binaries.ts';
import { importImages, prepareNode, restartComponent, startWith, waitForNode } from './boot.ts';
import { cgroupProcesses } from './cgroups.ts';
import { buildImageArchive } from './images.ts';
import { removeNode } from './leftovers.ts';
import { busAddress, type Logind, type ShutdownGrace, startLogind } from './logind.ts';
import { connectSecondNode, enter, secondNode } from './network.ts';
import { unlessMissing } from './objects.ts';
import { identify, readRecord, signalIfAlive } from './process.ts';
import {
  type ClusterSettings,
  type NodeComponent,
  nodeComponents,
  secondNodeOf,
  statePaths,
} from './settings.ts';
import { claimStateDirectory } from './state-directory.ts';

/** A node beside the cluster's own, with a network namespace, a kubelet, a containerd and a kube-proxy of its own. */
export interface SecondNode {
  readonly name: string;
  readonly address: string;
  /** The words before a command that make it run in its network. */
  readonly enter: readonly string[];
  importImages(archive: Buffer): Promise<void>;
  /** Gives its kubelet a logind, and so long for its pods when the machine shuts down. */
  withLogind(grace: ShutdownGrace): Promise<Logind>;
  /** Restarts a component with extra flags, none by default. */
  restart(component: NodeComponent, flags?: readonly string[]): Promise<void>;
  /** SIGSTOP: it hangs until SIGCONT. */
  signal(component: NodeComponent, signal: NodeJS.Signals): void;
  /** It hangs for ever: its components are killed, and its containers stand still, connected as they are. */
  hang(): void;
  /** Removes it with all its pods, also one that hangs. */
  remove(): Promise<void>;
}

/** Runs inside the cluster's network; returns when the node is Ready. What `down` removes, it removes, too. */
export async function startSecondNode(settings: ClusterSettings, binaries: Binaries): Promise<SecondNode> {
  const own = secondNodeOf(settings);
  const [cluster, paths] = [statePaths(settings.stateDir), statePaths(own.stateDir)];
  const place = {
    node: secondNode,
    // Its kubelet asks no other logind than one of ours.
    enter: [...enter(own.name), 'env', `DBUS_SYSTEM_BUS_ADDRESS=${busAddress(own.stateDir)}`],
  };
  claimStateDirectory(own);
  await removeSecondNode(settings);
  await connectSecondNode(own.name);
  prepareNode(own, secondNode);
  cpSync(cluster.pki, paths.pki, { recursive: true });
  const start = startWith(paths, binaries, {}, place);
  await start('containerd');
  await importImages(buildImageArchive(binaries.app), paths, binaries);
  await Promise.all([start('kubelet'), start('kube-proxy')]);
  await waitForNode(paths, secondNode.name);
  const signal = (component: NodeComponent, name: NodeJS.Signals) => {
    const record = readRecord(paths.run, component);
    if (record !== undefined) signalIfAlive(record, name);
  };
  return {
    name: secondNode.name,
    address: secondNode.address,
    enter: place.enter,
    signal,
    importImages: (archive) => importImages(archive, paths, binaries),
    withLogind: async (grace) => {
      const logind = await startLogind(own.stateDir, settings.cacheDir, grace);
      await restartComponent(own, binaries, 'kubelet', [`--config-dir=${logind.configDir}`], place);
      await logind.inhibited();
      await waitForNode(paths, secondNode.name);
      return logind;
    },
    restart: (component, flags = []) => restartComponent(own, binaries, component, flags, place),
    hang: () => {
      for (const component of nodeComponents) signal(component, 'SIGKILL');
      for (const pid of cgroupProcesses(own.name)) {
        const identity = identify(pid);
        if (identity !== undefined) signalIfAlive(identity, 'SIGSTOP');
      }
    },
    remove: () => removeSecondNode(settings),
  };
}

/** Removes the second node, whatever state it is in, and its pods: nothing else would end them. */
export async function removeSecondNode(settings: ClusterSettings): Promise<void> {
  // First of all its kubelet, which would register it again.
  await removeNode(secondNodeOf(settings));
  const api = new ApiClient(ownConnection(statePaths(settings.stateDir).kubeconfig));
  try {
    await unlessMissing(api.call('DELETE', `/api/v1/nodes/${secondNode.name}`));
    type Listed = { items: readonly { metadata: { namespace: string; name: string } }[] };
    const ours = `/api/v1/pods?fieldSelector=spec.nodeName%3D${secondNode.name}`;
    const { items } = await api.call<Listed>('GET', ours);
    for (const { metadata } of items) {
      const path = `/api/v1/namespaces/${metadata.namespace}/pods/${metadata.name}`;
      await unlessMissing(api.call('DELETE', path, { body: { gracePeriodSeconds: 0 } }));
    }
  } finally {
    api.close();
  }
}
