import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { gzipSync } from 'node:zlib';
import type { Page } from 'playwright-core';
import { buildPage } from '../deploy/build-page.ts';
import { CHROMIUM, startBrowser, windowOf } from '../test/page/browser.ts';
import { describeMachine } from './machine.ts';
import { median, table } from './statistics.ts';

// What the page for manifests takes in a real Chromium, from a disk: its size, its first paint, and how soon it answers.

const ROUNDS = 5;
/** A page that never answers ends the benchmark, and what was measured until then is printed. */
const LONGEST_MS = 120_000;

function deployment(name: string): string {
  return `---
apiVersion: apps/v1
kind: Deployment
metadata: {name: ${name}, namespace: team-${name.length}}
spec:
  replicas: 3
  template:
    metadata: {labels: {app: ${name}}}
    spec:
      containers:
        - name: app
          image: registry.example/app
          ports: [{containerPort: 8080}]
`;
}

/** A CustomResourceDefinition: most lines of a large install manifest are such schemas. */
function definition(name: string, fields: number): string {
  const field = (index: number) =>
    `          field${index}:\n            description: what the controller of ${name} does with it\n            type: string\n`;
  const schema = Array.from({ length: fields }, (_, index) => field(index)).join('');
  return `---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: ${name}.example.com}\nspec:\n  versions:\n  - name: v1\n    schema:\n      openAPIV3Schema:\n        properties:\n${schema}`;
}

const deployments = (count: number) =>
  Array.from({ length: count }, (_, index) => deployment(`web-${index}`)).join('');

const INPUTS = [
  { what: '1,000 lines', text: deployments(77), workloads: 77, targetMs: 100 },
  {
    what: 'an install manifest of 34,000 lines',
    text: definition('applications', 4_000) + definition('applicationsets', 7_000) + deployments(60),
    workloads: 60,
    targetMs: 2_000,
  },
  { what: '5,000 workloads', text: deployments(5_000), workloads: 5_000, targetMs: undefined },
] as const;

/** What comes into the text area, as an expression of the page. */
const typed = (text: string) =>
  `field.value = ${JSON.stringify(text)}; field.dispatchEvent(new Event('input', { bubbles: true }));`;
const pasted = (text: string) =>
  `field.select(); const clipboardData = new DataTransfer(); clipboardData.setData('text/plain', ${JSON.stringify(text)}); field.dispatchEvent(new ClipboardEvent('paste', { clipboardData, bubbles: true, cancelable: true }));`;

/** Milliseconds from the moment that the text changes until the headline is about it. */
function answered(page: Page, change: string, workloads: number): Promise<number> {
  const script = `(async () => {
    const field = document.getElementById('text-manifests');
    const begun = performance.now();
    ${change}
    while (!document.querySelector('.headline')?.textContent.startsWith('0 of ${workloads} '))
      await new Promise((next) => setTimeout(next, 2));
    return performance.now() - begun;
  })()`;
  return page.evaluate<number>(script);
}

/** Milliseconds until the caption has changed: words must match another number of workloads than those before. */
function searched(page: Page, words: string): Promise<number> {
  const script = `(async () => {
    const field = document.getElementById('search');
    const before = document.querySelector('.workloads caption').textContent;
    const begun = performance.now();
    field.value = ${JSON.stringify(words)};
    field.dispatchEvent(new Event('input', { bubbles: true }));
    while (document.querySelector('.workloads caption').textContent === before)
      await new Promise((next) => setTimeout(next, 2));
    return performance.now() - begun;
  })()`;
  return page.evaluate<number>(script);
}

const rows: string[][] = [['the page for manifests', 'target', 'median', 'longest', 'met']];

function times(what: string, all: readonly number[], targetMs?: number): void {
  const target = targetMs === undefined ? '–' : `${targetMs} ms`;
  const isMet = targetMs === undefined ? '–' : median(all) <= targetMs ? 'yes' : 'no';
  rows.push([what, target, `${median(all).toFixed(0)} ms`, `${Math.max(...all).toFixed(0)} ms`, isMet]);
}

async function measure(page: Page, file: string): Promise<void> {
  await page.goto(pathToFileURL(file).href);
  await page.locator('.headline').waitFor();
  for (const { what, text, workloads, targetMs } of INPUTS) {
    const all: number[] = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      await answered(page, typed(deployment('one')), 1);
      all.push(await answered(page, typed(text), workloads));
    }
    times(`${what}: judged after`, all, targetMs);
  }
  const searches: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    searches.push(await searched(page, `deployment web-${round + 1}`));
    await searched(page, '');
  }
  times('5,000 workloads: searched in', searches, 100);
  for (let pages = 0; pages < 4; pages += 1) {
    await page.getByRole('button', { name: /^Show / }).click();
    await sleep(150);
  }
  await page.evaluate(
    'window.tasks = []; new PerformanceObserver((list) => window.tasks.push(...list.getEntries().map(({duration}) => duration))).observe({type: "longtask"});',
  );
  await sleep(500);
  await page.evaluate('window.tasks.length = 0');
  for (let step = 0; step < 40; step += 1) {
    await page.mouse.wheel(0, step < 20 ? 600 : -600);
    await sleep(30);
  }
  const tasks = await page.evaluate<readonly number[]>('window.tasks');
  const longest = Math.max(0, ...tasks);
  const met = longest <= 100 ? 'yes' : 'no';
  rows.push(['500 rows are scrolled: tasks over 50 ms', '100 ms', `${tasks.length}`, `${longest} ms`, met]);
  // Each text has another number of workloads, so that the headline shows which one it is about.
  await answered(page, typed(deployments(338)), 338);
  const pastes: number[] = [];
  for (let round = 1; round <= ROUNDS; round += 1)
    pastes.push(await answered(page, pasted(deployments(338 + round)), 338 + round));
  times('4,400 lines pasted over as many: judged after', pastes, 500);
}

async function opened(browser: Awaited<ReturnType<typeof startBrowser>>, file: string): Promise<void> {
  const paints: number[] = [];
  const ready: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const { page } = await windowOf(browser);
    const begun = performance.now();
    await page.goto(pathToFileURL(file).href);
    await page.locator('.headline').waitFor();
    ready.push(performance.now() - begun);
    paints.push(
      await page.evaluate<number>("performance.getEntriesByName('first-contentful-paint')[0].startTime"),
    );
    await page.context().close();
  }
  times('first paint', paints, 500);
  times('an example is judged after', ready);
}

if (CHROMIUM === undefined) throw new Error('no Chromium is installed');
const folder = mkdtempSync(join(tmpdir(), 'linger-bench-'));
const browser = await startBrowser();
const ending = new AbortController();
try {
  console.log(describeMachine());
  await buildPage(folder);
  const file = join(folder, 'index.html');
  const kb = gzipSync(readFileSync(file), { level: 9 }).length / 1000;
  rows.push(['size, compressed', '150 KB', `${kb.toFixed(1)} KB`, '–', kb <= 150 ? 'yes' : 'no']);
  const tooLong = sleep(LONGEST_MS, undefined, { signal: ending.signal }).then(() => {
    throw new Error(`not done after ${LONGEST_MS / 1000} s`);
  });
  const measuring = async () => {
    await opened(browser, file);
    const { page } = await windowOf(browser);
    await measure(page, file);
  };
  await Promise.race([measuring(), tooLong]);
} finally {
  ending.abort();
  console.log(table(rows));
  await browser.close();
  rmSync(folder, { recursive: true, force: true });
}
