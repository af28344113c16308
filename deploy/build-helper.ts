import { execFile } from 'node:child_process';
import { existsSync, globSync } from 'node:fs';
import { chmod, copyFile, mkdtemp, readFile, rm } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** Beside its source, as they are committed. */
export const HELPER_FOLDER = join(import.meta.dirname, '../src/hold/helper');
export const HELPER_ARCHITECTURES = { amd64: 'x86_64', arm64: 'aarch64' } as const;
export type HelperArchitecture = keyof typeof HELPER_ARCHITECTURES;

/** Clang, a linker and headers for every architecture in one wheel; the same bytes come out of it on any machine. */
const ZIG = '0.16.0';

const CACHE = join(homedir(), '.cache/linger', `zig-${ZIG}`);

/** Where Zig is; undefined: it has not been installed. */
export function zigHere(): string | undefined {
  return globSync(join(CACHE, 'lib/python3*/site-packages/ziglang')).find((folder) =>
    existsSync(join(folder, 'zig')),
  );
}

async function installZig(): Promise<string> {
  const there = zigHere();
  if (there !== undefined) return there;
  await run('python3', ['-m', 'venv', CACHE]);
  await run(join(CACHE, 'bin/pip'), ['install', '--quiet', '--disable-pip-version-check', `ziglang==${ZIG}`]);
  const folder = zigHere();
  if (folder === undefined) throw new Error(`pip has installed no zig under ${CACHE}`);
  return folder;
}

/**
 * Compiles the helper.
 * @param zig its folder
 * @param defines of the source's macros, for tests: `SECOND=100`
 */
export async function buildHelper(
  zig: string,
  architecture: HelperArchitecture,
  output: string,
  defines: readonly string[] = [],
): Promise<void> {
  const target = `${HELPER_ARCHITECTURES[architecture]}-linux-musl`;
  const headers = [target, 'generic-musl'].flatMap((name) => [
    '-isystem',
    join(zig, 'lib/libc/include', name),
  ]);
  const code = [
    '-std=c11',
    '-D_GNU_SOURCE',
    '-Os',
    '-g0',
    '-ffreestanding',
    '-fno-pic',
    '-fno-stack-protector',
  ];
  const tables = ['-fno-unwind-tables', '-fno-asynchronous-unwind-tables', '-fno-sanitize=undefined'];
  const warnings = ['-Wall', '-Wextra', '-Wconversion', '-Werror'];
  const link = ['-static', '-nostdlib', '-s', '-Wl,--build-id=none', '-o', output];
  const flags = [...headers, ...code, ...tables, ...warnings, ...defines.map((each) => `-D${each}`), ...link];
  await run(join(zig, 'zig'), ['cc', '-target', target, ...flags, join(HELPER_FOLDER, 'hold.c')]);
}

/**
 * Compiles the helper for each architecture, where neither its place nor the machine's settings can matter.
 * @returns the files, which the caller removes with their folder
 */
export async function buildHelpers(zig: string): Promise<{
  readonly folder: string;
  readonly files: Readonly<Record<HelperArchitecture, string>>;
}> {
  const folder = await mkdtemp(join(tmpdir(), 'linger-helper-'));
  const files = { amd64: join(folder, 'hold-amd64'), arm64: join(folder, 'hold-arm64') };
  await buildHelper(zig, 'amd64', files.amd64);
  await buildHelper(zig, 'arm64', files.arm64);
  return { folder, files };
}

/** `npm run build:helper`; with `--check`, the committed files are compared and not written. */
if (import.meta.main) {
  const { folder, files } = await buildHelpers(await installZig());
  for (const [architecture, file] of Object.entries(files)) {
    const committed = join(HELPER_FOLDER, `hold-${architecture}`);
    const built = await readFile(file);
    const same = existsSync(committed) && built.equals(await readFile(committed));
    console.log(`hold-${architecture}: ${built.length} bytes, ${same ? 'unchanged' : 'changed'}`);
    if (same) continue;
    if (process.argv.includes('--check')) process.exitCode = 1;
    else {
      await copyFile(file, committed);
      await chmod(committed, 0o755);
    }
  }
  await rm(folder, { recursive: true });
}
