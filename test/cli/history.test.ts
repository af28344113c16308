import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { LagHistory } from '../../src/core/lag/index.ts';
import { historyReport } from '../../src/dashboard/index.ts';
import { packPart, partKey, stampAnnotations } from '../../src/leader/codec.ts';
import { ModelApi } from '../leader/model-api.ts';
import { atEndOfFile } from '../webhook/connection.ts';
import { emptyDirectory, linger } from './linger.ts';

const atEnd = atEndOfFile();
const CONFIG_MAPS = '/api/v1/namespaces/linger/configmaps';
const DAY = 86_400;
const NOW = Math.floor(Date.now() / 1000);
const STORM = Math.floor((NOW - 3 * DAY) / 900) * 900;

/** A calm week of 200 ms, with a storm of 40 s in it. */
function stormyWeek(): LagHistory {
  const history = new LagHistory();
  for (let minute = 0; minute < 7 * 1_440; minute += 1) history.record(0.2, NOW - 7 * DAY + minute * 60);
  for (let each = 0; each < 1_000; each += 1) history.record(40, STORM + 60 + each / 10);
  return history;
}

/** A cluster whose leader has stored this history. */
async function cluster(history = stormyWeek()): Promise<ModelApi> {
  const api = await ModelApi.start();
  atEnd(() => api.close());
  const annotations = stampAnnotations({ writer: 'linger-a', term: 1, writtenAt: NOW - 60 });
  const object = (name: string, more: object) =>
    api.put(`${CONFIG_MAPS}/${name}`, { kind: 'ConfigMap', metadata: { name, annotations }, ...more });
  object('linger-planned', { data: {} });
  const binaryData: Record<string, string> = {};
  for (const { key, text } of history.parts('cluster', NOW))
    binaryData[partKey(key)] = await packPart(text(400_000));
  object('linger-history', { binaryData });
  return api;
}

async function run(api: ModelApi, ...args: string[]) {
  const file = join(await emptyDirectory(atEnd), 'config');
  await writeFile(
    file,
    JSON.stringify({
      apiVersion: 'v1',
      kind: 'Config',
      clusters: [{ name: 'c', cluster: { server: api.url.href } }],
      users: [{ name: 'u', user: {} }],
      contexts: [{ name: 'x', context: { cluster: 'c', user: 'u' } }],
      'current-context': 'x',
    }),
  );
  return linger(['history', ...args, '--kubeconfig', file], { atEnd });
}

const at = (seconds: number) => new Date(seconds * 1000).toISOString();

describe.concurrent('linger history', () => {
  it('lists the storm, its share and the lag without it', async () => {
    const { code, stdout, stderr } = await run(await cluster());
    expect([code, stderr]).toEqual([0, '']);
    const [header, row] = stdout.split('\n');
    expect(header).toMatch(/^SCOPE +FROM +TO +REMOVALS +SHARE +P99 +P99 WITHOUT$/);
    expect(row).toMatch(/^cluster +\S+Z +\S+Z +10\d\d +9\.\d % +(39|4\d)\.\ds +2\d\dms$/);
    const json = await run(await cluster(), '--output', 'json');
    expect(historyReport.parse(JSON.parse(json.stdout)).episodes).toMatchObject([{ scope: 'cluster' }]);
  });

  it('lists the storm of a week that is stored in several parts', async () => {
    const busy = stormyWeek();
    for (let minute = 0; minute < 7 * 1_440; minute += 1)
      for (let each = 0; each < 6; each += 1)
        busy.record(0.1 * 1.02 ** ((7 * minute + 13 * each) % 90), NOW - 7 * DAY + minute * 60);
    expect(busy.parts('cluster', NOW).length).toBeGreaterThan(2);
    const { code, stdout } = await run(await cluster(busy));
    expect(code).toBe(0);
    expect(stdout.split('\n')[1]).toMatch(/^cluster +\S+Z +\S+Z +1\d\d\d +1\.\d % /);
  });

  it('forgets it: the record is in linger-planned, and the list is without it', async () => {
    const api = await cluster();
    const span = ['--from', at(STORM), '--to', at(STORM + 900)];
    const { code, stdout, stderr } = await run(api, 'forget', ...span);
    expect([code, stderr]).toEqual([0, '']);
    expect(stdout).toContain('of the cluster and all namespaces');
    const { metadata } = api.objects.get(`${CONFIG_MAPS}/linger-planned`) ?? {};
    expect(JSON.parse(metadata?.annotations?.['linger.dev/forgotten'] ?? '')).toEqual([
      { from: at(STORM), to: at(STORM + 900) },
    ]);
    const listed = await run(api);
    expect(listed.stdout).toMatch(/^No episode/);
    expect(listed.stdout).toContain('\nForgotten\n');
    const { stdout: json } = await run(api, 'list', '--output', 'json');
    expect(historyReport.parse(JSON.parse(json))).toMatchObject({
      episodes: [],
      forgotten: [{ from: STORM, to: STORM + 900 }],
    });
  });

  it.each([
    ['a consumer that is misspelt', ['--consumer', 'egde', '--from', at(STORM), '--to', at(STORM + 900)]],
    ['a time without measurements', ['--from', at(STORM - 90 * DAY), '--to', at(STORM - 89 * DAY)]],
  ])('says that there is nothing to forget of %s', async (_, span) => {
    const { stderr } = await run(await cluster(), 'forget', ...span);
    expect(stderr).toMatch(/^linger: there are no measurements of .* in the stored history$/m);
  });

  it.each<[string, string[], string]>([
    ['without a span', ['forget'], 'needs --from and --to'],
    ['backwards', ['forget', '--from', at(NOW), '--to', at(NOW - 60)], '--to: expected a time after --from'],
    [
      'of the future',
      ['forget', '--from', at(NOW), '--to', at(NOW + DAY)],
      '--to: expected a time in the past',
    ],
    [
      'of two scopes',
      ['forget', '--from', at(NOW - 60), '--to', at(NOW), '-n', 'shop', '--consumer', 'edge'],
      '--namespace and --consumer are mutually exclusive',
    ],
    ['of a list', ['list', '--namespace', 'shop'], '--namespace: only with linger history forget'],
    ['by another word', ['remember'], 'Allowed choices are list, forget'],
  ])('refuses %s', async (_name, args, problem) => {
    const { code, stderr } = await run(await cluster(), ...args);
    expect([code, stderr]).toEqual([2, expect.stringContaining(problem)]);
  });

  it.each([
    ['list', []],
    ['forget', ['--from', at(STORM), '--to', at(STORM + 900)]],
  ])('says where there is no history: %s', async (action, span) => {
    const where = ['--linger-namespace', 'platform'];
    const { code, stderr } = await run(await cluster(), action, ...where, ...span);
    expect(code).toBe(1);
    expect(stderr).toContain('there is no history in namespace platform');
    expect(stderr).toContain('[not-published]');
  });
});
