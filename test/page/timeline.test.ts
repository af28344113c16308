import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { assess, type Termination, terminationSummary } from '../../src/core/timeline/index.ts';
import { readDashboardAssets, type TimelineView } from '../../src/dashboard/index.ts';
import { CLEAR, SENT, UNKNOWN } from '../core/timeline/sample-termination.ts';
import { CHROMIUM, expectAccessible, LOOKS, startBrowser, tabTo, windowOf } from './browser.ts';
import { servePage, TOKEN } from './served.ts';

const root = { version: '0.0.0', views: ['timeline', 'now'], source: null } as const;
const viewOf = (all: readonly Termination[]): TimelineView => ({
  asOf: 7,
  terminations: all.map((each) => ({ ...each, ...assess(each), text: terminationSummary(each) })),
});

describe.runIf(CHROMIUM !== undefined)('the view of terminations', () => {
  let browser: Browser;
  let files: Awaited<ReturnType<typeof readDashboardAssets>>;
  beforeAll(async () => {
    files = await readDashboardAssets();
    browser = await startBrowser();
  }, 60_000);
  afterAll(() => browser?.close());

  const opened = async (all: readonly Termination[], search = '', options = {}) => {
    const sources = { root, timeline: async () => viewOf(all), follow: () => () => undefined };
    const { at } = await servePage(sources, files);
    const opened = await windowOf(browser, options);
    await opened.page.goto(`${at}/timeline${search}#token=${TOKEN}`);
    await opened.page.locator('.headline').waitFor();
    return opened;
  };
  const title = '.timeline svg .title';

  it('draws the one that the headline is about; another one is a click away, and has its address', async () => {
    const { page, wrong } = await opened([CLEAR, SENT, UNKNOWN]);
    expect(await page.locator('.headline').textContent()).toBe(
      '1 of the last 3 pods may have been sent requests after SIGTERM; for 1 that is not known',
    );
    expect(await page.locator(title).first().textContent()).toContain('Pod shop/web-2 of Deployment/web');
    await page.getByRole('button', { name: 'shop/web-1' }).click();
    await page.locator('.timeline .lost').first().waitFor({ state: 'detached' });
    expect(new URL(page.url()).search).toBe('?pod=u1');
    await page.reload();
    await page.locator(title).first().waitFor();
    expect(await page.locator('tr[aria-current]').textContent()).toContain('web-1');
    await page.getByRole('button', { name: 'shop/web-2' }).click();
    await page.locator('.timeline .lost').first().waitFor();
    // The colours come from the page: nothing inline is allowed.
    const fill = await page.evaluate("getComputedStyle(document.querySelector('.timeline .lost')).fill");
    expect(fill).toBe('rgb(207, 34, 46)');
    expect(wrong).toEqual([]);
  });

  it('the keyboard alone reaches another termination, the filters and the table', async () => {
    const { page } = await opened([CLEAR, SENT, UNKNOWN]);
    await tabTo(page, 'not known');
    await page.keyboard.press('Enter');
    await tabTo(page, 'shop/web-3');
    await page.keyboard.press('Enter');
    expect(new URL(page.url()).search).toBe('?only=unknown&pod=u3');
    await page.reload();
    await page.locator(title).first().waitFor();
    await tabTo(page, 'As a table');
    await page.keyboard.press('Enter');
    await page.getByRole('row', { name: /^mesh/ }).waitFor();
  });

  it('is filtered and searched', async () => {
    const { page } = await opened([CLEAR, SENT, UNKNOWN]);
    await page.getByRole('button', { name: 'not known' }).click();
    expect(await page.locator('tbody tr[aria-current]').textContent()).toContain('web-3');
    await page.getByRole('searchbox').fill('nothing-of-that-name');
    await page.getByText('None matches.').waitFor();
    expect(new URL(page.url()).search).toBe('?only=unknown&search=nothing-of-that-name');
  });

  it('where nothing has ended yet, says what to do', async () => {
    const { page } = await opened([]);
    expect(await page.locator('.headline').textContent()).toBe('No termination is known yet');
    await page.getByText('Delete such a pod').waitFor();
  });

  it('hostile names are text', async () => {
    const name = '<img src=https://attacker.example/x onerror=alert(1)>\u202eabc';
    const hostile = {
      ...SENT,
      pod: name,
      owner: 'x'.repeat(253),
      consumers: [{ name, after: 9, by: 'seen' as const }],
    };
    const { page, asked, wrong } = await opened([hostile], '', { width: 360 });
    await page.locator(title).first().waitFor();
    expect(await page.locator('main img').count()).toBe(0);
    expect(asked.filter((url) => url.includes('attacker'))).toEqual([]);
    expect(await page.evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true);
    expect(wrong).toEqual([]);
  });

  it.each(LOOKS)('%s, %i px wide: axe finds nothing, and nothing is cut off', async (colorScheme, width) => {
    const { page } = await opened([SENT, UNKNOWN, CLEAR], '', { colorScheme, width });
    await page.locator(title).first().waitFor();
    await page.getByText('As a table').click();
    await expectAccessible(page);
    expect(await page.evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true);
    const folder = process.env.SCREENSHOTS;
    if (folder !== undefined)
      await page.screenshot({ path: `${folder}/timeline-${colorScheme}-${width}.png`, fullPage: true });
  });
});
