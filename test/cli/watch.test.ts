import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { text as readAll } from 'node:stream/consumers';
import { describe, expect, it } from 'vitest';
import { Gateway } from '../cluster/gateway.ts';
import { atEndOfFile } from '../webhook/connection.ts';
import { emptyDirectory, linger, MAIN, ROOT, until } from './linger.ts';
import { endpoints, ipOf, ModelCluster, pod, service, slice, terminating } from './model-cluster.ts';
import {
  type ChangeJson,
  startWatching,
  type Watching,
  type WatchingOptions,
  writeContexts,
  writeKubeconfig,
} from './watching.ts';

const atEnd = atEndOfFile();
const start = () => ModelCluster.start(atEnd);
const kubeconfigOf = (server: URL) => writeKubeconfig(server, {}, atEnd);
const watching = (kubeconfig: string, args: readonly string[] = [], options: Partial<WatchingOptions> = {}) =>
  startWatching(kubeconfig, args, { atEnd, ...options });

/** A cluster with the Service `web` and its pods a and b. */
async function shop(): Promise<ModelCluster> {
  const cluster = await start();
  cluster.put('services', service('web'));
  for (const name of ['a', 'b']) cluster.put('pods', pod(name));
  cluster.put('endpointslices', slice('web', { a: 'ready', b: 'ready' }));
  cluster.put('endpoints', endpoints('web', ['a', 'b']));
  return cluster;
}

const json = (cluster: ModelCluster, ...args: readonly string[]) =>
  kubeconfigOf(cluster.url).then((file) => watching(file, ['--output', 'json', ...args]));

/** Waits for as many lines. */
function linesOf(watch: Watching, count: number): Promise<readonly ChangeJson[]> {
  return until(async () => {
    const lines = watch.lines();
    return lines.length >= count && lines;
  });
}

const short = ({ source, change, pod: name }: ChangeJson) => `${source} ${change} ${name}`;

/** Pod a ends, as the controllers show it. */
function endPod(cluster: ModelCluster): void {
  cluster.put('pods', terminating('a'));
  cluster.put('endpointslices', slice('web', { a: 'terminating', b: 'ready' }));
  cluster.put('endpoints', endpoints('web', ['b']));
}

/** Where the machine is so busy that the process stands still, there are no lags to look at. */
const RETRY = { retry: { count: 3, condition: /stood still/ } };

