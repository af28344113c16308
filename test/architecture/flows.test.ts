import { existsSync } from 'node:fs';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { sharedCertificates } from '../cli/certificates.ts';
import { emptyDirectory, ROOT, type Serving, serving, until } from '../cli/linger.ts';
import { waitNow } from '../cli/reviewing.ts';
import {
  ModelCluster,
  namespaceObject,
  nodeObject,
  podObject,
  serviceObject,
  sliceObject,
} from '../cluster/model-cluster.ts';
import { atEndOfFile } from '../webhook/connection.ts';

/**
 * How many files something may pass through on its way: what a newcomer has to open to follow it. Not counted are the
 * ground rooms (vocabulary, logs, pacing), metrics, what keeps the connection, and what runs by itself meanwhile.
 */
const LIMITS = { 'a review to its answer': 14, 'a watch event to a wait': 18 } as const;

const certs = sharedCertificates();
const atEnd = atEndOfFile();

/** A server that says, whenever it is asked, in which files of src it has called functions since the last time. */
async function observedServer(kubeconfig: string): Promise<Serving & { entered(): Promise<string[]> }> {
  const list = join(await emptyDirectory(atEnd), 'entered');
  const hook = `
    import { renameSync, writeFileSync } from 'node:fs';
    import { Session } from 'node:inspector/promises';
    const session = new Session();
    session.connect();
    await session.post('Profiler.enable');
    await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
    const isCalled = ({ ranges: [{ startOffset, count }] }) => count > 0 && startOffset > 0;
    process.on('SIGUSR2', async () => {
      const { result } = await session.post('Profiler.takePreciseCoverage');
      const files = result.filter(({ functions }) => functions.some(isCalled)).map(({ url }) => url);
      writeFileSync('${list}.new', JSON.stringify(files));
      renameSync('${list}.new', '${list}');
    });
  `;
  const NODE_OPTIONS = `--import=data:text/javascript,${encodeURIComponent(hook)}`;
  const server = await serving(certs(), ['--kubeconfig', kubeconfig], { atEnd, env: { NODE_OPTIONS } });
  const source = `file://${join(ROOT, 'src')}/`;
  const entered = async () => {
    await rm(list, { force: true });
    server.kill('SIGUSR2');
    await until(async () => existsSync(list));
    const urls = JSON.parse(await readFile(list, 'utf8')) as string[];
    const files = urls.filter((url) => url.startsWith(source)).map((url) => url.slice(source.length));
    return [...new Set(files)].filter((file) => !file.endsWith('index.ts')).toSorted();
  };
  return { ...server, entered };
}

const BESIDE = /^(api|telemetry|timing)\/|-metrics\.ts$|^webhook\/server\.ts$|^cli\/serve\.ts$/;

function check(flow: keyof typeof LIMITS, entered: readonly string[]): void {
  const files = entered.filter((path) => !BESIDE.test(path));
  const beside = entered.length - files.length;
  console.log(
    `${flow}: ${files.length} files (at most ${LIMITS[flow]}), and ${beside} beside them: ${files.join(', ')}`,
  );
  expect(files.length, files.join(', ')).toBeLessThanOrEqual(LIMITS[flow]);
}

const WATCHES = /^cluster\/reflector\.ts$/;
const PLANS = /^lag\/(estimator|lag-history|histogram|planned|distribution|grid)\.ts$|^decision\/world\.ts$/;

/** Longer than the pause between two looks at whether the published curves must follow. */
const PLANNING_MS = 6_000;

it('what passes through src passes through few files', async () => {
  const model = await ModelCluster.start(atEnd);
  model.put('namespaces', namespaceObject('shop'));
  model.put('nodes', nodeObject('node-1', 'v1.35.1'));
  model.put('services', serviceObject('shop', 'web'));
  model.put('pods', podObject('shop', 'web-1'));
  model.put('endpointslices', sliceObject('shop', 'web', 'web-1'));
  const file = join(await emptyDirectory(atEnd), 'config');
  await writeFile(file, model.kubeconfig);
  const server = await observedServer(file);
  await until(async () => (await server.get('/readyz')).status === 200);
  const review = () => waitNow(server, atEnd);

  await review();
  await server.entered();
  await sleep(2_000);
  const idle = new Set(await server.entered());
  await review();
  const answered = (await server.entered()).filter((path) => !idle.has(path));
  check('a review to its answer', answered);

  model.put('pods', podObject('shop', 'web-1', true));
  model.put('endpointslices', sliceObject('shop', 'web'));
  await sleep(1_000);
  const sampled = (await server.entered()).filter((path) => !idle.has(path) || WATCHES.test(path));
  await sleep(PLANNING_MS);
  // What else a server does meanwhile is none of this; a curve is made and put into the World.
  const planned = (await server.entered()).filter((path) => PLANS.test(path));
  // Of a review, the part that a measured lag has in it.
  const decided = answered.filter((path) => path.startsWith('lag/') || path === 'decision/wait.ts');
  check('a watch event to a wait', [...new Set([...sampled, ...planned, ...decided])].toSorted());
}, 120_000);
