import { existsSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { describe, expect, test } from 'vitest';
import { anchorsOf, filesUnder, PAGES, proseOf, ROOT, read } from './markdown.ts';

/** The targets of links and images that stay inside the checkout. */
function targetsOf(page: string): readonly string[] {
  const targets = [...proseOf(page).matchAll(/\]\(([^)\s]+)\)/g)].map(([, target]) => target ?? '');
  return targets.filter((target) => !/^[a-z]+:/.test(target));
}

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
      return anchor !== undefined && !anchorsOf(path).includes(anchor);
    });
    expect(missing).toEqual([]);
  });

  test('no two headings share an anchor, so that no link leads to the wrong one', () => {
    const anchors = anchorsOf(page);
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

test('every file that the architecture names is there', () => {
  const named = [...read('docs/architecture.md').matchAll(/`([a-z]+\/[a-z-]+(?:\.ts)?)`/g)].map(
    ([, file = '']) => file,
  );
  const files = new Set(filesUnder('src').map((path) => path.replace(/^src\//, '')));
  const rooms = new Set([...files].map((path) => path.split('/')[0]));
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

function place(page: string, target: string): { readonly path: string; readonly anchor: string | undefined } {
  const [file = '', anchor] = target.split('#');
  return { path: file === '' ? page : relative(ROOT, join(ROOT, dirname(page), file)), anchor };
}
