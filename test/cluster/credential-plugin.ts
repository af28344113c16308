import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { stringify } from 'yaml';
import { emptyDirectory } from '../cli/linger.ts';
import type { AtEnd } from '../webhook/connection.ts';

export const V1 = 'client.authentication.k8s.io/v1';
export const V1BETA1 = 'client.authentication.k8s.io/v1beta1';

/** What one run of the plugin was given. */
export interface PluginRun {
  readonly args: readonly string[];
  readonly info: {
    readonly kind: string;
    readonly apiVersion: string;
    readonly spec: Record<string, unknown>;
  };
  readonly env: Readonly<Record<string, string>>;
}

export interface PluginFiles {
  readonly kubeconfig: string;
  readonly directory: string;
  /** All of its runs so far. */
  readonly runs: () => Promise<readonly PluginRun[]>;
  /** What it prints from now on; NUMBER in it is the number of the run. */
  readonly prints: (output: string) => Promise<void>;
}

/**
 * A plugin in a folder of its own: notes how it was run, says what the variable SAYS holds, and prints the file `output`.
 * A file `script` beside it is run instead of printing.
 */
const PLUGIN = `
import { appendFileSync, existsSync, readFileSync } from 'node:fs';
const here = import.meta.dirname;
const run = { args: process.argv.slice(2), info: JSON.parse(process.env.KUBERNETES_EXEC_INFO), env: process.env };
appendFileSync(here + '/runs', JSON.stringify(run) + '\\n');
const number = readFileSync(here + '/runs', 'utf8').split('\\n').length - 1;
process.stderr.write(process.env.SAYS ?? '');
if (existsSync(here + '/script.mjs')) await import(here + '/script.mjs');
process.stdout.write(readFileSync(here + '/output', 'utf8').replaceAll('NUMBER', number));
`;

/** The credentials that a plugin prints. */
export function credential(status: object | undefined, apiVersion: string = V1): string {
  return JSON.stringify({ kind: 'ExecCredential', apiVersion, status });
}

export interface PluginParts {
  readonly server?: string;
  readonly cluster?: object;
  readonly user?: object;
  /** Over the plugin's own entry. */
  readonly exec?: object;
  /** Given to the plugin. */
  readonly args?: readonly string[];
  /** Beside the kubeconfig. */
  readonly files?: Readonly<Record<string, string>>;
  readonly output?: string;
  /** A module that the plugin runs before it prints. */
  readonly script?: string;
}

/** Writes a kubeconfig whose user is the plugin's. */
export async function pluginFiles(parts: PluginParts = {}, atEnd?: AtEnd): Promise<PluginFiles> {
  const directory = await emptyDirectory(atEnd);
  const plugin = join(directory, 'plugin');
  await mkdir(plugin);
  await writeFile(join(plugin, 'plugin.mjs'), PLUGIN);
  await writeFile(join(plugin, 'runs'), '');
  if (parts.script !== undefined) await writeFile(join(plugin, 'script.mjs'), parts.script);
  for (const [name, text] of Object.entries(parts.files ?? {})) await writeFile(join(directory, name), text);
  const prints = (output: string) => writeFile(join(plugin, 'output'), output);
  await prints(parts.output ?? credential({ token: 'token-NUMBER' }));
  const exec = {
    apiVersion: V1,
    command: process.execPath,
    args: [join(plugin, 'plugin.mjs'), ...(parts.args ?? [])],
    interactiveMode: 'IfAvailable',
    ...parts.exec,
  };
  const document = {
    'current-context': 'here',
    clusters: [
      { name: 'one', cluster: { server: parts.server ?? 'https://10.0.0.1:6443', ...parts.cluster } },
    ],
    users: [{ name: 'me', user: { exec, ...parts.user } }],
    contexts: [{ name: 'here', context: { cluster: 'one', user: 'me' } }],
  };
  const kubeconfig = join(directory, 'config');
  await writeFile(kubeconfig, stringify(document));
  const runs = async () => {
    const lines = (await readFile(join(plugin, 'runs'), 'utf8')).split('\n').slice(0, -1);
    return lines.map((line) => JSON.parse(line) as PluginRun);
  };
  return { kubeconfig, directory, runs, prints };
}
