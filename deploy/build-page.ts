import { createHash } from 'node:crypto';
import { copyFile, glob, mkdir, readFile, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { type BuildOptions, build, type Plugin } from 'esbuild';

const ROOT = join(import.meta.dirname, '..');
const PAGE = join(ROOT, 'src/page');

const COMMON = {
  absWorkingDir: ROOT,
  tsconfig: join(PAGE, 'tsconfig.json'),
  bundle: true,
  minify: true,
  platform: 'browser',
  target: 'es2022',
  logLevel: 'warning',
} as const satisfies BuildOptions;

/** The page makes no JSON Schema of its schemas, and zod calls this only to make one: 6 KB, compressed. */
const withoutJsonSchema: Plugin = {
  name: 'without JSON Schema',
  setup: ({ onLoad }) => {
    const filter =
      /[\\/]zod[\\/]v4[\\/]core[\\/](?:json-schema-processors|to-json-schema|json-schema-generator)\.js$/;
    onLoad({ filter }, () => ({ contents: 'module.exports = {};' }));
  },
};

/** The page’s policy refuses the code that zod makes of text, and no document refers to itself: 2 KB, compressed. */
const withoutParsersOfZod: Plugin = {
  name: 'without parsers that zod has for other cases',
  setup: ({ onLoad }) => {
    onLoad({ filter: /[\\/]zod[\\/]v4[\\/]classic[\\/]schemas\.js$/ }, async ({ path }) => {
      const text = await readFile(path, 'utf8');
      return { contents: text.replace('$ZodObjectJIT.init(', '$ZodObject.init(') };
    });
    const none =
      'export const memoizer = () => undefined, isBackEdge = memoizer, isRecursiveSchema = memoizer;';
    onLoad({ filter: /[\\/]zod[\\/]v4[\\/]core[\\/]memoizer\.js$/ }, () => ({ contents: none }));
  },
};

/** The page reads no gateway’s own page, and names their formats only: 3 KB, compressed. */
const withoutPageReaders: Plugin = {
  name: 'without readers of pages',
  setup: ({ onLoad }) => {
    onLoad({ filter: /[\\/]page-formats[\\/]\w+-page\.ts$/ }, async ({ path }) => {
      const text = await readFile(path, 'utf8');
      return { contents: text.replace(/\bReader: \w+/, 'Reader: undefined as never'), loader: 'ts' };
    });
  },
};

/** src/page → the files of `linger dashboard`, in a fraction of a second. */
export async function buildDashboard(outdir: string): Promise<void> {
  await build({
    ...COMMON,
    entryPoints: { page: join(PAGE, 'dashboard.tsx') },
    outdir,
    splitting: true,
    format: 'esm',
  });
  await copyFile(join(PAGE, 'dashboard.html'), join(outdir, 'index.html'));
  await copyFile(join(PAGE, 'icon.svg'), join(outdir, 'icon.svg'));
}

/**
 * src/page → the page for manifests, as one file: it works from a disk and from any static host. Browsers load no module and
 * no worker’s file from a disk, so its scripts are classic ones, and stand in it.
 */
export async function buildPage(outdir: string): Promise<void> {
  const bundled = async (entry: string, more: BuildOptions = {}) => {
    const options: BuildOptions = {
      ...COMMON,
      entryPoints: [join(PAGE, entry)],
      outdir,
      write: false,
      ...more,
    };
    const { outputFiles = [] } = await build(options);
    const text = (ending: string) => outputFiles.find(({ path }) => path.endsWith(ending))?.text.trim() ?? '';
    return { script: text('.js'), style: text('.css') };
  };
  // The same files as on the pages of the documentation.
  const define = { EXAMPLES: JSON.stringify(await examples()) };
  // `await` outside of functions is for modules alone.
  const page = await bundled('manifests.tsx', { define, format: 'esm' });
  const script = `(async()=>{${page.script}})()`;
  // zod makes code of text where it may; the page’s policy refuses that.
  const banner = { js: 'globalThis.__zod_globalConfig={jitless:true};' };
  const worker = await bundled('worker.ts', {
    format: 'iife',
    banner,
    plugins: [withoutJsonSchema, withoutParsersOfZod, withoutPageReaders],
  });
  const policy = [
    `default-src 'none'`,
    `script-src '${hashOf(script)}'`,
    `style-src '${hashOf(page.style)}'`,
    `worker-src blob:`,
    `connect-src 'none'`,
    `img-src data:`,
    `base-uri 'none'`,
    `form-action 'none'`,
  ].join('; ');
  for (const text of [script, worker.script, page.style]) check(text);
  const template = await readFile(join(PAGE, 'manifests.html'), 'utf8');
  const filled = [
    [`content="default-src 'none'"`, `content="${policy}"`],
    ['<style></style>', `<style>${page.style}</style>`],
    ['type="text/plain"></script>', `type="text/plain">${worker.script}</script>`],
    ['<script></script>', `<script>${script}</script>`],
  ] as const;
  const html = filled.reduce((text, [place, content]) => text.replace(place, () => content), template);
  await mkdir(outdir, { recursive: true });
  await writeFile(join(outdir, 'index.html'), html);
}

function hashOf(text: string): string {
  return `sha256-${createHash('sha256').update(text).digest('base64')}`;
}

/** @throws Error for what would end the element that the text stands in, or begin a comment */
function check(text: string): void {
  const [found] = /<\/script|<!--/i.exec(text) ?? [];
  if (found !== undefined) throw new Error(`the page has ${found} in a script: write it in two pieces`);
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

const BUILDS: Readonly<Record<string, (outdir: string) => Promise<void>>> = {
  page: buildPage,
  dashboard: buildDashboard,
};

const [, , which = '', outdir = join(ROOT, 'dist', which)] = process.argv;
if (import.meta.main) await BUILDS[which]?.(outdir);
