import { existsSync } from 'node:fs';
import { copyFile, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { publishedManifest } from './release.ts';

/*
 * `npm pack` and `npm publish` of the checkout itself: the package has a bundle, so its package.json names no dependency.
 * npm reads that file after the script prepack, and runs postpack when the tarball is written.
 */

const MANIFEST = join(import.meta.dirname, '..', 'package.json');
const KEPT = `${MANIFEST}.kept`;

/** With the scripts, so that it can be packed again. */
async function packedOf(file: string): Promise<string> {
  const manifest = JSON.parse(await readFile(file, 'utf8'));
  return `${JSON.stringify({ ...JSON.parse(publishedManifest(manifest)), scripts: manifest.scripts }, undefined, 2)}\n`;
}

/** npm does not run postpack where packing fails or is interrupted: then the kept file is the one that is developed on. */
const isInterrupted = async () =>
  existsSync(KEPT) && (await readFile(MANIFEST, 'utf8')) === (await packedOf(KEPT));

if (process.argv[2] === 'restore') await rename(KEPT, MANIFEST);
else {
  if (!(await isInterrupted())) await copyFile(MANIFEST, KEPT);
  await writeFile(MANIFEST, await packedOf(KEPT));
}
