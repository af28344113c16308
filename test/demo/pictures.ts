import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { ROOT } from '../cli/built.ts';
import { startBrowser } from '../page/browser.ts';

// node test/demo/pictures.ts ADDRESS: docs/images of what `linger dashboard --demo` shows at that address.
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
await browser.close();
