import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { cp, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { parse } from 'yaml';
import { Trials, undeclaredOf } from '../../src/cli/dashboard.ts';
import { curveOf, lagReportOf } from '../../src/cli/lag-report.ts';
import { openDashboard } from '../../src/cli/open-page.ts';
import type { DiscoveryConsumer } from '../../src/core/api/index.ts';
import {
  NO_DOCUMENTS,
  NO_SOURCES,
  snapshotOf,
  type Workload,
  workloadOf,
} from '../../src/core/decision/index.ts';
import { auditWorkload, relatedObjectsIn, summaryOfAudit } from '../../src/core/judge/index.ts';
import {
  ConsumerEstimator,
  LagEstimator,
  LagHistory,
  NOTHING_PLANNED,
  nextPlanned,
  plannedLags,
} from '../../src/core/lag/index.ts';
import {
  apiRoot,
  auditReport,
  explainReport,
  explanationReport,
  lagReport,
  whatIfReport,
  workloadsReport,
} from '../../src/dashboard/index.ts';
import { close } from '../../src/webhook/index.ts';
import { ROOT } from '../docs/markdown.ts';
import { CHROMIUM, expectAccessible, startBrowser, windowOf } from '../page/browser.ts';
import type { AtEnd } from '../webhook/connection.ts';
import { BUILT } from './built.ts';
import { startDashboard } from './dashboards.ts';
import { emptyDirectory, environment, linger, MAIN, run, until } from './linger.ts';

const atEnd = onTestFinished as AtEnd;
const FOLDER = 'test/testdata/audit';
const NOW = Math.floor(Date.now() / 1000);
const HOSTILE = '<img src=x onerror=alert(1)>';

describe('linger dashboard -f DIR', () => {
  it('answers with what linger audit says, word for word', async () => {
    const { get } = await startDashboard(['-f', FOLDER], atEnd);
    expect(apiRoot.parse((await get('')).body)).toMatchObject({
      views: ['workloads', 'what-if'],
      source: FOLDER,
    });
    const { rows, summary } = workloadsReport.parse((await get('/workloads?limit=1000')).body);
    const findings = rows.flatMap((row) => row.findings);
    const { stdout } = await linger(['audit', '-f', FOLDER, '-o', 'json']);
    expect({ findings, summary }).toEqual(auditReport.parse(JSON.parse(stdout)));
  });

  it('explains each workload, with every layer', async () => {
    const { get } = await startDashboard(['-f', 'docs/examples/web.yaml'], atEnd);
    const query = 'workload=Deployment/shop/web';
    const { plan, because } = explanationReport.parse((await get(`/explanation?${query}`)).body);
    expect(plan.fields).toContainEqual({ field: 'wait.initial', value: '30s', origin: 'built-in' });
    expect(because).toContain('assumed');
  });

  it('names the consumers that are only observed', async () => {
    const policies = await emptyDirectory(atEnd);
    const consumer = {
      apiVersion: 'linger.dev/v1alpha1',
      kind: 'DiscoveryConsumer',
      metadata: { name: 'edge' },
    };
    const spec = { mode: 'Observe', measure: { declared: { lag: '9s' } } };
    await writeFile(join(policies, 'edge.json'), JSON.stringify({ ...consumer, spec }));
    const { get } = await startDashboard(['-f', 'docs/examples/web.yaml', '--policies', policies], atEnd);
    const query = 'workload=Deployment/shop/web';
    const { plan } = explanationReport.parse((await get(`/explanation?${query}`)).body);
    expect(plan.observers).toEqual(['edge']);
  });

  it('says what is wrong with a folder that cannot be read, and goes on', async () => {
    const { get } = await startDashboard(['-f', 'test/no-such-folder'], atEnd);
    const { status, body } = await get('/workloads');
    expect([status, body]).toMatchObject([502, { error: { code: 'manifest-invalid' } }]);
  });

  it('goes on showing standard input, which can be read only once', async () => {
    const { get, child } = await startDashboard(['-f', '-'], atEnd);
    child.stdin.end(readFileSync(join(ROOT, 'docs/examples/web.yaml')));
    const report = async () => workloadsReport.parse((await get('/workloads')).body);
    const first = await report();
    expect(first.summary.workloads).toBe(1);
    expect(await report()).toEqual(first);
  });

  it('reads again when a file has changed, also one that a kustomization uses elsewhere, and only then', async () => {
    const folder = await emptyDirectory(atEnd);
    const write = (path: string, text: string) => writeFile(join(folder, path), text);
    const pod = (name: string) =>
      `apiVersion: v1\nkind: Pod\nmetadata: {name: ${name}}\nspec: {containers: [{name: a, image: a}]}\n`;
    await mkdir(join(folder, 'base'));
    await mkdir(join(folder, 'overlay'));
    await write('base/pod.yaml', pod('first'));
    await write('base/kustomization.yaml', 'resources: [pod.yaml]\n');
    await write('overlay/kustomization.yaml', 'resources: [../base]\n');
    // In place of kubectl: it counts its runs.
    const program = join(folder, 'kubectl');
    await writeFile(program, `#!/bin/sh\necho run >>${folder}/runs\ncat ${folder}/base/pod.yaml\n`, {
      mode: 0o755,
    });
    const env = { PATH: `${folder}:${process.env.PATH}` };
    const { get, address } = await startDashboard(['-f', join(folder, 'overlay')], atEnd, env);
    const runs = async () => (await readFile(join(folder, 'runs'), 'utf8')).split('\n').length - 1;
    const shown = async () => workloadsReport.parse((await get('/workloads')).body).rows[0]?.address;
    expect(await shown()).toBe('Pod/default/first');
    const headers = { Authorization: `Bearer ${new URL(address).hash.replace('#token=', '')}` };
    const events = await fetch(new URL('/api/v1/events', address), { headers });
    await write('base/pod.yaml', pod('second'));
    await until(async () => (await shown()) === 'Pod/default/second');
    const before = await runs();
    for (let asked = 0; asked < 5; asked += 1) await shown();
    expect(await runs()).toBe(before);
    await events.body?.cancel();
  });

  it('has no views of a cluster', async () => {
    const { get } = await startDashboard(['-f', 'docs/examples/web.yaml'], atEnd);
    expect((await get('/now')).status).toBe(404);
  });

  it('ends with Ctrl-C, with a page that is still open', async () => {
    const { child, address } = await startDashboard(['-f', 'docs/examples/web.yaml'], atEnd);
    const token = new URL(address).hash.replace('#token=', '');
    const headers = { Authorization: `Bearer ${token}` };
    const events = await fetch(new URL('/api/v1/events', address), { headers });
    expect(events.status).toBe(200);
    const exited = once(child, 'exit');
    child.kill('SIGINT');
    expect(await exited).toEqual([0, null]);
    await events.text().catch(() => '');
  });
});

it('a build without the dashboard, as that of the image, says so', async () => {
  expect(readFileSync(join(ROOT, 'deploy/Containerfile'), 'utf8')).toMatch(
    /^RUN npm run build && rm -r .*dist\/dashboard /m,
  );
  const image = await emptyDirectory(atEnd);
  await cp(join(ROOT, 'package.json'), join(image, 'package.json'));
  const folder = join(image, 'dist');
  await cp(BUILT, folder, { recursive: true, filter: (from) => from !== join(BUILT, 'dashboard') });
  const args = ['dashboard', '-f', 'docs/examples/web.yaml', '--port', '0', '--no-open'];
  const { code, stdout, stderr } = await run(process.execPath, [join(folder, 'main.js'), ...args], {
    cwd: ROOT,
  });
  expect([code, stdout, stderr]).toEqual([1, '', expect.stringContaining('[page-missing]') as string]);
});

/** util-linux's, which gives a command a terminal. */
const SCRIPT = '/usr/bin/script';

describe.runIf(process.platform === 'linux' && existsSync(SCRIPT))('in a terminal', () => {
  it.each([
    ['opens the browser', ''],
    ['with --no-open it only prints the address', '--no-open'],
  ])('%s', async (_, flag) => {
    const folder = await emptyDirectory(atEnd);
    const opened = join(folder, 'opened');
    await writeFile(join(folder, 'xdg-open'), `#!/bin/sh\necho "$1" >${opened}\n`, { mode: 0o755 });
    const command = `${process.execPath} ${MAIN} dashboard --port 0 -f docs/examples/web.yaml ${flag}`;
    const env = environment({ PATH: `${folder}:${process.env.PATH}` });
    const child = spawn(SCRIPT, ['-qec', command, '/dev/null'], { cwd: ROOT, env });
    atEnd(() => void child.kill('SIGKILL'));
    const exited = once(child, 'exit');
    let printed = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      printed += text;
    });
    const address = await until(async () => /http:\/\/\S+/.exec(printed)?.[0]);
    if (flag === '') expect((await until(() => read(opened))).trim()).toBe(address);
    // Ctrl-C, as a terminal passes it on.
    child.stdin.write('\u0003');
    await exited;
    expect(existsSync(opened)).toBe(flag === '');
  });
});