describe.concurrent('linger watch', RETRY, () => {
  it('prints each change of an endpoint, as JSON with the lag of those that end a removal', async () => {
    const cluster = await shop();
    const watch = await json(cluster);
    endPod(cluster);
    const lines = await linesOf(watch, 2);
    expect(lines.map(short).toSorted()).toEqual(['EndpointSlice terminating a', 'Endpoints removed a']);
    for (const line of lines) {
      expect(Object.keys(line)).toEqual([
        'time',
        'namespace',
        'service',
        'pod',
        'ip',
        'change',
        'source',
        'lagSeconds',
      ]);
      expect(line).toMatchObject({ namespace: 'shop', service: 'web', pod: 'a', ip: ipOf('a') });
      expect(line.time).toBe(new Date(line.time).toISOString());
      expect(line.lagSeconds).toBeGreaterThanOrEqual(0);
    }
  });

  it('says nothing of what was there before, unless it is asked to', async () => {
    const cluster = await shop();
    const [silent, telling] = await Promise.all([json(cluster), json(cluster, '--initial')]);
    const initial = await linesOf(telling, 8);
    expect(initial.map(short).toSorted()).toEqual([
      'EndpointSlice added a',
      'EndpointSlice added b',
      'EndpointSlice ready a',
      'EndpointSlice ready b',
      'Endpoints added a',
      'Endpoints added b',
      'Endpoints ready a',
      'Endpoints ready b',
    ]);
    expect(initial.every(({ lagSeconds }) => lagSeconds === null)).toBe(true);
    cluster.put('endpoints', endpoints('web', ['a', 'b', 'c']));
    expect((await linesOf(silent, 2)).map(short)).toEqual(['Endpoints added c', 'Endpoints ready c']);
  });

  it('ends at Ctrl-C with a summary, and 0', async () => {
    const cluster = await shop();
    const watch = await watching(await kubeconfigOf(cluster.url));
    endPod(cluster);
    await until(async () => watch.stdout().includes('terminating'));
    watch.kill('SIGINT');
    expect(await watch.exited).toBe(0);
    expect(watch.stdout()).toMatch(/^ +TIME \(UTC\) +CHANGE +LAG +SOURCE +SERVICE +POD +IP\n/);
    expect(watch.stdout()).toMatch(
      /^ \d\d:\d\d:\d\d\.\d{3} {2}terminating +\d+ms +EndpointSlice +shop\/web +a +10\./m,
    );
    expect(watch.stdout()).toMatch(/\nWatched for .+\.\n\nLag of removals +samples +p50 +p90 +p99 +max\n/);
    expect(watch.stdout()).toMatch(/\n {2}EndpointSlice +1 +\d+ms +\d+ms +\d+ms +\d+ms\n/);
    expect(watch.stdout()).toMatch(/\nSlowest removals\n.+shop\/web {2}a/);
    expect(watch.stdout()).not.toContain('\u001b');
    for (const line of watch.stdout().split('\n')) expect(line.length).toBeLessThanOrEqual(100);
  });

  it('watches the clusters of several contexts on one clock', async () => {
    const [business, access] = await Promise.all([shop(), start()]);
    // The copy of the Service in the cluster that takes traffic has no selector, and no pods.
    access.put('services', { ...service('web'), spec: {} });
    access.put('endpoints', endpoints('web', ['a', 'b']));
    const file = await writeContexts({ business: business.url, access: access.url }, {}, atEnd);
    const flags = ['--context', 'business', '--context', 'access', '--source', 'Endpoints'];
    const [table, lines] = await Promise.all([
      watching(file, flags),
      watching(file, [...flags, '--output', 'json']),
    ]);
    await until(async () => [table, lines].every((each) => each.stderr().split('Watching ').length === 3));
    endPod(business);
    await linesOf(lines, 1);
    access.put('endpoints', endpoints('web', ['b']));
    const [here, there] = await linesOf(lines, 2);
    expect(here).toMatchObject({ context: 'business', change: 'removed', pod: 'a' });
    expect(there).toMatchObject({ context: 'access', change: 'removed', ip: ipOf('a'), lagSeconds: null });
    expect(Date.parse(there?.time ?? '')).toBeGreaterThanOrEqual(Date.parse(here?.time ?? ''));
    await until(async () => table.stdout().includes(' access '));
    table.kill('SIGINT');
    expect(await table.exited).toBe(0);
    expect(table.stdout()).toMatch(/SOURCE +CONTEXT +SERVICE/);
    expect(table.stdout()).toMatch(
      / removed +\d+ms +Endpoints +business +shop\/web +a +10\.[\s\S]+ removed +- +Endpoints +access +shop\/web/,
    );
    expect(table.stdout()).toMatch(/\nWatched business for [\s\S]+\nWatched access for /);
  });

  it('exits with 3 when a removal takes longer than --fail-on-lag', async () => {
    const cluster = await shop();
    const watch = await json(cluster, '--fail-on-lag', '100ms');
    cluster.put('pods', terminating('a'));
    await new Promise((resolve) => setTimeout(resolve, 300));
    watch.kill('SIGINT');
    expect(await watch.exited).toBe(3);
    expect(watch.stdout()).toBe('');
    expect(watch.stderr()).toMatch(
      /\nNot withdrawn yet, and for how long\n +\S+ms {2}Endpoint\S+ +shop\/web {2}a\n/,
    );
  });

  it('ends after --for', async () => {
    const cluster = await shop();
    const args = ['--for', '1s', '--fail-on-lag', '1ms', '--kubeconfig', await kubeconfigOf(cluster.url)];
    const { code, stdout } = await linger(['watch', ...args]);
    expect([code, stdout]).toEqual([0, expect.stringMatching(/\nWatched for .+\.\n/)]);
  });

  it('tells of an interruption, and marks what happened in it', async () => {
    const cluster = await shop();
    const gateway = await Gateway.start({ url: cluster.url });
    atEnd(() => gateway.close());
    const watch = await watching(await kubeconfigOf(gateway.url));
    cluster.put('pods', terminating('a'));
    cluster.put('endpoints', endpoints('web', ['b']));
    await until(async () => /removed +\d+ms/.test(watch.stdout()));
    gateway.refusing = true;
    gateway.cut();
    await until(async () => watch.stderr().includes('EndpointSlice: interrupted: Cut: '));
    cluster.put('endpointslices', slice('web', { a: 'terminating', b: 'ready' }));
    gateway.refusing = false;
    await until(async () => watch.stdout().includes('terminating'));
    await until(async () => watch.stderr().includes('EndpointSlice: current again after '));
    watch.kill('SIGTERM');
    expect(await watch.exited).toBe(0);
    expect(watch.stdout()).toMatch(/^≤\d\d:\d\d:\d\d\.\d{3} {2}terminating +- {2}EndpointSlice/m);
    expect(watch.stdout()).toMatch(/\n {2}EndpointSlice +0 +- +- +- +-\n {2}Endpoints +1 /);
    expect(watch.stdout()).toMatch(/\n {2}1 {2}Reconnect {2}/);
    expect(watch.stdout()).toMatch(/\nInterruptions: changes during them have no lag\n/);
  });

  it('invents no lag when the process itself stood still', async () => {
    const cluster = await shop();
    const kubeconfig = await kubeconfigOf(cluster.url);
    const watch = await watching(kubeconfig, ['--output', 'json'], { steady: false });
    cluster.put('pods', terminating('a'));
    cluster.put('endpointslices', slice('web', { a: 'terminating', b: 'ready' }));
    await linesOf(watch, 1);
    watch.kill('SIGSTOP');
    await new Promise((resolve) => setTimeout(resolve, 2_000));
    cluster.put('endpoints', endpoints('web', ['b']));
    cluster.put('pods', terminating('b'));
    watch.kill('SIGCONT');
    const [first, second] = await linesOf(watch, 2);
    expect(first).toMatchObject({ source: 'EndpointSlice', lagSeconds: expect.any(Number) });
    expect(second).toMatchObject({ source: 'Endpoints', change: 'removed', pod: 'a', lagSeconds: null });
    await until(async () => watch.stderr().includes('Endpoints: interrupted: this process stood still'));
    await until(async () => watch.stderr().includes('Endpoints: current again after'));
    cluster.put('pods', pod('c'));
    cluster.put('endpoints', endpoints('web', ['c']));
    await linesOf(watch, 5);
    cluster.put('pods', terminating('c'));
    cluster.put('endpoints', endpoints('web', []));
    const last = (await linesOf(watch, 6)).at(-1);
    expect(last).toMatchObject({ change: 'removed', pod: 'c', lagSeconds: expect.any(Number) });
  });

  it.each([
    { args: ['--change', 'removed'], expected: ['Endpoints removed a'] },
    { args: ['--source', 'EndpointSlice'], expected: ['EndpointSlice terminating a'] },
    { args: ['--pod', 'b*'], expected: [] },
    { args: ['--pod', '?', '--min-lag', '0s', '--source', 'Endpoints'], expected: ['Endpoints removed a'] },
    { args: ['--min-lag', '1h'], expected: [] },
    { args: ['--selector', 'app in (web,api)', '--source', 'Endpoints'], expected: ['Endpoints removed a'] },
    { args: ['-l', 'app=web,!job', '--source', 'Endpoints'], expected: ['Endpoints removed a'] },
    { args: ['-l', 'app!=web'], expected: [] },
    { args: ['--service', 'api'], expected: [] },
    { args: ['--service', 'api,web', '--source', 'endpoints'], expected: ['Endpoints removed a'] },
  ])('prints only what $args lets through', async ({ args, expected }) => {
    const cluster = await shop();
    const watch = await json(cluster, ...args);
    endPod(cluster);
    // Time for lines that are not expected: those of other Services and pods.
    await new Promise((resolve) => setTimeout(resolve, 400));
    watch.kill('SIGINT');
    expect(await watch.exited).toBe(0);
    expect(watch.lines().map(short)).toEqual(expected);
  });

  it('says when no pod has the labels that are asked for, and tells of the first that has', async () => {
    const cluster = await shop();
    const watch = await json(cluster, '-l', 'tier=front');
    await until(async () => watch.stderr().includes('No pod has the labels of --selector yet.'));
    cluster.put('pods', pod('c', { labels: { app: 'web', tier: 'front' } }));
    cluster.put('endpoints', endpoints('web', ['a', 'b', 'c', 'd']));
    expect((await linesOf(watch, 2)).map(short)).toEqual(['Endpoints added c', 'Endpoints ready c']);
  });

  it('says how many Services there are, and which are not', async () => {
    const cluster = await shop();
    cluster.put('services', service('other'));
    const watch = await json(cluster, '--service', 'web', 'api');
    await until(async () => watch.stderr().includes(' yet.'));
    expect(watch.stderr()).toMatch(
      /^Watching all namespaces of http:\S+ \(context "model" of \S+\): 1 Service\. .+\nThere is no Service api yet\.\n/,
    );
  });

  it('asks for the objects of its namespaces only', async () => {
    const cluster = await shop();
    await json(cluster, '-n', 'shop', 'tools', '--source', 'EndpointSlice');
    expect(new Set(cluster.asked)).toEqual(
      new Set(
        ['shop', 'tools'].flatMap((name) => [
          `/api/v1/namespaces/${name}`,
          `/api/v1/namespaces/${name}/pods`,
          `/api/v1/namespaces/${name}/services`,
          `/apis/discovery.k8s.io/v1/namespaces/${name}/endpointslices`,
        ]),
      ),
    );
  });

  it('--quiet prints changes, and nothing else', async () => {
    const cluster = await shop();
    const kubeconfig = await kubeconfigOf(cluster.url);
    const watch = await watching(kubeconfig, ['--quiet', '--initial', '--output', 'json'], { ready: false });
    await linesOf(watch, 8);
    watch.kill('SIGINT');
    expect(await watch.exited).toBe(0);
    expect(watch.stderr()).toBe('');
    expect(watch.lines()).toHaveLength(8);
  });

  it.each(['table', 'json', 'yaml'])(
    'as %s, lets nothing that is said by others move the cursor of a terminal',
    async (output) => {
      const cluster = await shop();
      cluster.refusal = { code: 500, message: 'etcd\u001b[2J is\u009b1A away', lists: false };
      const file = await kubeconfigOf(cluster.url);
      const watch = await watching(file, ['--initial', '--output', output], { ready: false });
      await until(async () => watch.stderr().includes('ServerError: 500: etcd\\u001b[2J is\\u009b1A away\n'));
      cluster.refusal = undefined;
      await until(async () => watch.stderr().includes('Watching all namespaces'));
      cluster.put('endpoints', endpoints('web', ['a', 'b', 'c\u001b[2J\u009b1A']));
      await until(async () => watch.stdout().includes('c\\u001b[2J\\u009b1A'));
      watch.kill('SIGINT');
      await watch.exited;
      expect(watch.stdout() + watch.stderr()).not.toMatch(/[^\P{Cc}\n]/u);
    },
  );

  it('stops without a word when its reader has seen enough', async () => {
    const cluster = await shop();
    const args = ['watch', '--kubeconfig', await kubeconfigOf(cluster.url), '--initial', '--output', 'json'];
    const command = [process.execPath, MAIN, ...args].map((word) => `'${word}'`).join(' ');
    const shell = spawn('bash', ['-c', `set -o pipefail; ${command} --quiet | head -n 1`], { cwd: ROOT });
    const ended = once(shell, 'close');
    const changing = setInterval(() => cluster.put('endpoints', endpoints('web', [`p${Date.now()}`])), 100);
    const [stdout, stderr, [code]] = await Promise.all([readAll(shell.stdout), readAll(shell.stderr), ended]);
    clearInterval(changing);
    expect([code, stderr, stdout.split('\n').length]).toEqual([0, '', 2]);
  });
});

