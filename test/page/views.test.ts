import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { LingerError } from '../../src/core/api/index.ts';
import { type Answers, readDashboardAssets, type Topic } from '../../src/dashboard/index.ts';
import { startDashboard } from '../cli/dashboards.ts';
import { CHROMIUM, expectAccessible, LOOKS, startBrowser, tabTo, windowOf } from './browser.ts';
import { sampleSources } from './sample-views.ts';
import { servePage, TOKEN } from './served.ts';

const VIEWS = {
  Now: '/now',
  Workloads: '/workloads',
  'A termination': '/timeline',
  Lag: '/lag',
  'What if': '/what-if?hook=Hold',
  Consumers: '/consumers',
};
/** What answers each view’s question: a topic of events, too. */
const SOURCES = ['now', 'workloads', 'timeline', 'lag', 'whatIf', 'consumers'] as const;
const BEGUN = '.headline';
const folder = process.env.SHOTS;

const pathOf = (source: (typeof SOURCES)[number]) => (source === 'whatIf' ? '/what-if' : `/${source}`);

/** Markup, another direction of reading, and as long as names may be. */
const hostile = (name: string) =>
  `${name}<img src=https://attacker.example/x onerror=alert(1)>\u202e${'x'.repeat(190)}`;

describe.runIf(CHROMIUM !== undefined)('each view', () => {
  let browser: Browser;
  let files: Awaited<ReturnType<typeof readDashboardAssets>>;
  /** The recording of a cluster. */
  let demo: URL;
  const ends: (() => unknown)[] = [];
  beforeAll(async () => {
    files = await readDashboardAssets();
    browser = await startBrowser();
    const { address } = await startDashboard(['--demo'], (end) => void ends.push(end));
    demo = new URL(address);
  }, 60_000);
  afterAll(async () => {
    for (const end of ends) await end();
    await browser?.close();
  });

  const served = async (sources: Answers) => {
    const listeners = new Set<(topic: Topic) => void>();
    const follow = (changed: (topic: Topic) => void) => {
      listeners.add(changed);
      return () => void listeners.delete(changed);
    };
    const page = await servePage({ ...sources, follow }, files);
    const changed = (topic: Topic) => {
      for (const listener of listeners) listener(topic);
    };
    return { ...page, changed };
  };
  const open = async (page: Page, address: string) => {
    await page.goto(`${address}#token=${TOKEN}`);
    await page.locator(BEGUN).first().waitFor();
  };
  const expectWithin = async (page: Page) =>
    expect(await page.evaluate('document.documentElement.scrollWidth - innerWidth')).toBeLessThanOrEqual(0);

  it.each(LOOKS)(
    '%s, %i px: axe finds nothing, nothing is cut off',
    { timeout: 120_000 },
    async (colorScheme, width) => {
      const { page, wrong } = await windowOf(browser, { colorScheme, width });
      for (const [name, path] of Object.entries(VIEWS)) {
        await page.goto(new URL(path, demo).href + demo.hash);
        await page.locator(BEGUN).first().waitFor();
        await page.getByText('Recording, not your cluster:').waitFor();
        if (name === 'Workloads') await page.locator('[aria-expanded=false]').first().click();
        await expectAccessible(page);
        await expectWithin(page);
        if (folder !== undefined)
          await page.screenshot({ path: `${folder}/${name}-${colorScheme}-${width}.png`, fullPage: true });
      }
      expect(wrong).toEqual([]);
    },
  );

  it.each([
    [320, 'dark'],
    [1280, 'light'],
  ] as const)('%i px, %s: hostile names are text', { timeout: 120_000 }, async (width, colorScheme) => {
    const { at } = await served(sampleSources(hostile));
    const { page, asked, wrong } = await windowOf(browser, { width, colorScheme });
    for (const [name, path] of Object.entries(VIEWS)) {
      await open(page, `${at}${path}`);
      if (name === 'Workloads') {
        await page.locator('[aria-expanded=false]').first().click();
        await page.getByText('Where each value comes from').click();
      }
      await page.getByText('<img src=').first().waitFor({ state: 'attached' });
      expect(await page.locator('main img').count()).toBe(0);
      expect(await page.locator('body').textContent()).not.toContain('\u202e');
      await expectWithin(page);
      await expectAccessible(page);
      if (folder !== undefined)
        await page.screenshot({ path: `${folder}/hostile-${name}-${width}.png`, fullPage: true });
    }
    expect(asked.filter((url) => !url.startsWith(at))).toEqual([]);
    expect(wrong).toEqual([]);
  });

  it.each(SOURCES)('%s: shows what has changed without being asked', async (source) => {
    const sources = sampleSources();
    let times = 0;
    const counted = async (...args: never[]) => {
      times += 1;
      return await (sources[source] as (...args: never[]) => Promise<object>)(...args);
    };
    const { at, changed } = await served({ ...sources, [source]: counted });
    const { page } = await windowOf(browser);
    await open(page, `${at}${pathOf(source)}`);
    const before = times;
    // The stream of events is opened beside the first answer.
    await expect
      .poll(() => {
        changed(source === 'whatIf' ? 'what-if' : source);
        return times;
      })
      .toBeGreaterThan(before);
    expect(await page.getByRole('alert').count()).toBe(0);
  });

  it.each(SOURCES)('%s: without a right, says which one is missing', async (source) => {
    const message =
      'pods is forbidden: User "dev" cannot list resource "pods"; ClusterRole linger-view has it';
    const denied = () => Promise.reject(new LingerError('cluster-denied', message));
    const { at } = await served({ ...sampleSources(), [source]: denied });
    const { page } = await windowOf(browser);
    await page.goto(`${at}${pathOf(source)}#token=${TOKEN}`);
    await page.getByRole('alert').getByText('ClusterRole linger-view').waitFor();
    await expectAccessible(page);
  });

  it('another site in the same browser can neither read nor trigger anything', async () => {
    let trials = 0;
    const whatIf: Answers['whatIf'] = async (fields) => {
      trials += 1;
      return sampleSources().whatIf!(fields);
    };
    const { at } = await served({ ...sampleSources(), whatIf });
    const api = `${at}/api/v1/`;
    const other = createServer(
      (_request, response) => void response.setHeader('content-type', 'text/html').end('<p>'),
    );
    other.listen(0, '127.0.0.1');
    await once(other, 'listening');
    onTestFinished(() => void other.close());
    const { page } = await windowOf(browser);
    await page.goto(`http://localhost:${(other.address() as AddressInfo).port}/`);
    // Even with the token, as if it had been seen over a shoulder.
    const attempts = {
      read: `fetch('${api}now', {headers: {Authorization: 'Bearer ${TOKEN}'}}).then((answer) => answer.text())`,
      blindly: `fetch('${api}now', {mode: 'no-cors'}).then((answer) => answer.text())`,
      trigger: `fetch('${api}what-if?from=Fixed&fixed=1s', {mode: 'no-cors'}).then((answer) => answer.text())`,
      script: `new Promise((done, fail) => { const it = Object.assign(document.createElement('script'), {src: '${api}now', onload: done, onerror: fail}); document.body.append(it); })`,
      frame: `new Promise((done) => { const it = Object.assign(document.createElement('iframe'), {src: '${at}/', onload: () => done(it.contentDocument?.body.textContent ?? 'blocked')}); document.body.append(it); })`,
    };
    const outcome = async (attempt: string) =>
      page.evaluate<string>(`Promise.resolve(${attempt}).then((text) => String(text), () => 'refused')`);
    expect(await outcome(attempts.read)).toBe('refused');
    expect(['', 'refused']).toContain(await outcome(attempts.blindly));
    expect(['', 'refused']).toContain(await outcome(attempts.trigger));
    expect(await outcome(attempts.script)).toBe('refused');
    expect(await outcome(attempts.frame)).toBe('blocked');
    expect(trials).toBe(0);
  });

  it('the keyboard alone opens each, and Back returns', { timeout: 120_000 }, async () => {
    const { at } = await served(sampleSources());
    const { page, wrong } = await windowOf(browser);
    await open(page, at);
    for (const name of Object.keys(VIEWS)) {
      await tabTo(page, name);
      await page.keyboard.press('Enter');
      await expect.poll(() => page.title()).toBe(`${name} · Linger`);
      await page.locator(BEGUN).first().waitFor();
      // What has the focus can be seen.
      expect(await page.evaluate('getComputedStyle(document.activeElement).outlineStyle')).not.toBe('none');
      await CHOICES[name]?.(page);
      // Back to the top, as a new page would begin.
      await page.evaluate('document.activeElement?.blur()');
    }
    await page.locator(BEGUN).first().waitFor();
    await page.goBack();
    await expect.poll(() => page.title()).toBe('What if · Linger');
    expect(wrong).toEqual([]);
  });

  it('a view that is open already starts anew, and Back returns to what was chosen', async () => {
    const { at } = await served(sampleSources());
    const { page } = await windowOf(browser);
    await open(page, `${at}/workloads?search=web`);
    const search = page.getByRole('searchbox');
    expect(await search.inputValue()).toBe('web');
    await page.getByRole('link', { name: 'Workloads', exact: true }).click();
    await expect.poll(() => search.inputValue()).toBe('');
    await page.goBack();
    await expect.poll(() => search.inputValue()).toBe('web');
  });

  it('tabs that are not looked at follow nothing, and catch up', async () => {
    const sources = sampleSources();
    let [following, asked] = [0, 0];
    const now = async () => {
      asked += 1;
      return await sources.now!();
    };
    const follow: Answers['follow'] = () => {
      following += 1;
      return () => {
        following -= 1;
      };
    };
    const { at } = await servePage({ ...sources, now, follow }, files);
    const { page } = await windowOf(browser);
    await open(page, `${at}/now`);
    const look = (hidden: boolean) =>
      page.evaluate(
        `Object.defineProperty(document, 'hidden', { value: ${hidden}, configurable: true }); document.dispatchEvent(new Event('visibilitychange'))`,
      );
    await expect.poll(() => following).toBe(1);
    await look(true);
    await expect.poll(() => following).toBe(0);
    const before = asked;
    await look(false);
    await expect.poll(() => [following, asked > before]).toEqual([1, true]);
  });

  it('what is sorted by is said and shown, and a phone can sort, too', async () => {
    const { at } = await served(sampleSources());
    const { page } = await windowOf(browser, { width: 390 });
    await open(page, `${at}/workloads`);
    await page.getByRole('button', { name: 'Workload', exact: true }).click();
    await page.waitForURL(/sort=name/);
    expect(await page.locator('[aria-sort]').getAttribute('aria-sort')).toBe('ascending');
    const names = () => page.locator('tbody th button').allTextContents();
    const ascending = await names();
    await page.getByRole('button', { name: 'Workload', exact: true }).click();
    await page.waitForURL(/sort=-name/);
    await expect.poll(names).toEqual(ascending.toReversed());
    expect(await page.locator('[aria-sort]').getAttribute('aria-sort')).toBe('descending');
    await expectAccessible(page);
    await expectWithin(page);
  });

  it('pictures are read by keyboard and by pointing, and a mark leads to its termination', async () => {
    const { at } = await served(sampleSources());
    const { page } = await windowOf(browser);
    for (const [path, words] of [
      ['/now', /shop\/web-1 of Deployment\/web, .* sent to for 9 s: sent after SIGTERM/],
      ['/lag', /: \d+ removals? with a lag of /],
      ['/what-if?hook=Hold', /^within .*: all removals /],
    ] as const) {
      await open(page, `${at}${path}`);
      const picture = page.getByRole('slider').and(page.locator('[aria-valuetext]')).first();
      await picture.focus();
      await page.keyboard.press('End');
      const text = await picture.getAttribute('aria-valuetext');
      expect(text).toMatch(words);
      expect(await page.locator('.readout').first().textContent()).toBe(text);
      await expectAccessible(page);
    }
    await open(page, `${at}/now`);
    const marks = page.getByRole('slider');
    await marks.hover({ position: { x: 300, y: 40 } });
    expect(await page.locator('.readout').textContent()).toMatch(/SIGTERM after/);
    await marks.focus();
    await page.keyboard.press('End');
    await page.keyboard.press('Enter');
    await page.waitForURL(/timeline\?pod=u2/);
    expect(await page.locator('[aria-current=true]').textContent()).toContain('web-2');
  });

  it('the termination that opens is the one that the headline is about, and words search in any order', async () => {
    const { at } = await served(sampleSources());
    const { page } = await windowOf(browser);
    await open(page, `${at}/timeline`);
    expect(await page.locator(BEGUN).textContent()).toMatch(/^1 of the last 3 pods may have been sent/);
    expect(await page.locator('tr[aria-current=true]').textContent()).toContain('sent after SIGTERM');
    await page.getByRole('searchbox').fill('deployment/WEB shop/ web-1');
    await expect.poll(() => page.locator('.workloads tbody tr').count()).toBe(1);
  });

  it('what Now counts leads to its terminations', async () => {
    const { at } = await served(sampleSources());
    const { page } = await windowOf(browser);
    await open(page, `${at}/now`);
    await page.getByRole('link', { name: 'shop/Deployment/web' }).click();
    await page.locator('.workloads tbody tr').first().waitFor();
    const shown = await page.locator('.workloads tbody tr').allTextContents();
    expect(shown).toEqual([expect.stringContaining('sent after SIGTERM')]);
  });

  it('a row has a short address, which opens it', async () => {
    const { at } = await served(sampleSources());
    const { page } = await windowOf(browser);
    await open(page, `${at}/workloads`);
    await page.getByRole('button', { name: 'shop/web', exact: true }).click();
    await page.waitForURL(`${at}/workloads#Deployment/shop/web`);
    await page.getByText('Where each value comes from').waitFor();
    await page.reload();
    await page.locator('.timeline svg').waitFor();
    // With the token of a run before it, too, and where a search hides it.
    await page.goto(`${at}/workloads?search=nothing#token=${TOKEN}&DaemonSet/shop/node-agent`);
    await page.locator('[aria-expanded=true]').getByText('shop/node-agent').waitFor();
    expect(page.url()).toBe(`${at}/workloads?search=nothing#DaemonSet/shop/node-agent`);
  });

  it.each([1280, 390])('%i px: waits close to each other can be told apart', async (width) => {
    const { lag, ...others } = sampleSources();
    const waits = [15, 16, 18].map((seconds) => ({ seconds, namespaces: 3, covered: 0.99 }));
    const { at } = await served({
      ...others,
      lag: async (scope) => {
        const report = await lag!(scope);
        return report && { ...report, waits };
      },
    });
    const { page } = await windowOf(browser, { width });
    await open(page, `${at}/lag`);
    const boxes = await page
      .locator('.curve .wait text')
      .evaluateAll((texts) =>
        texts.map((text) => text.getBoundingClientRect().toJSON() as Record<'top' | 'bottom', number>),
      );
    expect(boxes).toHaveLength(waits.length);
    const rows = boxes.toSorted((a, b) => a.top - b.top);
    for (const [index, { bottom }] of rows.entries())
      expect(bottom - 2).toBeLessThanOrEqual(rows[index + 1]?.top ?? bottom);
    await page.locator('.curve').getByText('90 %').waitFor();
  });

  it('in forced colours, and at 200 %, nothing is lost', { timeout: 120_000 }, async () => {
    const { at } = await served(sampleSources());
    // A window of 1280 px at 200 % has 640.
    const { page } = await windowOf(browser, { width: 640 });
    await page.emulateMedia({ forcedColors: 'active' });
    for (const [name, path] of Object.entries(VIEWS)) {
      await open(page, `${at}${path}`);
      await expectWithin(page);
      // Backgrounds are the system's there: what is chosen must differ by more.
      const outlines = await page.evaluate<readonly string[]>(
        "[...document.querySelectorAll('main [aria-pressed=true], tr[aria-current]')].map((each) => getComputedStyle(each).outlineStyle)",
      );
      expect(outlines.filter((style) => style !== 'solid')).toEqual([]);
      if (folder !== undefined)
        await page.screenshot({ path: `${folder}/forced-${name}.png`, fullPage: true });
    }
  });

  it('a server that ends while the page is open: what was shown stays, and the page says so', async () => {
    const { at, end } = await served({ ...sampleSources() });
    const { page } = await windowOf(browser);
    await open(page, `${at}/now`);
    end();
    await page.getByRole('alert').getByText('Linger does not answer').waitFor();
    expect(await page.locator(BEGUN).textContent()).toContain('3 of 41 lose requests');
  });

  it('a browser whose clock is an hour ahead shows the same spans', async () => {
    const { at } = await served(sampleSources());
    const { page } = await windowOf(browser);
    await page.clock.install({ time: new Date((await sampleSources().now?.())!.asOf * 1000 + 3_600_000) });
    await open(page, `${at}/now`);
    const oldest = page.locator('.oldest');
    expect(await oldest.textContent()).toMatch(/for 3 s$/);
    // While nothing new is answered, spans grow all the same.
    await page.clock.fastForward(60_000);
    await expect.poll(() => oldest.textContent()).toMatch(/for 6\d s$/);
    await open(page, `${at}/consumers`);
    expect(await page.locator('main').textContent()).not.toMatch(/\s-\d/);
  });
});

/** A choice that a user would make in each view, by keyboard. */
const CHOICES: Readonly<Record<string, (page: Page) => Promise<unknown>>> = {
  Workloads: async (page) => {
    await tabTo(page, 'shop/web');
    await page.keyboard.press('Enter');
    await tabTo(page, 'Where each value comes from');
    await page.keyboard.press('Enter');
    await page
      .locator('details')
      .getByRole('row', { name: /^wait\.from/ })
      .waitFor();
  },
  Lag: async (page) => {
    await tabTo(page, 'Day');
    await page.keyboard.press('Space');
    await page.waitForURL(/span=day/);
  },
  'What if': async (page) => {
    await tabTo(page, 'Hold');
    await page.keyboard.press('Enter');
    await page.getByText('Hold would have held half').waitFor();
    await page.keyboard.press('Tab');
    await page.keyboard.press('ArrowRight');
    await page.waitForURL(/holdMin=6/);
  },
};
