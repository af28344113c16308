import { gzipSync } from 'node:zlib';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openPage } from '../../src/cli/playground.ts';
import { explainTexts } from '../../src/cli/playground-report.ts';
import { readPageAssets } from '../../src/dashboard/index.ts';
import { close } from '../../src/webhook/index.ts';
import { CHROMIUM, expectAccessible, LOOKS, startBrowser, tabTo, windowOf } from '../page/browser.ts';

const root = { version: '0.0.0', views: ['playground'], source: null } as const;
const fail = (error: Error) => {
  throw error;
};

describe.runIf(CHROMIUM !== undefined)('the playground', () => {
  let browser: Browser;
  let server: Awaited<ReturnType<typeof openPage>>;
  beforeAll(async () => {
    browser = await startBrowser();
    server = await openPage(
      { root, explain: async (texts) => JSON.stringify(explainTexts(texts)) },
      0,
      '--page-port',
      fail,
    );
  }, 60_000);
  afterAll(async () => {
    await browser?.close();
    if (server !== undefined) await close(server.server);
  });

  const opened = async (options?: Parameters<typeof windowOf>[1]) => {
    const opened = await windowOf(browser, options);
    await opened.page.goto(server.address);
    await headline(opened.page).waitFor();
    return opened;
  };
  const headline = (page: Page) => page.locator('.headline');
  const manifest = (page: Page) =>
    page.getByLabel('Manifest', { exact: false }).and(page.locator('textarea'));

  it('explains an example at once: what waits, how long, why, what changes', async () => {
    const { page, wrong } = await opened();
    expect(await headline(page).textContent()).toBe('Pods of web would wait 30 seconds before SIGTERM.');
    expect(await page.locator('pre').textContent()).toContain('+                seconds: 30');
    await page.getByText('Where each value comes from').click();
    const row = page.getByRole('row', { name: /^wait\.initial/ });
    expect(await row.textContent()).toBe('wait.initial30sbuilt-in');
    expect(wrong).toEqual([]);
  });

  it('each example is one click away, and has its address', async () => {
    const { page } = await opened();
    await page.getByRole('button', { name: 'A team’s own wait' }).click();
    await page.getByText('wait 60 seconds').waitFor();
    expect(new URL(page.url()).search).toBe('?example=team');
    await page.reload();
    await page.getByText('wait 60 seconds').waitFor();
  });

  it('the token leaves the address at once, and is sent to nobody else', async () => {
    const { page, asked } = await opened();
    expect(page.url()).not.toContain('token');
    expect(asked.filter((url) => url.includes('token'))).toEqual([]);
    const { origin } = new URL(server.address);
    expect(asked.filter((url) => new URL(url).origin !== origin)).toEqual([]);
  });

  it('without the token it says what to open', async () => {
    const { page } = await windowOf(browser);
    await page.goto(new URL('/', server.address).href);
    expect(await page.getByRole('alert').textContent()).toContain('the address that the command printed');
    // In the same tab, only the fragment changes: a browser loads nothing by itself.
    await page.goto(server.address);
    await headline(page).waitFor();
    expect(page.url()).not.toContain('token');
  });

  it('a new tab has the token of one that is open', async () => {
    const { page, context } = await opened();
    const address = new URL('/?example=team', server.address).href;
    const tab = await context.newPage();
    await tab.goto(address);
    await tab.getByText('wait 60 seconds').waitFor();
    const elsewhere = await windowOf(browser);
    await elsewhere.page.goto(address);
    await elsewhere.page.getByRole('alert').waitFor();
    expect(await page.getByRole('alert').count()).toBe(0);
  });

  it('a bad manifest gets its line and the reason, and the line is marked', async () => {
    const { page } = await opened();
    await manifest(page).fill('apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [}\n');
    const button = page.getByRole('button', { name: 'Line 4' });
    await button.click();
    expect(await page.locator('.problems li').first().textContent()).toMatch(/^Line 4.{10,}/);
    expect(await page.locator('.gutter .wrong').textContent()).toBe('4');
    const selected = await manifest(page).evaluate((field) => {
      const { value, selectionStart, selectionEnd } = field as unknown as {
        value: string;
        selectionStart: number;
        selectionEnd: number;
      };
      return value.slice(selectionStart, selectionEnd);
    });
    expect(selected).toBe('spec: {containers: [}');
  });

  it('a newcomer knows why one pod of theirs would wait after pasting it, and with one more click where each value comes from', async () => {
    const begun = performance.now();
    const { page } = await opened();
    const usable = performance.now();
    const own = `apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: mine, namespace: team}\nspec:\n  template:\n    spec:\n      containers:\n        - {name: app, image: app, ports: [{containerPort: 8080}]}\n`;
    await manifest(page).fill(own);
    await page.getByRole('heading', { name: 'Pods of mine would wait 30 seconds before SIGTERM.' }).waitFor();
    expect(await page.locator('.plan .word').textContent()).toContain('wait.initial');
    await page.getByText('Where each value comes from').click();
    await page.getByRole('row', { name: /^wait\.initial/ }).waitFor();
    const took = [usable - begun, performance.now() - usable].map((ms) => `${Math.round(ms)} ms`);
    console.log(`the page is usable after ${took[0]}; pasted, explained and opened in ${took[1]}`);
  });

  it('a dropped file replaces the manifest', async () => {
    const { page } = await opened();
    const pod = 'apiVersion: v1\\nkind: Pod\\nmetadata: {name: dropped}\\nspec: {containers: [{name: a}]}\\n';
    const dropped = await page.evaluateHandle(
      `(() => { const data = new DataTransfer(); data.items.add(new File(['${pod}'], 'pod.yaml')); return data; })()`,
    );
    await manifest(page).dispatchEvent('drop', { dataTransfer: dropped });
    await page.locator('.plan').getByText('dropped').waitFor();
    // Beside the texts it would take the place of the page.
    await page.evaluate("addEventListener('drop', (event) => { window.stays = event.defaultPrevented; })");
    await page.locator('h1').dispatchEvent('drop', { dataTransfer: dropped });
    expect(await page.evaluate('stays')).toBe(true);
  });

  it('hostile names are text', async () => {
    const { page, asked, wrong } = await opened();
    const name = '<img src=https://attacker.example/x onerror=alert(1)>\u202eabc';
    const before = asked.length;
    await manifest(page).fill(
      `apiVersion: v1\nkind: Pod\nmetadata: {name: "${name}"}\nspec: {containers: [{name: "${'x'.repeat(253)}", ports: [{containerPort: 1}]}]}\n`,
    );
    await page.locator('.plan').getByText('<img src=').waitFor();
    expect(await page.locator('.plan img').count()).toBe(0);
    expect(asked.slice(before).filter((url) => !url.startsWith(new URL(server.address).origin))).toEqual([]);
    // Long names wrap: nothing is wider than the window.
    expect(await page.evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true);
    expect(wrong).toEqual([]);
  });

  it.each(LOOKS)('%s, %i px wide: axe finds nothing, and nothing is cut off', async (colorScheme, width) => {
    const { page } = await opened({ colorScheme, width });
    await page.getByRole('button', { name: 'A hook of its own' }).click();
    await page.getByText('HookExtended').waitFor();
    await page.getByText('Where each value comes from').click();
    await expectAccessible(page);
    expect(await page.evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true);
  });

  it('the keyboard reaches everything: an example, the text, the values', async () => {
    const { page } = await opened();
    await tabTo(page, 'Skip to the content');
    await tabTo(page, 'Audit first');
    await page.keyboard.press('Enter');
    await page.getByText('mode Audit changes nothing').first().waitFor();
    await tabTo(page, 'Where each value comes from');
    await page.keyboard.press('Enter');
    await page.getByRole('row', { name: /^mode/ }).first().waitFor();
  });
});

it('loads at most 150 KB, compressed', async () => {
  const files = [...(await readPageAssets()).values()];
  const bytes = files.reduce((sum, { bytes }) => sum + gzipSync(bytes).length, 0);
  expect(bytes).toBeLessThan(150_000);
});
