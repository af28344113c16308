import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ensureCoreDns } from './binaries.ts';
import { logFile, waitHealthy } from './health.ts';
import { network } from './network.ts';
import { readRecord, startProcess, stopProcess } from './process.ts';
import { type ClusterSettings, statePaths } from './settings.ts';

/** How CoreDNS answers for Services. Seconds. */
export interface ClusterDnsOptions {
  /** TTL of its records. CoreDNS's default is 5, kubeadm's 30. */
  readonly ttl: number;
  /** For how long it keeps its own answers, at most; undefined: not at all. Both defaults are 30. */
  readonly cache?: number;
}

export interface ClusterDns {
  /** The address at which it answers, at port 53. */
  readonly server: string;
  stop(): Promise<void>;
}

/** Any name that no component has. */
const NAME = 'coredns';
const READY_PORT = 8181;

/**
 * CoreDNS as a process on the node, for those who want a cluster DNS: the cluster itself has none. Runs inside the
 * cluster's network; returns when it has read the cluster. What `down` removes, it removes, too.
 */
export async function startClusterDns(
  settings: ClusterSettings,
  { ttl, cache }: ClusterDnsOptions,
): Promise<ClusterDns> {
  const paths = statePaths(settings.stateDir);
  const program = await ensureCoreDns(settings.cacheDir, (line) => console.log(line));
  const server = network.nodeAddress;
  const stop = async () => {
    const record = readRecord(paths.run, NAME);
    if (record !== undefined) await stopProcess(record, paths.run);
  };
  await stop();
  const corefile = join(paths.config, 'Corefile');
  writeFileSync(
    corefile,
    `.:53 {
  bind ${server}
  errors
  ready ${server}:${READY_PORT}
  kubernetes cluster.local {
    kubeconfig ${paths.kubeconfig} linger-test
    ttl ${ttl}
  }
${cache === undefined ? '' : `  cache ${cache}\n`}}
`,
  );
  const component = {
    name: NAME,
    argv: [program, '-conf', corefile],
    health: { url: `http://${server}:${READY_PORT}/ready` },
  };
  await startProcess({
    name: NAME,
    argv: component.argv,
    runDir: paths.run,
    logFile: logFile(paths, NAME),
  });
  await waitHealthy(component, paths);
  return { server, stop };
}