const read = (file: string) =>
  readFile(file, 'utf8').then(
    (text) => text || undefined,
    () => undefined,
  );

describe.runIf(CHROMIUM !== undefined)('the page of workloads', () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await startBrowser();
  }, 60_000);
  afterAll(() => browser?.close());

  const opened = async (args: readonly string[], search = '', options = {}) => {
    const { address } = await startDashboard(args, atEnd);
    const opened = await windowOf(browser, options);
    const at = new URL(address);
    at.search = search;
    await opened.page.goto(at.href);
    await opened.page.locator('.headline').waitFor();
    return opened;
  };
  const rows = '.workloads tbody tr:not(.detail)';

  it('the worst first; filtered, searched and sorted, each with its address', async () => {
    const { page, wrong } = await opened(['-f', FOLDER]);
    expect(await page.locator('.headline').textContent()).toMatch(
      /^\d+ of \d+ lose requests when they roll; \d+ are fine/,
    );
    expect(await page.locator(rows).first().textContent()).toContain('loses');
    await page.getByRole('button', { name: /^fine/ }).click();
    await page.locator(rows).first().getByText('fine').waitFor();
    await page.getByRole('searchbox').fill('daemonset');
    await page.getByRole('button', { name: 'Workload', exact: true }).click();
    await expect
      .poll(() => page.locator(rows).allTextContents())
      .toSatisfy((texts: readonly string[]) => texts.every((text) => /daemonset/i.test(text)));
    expect(new URL(page.url()).search).toBe('?fate=fine&search=daemonset&sort=name');
    const before = await page.locator(rows).allTextContents();
    expect(before.length).toBeGreaterThan(0);
    await page.reload();
    await page.locator(rows).first().waitFor();
    expect(await page.locator(rows).allTextContents()).toEqual(before);
    expect(wrong).toEqual([]);
  });

  it.each([
    ['light', 1280],
    ['dark', 360],
  ] as const)(
    '%s, %i px: an explanation by keyboard alone; axe finds nothing',
    async (colorScheme, width) => {
      const { page } = await opened(['-f', 'docs/examples/web.yaml'], '', { colorScheme, width });
      for (let presses = 0; presses < 30; presses += 1) {
        await page.keyboard.press('Tab');
        if ((await page.evaluate("document.activeElement?.getAttribute('aria-expanded')")) === 'false') break;
      }
      await page.keyboard.press('Enter');
      await page.getByText('Where each value comes from').waitFor();
      await expectAccessible(page);
      expect(await page.evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true);
    },
  );

  it('what if: a slider changes the numbers and the address, with the policy to apply', async () => {
    const { page, wrong } = await opened(['-f', FOLDER]);
    await page.getByRole('link', { name: 'What if' }).click();
    await page.getByRole('button', { name: 'Fixed' }).click();
    await page.getByText('fixed: 30s').waitFor();
    await page.getByRole('slider').focus();
    await page.keyboard.press('ArrowRight');
    await page.getByText('fixed: 31s').waitFor();
    expect(new URL(page.url()).search).toBe('?from=Fixed&fixed=31');
    await page.locator('.headline', { hasText: /would be protected; now \d+$/ }).waitFor();
    await expectAccessible(page);
    expect(wrong).toEqual([]);
    if (process.env.SHOTS !== undefined)
      await page.screenshot({ path: `${process.env.SHOTS}/what-if.png`, fullPage: true });
  });

  it('hostile names are text, and a change of a file is seen by itself', async () => {
    const folder = await emptyDirectory(atEnd);
    const file = join(folder, 'web.yaml');
    await cp(join(ROOT, 'docs/examples/web.yaml'), file);
    const { page } = await opened(['-f', folder]);
    expect(await page.locator(rows).count()).toBe(1);
    const pod = `apiVersion: v1\nkind: Pod\nmetadata: {name: "${HOSTILE}\u202e${'x'.repeat(253)}"}\nspec: {containers: [{name: a, image: a}]}\n`;
    await writeFile(file, pod);
    await page.getByText(HOSTILE).first().waitFor({ timeout: 20_000 });
    expect(await page.locator('main img').count()).toBe(0);
    expect(await page.evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true);
  });
});

