import { spawn } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type NowReport, nowReport } from '../../src/dashboard/index.ts';
import { packedRecording, RECORDING_FILE } from '../../src/dashboard/recording.ts';
import { ROOT } from '../cli/built.ts';
import { ownConnection } from '../testbed/api.ts';
import { type Cluster, waitUntil } from '../testbed/cluster.ts';
import { eachLine } from '../testbed/command.ts';
import { Recorder } from './recorder.ts';

/** The most that a checkout and each image carry. */
const MOST_BYTES = 300 * 1024;
/** Until everything that is read now and then has been read. */
const FIRST_MS = 75_000;
const HELD_WITHIN_MS = 300_000;
const LOOK_MS = 2_000;
/** All that a page may ask for. */
const VIEWS = ['workloads', 'now', 'timeline', 'consumers', 'lag', 'what-if?hook=Hold'];

/** Records what a dashboard reads of a cluster, and writes it to where Linger takes it from. @returns its bytes */
export async function record(cluster: Cluster, seconds: number): Promise<number> {
  const recorder = new Recorder(ownConnection(cluster.kubeconfig));
  const server = await recorder.start();
  // Which kinds there are at all, for those that an audit asks for later.
  await (await fetch(new URL('/apis', server))).arrayBuffer();
  const dashboard = await startDashboard(server);
  try {
    await dashboard.look(FIRST_MS);
    // So that the first view has one to show.
    await dashboard.look(HELD_WITHIN_MS, ({ held }) => held !== null && held.length > 0);
    recorder.begin();
    await dashboard.look(seconds * 1_000);
    const { gitVersion } = await cluster.api.call<{ readonly gitVersion: string }>('GET', '/version');
    const of = `a test cluster: Kubernetes ${gitVersion}, one node, a throttled kube-controller-manager`;
    const packed = await packedRecording(recorder.recording(of));
    await writeFile(join(ROOT, 'src', 'dashboard', RECORDING_FILE), packed);
    if (packed.length > MOST_BYTES) throw new Error(`${packed.length} bytes are more than ${MOST_BYTES}`);
    return packed.length;
  } finally {
    dashboard.stop();
    recorder.stop();
  }
}

async function startDashboard(server: string) {
  const kubeconfig = join(ROOT, 'node_modules/.cache/linger/recorded.kubeconfig');
  const named = (kind: string, value: object) => [{ name: 'recorded', [kind]: value }];
  const context = { cluster: 'recorded', user: 'recorded' };
  const config = {
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': 'recorded',
    contexts: named('context', context),
    clusters: named('cluster', { server }),
    users: named('user', {}),
  };
  await writeFile(kubeconfig, JSON.stringify(config));
  const args = ['dashboard', '--port', '0', '--no-open', '--kubeconfig', kubeconfig];
  const child = spawn(process.execPath, [join(ROOT, 'src/main.ts'), ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let printed = '';
  eachLine(child.stdout, (line) => {
    printed += `${line}\n`;
  });
  const address = await waitUntil('the dashboard', async () => /http:\/\/\S+/.exec(printed)?.[0]);
  const headers = { Authorization: `Bearer ${new URL(address).hash.replace('#token=', '')}` };
  const ask = (path: string, signal?: AbortSignal) =>
    fetch(new URL(`/api/v1/${path}`, address), { headers, ...(signal && { signal }) });
  // The dashboard reads its sources again only while a page is open.
  const looking = new AbortController();
  const events = await ask('events', looking.signal);
  events.body?.pipeTo(new WritableStream()).catch(() => undefined);
  return {
    /** As an open page does, for so long, or until what it shows is as wanted. */
    look: async (milliseconds: number, isWanted = (_now: NowReport) => false) => {
      for (const end = Date.now() + milliseconds; Date.now() < end; await sleep(LOOK_MS))
        for (const view of VIEWS) {
          const answer = await ask(view);
          if (!answer.ok) throw new Error(`${view}: ${answer.status} ${await answer.text()}`);
          const shown = await answer.json();
          if (view === 'now' && isWanted(nowReport.parse(shown))) return;
        }
    },
    stop: () => {
      looking.abort();
      child.kill();
    },
  };
}
