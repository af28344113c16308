import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, onTestFinished, test } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { containerRuntime } from '../../bench/containerfile.ts';
import { VERBS } from '../../src/cli/commands.ts';
import { greeting } from '../../src/cli/serve.ts';
import { isLingerObject, parseDocument } from '../../src/core/api/index.ts';
import { decide, workloadOf } from '../../src/core/decision/index.ts';
import { readPolicies } from '../../src/policy-files/index.ts';
import { answerDecision } from '../../src/webhook/answer.ts';
import { type Review, readReview } from '../../src/webhook/review.ts';
import { EMPTY_SNAPSHOT } from '../core/decision/sample-snapshot.ts';
import { type Block, blocksOf, filesUnder, PAGES, ROOT, read, tableUnder } from './markdown.ts';

const run = promisify(execFile);
const blocks = PAGES.flatMap(blocksOf);
const inLanguage = (language: string) =>
  blocks
    .filter((block) => block.language === language)
    .map((block) => ({ ...block, at: `${block.page}:${block.line}` }));

function objectsOf(text: string): readonly Record<string, unknown>[] {
  return parseAllDocuments(text).map((document) => {
    if (document.errors[0] !== undefined) throw document.errors[0];
    return document.toJS() as Record<string, unknown>;
  });
}

describe('YAML on the pages', () => {
  test.each(inLanguage('yaml'))('$at is valid, and its policies are', ({ at, text }) => {
    for (const object of objectsOf(text)) {
      expect(object).toBeTypeOf('object');
      if (isLingerObject(object)) parseDocument(object, at);
    }
  });

  test.each(inLanguage('json'))('$at is JSON', ({ text }) => {
    expect(() => JSON.parse(text) as unknown).not.toThrow();
  });

  test('the page of policies leads to each example file', () => {
    const page = read('docs/reference/policies.md');
    expect(policyFiles.filter((path) => !page.includes(`(../${path.replace(/^docs\//, '')})`))).toEqual([]);
  });
});

interface ShownContainer {
  readonly image: string;
  readonly command?: readonly string[];
  readonly args?: readonly string[];
}

describe('containers of Linger’s image on the pages', () => {
  const shown = inLanguage('yaml').flatMap(({ at, text }) =>
    objectsOf(text)
      .flatMap(({ containers }) => (containers ?? []) as readonly ShownContainer[])
      .filter(({ image }) => /\/linger[:@]/.test(image))
      .map((container) => ({ at, ...container })),
  );

  test('are shown', () => expect(shown).not.toEqual([]));

  test.each(shown)('$at runs', { timeout: 30_000 }, async ({ command = [], args = [] }) => {
    const { nodeFlags, program } = containerRuntime(ROOT);
    // Without a command the image serves, whatever the arguments say.
    expect(command).toEqual(['node', ...nodeFlags, program]);
    const words = [...nodeFlags, 'src/main.ts', ...args, '--listen=127.0.0.1:0'];
    const started = spawn(process.execPath, words, { cwd: ROOT });
    onTestFinished(() => void started.kill());
    const [said] = (await once(started.stderr, 'data')) as [Buffer];
    expect(said.toString()).toMatch(/^listening on 127\.0\.0\.1:\d+; /);
  });
});

const policyFiles = filesUnder('docs/examples/policies');
const manifests = filesUnder('docs/examples').filter(
  (path) => path.endsWith('.yaml') && !policyFiles.includes(path),
);

describe('docs/examples', () => {
  test.each(policyFiles)('%s is a file of policies', async (path) => {
    const { clusterPolicies, policies, consumers } = await readPolicies(join(ROOT, path));
    expect([...clusterPolicies, ...policies, ...consumers]).not.toEqual([]);
  });

  test('the policies can be used together', async () => {
    expect((await readPolicies(join(ROOT, 'docs/examples/policies'))).clusterPolicies).not.toEqual([]);
  });

  test.each(manifests)('%s has a workload', (path) => {
    expect(objectsOf(read(path)).some((object) => workloadOf(object) !== undefined)).toBe(true);
  });

  test('nothing else lies there but the recorded review', () => {
    const others = filesUnder('docs/examples').filter(
      (path) => ![...policyFiles, ...manifests].includes(path),
    );
    expect(others).toEqual(['docs/examples/review.json']);
  });
});

describe('the README', () => {
  test('shows what npm start prints', () => {
    const { port, adminPort, host, certs } = VERBS.serve.flags;
    const settings = { host: host.fallback ?? '', certs: certs.fallback ?? '' };
    const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> };
    const [, pagePort] = / --page-port (\d+)$/.exec(scripts.start ?? '') ?? [];
    const page = `http://127.0.0.1:${pagePort}/`;
    const printed = greeting(settings, {
      port: Number(port.fallback),
      adminPort: Number(adminPort.fallback),
      ownAuthority: true,
      page,
    });
    const shown = blocksOf('README.md').map(({ text }) => text.trim());
    expect(shown).toContain(printed.trim());
  });

  test('shows the patch that the pasted line prints', () => {
    const { review } = readReview(Buffer.from(read('docs/examples/review.json'))) as Review;
    const { patch = '' } = answerDecision(review.uid, review.object, decide(review, EMPTY_SNAPSHOT), {
      auditWarnings: false,
    });
    const shown = blocksOf('README.md').find(({ language }) => language === 'json');
    expect(JSON.parse(shown?.text ?? '')).toEqual(JSON.parse(Buffer.from(patch, 'base64').toString()));
  });

  const PREFIX = 'npm run --silent linger -- ';
  // Those of a live cluster are held to what is printed by tests of their own.
  const runnable = ['README.md', 'docs/try.md'].flatMap(blocksOf).flatMap((block, index, all) => {
    const next: Block | undefined = all[index + 1];
    const shown =
      block.language === 'sh' &&
      block.text.startsWith(PREFIX) &&
      !/ (watch|diagnose)\b/.test(block.text) &&
      next?.language === 'text';
    return shown ? [{ command: block.text.slice(PREFIX.length).trim(), output: next.text }] : [];
  });

  test('shows commands with their output', () => expect(runnable.length).toBeGreaterThanOrEqual(2));

  // What npm would run, without npm: it is as much again in time, and the script is checked below.
  test.each(runnable)('$command prints what is shown', async ({ command, output }) => {
    const { stdout } = await run(process.execPath, ['src/main.ts', ...command.split(/\s+/)], { cwd: ROOT });
    expect(stdout).toBe(output);
  });

  test('the script behind these commands is the program', () => {
    const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> };
    expect(scripts.linger).toBe('node src/main.ts');
  });
});

test('every message of the log is documented, except that a failure is over', () => {
  const calls = filesUnder('src')
    .filter((path) => path.endsWith('.ts') && !path.endsWith('telemetry/log-once.ts'))
    .flatMap((path) => [
      ...read(path).matchAll(/(?:logger|once)\.(?:debug|info|warn|error)\(([\s\S]*?)\)[;,]\n/g),
    ]);
  const messages = calls.map(([, args]) => /'([^']+)',?\s*$/.exec(args ?? '')?.[1]);
  const rows = tableUnder('docs/reference/logs.md', 'Logs');
  const documented = rows.map((row) => row['`msg`']?.replaceAll('`', ''));
  expect([...new Set(messages)].toSorted()).toEqual(documented.toSorted());
});
