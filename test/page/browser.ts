import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { delimiter, join } from 'node:path';
import { type Browser, chromium, type Page } from 'playwright-core';
import { expect } from 'vitest';

const NAMES = ['chromium', 'chromium-browser', 'google-chrome'];

/** undefined: none is installed; CI, which installs it, fails then. */
export const CHROMIUM = (process.env.PATH ?? '')
  .split(delimiter)
  .flatMap((folder) => NAMES.map((name) => join(folder, name)))
  .find((path) => existsSync(path));

if (CHROMIUM === undefined) {
  if (process.env.REQUIRE_CHROMIUM !== undefined) throw new Error('no Chromium is installed');
  console.log('the page is not tested: no Chromium is installed (apt-get install chromium)');
}

/** Each scheme and each width once: colours do not depend on the width, nor the layout on the scheme. */
export const LOOKS = [
  ['light', 320],
  ['dark', 1280],
] as const;

export function startBrowser(): Promise<Browser> {
  return chromium.launch({ executablePath: CHROMIUM ?? '', args: ['--no-sandbox'] });
}

/** A new window, with what it asks for and what goes wrong in it. */
export async function windowOf(
  browser: Browser,
  options: { readonly colorScheme?: 'light' | 'dark'; readonly width?: number } = {},
) {
  const { colorScheme = 'light', width = 1280 } = options;
  const context = await browser.newContext({ colorScheme, viewport: { width, height: 900 } });
  const page = await context.newPage();
  const asked: string[] = [];
  const wrong: string[] = [];
  page.on('request', (request) => void asked.push(request.url()));
  page.on('pageerror', (error) => void wrong.push(error.message));
  // Chromium drops requests when an interface of the machine comes or goes, as with each pod; the page asks again.
  const isWrong = (text: string) => !text.includes('ERR_NETWORK_CHANGED');
  page.on(
    'console',
    (message) => message.type() === 'error' && isWrong(message.text()) && wrong.push(message.text()),
  );
  return { context, page, asked, wrong };
}

/** Presses Tab until something of this name has the focus. */
export async function tabTo(page: Page, name: string | RegExp): Promise<void> {
  const focused = page.locator(':focus');
  const target = focused.and(page.getByRole('link', { name, exact: true }));
  const button = focused.and(page.getByRole('button', { name, exact: true }));
  const summary = focused.and(page.locator('summary').filter({ hasText: name }));
  for (let presses = 0; presses < 80; presses += 1) {
    if ((await target.or(button).or(summary).count()) > 0) return;
    await page.keyboard.press('Tab');
  }
  throw new Error(`Tab does not reach ${name}`);
}

const AXE = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** What axe finds, as rules with the elements that break them. */
export async function expectAccessible(page: Page): Promise<void> {
  // Not as a script element, which the page's own rules forbid.
  const found = await page.evaluate(
    `(() => { ${AXE}; return axe.run().then(({violations}) => violations.map(({id, nodes}) => id + ': ' + nodes.map(({html}) => html).join(' | '))); })()`,
  );
  expect(found).toEqual([]);
}
