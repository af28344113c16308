import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ApiClient, ownConnection } from './api.ts';
import { ensureBinaries } from './binaries.ts';
import { Cluster } from './cluster.ts';
import { OUT_OF_REACH } from './connection.ts';
import { down, up } from './lifecycle.ts';
import { enter, joinCluster, leaveCluster, network } from './network.ts';
import { clusterSettings, statePaths } from './settings.ts';

/** Another cluster, of which this one reaches the API server, and which reaches this one's pods. */
export interface JoinedCluster {
  readonly cluster: Cluster;
  /** The words before a command that make it run in its network. */
  readonly enter: readonly string[];
  /** Takes it down. */
  remove(): Promise<void>;
}

/** Runs inside the own cluster's network. Boots another one, from which an earlier run has left nothing, and links both. */
export async function startJoinedCluster(): Promise<JoinedCluster> {
  const { name, cacheDir, stateDir } = clusterSettings();
  const settings = { name: `${name}-joined`, cacheDir, stateDir: `${stateDir}-joined` };
  const say = (line: string) => console.error(line);
  await down(settings, say);
  if ((await up(settings, {}, say)) !== 0) throw new Error(`cluster ${settings.name} does not come up`);
  await joinCluster(settings.name);
  const paths = statePaths(settings.stateDir);
  const server = `https://${network.joined.other}:${network.apiPort}`;
  const kubeconfig = join(paths.pki, 'joined.kubeconfig');
  const own = `https://${network.nodeAddress}:${network.apiPort}`;
  writeFileSync(kubeconfig, readFileSync(paths.kubeconfig, 'utf8').replaceAll(own, server), { mode: 0o600 });
  const { kube } = await ensureBinaries(cacheDir, say);
  const connection = ownConnection(kubeconfig);
  const api = new ApiClient(connection);
  const { minor } = await api.call<{ readonly minor: string }>('GET', '/version');
  const access = {
    ...OUT_OF_REACH,
    connection,
    kubeconfig,
    close: () => {},
    kubectl: [kube, 'kubectl', `--kubeconfig=${kubeconfig}`],
    addresses: () => Promise.resolve({ nodeAddress: network.joined.other, clientAddresses: [] }),
  };
  const cluster = new Cluster(access, api, await access.addresses(), Number.parseInt(minor, 10));
  return {
    cluster,
    enter: enter(settings.name),
    remove: async () => {
      await cluster.close();
      await leaveCluster();
      await down(settings, say);
    },
  };
}
