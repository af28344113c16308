import { copyFile, glob, readFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { build } from 'esbuild';

const ROOT = join(import.meta.dirname, '..');
const PAGE = join(ROOT, 'src/page');

/** src/page → the files that a browser loads, in a fraction of a second. */
export async function buildPage(outdir: string): Promise<void> {
  await build({
    entryPoints: { page: join(PAGE, 'main.tsx') },
    outdir,
    absWorkingDir: ROOT,
    tsconfig: join(PAGE, 'tsconfig.json'),
    bundle: true,
    splitting: true,
    minify: true,
    format: 'esm',
    platform: 'browser',
    target: 'es2022',
    // The same files as on the pages of the documentation.
    define: { EXAMPLES: JSON.stringify(await examples()) },
    logLevel: 'warning',
  });
  for (const file of ['index.html', 'icon.svg']) await copyFile(join(PAGE, file), join(outdir, file));
}

/** Name → text, without the folder and the ending. */
async function examples(): Promise<Readonly<Record<'manifests' | 'policies', Record<string, string>>>> {
  const read = async (pattern: string) => {
    const texts: Record<string, string> = {};
    for await (const file of glob(pattern, { cwd: join(ROOT, 'docs/examples') }))
      texts[basename(file, '.yaml')] = await readFile(join(ROOT, 'docs/examples', file), 'utf8');
    return texts;
  };
  return { manifests: await read('*.yaml'), policies: await read('policies/*.yaml') };
}

const [, , outdir] = process.argv;
if (import.meta.main && outdir !== undefined) await buildPage(outdir);