describe.concurrent('what cannot be watched is said, with the cluster that was asked', () => {
  it('no server', async () => {
    const file = await kubeconfigOf(new URL('http://127.0.0.1:1'));
    expect(await linger(['watch', '--kubeconfig', file])).toEqual({
      code: 1,
      stdout: '',
      stderr: `linger: http://127.0.0.1:1 (context "model" of ${file}) request failed: 127.0.0.1:1: connect ECONNREFUSED 127.0.0.1:1 [cluster-unreachable]\n`,
    });
  });

  it('no rights', async () => {
    const cluster = await start();
    cluster.refusal = { code: 403, message: 'pods is forbidden: User "me" cannot list resource "pods"' };
    const file = await kubeconfigOf(cluster.url);
    const { code, stderr } = await linger(['watch', '--kubeconfig', file]);
    expect(code).toBe(1);
    expect(stderr).toMatch(
      /^linger: http:.+\(context "model" of .+\): 403: pods is forbidden: .+; --namespace asks for less \[cluster-denied\]\n$/,
    );
  });

  it('no right to watch, though one to list', async () => {
    const cluster = await start();
    const message = 'pods is forbidden: User "me" cannot watch resource "pods"';
    cluster.refusal = { code: 403, message, lists: false };
    const file = await kubeconfigOf(cluster.url);
    const { code, stderr } = await linger(['watch', '--kubeconfig', file]);
    expect(code).toBe(1);
    expect(stderr).toMatch(
      /\nlinger: http:.+\(context "model" of .+\): 403: .+ cannot watch .+ \[cluster-denied\]\n$/,
    );
  });

  it('a server that fails meanwhile: reported, and tried again', async () => {
    const cluster = await start();
    cluster.refusal = { code: 500, message: 'etcd is away', lists: false };
    const watch = await watching(await kubeconfigOf(cluster.url), [], { ready: false });
    await until(async () => watch.stderr().includes('pods: ServerError: 500: etcd is away\n'));
    cluster.refusal = undefined;
    await until(async () => watch.stderr().includes('Watching all namespaces'));
  });

  it('no such namespace', async () => {
    const cluster = await start();
    const file = await kubeconfigOf(cluster.url);
    const { code, stderr } = await linger(['watch', '--kubeconfig', file, '-n', 'nowhere']);
    expect(code).toBe(2);
    expect(stderr).toMatch(
      /--namespace: expected a namespace of http:.+, got "nowhere" \[settings-invalid\]\n$/,
    );
  });

  it('no kubeconfig', async () => {
    const home = await emptyDirectory(atEnd);
    const env = { HOME: home, KUBECONFIG: '' };
    const { code, stderr } = await linger(['watch'], { env });
    expect(code).toBe(1);
    expect(stderr).toBe(
      `linger: ${join(home, '.kube/config')}: cannot be read (ENOENT) [KubeconfigUnreadable]\n`,
    );
  });

  it('no such context', async () => {
    const file = await kubeconfigOf(new URL('http://127.0.0.1:1'));
    const { code, stderr } = await linger(['watch', '--context', 'other'], { env: { KUBECONFIG: file } });
    expect([code, stderr]).toEqual([
      1,
      `linger: ${file}: has no context "other"; it has: model [KubeconfigInvalid]\n`,
    ]);
  });
});
