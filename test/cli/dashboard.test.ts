import { once } from 'node:events';
import { cp, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { curveOf, lagReportOf } from '../../src/cli/lag-report.ts';
import { openPage } from '../../src/cli/playground.ts';
import {
  apiRoot,
  auditReport,
  explanationReport,
  lagReport,
  whatIfReport,
  workloadsReport,
} from '../../src/dashboard/index.ts';
import { LagHistory } from '../../src/lag/index.ts';
import { close } from '../../src/webhook/index.ts';
import { ROOT } from '../docs/markdown.ts';
import { CHROMIUM, expectAccessible, startBrowser, windowOf } from '../page/browser.ts';
import type { AtEnd } from '../webhook/connection.ts';
import { startDashboard } from './dashboards.ts';
import { emptyDirectory, linger } from './linger.ts';

const atEnd = onTestFinished as AtEnd;
const FOLDER = 'test/testdata/audit';
const HOSTILE = '<img src=x onerror=alert(1)>';

describe('linger dashboard -f DIR', () => {
  it('answers with what linger audit says, word for word', async () => {
    const { get } = await startDashboard(['-f', FOLDER], atEnd);
    expect(apiRoot.parse((await get('')).body)).toMatchObject({
      views: ['workloads', 'what-if'],
      source: FOLDER,
    });
    const { findings, summary } = workloadsReport.parse((await get('/workloads')).body);
    const { stdout } = await linger(['audit', '-f', FOLDER, '-o', 'json']);
    expect({ findings, summary }).toEqual(auditReport.parse(JSON.parse(stdout)));
  });

  it('explains each workload, with every layer', async () => {
    const { get } = await startDashboard(['-f', 'docs/examples/web.yaml'], atEnd);
    const query = 'kind=Deployment&namespace=shop&name=web&file=docs/examples/web.yaml&line=1';
    const { plan, because } = explanationReport.parse((await get(`/explanation?${query}`)).body);
    expect(plan.fields).toContainEqual({ field: 'wait.initial', value: '30s', origin: 'built-in' });
    expect(because).toContain('wait.initial');
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
    const query = 'kind=Deployment&namespace=shop&name=web&file=docs/examples/web.yaml&line=1';
    const { plan } = explanationReport.parse((await get(`/explanation?${query}`)).body);
    expect(plan.observers).toEqual(['edge']);
  });

  it('says what is wrong with a folder that cannot be read, and goes on', async () => {
    const { get } = await startDashboard(['-f', 'test/no-such-folder'], atEnd);
    const { status, body } = await get('/workloads');
    expect([status, body]).toMatchObject([502, { error: { code: 'manifest-invalid' } }]);
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
      /^\d+ of \d+ workloads lose requests.*worst: /,
    );
    expect(await page.locator(rows).first().textContent()).toContain('unprotected');
    await page.getByRole('button', { name: /^skipped/ }).click();
    expect(await page.locator(rows).first().textContent()).toContain('skipped');
    await page.getByRole('searchbox').fill('daemonset');
    await page.getByRole('button', { name: 'Workload', exact: true }).click();
    expect(new URL(page.url()).search).toBe('?verdict=skipped&search=daemonset&sort=name');
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
    expect(await page.locator('.headline').textContent()).toMatch(/would be protected; now \d+$/);
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
    const { body } = await get('/what-if?from=Fixed&fixed=45s');
    const { policy, before, after, waits, removals } = whatIfReport.parse(body);
    expect(waits).toEqual([{ seconds: 45, namespaces: expect.any(Number) as number, covered: null }]);
    expect(removals).toBeNull();
    const file = join(await emptyDirectory(atEnd), 'policy.yaml');
    await writeFile(file, policy);
    const summaryOf = async (...args: readonly string[]) => {
      const { stdout } = await linger(['audit', '-f', FOLDER, '-o', 'json', ...args]);
      return auditReport.parse(JSON.parse(stdout)).summary;
    };
    expect(before).toEqual(await summaryOf());
    expect(after).toEqual(await summaryOf('--webhook', '--policies', file));
    expect(after.verdicts.protected).toBeGreaterThan(before.verdicts.protected ?? 0);
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
    const { covered, samples } = curveOf(history);
    expect(samples).toBe(2_000);
    for (const wait of [0.02, 1, 7, 30, 120]) {
      // A bucket stands for one value, and no lag is further than 1 % from it.
      const within = (seconds: number) => lags.filter((lag) => lag <= seconds).length / lags.length;
      expect(covered(wait)).toBeGreaterThanOrEqual(within(wait / 1.02));
      expect(covered(wait)).toBeLessThanOrEqual(within(wait * 1.02));
    }
  });
});

describe('the view of lags', () => {
  const NOW = Math.floor(Date.now() / 1000);
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
    const report = lagReportOf(new Map([['cluster', history]]), 'cluster', undefined, NOW);
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
      const scopes = new Map([['cluster', history]]);
      const root = { version: '0.0.0', views: ['lag'], source: null } as const;
      const lag = async (scope: string) => {
        const report = lagReportOf(scopes, scope, undefined, NOW);
        const waits = [{ seconds: 45, namespaces: 3, covered: 1 }];
        return report && { ...report, waits, unseen: [] };
      };
      const { server, address } = await openPage(
        { root, lag, follow: () => () => undefined },
        0,
        '--port',
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
