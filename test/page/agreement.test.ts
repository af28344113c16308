import { globSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { auditReport, explainReport } from '../../src/dashboard/index.ts';
import { newAnswers } from '../../src/page/answers.ts';
import { linger, ROOT } from '../cli/linger.ts';

// What the page says of an input, no command contradicts: its worker's own answers, without a browser.

const MANIFESTS = ['cases', 'audit'].flatMap((folder) =>
  globSync(`test/testdata/${folder}/*.yaml`, { cwd: ROOT }).toSorted(),
);

async function shown(path: string) {
  const answers = newAnswers();
  const file = new Blob([await readFile(join(ROOT, path))]);
  const taken = await answers.read([{ path, file }]);
  const overview = await answers.judge('', '');
  const list = await answers.list({ search: '', limit: 10_000 });
  const details = await Promise.all(list.rows.map(async ({ address }) => (await answers.detail(address))!));
  return { answers, taken, overview, list, details };
}

const isOpen = (row?: { readonly fate: string }) => row?.fate === 'lost' || row?.fate === 'assumed';

const told = async (...args: readonly string[]) => (await linger(args)).stdout;

describe('the page says what the commands say', () => {
  test.each(MANIFESTS)('%s', async (path) => {
    const { answers, taken, overview, list, details } = await shown(path);
    expect(taken).toEqual([]);

    const audit = auditReport.parse(JSON.parse(await told('audit', '-f', path, '-o', 'json')));
    const findings = list.rows.flatMap((row) => row.findings);
    expect({ findings, summary: overview.summary }).toEqual(audit);

    // The headline counts what an audit counts, and no row is green that an audit has red.
    const [lost = 0, all = 0] = [...overview.headline.matchAll(/\d+/g)].map(Number);
    const fates: readonly string[] = list.rows.map(({ fate }) => fate);
    const count = (...of: readonly string[]) => fates.filter((fate) => of.includes(fate)).length;
    const { verdicts, workloads } = audit.summary;
    if (workloads > 0) expect([lost, all]).toEqual([count('lost'), workloads]);
    expect({
      open: count('lost', 'assumed'),
      fine: count('fine'),
      unknown: count('unknown'),
    }).toEqual({
      open: verdicts.unprotected,
      fine: verdicts.protected + verdicts.skipped,
      unknown: verdicts.unknown,
    });

    const explained = explainReport.parse(JSON.parse(await told('explain', '-f', path, '-o', 'json')));
    const plans = explained.plans.map((each) => {
      const { file: _, line: __, ...plan } = each as typeof each & { file: string; line: number };
      return plan;
    });
    expect(details.map(({ plan }) => plan)).toEqual(plans);

    // What inject refuses is empty; of UTF-16 it writes UTF-16, which is no text here.
    const injected = await told('inject', '-f', path);
    const [patched] = await answers.patched();
    if (injected !== '' && !injected.includes('\uFFFD')) expect(patched?.text).toBe(injected);

    // The page offers no policy where there is no workload.
    if (workloads === 0) return;
    const suggested = await told('audit', '--suggest', '-f', path);
    const counts =
      /^# as the manifests are, (\d+) of (\d+) workloads? .*, with Linger’s webhook (\d+)/.exec(suggested) ??
      [];
    const { before, after } = await answers.whatIf({});
    expect(counts.slice(1).map(Number)).toEqual([
      before.verdicts.protected,
      before.workloads,
      after.verdicts.protected,
    ]);
  });

  /** Each is a contradiction that there was once. */
  describe('and no two of its own sentences contradict each other', () => {
    test.each(MANIFESTS)('%s', async (path) => {
      const { overview, list, details, answers } = await shown(path);
      for (const [index, { fate }] of list.rows.entries()) {
        const detail = details[index];
        // A red row above a green card.
        expect(detail?.stands).toBe(fate === 'fine');
        const summaries = detail?.charts.map(({ summary }) => summary) ?? [];
        // A wait counted as help where none helps: Recreate, publishNotReadyAddresses.
        if (fate !== 'fine' && detail?.helps === false) expect(summaries.slice(1)).toEqual([]);
      }
      if (overview.summary.workloads === 0) return;
      // Protected by a suggestion, but not in the audit.
      const { before, after } = await answers.whatIf({});
      expect(before).toEqual(overview.summary);
      const stuck = details.filter(
        ({ stands, helps }, index) => !stands && !helps && isOpen(list.rows[index]),
      );
      expect(after.verdicts.unprotected).toBeGreaterThanOrEqual(stuck.length);
    });

    test('it asks for a consumer exactly where consumers discover has one to declare', async () => {
      const asked: string[] = [];
      const found: string[] = [];
      for (const path of MANIFESTS) {
        const { list } = await shown(path);
        const reasons = list.rows.flatMap(({ findings }) => findings.map(({ reason }) => reason));
        if (!reasons.includes('UndeclaredConsumer')) continue;
        asked.push(path);
        const { stdout, stderr } = await linger(['consumers', 'discover', '-f', path]);
        if (/kind: DiscoveryConsumer|declare its lag/.test(stdout + stderr)) found.push(path);
      }
      expect(asked.length).toBeGreaterThan(0);
      expect(found).toEqual(asked);
    });
  });

  test('there are enough of them', () => {
    expect(MANIFESTS.length).toBeGreaterThan(40);
  });
});
