import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { must } from './command.ts';

/** The versions of Kubernetes that the suite has run on. The Go proxy lacks staging modules of some others. */
export const KUBERNETES_VERSIONS = [
  'v1.32.2',
  'v1.33.13',
  'v1.34.4',
  'v1.35.4',
  'v1.36.3',
  'v1.37.2',
] as const;

/** What `go mod edit -json` says. */
interface ModuleFile {
  readonly Go: string;
  readonly Require: readonly { readonly Path: string; readonly Version: string }[];
}

/** How Kubernetes' own go.mod requires the modules that live in its repository, under staging/. */
const STAGING = 'v0.0.0';

/**
 * Writes the Go module that builds this version of Kubernetes: the versions of its dependencies are those that its own
 * go.mod names. Go checks what it downloads against its checksum database.
 * @param mainFile is copied there; undefined: it is there
 */
export async function writeKubernetesModule(
  version: string,
  mainFile: string | undefined,
  into: string,
): Promise<void> {
  const downloaded = JSON.parse(
    await must(['go', 'mod', 'download', '-json', `k8s.io/kubernetes@${version}`]),
  ) as { readonly GoMod: string };
  const { Go, Require } = JSON.parse(
    await must(['go', 'mod', 'edit', '-json', downloaded.GoMod]),
  ) as ModuleFile;
  const versionOf = (module: string) => {
    const found = Require.find(({ Path }) => Path === module);
    if (found === undefined) throw new Error(`k8s.io/kubernetes ${version} does not require ${module}`);
    return found.Version;
  };
  const staging = Require.filter(({ Version }) => Version === STAGING).map(({ Path }) => Path);
  const stagingVersion = version.replace('v1.', 'v0.');
  const lines = [
    'module linger.dev/test/cluster/kubernetes',
    `go ${Go}`,
    'require (',
    `github.com/spf13/cobra ${versionOf('github.com/spf13/cobra')}`,
    `go.etcd.io/etcd/server/v3 ${versionOf('go.etcd.io/etcd/client/v3')}`,
    ...['component-base', 'kubectl'].map((name) => `k8s.io/${name} ${STAGING}`),
    `k8s.io/kubernetes ${version}`,
    ')',
    'replace (',
    ...staging.map((module) => `${module} => ${module} ${stagingVersion}`),
    ')',
  ];
  mkdirSync(into, { recursive: true });
  writeFileSync(join(into, 'go.mod'), `${lines.join('\n')}\n`);
  if (mainFile !== undefined)
    writeFileSync(join(into, 'main.go'), sourceFor(version, readFileSync(mainFile, 'utf8')));
  await must(['go', 'mod', 'tidy'], { cwd: into, env: { ...process.env, GOWORK: 'off' } });
}

/** NewKubeletCommand takes a context from 1.34 on. */
function sourceFor(version: string, source: string): string {
  const [, minor = ''] = version.split('.');
  if (Number(minor) >= 34) return source;
  return source
    .replace('\t"context"\n', '')
    .replace('NewKubeletCommand(context.Background())', 'NewKubeletCommand()');
}

/** As a command: writes the module of the default version, in its place. */
if (import.meta.main) {
  const [version = ''] = process.argv.slice(2);
  const directory = join(import.meta.dirname, 'kubernetes');
  await writeKubernetesModule(version, undefined, directory);
}
