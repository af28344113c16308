import { once } from 'node:events';
import { cp, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { apiRoot, auditReport, explanationReport, workloadsReport } from '../../src/dashboard/index.ts';
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
    expect(apiRoot.parse((await get('')).body)).toMatchObject({ views: ['workloads'], source: FOLDER });
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
