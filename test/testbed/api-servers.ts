import { join } from 'node:path';
import type { Binaries } from './binaries.ts';
import { componentEnvironment } from './boot.ts';
import { type Component, components } from './components.ts';
import { logFile, waitHealthy } from './health.ts';
import { network } from './network.ts';
import { readRecord, startProcess, stopProcess } from './process.ts';
import { type ClusterSettings, type StatePaths, statePaths } from './settings.ts';

/** An API server beside the cluster's own, on the same etcd. */
export interface ApiServer {
  readonly name: string;
  readonly host: string;
  readonly port: number;
  readonly auditLog: string;
  /** Stops it and starts it again; returns when it is ready. */
  restart(flags?: readonly string[]): Promise<void>;
  stop(): Promise<void>;
}

export interface ApiServerInput {
  readonly settings: ClusterSettings;
  readonly binaries: Binaries;
  /** From 2 on: the cluster's own is the first. */
  readonly number: number;
  readonly flags: readonly string[];
}

/** Runs inside the cluster's network; returns when the server is ready. What `down` removes, it removes, too. */
export async function startApiServer(input: ApiServerInput): Promise<ApiServer> {
  const { settings, binaries, number } = input;
  const paths = statePaths(settings.stateDir);
  const name = `kube-apiserver-${number}`;
  const port = network.apiPort + number - 1;
  const auditLog = join(paths.logs, `audit-${number}.log`);
  const stop = async () => {
    const record = readRecord(paths.run, name);
    if (record !== undefined) await stopProcess(record, paths.run);
  };
  const restart = async (flags: readonly string[] = input.flags) => {
    await stop();
    const more = [
      `--secure-port=${port}`,
      `--audit-log-path=${auditLog}`,
      // They all have the one address, under which the cluster's own is what pods know.
      '--endpoint-reconciler-type=none',
      ...flags,
    ];
    await start(another(name, port, paths, binaries, more), paths, binaries);
  };
  await restart();
  return { name, host: network.nodeAddress, port, auditLog, restart, stop };
}

/** The cluster's own with other flags: of two equal ones the last counts. */
function another(
  name: string,
  port: number,
  paths: StatePaths,
  binaries: Binaries,
  flags: readonly string[],
): Component<string> {
  const own = components(paths, binaries).find((component) => component.name === 'kube-apiserver');
  const url = `https://${network.nodeAddress}:${port}/readyz`;
  return { name, argv: [...(own?.argv ?? []), ...flags], health: { url } };
}

async function start(component: Component<string>, paths: StatePaths, binaries: Binaries): Promise<void> {
  await startProcess({
    name: component.name,
    argv: component.argv,
    runDir: paths.run,
    logFile: logFile(paths, component.name),
    env: componentEnvironment(binaries),
  });
  await waitHealthy(component, paths);
}