describe('what if', () => {
  it('an audit with that policy gives the same numbers', async () => {
    const { get } = await startDashboard(['-f', FOLDER], atEnd);
    const ask = async () => whatIfReport.parse((await get('/what-if?from=Fixed&fixed=45s')).body);
    // On a busy machine, the audit takes longer than an answer may.
    const { policy, before, after, waits, removals } = await until(async () => {
      const report = await ask();
      return report.after === null ? undefined : report;
    });
    expect(waits).toEqual([
      { seconds: 45, namespaces: expect.any(Number) as number, hold: null, covered: null },
    ]);
    expect(removals).toBeNull();
    const file = join(await emptyDirectory(atEnd), 'policy.yaml');
    await writeFile(file, policy);
    const summaryOf = async (...args: readonly string[]) => {
      const { stdout } = await linger(['audit', '-f', FOLDER, '-o', 'json', ...args]);
      return auditReport.parse(JSON.parse(stdout)).summary;
    };
    expect(before).toEqual(await summaryOf());
    expect(after).toEqual(await summaryOf('--webhook', '--policies', file));
    expect(after?.verdicts.protected).toBeGreaterThan(before.verdicts.protected ?? 0);
  });

  it('with Hold, the longest hold is what rollouts and drains may take, and the policy says Hold', async () => {
    const { get } = await startDashboard(['-f', FOLDER], atEnd);
    const { body } = await get('/what-if?from=Fixed&fixed=10s&hook=Hold&hold.min=5s&hold.max=90s');
    const { policy, waits, held } = whatIfReport.parse(body);
    expect(waits).toMatchObject([{ seconds: 10, hold: { minSeconds: 5, maxSeconds: 90 } }]);
    expect(parse(policy)).toMatchObject({
      kind: 'ClusterTerminationPolicy',
      spec: { hook: 'Hold', hold: { min: '5s', max: '90s' }, wait: { from: 'Fixed', fixed: '10s' } },
    });
    // Nothing has been measured of manifests.
    expect(held).toBeNull();
  });

  describe('of a cluster that measures', () => {
    const DAY = 86_400;
    const START = Math.floor(NOW / DAY) * DAY - 3 * DAY;
    /** In each ten minutes the same twenty lags, so that what is published does not depend on when that is. */
    const lags = Array.from({ length: 20 }, (_, each) => 0.05 * 1.35 ** each);
    const removals = Array.from({ length: (3 * DAY) / 600 }, (_, ten) =>
      lags.map((lag, each) => ({ at: START + ten * 600 + each * 30, lag })),
    ).flat();
    /** kube-proxy follows at once. */
    const events = removals.flatMap((each) => [each, { at: each.at, lag: 0.001, consumer: 'cluster-ip' }]);
    const estimator = new LagEstimator();
    const consumers = new ConsumerEstimator();
    consumers.keep(new Set(['cluster-ip']));
    for (const { at, lag } of removals) {
      estimator.record({ namespace: 'shop', lag }, at);
      consumers.record('cluster-ip', 'removal', 0.001, at);
    }
    const steps = nextPlanned(
      NOTHING_PLANNED,
      { cluster: estimator.cluster, namespaces: new Map(), consumers: consumers.removals },
      START + 3 * DAY,
    );
    let step = steps.next();
    while (step.done !== true) step = steps.next();
    const sources = { ...NO_SOURCES, lags: plannedLags(step.value) };
    const subject = {
      namespace: 'shop',
      object: {},
      workload: workloadOf({
        apiVersion: 'apps/v1',
        kind: 'Deployment',
        metadata: { name: 'web', namespace: 'shop' },
        spec: {
          template: { spec: { containers: [{ name: 'a', image: 'a', ports: [{ containerPort: 1 }] }] } },
        },
      }) as Workload,
    };
    const related = relatedObjectsIn([], 'default', []);
    const input = { subjects: [subject], sources, related, connection: undefined, failed: false };
    const summary = summaryOfAudit([auditWorkload(subject, snapshotOf(sources), related)]);
    const fates = { lost: 0, assumed: 1, fine: 0, unknown: 0 };
    const report = { rows: [], basis: [], fates, summary, asOf: NOW, headline: '', unseen: [] };
    const audit = { input, report };

    it.each([
      ['the default', {}],
      ['a lower percentile', { from: 'Measured', percentile: 80, safetyFactor: 1 }],
      ['a larger factor', { from: 'Measured', percentile: 99, safetyFactor: 3 }],
      ['a tail beyond max', { from: 'Measured', percentile: 99.9, safetyFactor: 5 }],
    ])(
      '%s: its wait and its share are those of linger simulate, and of counting the events',
      async (_, fields) => {
        const { policy, waits, removals: counted } = await new Trials(() => undefined).report(audit, fields);
        const folder = await emptyDirectory(atEnd);
        await writeFile(join(folder, 'policy.yaml'), policy);
        await writeFile(join(folder, 'events.jsonl'), events.map((each) => JSON.stringify(each)).join('\n'));
        const args = ['--policies', join(folder, 'policy.yaml'), '--namespace', 'shop', '-o', 'json'];
        const { stdout } = await linger(['simulate', join(folder, 'events.jsonl'), ...args]);
        const { changes } = JSON.parse(stdout) as { changes: { waitSeconds: number; coverage: number }[] };
        const { waitSeconds, coverage } = changes.at(-1) ?? {};
        expect(waits).toEqual([{ seconds: waitSeconds, namespaces: 1, hold: null, covered: coverage }]);
        expect(counted).toBe(removals.length);
        const within = removals.filter(({ lag }) => lag <= (waitSeconds ?? 0)).length / removals.length;
        expect(coverage).toBeCloseTo(within, 3);
      },
    );

    it('Hold: the share is that of the longest hold, and half are held no longer than half of the events took', async () => {
      const fields = { hook: 'Hold', 'hold.min': '0s', 'hold.max': '5s' };
      const { waits, held, after } = await new Trials(() => undefined).report(audit, fields);
      const [{ hold, covered } = {}] = waits;
      const longest = hold?.maxSeconds ?? 0;
      expect(covered).toBeCloseTo(lags.filter((lag) => lag <= longest).length / lags.length, 3);
      const median = lags[9] ?? 0;
      expect(held?.p50).toBeGreaterThan(median * 0.98);
      expect(held?.p50).toBeLessThan(median * 1.1);
      expect(after?.workloads).toBe(1);
    });
  });

  it.each([
    ['from=Fixed&fixed=soon', 'fixed'],
    ['from=Measured&percentile=101', 'percentile'],
    ['from=Measured&safetyFactor=much', 'safetyFactor'],
    ['from=Measured&maximum=3s', 'maximum'],
  ])('%s is refused, and the field is named', async (query, field) => {
    const { get } = await startDashboard(['-f', 'docs/examples/web.yaml'], atEnd);
    const { status, body } = await get(`/what-if?${query}`);
    expect([status, body]).toMatchObject([400, { error: { code: 'policy-invalid' } }]);
    expect(JSON.stringify(body)).toContain(field);
  });

  it('the share that a wait covers is that of an independent count', () => {
    const lags = Array.from({ length: 2_000 }, (_, each) => 0.01 * 1.005 ** each);
    const history = new LagHistory();
    for (const [each, lag] of lags.entries()) history.record(lag, 1_790_000_000 + each);
    const { covered, samples, curve, quantile } = curveOf(history.window(1_790_000_000, 0)!.counts);
    expect(samples).toBe(2_000);
    // What the headline says, the curve goes through, although most of its points are left out.
    expect(curve.length).toBeLessThan(lags.length);
    for (const percentile of [50, 90, 99, 100]) {
      const [, share = 0] = curve.find(([seconds]) => seconds === quantile(percentile)) ?? [];
      expect(share).toBeGreaterThanOrEqual(percentile / 100);
    }
    for (const wait of [0.02, 1, 7, 30, 120]) {
      // A bucket stands for one value, and no lag is further than 1 % from it.
      const within = (seconds: number) => lags.filter((lag) => lag <= seconds).length / lags.length;
      expect(covered(wait)).toBeGreaterThanOrEqual(within(wait / 1.02));
      expect(covered(wait)).toBeLessThanOrEqual(within(wait * 1.02));
    }
  });
});

