import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { TerminationLog } from '../../src/audit/index.ts';
import type { Termination } from '../../src/core/timeline/index.ts';
import { timelineReport } from '../../src/dashboard/index.ts';
import { AnsweringServer, well } from '../cluster/answers.ts';
import { ModelCluster } from '../cluster/model-cluster.ts';
import { CLEAR, SENT, UNKNOWN } from '../core/timeline/sample-termination.ts';
import { atEndOfFile } from '../webhook/connection.ts';
import { emptyDirectory, linger } from './linger.ts';

const atEnd = atEndOfFile();
const PATH = '/api/v1/namespaces/linger/configmaps/linger-shortfalls';
const ago = (termination: Termination, seconds: number) => ({
  ...termination,
  deletedAt: Date.now() / 1000 - seconds,
});
const ALL = [ago(CLEAR, 30), ago(SENT, 60), ago({ ...UNKNOWN, namespace: 'other' }, 7_200)];

async function timeline(terminations: readonly Termination[], ...args: string[]) {
  const model = await ModelCluster.start(atEnd);
  const log = new TerminationLog('a');
  for (const each of terminations) log.keep(each);
  const annotations = {
    'linger.dev/format': '2',
    'linger.dev/term': '5',
    'linger.dev/writer': 'a',
    'linger.dev/written-at': new Date().toISOString(),
  };
  const metadata = { name: 'linger-shortfalls', resourceVersion: '1', annotations };
  if (terminations.length > 0) model.single.set(PATH, { metadata, data: { 'shortfalls.json': log.text } });
  else model.single.set(PATH.replace('shortfalls', 'planned'), { metadata });
  const folder = await emptyDirectory(atEnd);
  await writeFile(join(folder, 'config'), model.kubeconfig);
  const place = ['--kubeconfig', join(folder, 'config'), '--linger-namespace', 'linger'];
  const run = await linger(['timeline', ...place, ...args], { atEnd });
  return { ...run, folder };
}
const podsIn = (stdout: string) =>
  timelineReport.parse(JSON.parse(stdout)).terminations.map(({ pod }) => pod);

it('--watch prints each termination once, until Ctrl-C, and fails by all of them', async () => {
  const log = new TerminationLog('a');
  const published = [ago(CLEAR, 60), ago(SENT, 5)].map((each) => {
    log.keep(each);
    const annotations = {
      'linger.dev/format': '2',
      'linger.dev/term': '5',
      'linger.dev/writer': 'a',
      'linger.dev/written-at': new Date().toISOString(),
    };
    const metadata = { name: 'linger-shortfalls', resourceVersion: '1', annotations };
    return well({ metadata, data: { 'shortfalls.json': log.text } });
  });
  const [first = well({}), second = first] = published;
  const server = await AnsweringServer.start({ [PATH]: [first, first, second] }, atEnd);
  const file = join(await emptyDirectory(atEnd), 'config');
  await writeFile(file, server.kubeconfig());
  const place = ['--kubeconfig', file, '--linger-namespace', 'linger'];
  const args = ['timeline', ...place, '-A', '-o', 'json', '--watch', '--fail-on', 'sent'];
  const watching = linger(args, { atEnd });
  while (server.asked.filter(({ path }) => path === PATH).length < 5) await sleep(20);
  process.emit('SIGINT');
  const { code, stdout } = await watching;
  const pods = [...stdout.matchAll(/"pod": ?"([^"]+)"/g)].map(([, pod]) => pod);
  expect([code, pods]).toEqual([3, [CLEAR.pod, SENT.pod]]);
});

describe('linger timeline', () => {
  it('prints the latest first, each with its lanes and what came after SIGTERM', async () => {
    const { stdout, code } = await timeline(ALL, '-A');
    expect(code).toBe(0);
    const titles = [...stdout.matchAll(/^Pod ([^ ,]+)/gm)].map(([, pod]) => pod);
    expect(titles).toEqual(['shop/web-1', 'shop/web-2', 'other/web-3']);
    expect(stdout).toMatch(/^edge +━+█+.* 9 s \(99 %\)$/m);
    expect(stdout).toContain('edge may have sent to it for 4 s after SIGTERM');
    expect(stdout).toMatch(/^mesh +┄+ +not known$/m);
    expect(stdout).not.toContain('\u001b');
  });

  it.each([
    [
      ['deployment/web', '-n', 'shop'],
      ['web-1', 'web-2'],
    ],
    [
      ['deploy/web', '-A'],
      ['web-1', 'web-2'],
    ],
    [
      ['Deployments.apps/web', '-A'],
      ['web-1', 'web-2'],
    ],
    [['pod/web-2', '-n', 'shop'], ['web-2']],
    [
      ['po/web-1', 'po/web-3', '-A'],
      ['web-1', 'web-3'],
    ],
    [['statefulset/web', '-A'], []],
    [['-n', 'other'], ['web-3']],
    [
      ['-A', '--since', '10m'],
      ['web-1', 'web-2'],
    ],
  ])('%j', async (args, pods) => {
    const { stdout } = await timeline(ALL, ...args, '-o', 'json');
    expect(podsIn(stdout)).toEqual(pods);
  });

  it('of the namespace default where the context names none, as kubectl', async () => {
    const own = ago({ ...CLEAR, namespace: 'default', pod: 'web-9', uid: 'u9' }, 5);
    const { stdout } = await timeline([...ALL, own], '-o', 'json');
    expect(podsIn(stdout)).toEqual(['web-9']);
  });

  it.each([
    ['sent', 3],
    ['unknown', 0],
    ['unknown,sent', 3],
  ])('--fail-on %s', async (failOn, code) => {
    expect((await timeline(ALL, '-n', 'shop', '--fail-on', failOn)).code).toBe(code);
  });

  it('--svg draws what it prints', async () => {
    const file = join((await timeline(ALL)).folder, 'out.svg');
    await timeline(ALL, '-n', 'shop', '--svg', file);
    const svg = await readFile(file, 'utf8');
    expect(svg).toMatch(/^<svg /);
    expect(svg.match(/class="title"/g)).toHaveLength(2);
    const { code, stderr } = await timeline(ALL, '-n', 'shop', '--svg', join(file, 'no-folder'));
    expect([code, stderr]).toEqual([1, expect.stringContaining('[output-unwritable]')]);
  });

  it('of many, ten are printed, and how to get the others', async () => {
    const many = Array.from({ length: 14 }, (_, index) => ({ ...ago(CLEAR, index), uid: `u${index}` }));
    const { stdout, stderr } = await timeline(many, '-n', 'shop');
    expect(stdout.match(/^Pod /gm)).toHaveLength(10);
    expect(stderr).toContain('the latest 10 of 14; -o wide shows all');
    expect((await timeline(many, '-n', 'shop', '-o', 'wide')).stdout.match(/^Pod /gm)).toHaveLength(14);
  });

  it('where nothing has ended yet, it says what to do', async () => {
    const { stdout, code } = await timeline([], 'deployment/web', '-n', 'shop', '--since', '10m');
    expect([code, stdout]).toEqual([
      0,
      expect.stringContaining('No termination of deployment/web in namespace shop of the last 10m'),
    ]);
    expect(stdout).toContain('delete such a pod');
  });

  it.each(['web', 'deployment/', 'gateway/web', 'a/b/c'])('%s is no workload', async (operand) => {
    const { code, stderr } = await timeline(ALL, operand);
    expect([code, stderr]).toEqual([2, expect.stringContaining('expected KIND/NAME')]);
  });
});
