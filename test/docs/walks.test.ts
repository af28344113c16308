import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { ROOT, read } from './markdown.ts';

/** The sections of docs/architecture.md that follow one thing through the rooms: `One removal` and so on. */
const walks = read('docs/architecture.md')
  .split('\n## ')
  .filter((section) => section.startsWith('One '))
  .map((section) => {
    const [title = ''] = section.split('\n');
    const paths = [...section.matchAll(/`([a-z-]+(?:\/[a-z-]+)+)`/g)].map(([, path = '']) => path);
    return { title, paths };
  });

/** A path as the walks write it: rooms of the core without `core/`. */
const fileOf = (path: string) =>
  ['src', 'src/core'].flatMap((folder) => [`${folder}/${path}.ts`, `${folder}/${path}`]);

test('there are walks', () => expect(walks.length).toBeGreaterThanOrEqual(5));

describe.each(walks)('$title', ({ paths }) => {
  test('names files that there are', () => {
    const missing = paths.filter((path) => !fileOf(path).some((file) => existsSync(join(ROOT, file))));
    expect(missing).toEqual([]);
  });

  test('comes back to no room', () => {
    const rooms = paths.map((path) => path.replace(/^core\//, '').split('/')[0]);
    const visits = rooms.filter((room, index) => room !== rooms[index - 1]);
    expect(visits).toEqual([...new Set(visits)]);
  });
});