describe('the list of workloads', () => {
  it('is searched, filtered, sorted and cut by the API, and says how many match', async () => {
    const { get } = await startDashboard(['-f', FOLDER], atEnd);
    const ask = async (query: string) => workloadsReport.parse((await get(`/workloads?${query}`)).body);
    const all = await ask('limit=1000');
    expect(all.matching).toBe(all.summary.workloads);
    const open = await ask('fate=lost&sort=open&limit=2');
    expect(open.matching).toBe(all.fates.lost);
    expect(open.rows.map(({ fate }) => fate)).toEqual(['lost', 'lost']);
    const longest = await ask('sort=open&limit=1');
    const exposures = all.rows.map(({ findings: [own] }) => own?.exposureSeconds ?? -1);
    expect(longest.rows[0]?.findings[0]?.exposureSeconds).toBe(Math.max(...exposures));
    const skipped = await ask('search=DAEMONSET&sort=name');
    expect(skipped.matching).toBeGreaterThan(0);
    expect(skipped.rows.every((each) => /daemonset/i.test(JSON.stringify(each)))).toBe(true);
    expect((await get('/workloads?sort=size')).status).toBe(400);
    const named = await ask(`search=nothing-is-called-so&open=${all.rows[3]?.address}`);
    expect([named.rows, named.opened]).toEqual([[], all.rows[3]]);
  });

  it('a manifest’s workload opens to its termination and its patch, and its plan is that of linger explain', async () => {
    const { get } = await startDashboard(['-f', FOLDER], atEnd);
    const { rows } = workloadsReport.parse((await get('/workloads?limit=1000')).body);
    const { stdout } = await linger(['explain', '-f', FOLDER, '-o', 'json']);
    const explained = explainReport.parse(JSON.parse(stdout)).plans;
    const plans = new Map(
      explained.map(({ kind, namespace, name, outcome, waitSeconds, notes }) => [
        `${kind}/${namespace}/${name}`,
        { outcome, waitSeconds, notes },
      ]),
    );
    for (const { address, fate, findings } of rows.filter((row) => !row.address.includes('~'))) {
      const path = `/explanation?${new URLSearchParams({ workload: address })}`;
      const { plan, charts, patch } = explanationReport.parse((await get(path)).body);
      const { outcome, waitSeconds, notes } = plan;
      expect({ address, outcome, waitSeconds, notes }).toEqual({ address, ...plans.get(address) });
      const isKnown = findings[0]?.waitSeconds != null;
      if (fate === 'lost' && isKnown) expect(charts.length).toBeGreaterThan(0);
      if (fate === 'fine') expect(patch).toBeNull();
    }
  });
});

