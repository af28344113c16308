import { cp, mkdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { buildProgram } from '../../deploy/build.ts';
import { BUILT, ROOT } from './built.ts';

/**
 * Before any test: the program as it is shipped. Hundreds of processes of it are started, and from the sources each takes
 * two to five times as long to start.
 */
export default async function setup(): Promise<void> {
  await mkdir(dirname(BUILT), { recursive: true });
  // It reads its version from the package.json beside its folder, as in the image.
  await cp(join(ROOT, 'package.json'), join(dirname(BUILT), 'package.json'));
  await buildProgram(BUILT);
}
