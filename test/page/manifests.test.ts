import { mkdtempSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { gzipSync } from 'node:zlib';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildPage } from '../../deploy/build-page.ts';
import { openPage } from '../../src/cli/open-page.ts';
import { close } from '../../src/webhook/index.ts';
import { CHROMIUM, expectAccessible, LOOKS, startBrowser, tabTo, windowOf } from './browser.ts';

const folder = mkdtempSync(join(tmpdir(), 'page-'));
const file = join(folder, 'index.html');
const SHOTS = process.env.SHOTS;

const SERVICE = (name: string) =>
  `---\napiVersion: v1\nkind: Service\nmetadata: {name: ${name}, namespace: team}\nspec: {selector: {app: ${name}}, ports: [{port: 80}]}\n`;
const DEPLOYMENT = (name: string) => `---
apiVersion: apps/v1
kind: Deployment
metadata: {name: ${name}, namespace: team}
spec:
  replicas: 3
  template:
    metadata: {labels: {app: ${name}}}
    spec:
      containers:
        - name: app # mine
          image: app
          ports: [{containerPort: 8080}]
`;
const MINE = DEPLOYMENT('mine') + SERVICE('mine');

beforeAll(() => buildPage(folder), 60_000);

it('is one file of at most 150 KB, compressed', async () => {
  expect(gzipSync(await readFile(file), { level: 9 }).length).toBeLessThanOrEqual(150_000);
});

