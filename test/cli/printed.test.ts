import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { VERBS } from '../../src/cli/commands.ts';
import { variableName } from '../../src/cli/flags.ts';
import { atEndOfFile } from '../webhook/connection.ts';
import { COMMANDS, rows } from './flag-table.ts';
import { emptyDirectory, linger } from './linger.ts';
import { DEPLOYMENT } from './manifests.ts';

const atEnd = atEndOfFile();

interface Manifest {
  readonly metadata: { name: string };
  readonly spec: { readonly template: { readonly metadata: { annotations?: object } } };
}

/** What a help says about a flag, as one line; it is wrapped to the width of the terminal. */
function entryOf(flag: string, help: string): string {
  const entries = help.split(/\n(?= {2}-)/).map((entry) => entry.replace(/\s+/g, ' ').trim());
  return (
    entries.map((entry) => entry.replace(/^-\w, /, '')).find((entry) => entry.startsWith(`${flag} `)) ?? ''
  );
}

describe.concurrent('what is printed', () => {
  it('--version', async () => {
    expect(await linger(['--version'])).toEqual({
      code: 0,
      stdout: expect.stringMatching(/^\d+\.\d+\.\d+\n$/),
      stderr: '',
    });
  });

  it('--help names every command, and none of those that Linger starts itself', async () => {
    const { code, stdout } = await linger(['--help']);
    expect(code).toBe(0);
    for (const [command, { group }] of Object.entries(VERBS))
      expect(new RegExp(`^ {2}${command} `, 'm').test(stdout)).toBe(group !== 'internal');
  });

  it.each(Object.keys(COMMANDS))(
    '%s --help lists every flag with its default and its variable',
    async (command) => {
      const { code, stdout, stderr } = await linger([command, '--help']);
      expect([code, stderr]).toEqual([0, '']);
      for (const { key, flag, byDefault } of rows.filter((row) => row.command === command)) {
        const entry = entryOf(flag, stdout);
        expect(entry).not.toBe('');
        if (byDefault !== undefined && byDefault !== false) expect(entry).toContain('(default: ');
        if (command === 'serve') expect(entry).toContain(`[${variableName(key)}]`);
        else expect(entry).not.toContain('[LINGER_');
      }
    },
  );

  it.each([
    ['no command', [], /Usage: linger/],
    ['an unknown command', ['frobnicate'], /unknown command 'frobnicate'/],
    ['one that is asked for its help', ['frobnicate', '--help'], /unknown command 'frobnicate'/],
    ['and the other way round', ['--help', 'explian'], /Did you mean explain/],
    ['an unknown flag', ['serve', '--prot', '1'], /--prot/],
    ['an unknown flag of inject', ['inject', '--mode-limit', 'Off'], /--mode-limit/],
    ['a flag without its value', ['serve', '--port'], /--port/],
    ['a stray word', ['serve', 'now'], /too many arguments/],
    ['a value that cannot be used', ['serve', '--port', 'http'], /^linger: --port: expected a port/],
  ])('%s: exit 2 and a word about it on standard error', async (_what, args, message) => {
    const { code, stdout, stderr } = await linger(args);
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toMatch(message);
    expect(stderr).not.toMatch(/^ +at /m);
  });

  it.each(['explain', 'inject', 'uninject', 'audit'])(
    '%s lets nothing that a manifest says move the cursor of a terminal',
    async (command) => {
      const manifest = parse(DEPLOYMENT) as Manifest;
      manifest.metadata.name = 'web\u001b[31m\nweb';
      manifest.spec.template.metadata.annotations = { 'linger.dev/wait': '5\u001b[2Js' };
      const injected = await linger(['inject'], { stdin: JSON.stringify(manifest) });
      const stdin = command === 'uninject' ? injected.stdout : JSON.stringify(manifest);
      const { stdout, stderr } = await linger([command, '-'], { stdin });
      expect(`${stdout}${stderr}`).toContain('web\\u001b[31m\\nweb');
      expect(`${stdout}${stderr}`).not.toContain('\u001b');
    },
  );

  it.each([
    ['explain', 'json'],
    ['explain', 'yaml'],
    ['audit', 'json'],
  ])('%s --output %s neither, and the value stays the same', async (command, output) => {
    const manifest = parse(DEPLOYMENT) as Manifest;
    const name = 'web\u001b[31m\u009b1A';
    manifest.metadata.name = name;
    const { stdout } = await linger([command, '-', '--output', output], { stdin: JSON.stringify(manifest) });
    expect(stdout).not.toMatch(/[^\P{Cc}\n]/u);
    expect(JSON.stringify(parse(stdout))).toContain(JSON.stringify(name).slice(1, -1));
  });

  it('check neither, of the policies that it reads', async () => {
    const file = join(await emptyDirectory(atEnd), 'policy.yaml');
    const policy = {
      apiVersion: 'linger.dev/v1alpha1',
      kind: 'TerminationPolicy',
      spec: { mode: 'a\u009b1A' },
    };
    await writeFile(file, JSON.stringify({ ...policy, metadata: { name: 'a', namespace: 'shop' } }));
    const { code, stdout } = await linger(['check', file]);
    expect([code, stdout]).toEqual([1, expect.stringContaining('a\\u009b1A')]);
    expect(stdout).not.toContain('\u009b');
  });

  it('a variable that cannot be used: exit 2, by its name', async () => {
    const { code, stderr } = await linger(['serve'], { env: { LINGER_DRAIN: 'soon' } });
    expect([code, stderr]).toEqual([
      2,
      'linger: LINGER_DRAIN: expected a duration such as 30s or 1m30s, of at most 168h, got "soon" [settings-invalid]\n',
    ]);
  });
});
