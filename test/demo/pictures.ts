import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Page } from 'playwright-core';
import { buildPage } from '../../deploy/build-page.ts';
import { ROOT } from '../cli/built.ts';
import { startBrowser } from '../page/browser.ts';

// node test/demo/pictures.ts ADDRESS: docs/images of what `linger dashboard --demo` shows at that address, and of the page for manifests.
const [address = ''] = process.argv.slice(2);

const PICTURES = {
  workloads: {
    view: 'workloads',
    colorScheme: 'light',
    height: 760,
    choose: async (_page: Page) => undefined,
  },
  terminations: {
    view: 'timeline',
    colorScheme: 'dark',
    height: 640,
    // A guess of its author's, shorter than the gateways' interval.
    choose: (page: Page) =>
      page
        .getByRole('button', { name: /^shop\/cart-/ })
        .first()
        .click(),
  },
} as const;

const browser = await startBrowser();
for (const [name, { view, colorScheme, height, choose }] of Object.entries(PICTURES)) {
  const page = await browser.newPage({ viewport: { width: 1180, height }, colorScheme });
  const at = new URL(address);
  at.pathname = `/${view}`;
  await page.goto(at.href);
  await page.locator('.headline').first().waitFor();
  await choose(page);
  await page.evaluate('scrollTo(0, 0)');
  await page.screenshot({ path: join(ROOT, 'docs', 'images', `${name}.png`) });
}

const folder = await mkdtemp(join(tmpdir(), 'linger-page-'));
await buildPage(folder);
const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
await page.goto(pathToFileURL(join(folder, 'index.html')).href);
const shop = await readFile(join(ROOT, 'test/testdata/audit/boutique.yaml'), 'utf8');
await page.locator('#text-manifests').fill(shop.replaceAll(/^# expect:.*\n/gm, ''));
await page.getByText(/^5 of 6 lose requests/).waitFor();
await page.locator('.workloads').getByText('boutique/frontend').waitFor();
await page.evaluate(
  "document.activeElement.blur(); document.getElementById('text-manifests').scrollTop = 0; scrollTo(0, 0)",
);
await page.screenshot({ path: join(ROOT, 'docs', 'images', 'page.png') });
await rm(folder, { recursive: true });
await browser.close();
