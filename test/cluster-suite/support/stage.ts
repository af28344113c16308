import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Cluster, openCluster } from '../../testbed/cluster.ts';
import { Linger, type LingerOptions } from './linger.ts';
import { Registration } from './registration.ts';

export type LingerStart = Pick<LingerOptions, 'policies' | 'port' | 'drain' | 'clientCa'>;

/** The fixture of every file of the suite: a cluster in which Linger serves. */
export interface Stage {
  readonly cluster: Cluster;
  readonly linger: Linger;
  readonly registration: Registration;
  /** Starts one more server with the same certificates; closing the stage stops it. */
  startLinger(start: LingerStart): Promise<Linger>;
  close(): Promise<void>;
}

/** Opens the cluster first: policies often name its namespaces. */
export async function openStage(
  policies: (cluster: Cluster) => Promise<string> | string = () => '',
): Promise<Stage> {
  const cluster = await openCluster();
  const directory = mkdtempSync(join(tmpdir(), 'linger-suite-'));
  const running: Linger[] = [];
  const startLinger = async (start: LingerStart) => {
    const linger = await Linger.start({ host: cluster.nodeAddress, directory, ...start });
    running.push(linger);
    return linger;
  };
  const stop = async () => {
    await Promise.all(running.map((linger) => linger.stop('SIGKILL')));
    await cluster.close();
    rmSync(directory, { recursive: true, force: true });
  };
  try {
    const linger = await startLinger({ policies: await policies(cluster) });
    const endpoint = { address: linger.host, port: linger.port };
    const registration = await Registration.create(cluster, linger.authority, [endpoint]);
    const close = async () => {
      await registration.remove();
      await stop();
    };
    return { cluster, linger, registration, startLinger, close };
  } catch (error) {
    await stop();
    throw error;
  }
}
