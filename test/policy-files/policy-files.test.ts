import { mkdir, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { LingerError } from '../../src/core/api/index.ts';
import { readPolicies } from '../../src/policy-files/index.ts';
import { readPolicyFiles } from '../../src/policy-files/policy-files.ts';
import { emptyDirectory } from '../cli/linger.ts';

const named = (name: string) =>
  `apiVersion: linger.dev/v1alpha1\nkind: ClusterTerminationPolicy\nmetadata: {name: ${name}}\nspec: {}\n`;

async function folderWith(files: Readonly<Record<string, string>>): Promise<string> {
  const directory = await emptyDirectory();
  for (const [name, text] of Object.entries(files)) await writeFile(join(directory, name), text);
  return directory;
}

async function namesIn(path: string): Promise<string[]> {
  return (await readPolicies(path)).clusterPolicies.map(({ metadata }) => metadata.name);
}

async function problemOf(path: string): Promise<LingerError> {
  try {
    const names = await namesIn(path);
    throw new Error(`not refused: ${names}`);
  } catch (error) {
    if (error instanceof LingerError) return error;
    throw error;
  }
}

describe('which files of a folder are read', () => {
  it('*.yaml, *.yml and *.json, in the order of their names', async () => {
    const json = JSON.stringify({
      apiVersion: 'linger.dev/v1alpha1',
      kind: 'ClusterTerminationPolicy',
      metadata: { name: 'c' },
      spec: {},
    });
    expect(
      await namesIn(await folderWith({ 'b.yml': named('b'), 'c.json': json, 'a.yaml': named('a') })),
    ).toEqual(['a', 'b', 'c']);
  });

  it.each([
    '.hidden.yaml',
    '..data.yaml',
    'notes.txt',
    'a.yaml~',
    'a.yaml.bak',
    '.yaml',
    'yaml',
    'a.YAML.swp',
  ])('not %s', async (name) => {
    expect(await namesIn(await folderWith({ [name]: 'not: [valid', 'a.yaml': named('a') }))).toEqual(['a']);
  });

  it('not those of folders in it', async () => {
    const directory = await folderWith({ 'a.yaml': named('a') });
    await mkdir(join(directory, 'more'));
    await writeFile(join(directory, 'more/b.yaml'), named('b'));
    expect(await namesIn(directory)).toEqual(['a']);
  });

  it('links are followed', async () => {
    const directory = await folderWith({ 'a.yaml': named('a') });
    await symlink(join(await folderWith({ b: named('b') }), 'b'), join(directory, 'b.yaml'));
    expect(await namesIn(directory)).toEqual(['a', 'b']);
  });

  it('a path to a file is that file, whatever its name', async () => {
    const directory = await folderWith({ policy: named('a'), 'b.yaml': named('b') });
    expect(await namesIn(join(directory, 'policy'))).toEqual(['a']);
  });

  it('an empty folder, an empty file and a comment hold no policy', async () => {
    expect(await namesIn(await folderWith({}))).toEqual([]);
    expect(
      await namesIn(await folderWith({ 'a.yaml': '', 'b.yaml': '# later\n', 'c.yaml': '---\n---\n' })),
    ).toEqual([]);
  });
});

describe('what cannot be read is refused with the path and the way out', () => {
  it('a path that does not exist', async () => {
    const { code, message } = await problemOf('/nonexistent/policies');
    expect([code, message]).toEqual([
      'policy-unreadable',
      expect.stringMatching(/^\/nonexistent\/policies: .*ENOENT.*--policies/),
    ]);
  });

  it('a link into nowhere', async () => {
    const directory = await folderWith({});
    await symlink('/nonexistent/x', join(directory, 'a.yaml'));
    expect(await problemOf(directory)).toMatchObject({
      code: 'policy-unreadable',
      message: expect.stringContaining('a.yaml'),
    });
  });

  it('a device, which would never end', async () => {
    expect(await problemOf('/dev/zero')).toMatchObject({
      code: 'policy-unreadable',
      message: expect.stringContaining('not a regular file'),
    });
  });

  it('a file that is there by mistake', async () => {
    const directory = await folderWith({ 'dump.yaml': '#'.repeat(4 * 1024 * 1024 + 1) });
    expect(await problemOf(directory)).toMatchObject({
      code: 'policy-unreadable',
      message: expect.stringMatching(/dump\.yaml.*4194305 bytes/),
    });
  });

  it.each([
    ['no YAML', 'a: [', 'policy-syntax', /^b\.yaml:1:\d+/],
    ['a list', '- a\n', 'policy-syntax', /b\.yaml document 1/],
    [
      'an unknown field',
      named('b').replace('spec: {}', 'spec: {waits: {}}'),
      'policy-invalid',
      /^b\.yaml document 1: .*spec\.waits: unknown field/,
    ],
    [
      'the same name again',
      named('a'),
      'policy-duplicate',
      /^b\.yaml document 1: ClusterTerminationPolicy\/a is already defined in a\.yaml document 1/,
    ],
    [
      'a __proto__',
      named('b').replace('spec: {}', 'spec: {__proto__: {mode: Off}}'),
      'policy-invalid',
      /__proto__/,
    ],
  ])('%s', async (_what, text, code, message) => {
    const problem = await problemOf(await folderWith({ 'a.yaml': named('a'), 'b.yaml': text }));
    expect([problem.code, problem.message]).toEqual([code, expect.stringMatching(message)]);
  });
});

describe('the digest', () => {
  const digestOf = async (path: string) => (await readPolicyFiles(path)).digest;

  it('is the same for the same names and bytes', async () => {
    const files = { 'a.yaml': named('a'), 'b.yaml': 'broken: [' };
    expect(await digestOf(await folderWith(files))).toBe(
      await digestOf(await folderWith({ ...files, '.other': 'x' })),
    );
  });

  it.each([
    ['a byte', { 'a.yaml': 'x: 2', 'b.yaml': 'y: 1' }],
    ['a name', { 'a.yml': 'x: 1', 'b.yaml': 'y: 1' }],
    ['a file more', { 'a.yaml': 'x: 1', 'b.yaml': 'y: 1', 'c.yaml': '' }],
    ['a file less', { 'a.yaml': 'x: 1' }],
    ['contents swapped', { 'a.yaml': 'y: 1', 'b.yaml': 'x: 1' }],
    ['text moved over a border', { 'a.yaml': '', 'b.yaml': 'x: 1y: 1' }],
  ])('changes with %s', async (_what, files) => {
    const before = await digestOf(await folderWith({ 'a.yaml': 'x: 1', 'b.yaml': 'y: 1' }));
    expect(await digestOf(await folderWith(files))).not.toBe(before);
  });
});
