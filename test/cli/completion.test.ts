import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { VERBS, type Verb } from '../../src/cli/commands.ts';
import { flagName } from '../../src/cli/flags.ts';
import { linger } from './linger.ts';

const run = promisify(execFile);
const SHOWN = Object.entries<Verb>(VERBS).filter(([, { group }]) => group !== 'internal');

describe('linger completion bash', () => {
  /** What bash offers for the last of these words, after `source <(linger completion bash)`. */
  async function offered(...words: string[]): Promise<string[]> {
    const { code, stdout: script } = await linger(['completion', 'bash']);
    expect(code).toBe(0);
    const ask = `
      COMP_WORDS=(linger "$@"); COMP_CWORD=${words.length}
      _linger; printf '%s\\n' "\${COMPREPLY[@]}"`;
    const { stdout } = await run('bash', ['-euc', script + ask, 'bash', ...words], { cwd: '/' });
    return stdout.split('\n').filter((word) => word !== '');
  }

  it.each<[string, string[], string[]]>([
    ['commands', ['in'], ['inject']],
    ['all commands that people run', [''], SHOWN.map(([verb]) => verb)],
    ['no command that Linger starts itself', ['prove'], ['prove']],
    ['flags', ['serve', '--mode'], ['--mode-limit']],
    ['what a flag chooses from', ['explain', '-o', 'ya'], ['yaml']],
    ['the same, by its long name', ['serve', '--mode-limit', ''], ['Enforce', 'Audit', 'Off']],
    ['files after a flag that takes one', ['serve', '--policies', 'et'], ['etc']],
    ['files after a flag that takes a URL or a file', ['diagnose', '--linger', 'et'], ['etc']],
    ['files where operands stand', ['inject', 'et'], ['etc']],
  ])('offers %s', async (_what, words, expected) => {
    expect(await offered(...words)).toEqual(expected);
  });

  it.each(SHOWN.filter(([, { flags }]) => Object.keys(flags).length > 0))(
    'offers every flag of %s',
    async (verb, { flags }) => {
      const names = Object.keys(flags).map((key) => `--${flagName(key)}`);
      expect((await offered(verb, '--')).toSorted()).toEqual(names.toSorted());
    },
  );
});

describe.each(['zsh', 'fish'])('linger completion %s', (shell) => {
  it('names every command and every flag', async () => {
    const { stdout } = await linger(['completion', shell]);
    expect(stdout).not.toContain('prove-keep');
    for (const [verb, { flags }] of SHOWN) {
      expect(stdout).toContain(verb);
      for (const key of Object.keys(flags))
        expect(stdout).toContain(shell === 'zsh' ? `--${flagName(key)}[` : `-l ${flagName(key)} `);
    }
  });

  // Only where the shell is installed; bash, above, always is.
  it('is a script that the shell can read', async ({ skip }) => {
    await run(shell, ['-c', 'true']).catch(() => skip(`${shell} is not installed`));
    const { stdout } = await linger(['completion', shell]);
    await run(shell, ['-n', '-c', stdout]);
  });
});

it('another shell is a usage error that names those that there are', async () => {
  const { code, stdout, stderr } = await linger(['completion', 'tcsh']);
  expect([code, stdout]).toEqual([2, '']);
  expect(stderr).toContain('Allowed choices are bash, zsh, fish.');
});
