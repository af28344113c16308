import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const CORPUS = join(import.meta.dirname, '..', 'testdata', 'corpus', 'proc');
const HELPER = join(import.meta.dirname, '..', '..', 'src', 'hold', 'helper', 'hold.c');
const TABLES = ['snmp', 'snmp6', 'tcp', 'tcp6'].map((name) => join(CORPUS, name));
const SANITIZERS = ['-fsanitize=address,undefined', '-fno-sanitize-recover=all', '-g', '-O1'];

/** The helper's reader of /proc/net with sanitizers, or why it cannot be built here. */
export type HelperFuzzer =
  | { readonly run: (looks: number, seed: number) => string | undefined; readonly remove: () => void }
  | { readonly absent: string };

/** Builds it with the C compiler of this machine. */
export function helperFuzzer(): HelperFuzzer {
  const folder = mkdtempSync(join(tmpdir(), 'linger-fuzz-'));
  const remove = () => rmSync(folder, { recursive: true, force: true });
  const [source, program] = [join(folder, 'hold.c'), join(folder, 'fuzz')];
  // The C library has an entry of its own.
  writeFileSync(source, readFileSync(HELPER, 'utf8').replaceAll('_start', 'helper_start'));
  const harness = join(import.meta.dirname, 'helper-fuzz.c');
  const args = [...SANITIZERS, '-w', `-DHELPER="${source}"`, '-o', program, harness];
  try {
    execFileSync('cc', args, { stdio: ['ignore', 'ignore', 'pipe'] });
  } catch (error) {
    remove();
    const said = error as NodeJS.ErrnoException & { readonly stderr?: Buffer };
    // A compiler that is there must take the helper; one without sanitizers is as good as none.
    if (said.code === 'ENOENT') return { absent: 'there is no C compiler (cc)' };
    const problem = said.stderr?.toString() ?? String(error);
    if (/cannot find .*san/.test(problem)) return { absent: 'the C compiler has no sanitizers' };
    throw new Error(problem);
  }
  return {
    /** @returns what is wrong, if anything */
    run: (looks, seed) => {
      const options = { cwd: folder, encoding: 'utf8' } as const;
      const { status, signal, stderr } = spawnSync(
        program,
        [String(looks), String(seed), ...TABLES],
        options,
      );
      return status === 0 ? undefined : `ended with ${signal ?? status}: ${stderr}`;
    },
    remove,
  };
}
