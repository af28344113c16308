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
import { atEndOfFile, connect } from '../webhook/connection.ts';

/**
 * How many files something may pass through on its way: what a newcomer has to open to follow it. Not counted are the
 * ground rooms (vocabulary, logs, pacing, the manager), metrics, what keeps the connection, the audit, which looks on and decides nothing,
 * and what runs by itself meanwhile.
 */
const LIMITS = {
  'a review to its answer': 14,
  'a report to a sample': 10,
  'a watch event to a wait': 18,
} as const;

const certs = sharedCertificates();
const atEnd = atEndOfFile();

/** A server that says, whenever it is asked, in which files of src it has called functions since the last time. */
async function observedServer(args: readonly string[]): Promise<Serving & { entered(): Promise<string[]> }> {
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
  const server = await serving(certs(), args, {
    atEnd,
    main: join(ROOT, 'src/main.ts'),
    env: { NODE_OPTIONS },
  });
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

/**
 * What is entered each of three times that something is done: what runs by itself now and then is left out.
 * @param prepared what comes before, and is not of it
 * @param isIt whether it was done; if not, it is done once more
 */
async function enteredEachTime(
  server: { entered(): Promise<string[]> },
  prepared: () => Promise<() => Promise<unknown>>,
  isIt: (files: readonly string[]) => boolean = () => true,
): Promise<readonly string[]> {
  const times: string[][] = [];
  await until(async () => {
    const act = await prepared();
    await server.entered();
    await act();
    const entered = await server.entered();
    if (isIt(entered)) times.push(entered);
    return times.length === 3;
  });
  const [first = [], ...others] = times;
  return first.filter((path) => others.every((entered) => entered.includes(path)));
}

/** All that is entered until there are these. */
async function enteredUntil(
  server: { entered(): Promise<string[]> },
  isAll: (files: ReadonlySet<string>) => boolean,
): Promise<readonly string[]> {
  const files = new Set<string>();
  await until(async () => {
    for (const each of await server.entered()) files.add(each);
    return isAll(files);
  });
  return [...files].toSorted();
}

const BESIDE = /^(api|audit|manager|telemetry|timing)\/|-metrics\.ts$|^webhook\/server\.ts$|^cli\/serve\.ts$/;

function check(flow: keyof typeof LIMITS, entered: readonly string[]): void {
  const files = entered.filter((path) => !BESIDE.test(path));
  const beside = entered.length - files.length;
  console.log(
    `${flow}: ${files.length} files (at most ${LIMITS[flow]}), and ${beside} beside them: ${files.join(', ')}`,
  );
  expect(files.length, files.join(', ')).toBeLessThanOrEqual(LIMITS[flow]);
}

const WATCHES = /^cluster\/reflector\.ts$/;
const REPORTS =
  /^measurement\/(measurement|reports)\.ts$|^lag\/(reported-syncs|estimator|lag-history|histogram|grid)\.ts$/;
const PLANS = /^lag\/(estimator|lag-history|histogram|planned|distribution|grid)\.ts$|^decision\/world\.ts$/;

const TIMED = 'linger_removal_lag_seconds_count{stage="EndpointSlice"}';

const EDGE = JSON.stringify({
  apiVersion: 'linger.dev/v1alpha1',
  kind: 'DiscoveryConsumer',
  metadata: { name: 'edge' },
  spec: { measure: { reports: {} } },
});
const USER = { username: 'system:serviceaccount:edge:gateway' };
const TOKEN_REVIEW = { status: { authenticated: true, audiences: ['linger.dev/reports'], user: USER } };

/** What a gateway posts: before a sync with the cursor of the last one. @returns the cursor of this one */
async function report(server: Serving, cursor = ''): Promise<string> {
  const connection = await connect(server, atEnd);
  const body = JSON.stringify({ cursor });
  const head = `Host: x\r\nAuthorization: Bearer t\r\nContent-Length: ${body.length}\r\n`;
  connection.write(`POST /v1/consumers/edge/reports HTTP/1.1\r\n${head}\r\n${body}`);
  const answer = await connection.answer();
  connection.destroy();
  expect(answer.status, answer.body).toBe(200);
  return (JSON.parse(answer.body) as { cursor: string }).cursor;
}

it('what passes through src passes through few files', async () => {
  const model = await ModelCluster.start(atEnd);
  model.put('namespaces', namespaceObject('shop'));
  model.put('nodes', nodeObject('node-1', 'v1.35.1'));
  model.put('services', serviceObject('shop', 'web'));
  model.put('pods', podObject('shop', 'web-1'));
  model.put('endpointslices', sliceObject('shop', 'web', 'web-1'));
  const file = join(await emptyDirectory(atEnd), 'config');
  await writeFile(file, model.kubeconfig);
  const policies = await emptyDirectory(atEnd);
  await writeFile(join(policies, 'edge.yaml'), EDGE);
  model.single.set('/apis/authentication.k8s.io/v1/tokenreviews', TOKEN_REVIEW);
  model.single.set('/apis/authorization.k8s.io/v1/subjectaccessreviews', { status: { allowed: true } });
  const server = await observedServer(['--kubeconfig', file, '--policies', policies]);
  await until(async () => (await server.get('/readyz')).status === 200);
  const review = () => waitNow(server, atEnd);

  await review();
  // The token's owner is remembered from here on.
  await report(server, await report(server));
  await server.entered();
  await sleep(2_000);
  const idle = new Set(await server.entered());
  const answered = (await enteredEachTime(server, async () => review)).filter((path) => !idle.has(path));
  check('a review to its answer', answered);

  model.put('pods', podObject('shop', 'web-1', true));
  model.put('endpointslices', sliceObject('shop', 'web'));
  const followed = await enteredUntil(server, (files) => files.has('lag/histogram.ts'));
  const sampled = followed.filter((path) => !idle.has(path) || WATCHES.test(path));
  const since = await enteredUntil(server, (files) => files.has('lag/distribution.ts'));
  // What else a server does meanwhile is none of this; a curve is made and put into the World.
  const planned = since.filter((path) => PLANS.test(path));

  // The first sync that has the removal in it makes a sample, and only that one; some find it made.
  let next = 1;
  const removal = async () => {
    // More often than three times a second would be refused.
    await sleep(1_000);
    const name = `web-${++next}`;
    model.put('pods', podObject('shop', name));
    model.put('endpointslices', sliceObject('shop', 'web', name));
    const before = await server.count(TIMED);
    model.put('pods', podObject('shop', name, true));
    model.put('endpointslices', sliceObject('shop', 'web'));
    await until(async () => (await server.count(TIMED)) > before);
    const cursor = await report(server);
    return () => report(server, cursor);
  };
  const reported = (
    await enteredEachTime(server, removal, (files) => files.includes('lag/histogram.ts'))
  ).filter((path) => !idle.has(path) || REPORTS.test(path));
  check('a report to a sample', reported);

  // Of a review, the part that a measured lag has in it.
  const decided = answered.filter((path) => path.startsWith('lag/') || path === 'decision/wait.ts');
  check('a watch event to a wait', [...new Set([...sampled, ...planned, ...decided])].toSorted());
}, 120_000);
