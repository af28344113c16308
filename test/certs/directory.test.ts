import { mkdir, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { fingerprint, readContents, writeContents } from '../../src/certs/directory.ts';
import { allFiles, emptyDirectory, write } from './fixture.ts';

const contents = Object.fromEntries(allFiles.map((name) => [name, `new ${name}`]));

/** Which files are written before the one that fails: `order` cut at each place. */
const interruptions = [
  { replacesKey: false, order: ['ca.key', 'ca.crt', 'tls.key', 'tls.crt'] },
  { replacesKey: true, order: ['ca.crt', 'tls.key', 'tls.crt', 'ca.key'] },
].flatMap(({ replacesKey, order }) =>
  order.map((fails, i) => ({ replacesKey, fails, written: order.slice(0, i).sort() })),
);

describe('writing the files', () => {
  it.each(interruptions)(
    'replaces a ca.key: $replacesKey, $fails fails: $written are there',
    async (interruption) => {
      const { replacesKey, fails, written } = interruption;
      const directory = await emptyDirectory();
      // No file can be renamed over a directory.
      await mkdir(join(directory, fails));
      await expect(writeContents(directory, contents, replacesKey)).rejects.toMatchObject({
        code: 'Unwritable',
        message: expect.stringContaining(join(directory, fails)),
      });
      // And nothing else: no temporary file with half a key in it.
      expect((await readdir(directory)).sort()).toEqual([...written, fails].sort());
    },
  );

  it('leaves alone what is not given', async () => {
    const directory = await emptyDirectory();
    await write(directory, { 'ca.crt': 'old', 'tls.crt': 'old' });
    await writeContents(directory, { 'tls.crt': 'new' }, false);
    expect(await readContents(directory)).toEqual({ 'ca.crt': 'old', 'tls.crt': 'new' });
  });
});

describe('the fingerprint', () => {
  it.each([
    ['a text', { 'tls.crt': 'b' }],
    ['the file that holds it', { 'tls.key': 'a' }],
    ['a file more, even an empty one', { 'tls.crt': 'a', 'ca.crt': '' }],
    ['a file less', {}],
  ])('tells %s', (_, other) => {
    expect(fingerprint(other)).not.toBe(fingerprint({ 'tls.crt': 'a' }));
    expect(fingerprint({ ...other })).toBe(fingerprint(other));
  });
});
