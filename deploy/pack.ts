import { copyFile, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { publishedManifest } from './release.ts';

/*
 * `npm pack` and `npm publish` of the checkout itself: the package has a bundle, so its package.json names no dependency.
 * npm reads that file after the script prepack, and runs postpack when the tarball is written.
 */

const MANIFEST = join(import.meta.dirname, '..', 'package.json');
const KEPT = `${MANIFEST}.kept`;

if (process.argv[2] === 'restore') await rename(KEPT, MANIFEST);
else {
  await copyFile(MANIFEST, KEPT);
  await writeFile(MANIFEST, publishedManifest(JSON.parse(await readFile(MANIFEST, 'utf8'))));
}