describe.runIf(CHROMIUM !== undefined)('the page, from a disk', { timeout: 60_000 }, () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await startBrowser();
  }, 60_000);
  afterAll(() => browser?.close());

  const headline = (page: Page) => page.locator('.headline');
  const manifests = (page: Page) => page.locator('#text-manifests');
  const opened = async (options: Parameters<typeof windowOf>[1] & { readonly hash?: string } = {}) => {
    const opened = await windowOf(browser, options);
    await opened.page.goto(`${pathToFileURL(file).href}${options.hash ?? ''}`);
    await headline(opened.page).waitFor();
    return opened;
  };
  /** At once: what the browser inserts itself takes it minutes for so much. */
  const put = (page: Page, text: string) =>
    page.evaluate(
      `(() => { const field = document.getElementById('text-manifests'); field.value = ${JSON.stringify(text)}; field.dispatchEvent(new Event('input', { bubbles: true })); })()`,
    );
  const says = (page: Page, text: string | RegExp) =>
    expect.poll(() => headline(page).textContent(), { timeout: 30_000 }).toMatch(text);
  const row = (page: Page, name: string) => page.getByRole('button', { name, exact: true });

  it('says which workloads lose requests after pasting, and gives the patch, without any request', async () => {
    const { page, asked, wrong } = await opened();
    const before = asked.length;
    await manifests(page).fill(MINE + DEPLOYMENT('other'));
    await says(page, '1 of 2 loses requests when it rolls; of 1 it is not known');
    await row(page, 'team/mine').click();
    const patch = page.locator('.patch');
    await patch.waitFor();
    const added = await patch.locator('.added').allTextContents();
    expect(added.join('')).toContain('+                seconds: 30');
    expect(await patch.textContent()).toContain('- name: app # mine');
    const [saved] = await Promise.all([
      page.waitForEvent('download'),
      patch.getByRole('button', { name: 'Download' }).first().click(),
    ]);
    expect(saved.suggestedFilename()).toBe('mine.yaml');
    expect(await readFile(await saved.path(), 'utf8')).toContain('terminationGracePeriodSeconds: 60');
    expect(await page.locator('.timeline .lost').count()).toBeGreaterThan(0);
    // The download is of a blob: nothing else is asked for.
    expect(asked.slice(before).filter((url) => !url.startsWith('blob:'))).toEqual([]);
    expect(wrong).toEqual([]);
  });

  it('reaches nothing: connections are refused by its own policy', async () => {
    const { page } = await opened();
    const tried = "fetch('http://127.0.0.1:1/').then(() => 'sent', (error) => error.message)";
    expect(await page.evaluate(tried)).toMatch(/Refused|violates|Failed to fetch/);
    const violated = await page.evaluate<string>(
      "new Promise((done) => { document.addEventListener('securitypolicyviolation', ({effectiveDirective}) => done(effectiveDirective)); fetch('http://127.0.0.1:1/').catch(() => undefined); })",
    );
    expect(violated).toBe('connect-src');
  });

  it('a bad manifest gets its line and the reason', async () => {
    const { page } = await opened();
    await manifests(page).fill('apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [}\n');
    await page.getByRole('button', { name: 'Line 4' }).click();
    expect(await page.locator('.problems li').first().textContent()).toMatch(/^Line 4.{10,}/);
    const selected = await page.evaluate(
      "(({value, selectionStart, selectionEnd}) => value.slice(selectionStart, selectionEnd))(document.getElementById('text-manifests'))",
    );
    expect(selected).toBe('spec: {containers: [}');
  });

  it('what has no effect as it stands is said at its line', async () => {
    const { page } = await opened();
    const misspelt = DEPLOYMENT('new').replace('Deployment', 'Deployent').replace('team', 'other');
    const text = `${MINE}${SERVICE('lone')}${misspelt}`;
    await manifests(page).fill(text);
    await page
      .locator('#text-policies')
      .fill(
        'apiVersion: linger.dev/v1alpha1\nkind: ClusterTerminationPolicy\nmetadata: {name: idle}\nspec: {podSelector: {matchLabels: {app: none}}}\n',
      );
    await page.getByText('ClusterTerminationPolicy/idle selects none of these workloads').waitFor();
    const said = await page.locator('.problems li').allTextContents();
    expect(said).toEqual([
      expect.stringMatching(
        /^Line \d+new: there is no apps\/v1 Deployent: is Deployment of apps\/v1 meant\?/,
      ),
      expect.stringMatching(/^Line \d+Service team\/lone \(app=lone\): no pod here has these labels/),
      expect.stringMatching(/^Line 1Cluster/),
    ]);
    await manifests(page).fill(SERVICE('lone'));
    await says(page, 'No workload among 1 object: add the Deployments that belong to them.');
  });

  it('an example takes the place of what was pasted, and undo brings that back', async () => {
    const { page } = await opened();
    await manifests(page).fill(MINE);
    await page.getByRole('button', { name: 'Nothing to wait for' }).click();
    await says(page, /fine|^0 of/);
    expect(await manifests(page).inputValue()).not.toBe(MINE);
    await manifests(page).focus();
    await page.keyboard.press('Control+z');
    expect(await manifests(page).inputValue()).toBe(MINE);
    await says(page, '1 of 1 loses requests');
  });

  it('a large paste is taken at once, and undo brings back what stood there', async () => {
    const { page } = await opened();
    await manifests(page).fill(MINE);
    const text = Array.from({ length: 400 }, (_, each) => DEPLOYMENT(`web-${each}`)).join('');
    await manifests(page).selectText();
    await page.evaluate(
      `(() => { const clipboardData = new DataTransfer(); clipboardData.setData('text/plain', ${JSON.stringify(text)}); document.getElementById('text-manifests').dispatchEvent(new ClipboardEvent('paste', { clipboardData, bubbles: true, cancelable: true })); })()`,
    );
    await says(page, 'of 400');
    expect(await manifests(page).inputValue()).toBe(text);
    await page.keyboard.press('Control+z');
    await expect.poll(() => manifests(page).inputValue()).toBe(MINE);
  });

  it('dropped files are judged, and each is said to be something', async () => {
    const { page } = await opened();
    const data = await page.evaluateHandle(
      `(() => { const data = new DataTransfer(); for (const [name, text] of Object.entries(${JSON.stringify({ 'web.yaml': MINE, 'logo.png': 'x', 'bad.yaml': 'a: [' })})) data.items.add(new File([text], name)); return data; })()`,
    );
    await page.locator('main').dispatchEvent('drop', { dataTransfer: data });
    await page.getByText('web.yaml: 1 workload').waitFor();
    await says(page, '1 of 1 loses requests when it rolls');
    const taken = await page.locator('.taken').innerText();
    expect(taken).toMatch(/web\.yaml: 1 workload, 1 other object/);
    expect(taken).toMatch(/another file: not \*\.yaml/);
    expect(taken).toMatch(/bad\.yaml/);
  });

  it('a link carries the input without the values of variables, and opens to the same', async () => {
    const { page } = await opened();
    await manifests(page).fill(
      MINE.replace('image: app\n', 'image: app\n          env: [{name: P, value: hunter2}]\n'),
    );
    await says(page, '1 of 1');
    await page.getByRole('button', { name: 'Copy a link' }).click();
    await page.getByText('Copied, without').waitFor();
    // Asked of the page: the browser reports an address that changes without a navigation only later.
    const hash = await page.evaluate<string>('location.hash');
    expect(hash).not.toBe('');
    const other = await opened({ hash });
    await says(other.page, '1 of 1 loses requests when it rolls');
    expect(await manifests(other.page).inputValue()).toContain('name: mine');
    expect(await manifests(other.page).inputValue()).not.toContain('hunter2');
  });

  it('a link that would be too long is refused with its size', async () => {
    const { page } = await opened();
    const noise = Array.from({ length: 3_000 }, (_, each) =>
      DEPLOYMENT(`web-${(each * 7919) % 99_991}-${(each * 104_729) % 99_991}`),
    );
    await put(page, noise.join(''));
    await says(page, 'of 3000');
    await page.getByRole('button', { name: 'Copy a link' }).click();
    await page.getByText(/Too long for a link: [\d,]+ characters/).waitFor();
    expect(await page.evaluate('location.hash')).toBe('');
  });

  it('what a policy would do: before and after, Audit first, for these namespaces', async () => {
    const { page, wrong } = await opened();
    await manifests(page).fill(MINE);
    await says(page, '1 of 1');
    await page.getByText('What if a policy said otherwise?').click();
    const table = page.locator('.what-if table');
    await table.getByRole('row', { name: /Workloads protected\s*0\s*1/ }).waitFor();
    const audit = await page.locator('.what-if pre').first().textContent();
    expect(audit).toContain('mode: Audit');
    expect(audit).toContain('- team');
    expect(wrong).toEqual([]);
  });

  it('what Hold would be is said as such: in a cluster where it runs', async () => {
    const { page, wrong } = await opened();
    await manifests(page).fill(MINE);
    await says(page, '1 of 1');
    await page.getByText('What if a policy said otherwise?').click();
    await page.getByRole('button', { name: 'Hold', exact: true }).click();
    await page.getByText('What it would be in a cluster where Linger runs with Hold').waitFor();
    await expect
      .poll(() => page.locator('.what-if pre').last().textContent())
      .toMatch(/mode: Enforce[\s\S]*hook: Hold\n {2}hold:\n {4}max: "60s"/);
    await page
      .locator('.what-if table')
      .getByRole('row', { name: /Added to the drain of a node, at most.*60 s$/ })
      .waitFor();
    await expectAccessible(page);
    expect(wrong).toEqual([]);
  });

  it('below a row that loses requests nothing says that its pods wait, and a row has an address', async () => {
    const { page } = await opened({ hash: '#Deployment/team/mine' });
    await manifests(page).fill(MINE);
    await page.locator('.patch').waitFor();
    expect(await page.locator('[aria-expanded=true]').textContent()).toBe('team/mine');
    expect(await page.locator('.detail .verdict').textContent()).toMatch(/Would wait with this patch/);
    expect(await page.locator('.detail .verdict.good').count()).toBe(0);
    await manifests(page).fill(MINE.replace('replicas: 3', 'replicas: 3\n  strategy: {type: Recreate}'));
    await page.getByText('A wait alone does not end the loss').waitFor();
    expect(await page.locator('.timeline').textContent()).not.toContain('everything has dropped the pod');
    await page.keyboard.press('Escape');
    await expect.poll(() => page.evaluate('location.hash')).toBe('');
  });

  it('the keyboard alone: / searches, arrows go through the rows, Esc closes', async () => {
    const { page } = await opened();
    await manifests(page).fill(['mine', 'b', 'c'].map((name) => DEPLOYMENT(name) + SERVICE(name)).join(''));
    await says(page, '3 of 3');
    await tabTo(page, 'Copy a link to this');
    await page.keyboard.press('/');
    await page.keyboard.type('team deployment');
    await expect.poll(() => page.locator('[data-row]').count()).toBe(3);
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Enter');
    await page.locator('.patch').waitFor();
    expect(await page.locator('[aria-expanded=true]').textContent()).toBe('team/c');
    await page.keyboard.press('Escape');
    await page.locator('.patch').waitFor({ state: 'detached' });
  });

  it('hostile names are text', async () => {
    const { page, asked, wrong } = await opened();
    const name = '<img src=https://attacker.example/x onerror=alert(1)>\u202eabc';
    const before = asked.length;
    await manifests(page).fill(
      `apiVersion: v1\nkind: Pod\nmetadata: {name: "${name}"}\nspec: {containers: [{name: "${'x'.repeat(253)}", ports: [{containerPort: 1}]}]}\n`,
    );
    await page.locator('.workloads').getByText('<img src=').first().waitFor();
    await page.locator('[data-row]').first().click();
    await page.locator('.patch').waitFor();
    expect(await page.locator('main img').count()).toBe(0);
    expect(asked.slice(before)).toEqual([]);
    expect(await page.evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true);
    expect(wrong).toEqual([]);
  });

  it.each(LOOKS)(
    '%s, %i px wide: axe finds nothing, and nothing is cut off',
    { timeout: 60_000 },
    async (colorScheme, width) => {
      const { page } = await opened({ colorScheme, width });
      await manifests(page).fill(`${MINE}${DEPLOYMENT('other')}---\na: [\n`);
      await says(page, 'of 2');
      await row(page, 'team/mine').click();
      await page.locator('.patch').waitFor();
      await page.getByText('The same by a policy').click();
      await page.getByText('Where each value comes from').click();
      await page.getByText('What if a policy said otherwise?').click();
      await page.locator('.what-if table').waitFor();
      await expectAccessible(page);
      expect(await page.evaluate('document.documentElement.scrollWidth - innerWidth')).toBeLessThanOrEqual(0);
      if (SHOTS !== undefined)
        await page.screenshot({ path: `${SHOTS}/manifests-${colorScheme}-${width}.png`, fullPage: true });
    },
  );

  it('npm start serves the same page, with no token', async () => {
    const { server, address } = await openPage(0, (error) => expect.fail(error.message));
    try {
      const { page, asked, wrong } = await windowOf(browser);
      await page.goto(address);
      await manifests(page).fill(MINE);
      await says(page, '1 of 1 loses requests when it rolls');
      expect(asked.filter((url) => !url.startsWith('blob:'))).toEqual([address]);
      expect(wrong).toEqual([]);
    } finally {
      await close(server);
    }
  });
});