describe('what nobody has declared', () => {
  it('is the same sender once, with when it was last seen and by whose pods', () => {
    const finding = (uid: string, at: number, from: readonly string[]) => ({
      reason: 'UndeclaredConsumer',
      at,
      namespace: 'shop',
      pod: `web-${uid}`,
      uid,
      owner: 'Deployment/web',
      seconds: 9,
      connections: 5,
      from,
    });
    const findings = [
      finding('1', 100, ['10.0.0.9 (infra/gw-0)']),
      finding('2', 200, ['10.0.0.9 (infra/gw-0)', '10.0.0.7']),
      { ...finding('3', 300, []), reason: 'SlowStop' },
    ] as const;
    const record = { findings, ended: [], incompleteBefore: 0 } as unknown as Parameters<
      typeof undeclaredOf
    >[0];
    const workloads = ['shop/Deployment/web'];
    expect(undeclaredOf(record)).toEqual([
      { from: '10.0.0.9 (infra/gw-0)', pods: 2, connections: 10, lastSeen: 200, workloads },
      { from: '10.0.0.7', pods: 1, connections: 5, lastSeen: 200, workloads },
    ]);
  });
});

describe('the view of lags', () => {
  const WEEK = 7 * 86_400;
  /** 1,000 removals of 200 ms in a week, and 100 of 40 s in one quarter of an hour. */
  const stormy = () => {
    const history = new LagHistory();
    for (let each = 0; each < 1_000; each += 1) history.record(0.2, NOW - WEEK + 60 + each * 600);
    const storm = Math.floor((NOW - 2 * 86_400) / 900) * 900;
    for (let each = 0; each < 100; each += 1) history.record(40, storm + each);
    return { history, storm };
  };

  it('counts each removal once, in its span and its band, and states shares that an independent count has', () => {
    const { history, storm } = stormy();
    const report = lagReportOf(new Map([['cluster', () => history]]), 'cluster', undefined, NOW);
    expect(lagReport.parse({ ...report, unseen: [] })).toMatchObject({ samples: 1_100, waits: [] });
    const counts = (report?.spans ?? []).flatMap(({ counts }) => counts);
    expect(counts.reduce((sum, count) => sum + count, 0)).toBe(1_100);
    const ofStorm = report?.spans.find(({ from }) => from === storm)?.counts ?? [];
    // The band of more than 30 s and at most 100 s.
    expect(ofStorm[report?.edges.indexOf(100) ?? 0]).toBe(100);
    const shareWithin = (seconds: number) => report?.distribution.findLast(([lag]) => lag <= seconds)?.[1];
    expect(shareWithin(1)).toBeCloseTo(1_000 / 1_100, 10);
    expect(shareWithin(60)).toBe(1);
    expect(report?.p50).toBeCloseTo(0.2, 2);
    expect(report?.max).toBeGreaterThan(39);
    expect(lagReportOf(new Map(), 'cluster', undefined, NOW)).toBeUndefined();
  });

  it('has the whole and its parts: the control plane, then the slowest consumer', () => {
    const declared = { apiVersion: 'linger.dev/v1alpha1', kind: 'DiscoveryConsumer' } as const;
    const consumer = (name: string, measure: object) =>
      ({ ...declared, metadata: { name }, spec: { measure } }) as DiscoveryConsumer;
    const [plane, edge] = [new LagHistory(), new LagHistory()];
    for (let each = 0; each < 1_000; each += 1) {
      plane.record(1, NOW - 5_000 + each);
      edge.record(each % 2 === 0 ? 2 : 6, NOW - 5_000 + each);
    }
    const scopes = new Map([
      ['cluster', () => plane],
      ['consumer/edge/removal', () => edge],
    ]);
    const consumers = [
      consumer('edge', { reports: {} }),
      consumer('eureka', { declared: { lag: 3 } }),
      consumer('new', { probe: { url: 'http://edge' } }),
    ];
    const snapshot = snapshotOf({ ...NO_SOURCES, files: { ...NO_DOCUMENTS, consumers } });
    const report = lagReport.parse({ ...lagReportOf(scopes, 'cluster', snapshot, NOW), unseen: [] });
    expect(report.parts.map(({ name, source, samples }) => [name, source, samples])).toEqual(
      expect.arrayContaining([
        ['control plane', 'measured', 1_000],
        ['edge', 'measured', 1_000],
        ['eureka', 'declared', 0],
        ['new', 'unknown', 0],
      ]),
    );
    // Half of the removals: 1 + max(2, 3); the others: 1 + max(6, 3).
    expect(report.p50).toBeCloseTo(4, 0);
    expect(report.p99).toBeCloseTo(7, 0);
    const shareWithin = (seconds: number) => report.distribution.findLast(([lag]) => lag <= seconds)?.[1];
    expect(shareWithin(5)).toBeCloseTo(0.5, 3);
    const own = lagReport.parse({
      ...lagReportOf(scopes, 'consumer/edge/removal', snapshot, NOW),
      unseen: [],
    });
    expect([own.parts, own.p50]).toEqual([[], expect.closeTo(2, 1)]);
  });

  describe.runIf(CHROMIUM !== undefined)('in a browser', () => {
    let browser: Browser;
    beforeAll(async () => {
      browser = await startBrowser();
    }, 60_000);
    afterAll(() => browser?.close());

    it.each([
      ['light', 1280],
      ['dark', 360],
    ] as const)('%s, %i px: a storm stands out in its row; axe finds nothing', async (colorScheme, width) => {
      const { history } = stormy();
      const scopes = new Map([['cluster', () => history]]);
      const root = { version: '0.0.0', views: ['lag'], source: null } as const;
      const lag = async (scope: string) => {
        const report = lagReportOf(scopes, scope, undefined, NOW);
        const waits = [{ seconds: 45, namespaces: 3, covered: 1 }];
        return report && { ...report, waits, unseen: [] };
      };
      const { server, address } = await openDashboard(
        { root, lag, follow: () => () => undefined },
        0,
        () => undefined,
      );
      atEnd(() => close(server));
      const { page, wrong } = await windowOf(browser, { colorScheme, width });
      await page.goto(address);
      await page.locator('.headline').waitFor();
      expect(await page.locator('.headline').textContent()).toMatch(
        /^Half of 1,100 removals .* 99 % within 40 s$/,
      );
      await page.getByText(/Storm: 10\d removals/).waitFor();
      // Something is drawn in the row of 30 s to 100 s, which is the third from above, and nothing in the one above it.
      const drawn = await page.locator('canvas').evaluate((canvas) => {
        const { width, getContext } = canvas as unknown as {
          width: number;
          getContext: (kind: string) => {
            getImageData: (x: number, y: number, w: number, h: number) => { data: Uint8Array };
          };
        };
        const context = getContext.call(canvas, '2d');
        return [2, 1].map((row) =>
          context.getImageData(70, row * 22 + 2, width - 70, 16).data.some((value) => value > 0),
        );
      });
      expect(drawn).toEqual([true, false]);
      await expectAccessible(page);
      expect(await page.evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true);
      expect(wrong).toEqual([]);
      if (process.env.SHOTS !== undefined)
        await page.screenshot({ path: `${process.env.SHOTS}/lag-${colorScheme}.png`, fullPage: true });
    });
  });
});
