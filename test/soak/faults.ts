import { setTimeout as sleep } from 'node:timers/promises';
import { type Cluster, waitUntil } from '../testbed/cluster.ts';
import { readRecord, signalIfAlive } from '../testbed/process.ts';
import { clusterSettings, statePaths } from '../testbed/settings.ts';
import type { SoakSetting } from './setting.ts';

export interface Fault {
  readonly name: string;
  /** Resolves when it is over. @param cycle from 0 on: what a fault does may alternate */
  readonly strike: (cycle: number) => Promise<void>;
}

/**
 * When the API server may admit a pod without Linger: a replica that was killed is listed until its endpoint is withdrawn, and
 * an API server that starts gives up on what it connects to while it stands still. Milliseconds since the epoch.
 */
export interface Gap {
  readonly from: number;
  readonly until: number;
}

const THROTTLED_MS = 5_000;
/** Longer than the Lease lasts, so that the other one leads. */
const ISOLATED_MS = 20_000;
/** Beyond the 60 s that `hold.max` is, as the clock of a machine without NTP. */
const AHEAD_MS = 70_000;
const SHIFTED_MS = 20_000;
const FULL_MS = 10_000;
/** A kubelet and the endpoint controllers take about that long to notice that a container has been killed. */
const NOTICED_MS = 1_000;
/** kube-proxy follows, and what was sent before is answered or refused. */
const FOLLOWED_MS = 1_500;

/** What happens in each cycle, one after the other. */
export class Faults {
  apiServerIsDown = false;
  readonly gaps: Gap[] = [];
  readonly all: readonly Fault[];
  readonly #cluster: Cluster;
  readonly #setting: SoakSetting;

  constructor(cluster: Cluster, setting: SoakSetting) {
    this.#cluster = cluster;
    this.#setting = setting;
    const fronts = [setting.steady, setting.tried].map(({ input }) => input.front);
    this.all = [
      {
        name: 'all connections to the API server cut',
        strike: async () => {
          for (const front of fronts) front.cut();
        },
      },
      {
        name: `429 for ${THROTTLED_MS / 1_000} s`,
        strike: async () => {
          for (const front of fronts) front.mood = 'throttling';
          await sleep(THROTTLED_MS);
          for (const front of fronts) front.mood = 'passing';
        },
      },
      { name: 'API server killed and started', strike: () => this.#killApiServer() },
      {
        name: `steady replica without API server for ${ISOLATED_MS / 1_000} s`,
        strike: async () => {
          const { front } = setting.steady.input;
          front.mood = 'refusing';
          front.cut();
          await sleep(ISOLATED_MS);
          front.mood = 'passing';
        },
      },
      {
        name: `clock of the other ${AHEAD_MS / 1_000} s ahead, or behind`,
        strike: async (cycle) => {
          setting.tried.setClockAhead(cycle % 2 === 0 ? AHEAD_MS : -AHEAD_MS);
          await sleep(SHIFTED_MS);
          setting.tried.setClockAhead(0);
        },
      },
      {
        name: `its disk full for ${FULL_MS / 1_000} s`,
        strike: async () => {
          const makeRoom = await setting.tried.fillDisk();
          await sleep(FULL_MS);
          await makeRoom();
        },
      },
      { name: 'it restarts: SIGTERM, or SIGKILL', strike: (cycle) => this.#restart(cycle % 2 === 0) },
    ];
  }

  async #killApiServer(): Promise<void> {
    this.apiServerIsDown = true;
    const from = Date.now();
    const { run } = statePaths(clusterSettings().stateDir);
    const record = readRecord(run, 'kube-apiserver');
    if (record !== undefined) signalIfAlive(record, 'SIGKILL');
    await sleep(1_000);
    // On a busy machine it takes longer than a boot may.
    await this.#cluster.restart('kube-apiserver').catch((error: Error) => console.log(error.message));
    const ready = () => this.#cluster.api.call('GET', '/readyz');
    await waitUntil('the API server to be ready', ready, { timeoutMs: 300_000 });
    // Clients notice reset connections a moment later.
    await sleep(1_000);
    this.apiServerIsDown = false;
    this.gaps.push({ from, until: Date.now() + FOLLOWED_MS });
  }

  async #restart(gracefully: boolean): Promise<void> {
    const { tried } = this.#setting;
    const { host } = tried.input;
    const withdraw = () => this.#setting.listed(host, false);
    if (gracefully) await tried.stop('SIGTERM', withdraw);
    else {
      const from = Date.now();
      await tried.stop('SIGKILL', () => sleep(NOTICED_MS));
      await withdraw();
      this.gaps.push({ from: from - 1_000, until: Date.now() + FOLLOWED_MS });
    }
    await tried.start();
    await this.#setting.listed(host, true);
  }
}
