import { existsSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { describe, expect, test } from 'vitest';
import { anchorsOf, filesUnder, headingsOf, PAGES, proseOf, ROOT, read } from './markdown.ts';

/** The targets of links and images that stay inside the checkout. */
function targetsIn(text: string): readonly string[] {
  const targets = [...text.matchAll(/\]\(([^)\s]+)\)/g)].map(([, target]) => target ?? '');
  return targets.filter((target) => !/^[a-z]+:/.test(target));
}

const targetsOf = (page: string): readonly string[] => targetsIn(proseOf(page));

describe.each(PAGES)('%s', (page) => {
  const targets = targetsOf(page);

  test('every file that it links to is there', () => {
    const missing = targets
      .map((target) => place(page, target).path)
      .filter((path) => !existsSync(join(ROOT, path)));
    expect(missing).toEqual([]);
  });

  test('every heading that it links to is there', () => {
    const missing = targets.filter((target) => {
      const { path, anchor } = place(page, target);
      return anchor !== undefined && !anchorsOf(headingsOf(path)).includes(anchor);
    });
    expect(missing).toEqual([]);
  });

  test('no two headings share an anchor, so that no link leads to the wrong one', () => {
    const anchors = anchorsOf(headingsOf(page));
    expect(anchors.filter((anchor, index) => anchors.indexOf(anchor) !== index)).toEqual([]);
  });
});

test('every page and picture is linked to from another page', () => {
  const linked = new Set(PAGES.flatMap((page) => targetsOf(page).map((target) => place(page, target).path)));
  const orphans = filesUnder('docs')
    .filter((path) => path.endsWith('.md') || path.startsWith('docs/images/'))
    .filter((path) => !linked.has(path) && !linked.has(dirname(path)));
  expect(orphans).toEqual([]);
});

describe('the reader’s own page', () => {
  const READERS = ['try', 'install', 'service', 'gateways', 'on-call'].map((name) => `docs/${name}.md`);

  test.each(READERS)('%s has at most 2,500 words', (page) => {
    expect(wordsOf(page)).toBeLessThanOrEqual(2500);
  });

  test('is linked to from the README', () => {
    expect(targetsOf('README.md')).toEqual(expect.arrayContaining(READERS));
  });
});

test('the pages have at most 45,000 words in all, without the decisions', () => {
  const pages = PAGES.filter((page) => /^(README|docs\/(?!decisions\/))/.test(page));
  expect(pages.reduce((sum, page) => sum + wordsOf(page), 0)).toBeLessThanOrEqual(45_000);
});

test('the contents of the reference have each of its pages', () => {
  const listed = targetsOf('docs/reference.md');
  const pages = filesUnder('docs/reference').map((page) => relative('docs', page));
  expect(pages.filter((page) => !listed.includes(page))).toEqual([]);
});

test('every page that a message, a comment or a manifest names is there, with the heading that it quotes', () => {
  const named = [...filesUnder('src'), ...filesUnder('deploy')].flatMap((file) => {
    const text = read(file)
      .replaceAll(/\n\s*(?:#|\*) /g, ' ')
      .replaceAll('\\"', '"');
    const pages = text.matchAll(/(?<![\w/])(docs\/[\w/-]+\.md)(?:, ["“]([^"”]+)["”])?/g);
    return [...pages].map(([, path = '', heading]) => ({ file, path, heading }));
  });
  expect(named.filter(({ heading }) => heading !== undefined).length).toBeGreaterThan(20);
  const missing = named.filter(({ path, heading }) =>
    heading === undefined ? !PAGES.includes(path) : !headingsOf(path).includes(heading),
  );
  expect(missing).toEqual([]);
});

test('every file and folder that the architecture names is there', () => {
  const named = [...read('docs/architecture.md').matchAll(/`([a-z]+\/[a-z-]+(?:\.ts)?)`/g)].map(
    ([, file = '']) => file,
  );
  const paths = filesUnder('src').map((path) => path.replace(/^src\/(core\/)?/, ''));
  const files = new Set([...paths, ...paths.map(dirname)]);
  const rooms = new Set(paths.map((path) => path.split('/')[0]));
  const ofRooms = named.filter((file) => rooms.has(file.split('/')[0]));
  expect(ofRooms.length).toBeGreaterThan(20);
  expect(ofRooms.filter((file) => !files.has(file) && !files.has(`${file}.ts`))).toEqual([]);
});

describe('decisions', () => {
  const decisions = filesUnder('docs/decisions');

  test('are numbered without gaps', () => {
    const numbers = decisions.map((path) => Number(/(\d{4})-[a-z0-9-]+\.md$/.exec(path)?.[1]));
    expect(numbers).toEqual(decisions.map((_, index) => index + 1));
  });

  test.each(decisions)('%s has context, decision and consequences', (path) => {
    expect([...read(path).matchAll(/^## (.+)$/gm)].map(([, heading]) => heading)).toEqual([
      'Context',
      'Decision',
      'Consequences',
    ]);
  });
});

test('the changelog begins with what is not released, and with the version of package.json', () => {
  const { version } = JSON.parse(read('package.json')) as { version: string };
  const sections = [...read('CHANGELOG.md').matchAll(/^## \[([^\]]+)\]/gm)].map(([, name]) => name);
  expect(sections.slice(0, 2)).toEqual(['Unreleased', version]);
});

test('every script that CONTRIBUTING names exists', () => {
  const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> };
  const named = [...read('CONTRIBUTING.md').matchAll(/\bnpm run ([a-z][a-z:]*)/g)].map(
    ([, name]) => name ?? '',
  );
  expect(named.filter((name) => !(name in scripts))).toEqual([]);
});

/** As `wc -w` counts them; the bar between two cells is none. */
function wordsOf(page: string): number {
  return read(page).match(/[^\s|]+/g)?.length ?? 0;
}

function place(page: string, target: string): { readonly path: string; readonly anchor: string | undefined } {
  const [file = '', anchor] = target.split('#');
  return { path: file === '' ? page : relative(ROOT, join(ROOT, dirname(page), file)), anchor };
}
