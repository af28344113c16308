import { cp, glob, readFile, rm, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { build, type Metafile, type Plugin } from 'esbuild';
import { RECORDING_FILE } from '../src/dashboard/recording.ts';
import { buildDashboard, buildPage } from './build-page.ts';
import { DOOR_IMPORT, filesBehind, namesIn } from './doors.ts';

const ROOT = join(import.meta.dirname, '..');

/**
 * `npm run build`: src → dist, what the image and the published package run. Each `import(…)` in src begins a chunk of
 * its own: `serve` without a cluster loads no Kubernetes client, and no verb loads another's parts. It is bundled
 * because @kubernetes/client-node otherwise loads every generated model: 88 MB and a second, against 35 MB and 0.3 s.
 * @param outdir emptied first
 * @returns esbuild's account of what went into each file
 */
export async function buildProgram(outdir: string): Promise<Metafile> {
  await rm(outdir, { recursive: true, force: true });
  const workers: string[] = [];
  for await (const file of glob(join(ROOT, 'src/**/*-worker.ts'))) workers.push(file);
  const { metafile } = await build({
    // What a worker thread runs is found by its name beside the chunk that starts it.
    entryPoints: { program: join(ROOT, 'src/main.ts'), ...namedAsTheirFiles(workers) },
    outdir,
    absWorkingDir: ROOT,
    bundle: true,
    splitting: true,
    format: 'esm',
    platform: 'node',
    target: 'node22.19',
    sourcemap: 'linked',
    sourcesContent: false,
    minifySyntax: true,
    minifyWhitespace: true,
    chunkNames: '[name]-[hash]',
    metafile: true,
    plugins: [throughDoors],
    logLevel: 'warning',
    // CommonJS packages ask for Node's modules by require(), which an ES module does not have.
    banner: {
      js: "import{createRequire as __createRequire}from'node:module';const require=__createRequire(import.meta.url);",
    },
  });
  await writeFile(join(outdir, 'main.js'), await entry());
  // Beside the chunk that reads them, as in the sources.
  const helpers = (file: string) => !/\.c$/.test(file);
  await cp(join(ROOT, 'src/hold/helper'), join(outdir, 'helper'), { recursive: true, filter: helpers });
  await cp(join(ROOT, 'src/dashboard', RECORDING_FILE), join(outdir, RECORDING_FILE));
  await buildPage(join(outdir, 'page'));
  await buildDashboard(join(outdir, 'dashboard'));
  return metafile;
}

function namedAsTheirFiles(files: readonly string[]): Readonly<Record<string, string>> {
  return Object.fromEntries(files.map((file) => [basename(file, '.ts'), file]));
}

/**
 * dist/main.js, in words that every Node since 12 can parse: on one that is too old, a sentence and not the first
 * SyntaxError of the bundle.
 */
async function entry(): Promise<string> {
  const { engines } = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8')) as {
    engines: { node: string };
  };
  const [, major, minor] = /^>=(\d+)\.(\d+)$/.exec(engines.node) ?? [];
  if (minor === undefined) throw new Error(`engines.node: expected >=MAJOR.MINOR, got ${engines.node}`);
  return `#!/usr/bin/env node
var version = process.versions.node.split('.');
if (version[0] > ${major} || (version[0] == ${major} && version[1] >= ${minor})) import('./program.js');
else {
  console.error('linger: Node.js ${major}.${minor} or newer is needed, and this is ' + process.version + ': install a newer one, or take the archive of a release, which has its own');
  process.exitCode = 1;
}
`;
}

const WORKER = /(new URL\('\.\/[a-z-]+-worker)\.ts(', import\.meta\.url\))/g;

/**
 * Imports the file behind a door in place of the door. To esbuild, whatever a door exports is part of every chunk that
 * enters by it, and all of the cluster would stand in what a server without one loads.
 */
const throughDoors: Plugin = {
  name: 'through-doors',
  setup: ({ onLoad }) => {
    const behind = new Map<string, Promise<ReadonlyMap<string, string>>>();
    onLoad({ filter: /\/src\/.*\.ts$/ }, async ({ path }) => {
      const text = await readFile(path, 'utf8');
      const doors = new Set([...text.matchAll(DOOR_IMPORT)].map(([, , , door = '']) => door));
      const files = new Map<string, ReadonlyMap<string, string>>();
      for (const door of doors) {
        const file = join(dirname(path), door);
        const known = behind.get(file) ?? readFile(file, 'utf8').then(filesBehind);
        behind.set(file, known);
        files.set(door, await known);
      }
      const contents = text.replaceAll(
        DOOR_IMPORT,
        (statement, type: string | undefined, names: string, door: string) => {
          if (type !== undefined) return statement;
          const values = namesIn(names).filter(({ text }) => !text.startsWith('type '));
          const direct = values.map(({ name, text }) => {
            const file = files.get(door)?.get(name);
            if (file === undefined) throw new Error(`${path}: ${door} exports no ${name} by name`);
            return `import { ${text} } from '${dirname(door)}/${file}';`;
          });
          return direct.join(' ');
        },
      );
      return { contents: contents.replaceAll(WORKER, '$1.js$2'), loader: 'ts' };
    });
  },
};

if (import.meta.main) {
  const { outputs } = await buildProgram(join(ROOT, 'dist'));
  const scripts = Object.entries(outputs).filter(([file]) => file.endsWith('.js'));
  const bytes = scripts.reduce((sum, [, output]) => sum + output.bytes, 0);
  console.log(`dist: ${scripts.length} files, ${Math.ceil(bytes / 1024)} KiB`);
}
