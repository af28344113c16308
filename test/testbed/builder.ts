import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { ensureBuildkit, ensureSyft } from './binaries.ts';
import { must } from './command.ts';
import { logFile } from './health.ts';
import { type Architecture, type Layout, layoutIn, OWN_ARCHITECTURE, writeLayout } from './oci-layout.ts';
import { readRecord, startProcess, stopProcess } from './process.ts';
import { aptInstall, findProgram, MissingRequirement, systemPath } from './requirements.ts';
import { type ClusterSettings, statePaths } from './settings.ts';
import { ensureStandIns, isBookworm, type StandIns } from './stand-ins.ts';
import { waitUntil } from './waiting.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const CONTAINERFILE = 'deploy/Containerfile';
/** Any name that no component has. */
const NAME = 'buildkitd';

type Say = (line: string) => void;

/** Options that `docker build` has, too. */
export interface BuildOptions {
  /** The folder of the image, which must not exist yet. */
  readonly into: string;
  readonly architectures: readonly Architecture[];
  /** A stage; default: the last. */
  readonly target?: string;
  /** With registry and tag. */
  readonly name: string;
  readonly labels?: Readonly<Record<string, string>>;
  /** The time of all files and dates in the image, in seconds since the epoch. */
  readonly epoch: number;
  /** Provenance comes with it, and what packages it has. */
  readonly attested?: boolean;
  /** Builds without a cache. */
  readonly anew?: boolean;
}

/** BuildKit, which builds deploy/Containerfile of this checkout. */
export interface Builder {
  /** @returns the image, and what BuildKit said meanwhile */
  build(options: BuildOptions): Promise<Layout & { readonly log: string }>;
  stop(): Promise<void>;
}

/** What has to be fetched, where the images of {@link startBuilder} can be made. */
export async function ensureBuilder(cacheDir: string, say: Say): Promise<void> {
  if (!isBookworm()) return say('this is not Debian 12: nothing is built by BuildKit');
  await ensureBuildkit(cacheDir, say);
  await ensureSyft(cacheDir, say);
  await ensureStandIns(cacheDir, say);
  if (findProgram(EMULATOR) === undefined) await aptInstall(['qemu-user-static']);
}

/**
 * Starts it, with images that stand in for the bases that the Containerfile names.
 * @param outside the words before a command that reaches npm's registry, which nothing in the cluster's network does
 */
export async function startBuilder(
  settings: ClusterSettings,
  outside: readonly string[],
  say: Say,
): Promise<Builder> {
  const { cacheDir, name, stateDir } = settings;
  const programs = await ensureBuildkit(cacheDir, say);
  const standIns = await ensureStandIns(cacheDir, say);
  const syft = await ensureSyft(cacheDir, say);
  const paths = statePaths(stateDir);
  const directory = join(stateDir, 'buildkit');
  const binfmt = join(directory, 'binfmt');
  const address = `unix://${directory}/socket`;
  const stop = async () => {
    const record = readRecord(paths.run, NAME);
    if (record !== undefined) await stopProcess(record, paths.run);
    await endEmulation(binfmt);
    rmSync(directory, { recursive: true, force: true });
  };
  /** Runs buildctl with stderr, where its progress comes, joined to stdout. */
  const buildctl = (words: readonly string[]) =>
    must(['sh', '-c', 'exec "$@" 2>&1', 'sh', join(programs, 'buildctl'), '--addr', address, ...words]);
  await stop();
  mkdirSync(directory, { recursive: true });
  await emulate(binfmt);
  const scanner = await makeScanner(syft, join(directory, 'scanner'));
  const configuration = join(directory, 'buildkitd.toml');
  // In a cgroup of the cluster's, so that what removes the cluster finds it.
  writeFileSync(
    configuration,
    `root = ${JSON.stringify(join(directory, 'root'))}
[worker.oci]
  enabled = true
  defaultCgroupParent = ${JSON.stringify(`/${name}/buildkit`)}
[worker.containerd]
  enabled = false
`,
  );
  const argv = [...outside, join(programs, NAME), '--config', configuration, '--addr', address];
  const env = { ...process.env, PATH: systemPath() };
  await startProcess({ name: NAME, argv, runDir: paths.run, logFile: logFile(paths, NAME), env });
  await waitUntil('buildkitd to answer', async () => {
    await buildctl(['debug', 'workers']);
    return true;
  });
  return {
    stop,
    build: async (asked) => {
      const { into, architectures, target, labels = {}, attested = false, anew = false } = asked;
      const npmrc = join(directory, 'npmrc');
      writeFileSync(npmrc, await npmSettings());
      const registry = attested ? await startRegistry(scanner, outside) : undefined;
      const options = {
        filename: CONTAINERFILE,
        platform: architectures.map((each) => `linux/${each}`).join(),
        ...(target === undefined ? {} : { target }),
        'build-arg:SOURCE_DATE_EPOCH': asked.epoch,
        ...Object.fromEntries(Object.entries(labels).map(([key, value]) => [`label:${key}`, value])),
        ...contexts(standIns),
        ...(registry === undefined
          ? {}
          : { 'attest:provenance': 'mode=max', 'attest:sbom': `generator=${registry.address}/scanner` }),
      };
      try {
        const log = await buildctl([
          ...['build', '--progress=plain', '--frontend=dockerfile.v0', ...(anew ? ['--no-cache'] : [])],
          ...Object.entries(options).flatMap(([key, value]) => ['--opt', `${key}=${value}`]),
          ...['--local', `context=${ROOT}`, '--local', `dockerfile=${ROOT}`],
          ...['--secret', `id=npmrc,src=${npmrc}`],
          ...Object.entries(standIns).flatMap(([key, layout]) => ['--oci-layout', `${key}=${layout.folder}`]),
          ...['--output', `type=oci,dest=${into},tar=false,name=${asked.name},rewrite-timestamp=true`],
        ]);
        return { ...layoutIn(into), log };
      } finally {
        registry?.stop();
      }
    },
  };
}

/** Another image in place of each that the Containerfile names, by digest and all. */
function contexts(standIns: StandIns): Readonly<Record<string, string>> {
  const text = readFileSync(join(ROOT, CONTAINERFILE), 'utf8');
  const named = [...text.matchAll(/^FROM (?:--platform=\S+ )?(\S+@sha256:\S+)/gm)];
  return Object.fromEntries(
    named.map(([, base = '']) => {
      const key = base.startsWith('node:') ? 'node' : 'distroless';
      return [`context:${base}`, `oci-layout://${key}@${standIns[key].digest}`];
    }),
  );
}

/** Where this machine's npm fetches packages, and whom it trusts; no credentials. */
async function npmSettings(): Promise<string> {
  const setting = async (name: string) => (await must(['npm', 'config', 'get', name])).trim();
  const file = await setting('cafile');
  const trusted = existsSync(file) ? readFileSync(file, 'utf8') : '';
  const certificates = trusted.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  const lines = certificates.map((certificate) => `ca[]=${JSON.stringify(certificate)}`);
  return [`registry=${await setting('registry')}`, ...lines].join('\n');
}

/** BuildKit takes everything from a folder but the scanner that lists what an image has: that comes from a registry. */
async function startRegistry({ folder }: Layout, outside: readonly string[]) {
  const argv = [...outside, process.execPath, join(import.meta.dirname, 'registry.ts'), folder];
  const [program = '', ...words] = argv;
  const child = spawn(program, words, { stdio: ['ignore', 'pipe', 'inherit'] });
  const [line] = (await once(child.stdout, 'data')) as [Buffer];
  return { address: line.toString().trim(), stop: () => child.kill() };
}

/**
 * As BuildKit's documentation asks of a scanner (docs/attestations/sbom-protocol.md), with the selection of catalogers of Docker's,
 * docker/buildkit-syft-scanner, which is also Syft and some lines, and is no Go module that can be fetched.
 */
const SCAN = `#!/bin/sh
set -e
catalogers="--override-default-catalogers image,file --select-catalogers +sbom-cataloger"
syft scan "dir:$BUILDKIT_SCAN_SOURCE" $catalogers -o spdx-json=/tmp/packages
{
  printf '{"_type":"https://in-toto.io/Statement/v0.1","predicateType":"https://spdx.dev/Document","predicate":'
  cat /tmp/packages
  echo '}'
} > "$BUILDKIT_SCAN_DESTINATION/sbom.spdx.json"
`;

function makeScanner(syft: string, folder: string): Promise<Layout> {
  const busybox = findProgram('busybox');
  if (busybox === undefined) throw new MissingRequirement('no busybox in PATH; Debian: busybox-static');
  const config = { Entrypoint: ['/bin/scan'], Env: ['PATH=/bin', 'SYFT_CHECK_FOR_APP_UPDATE=false'] };
  return writeLayout(folder, config, [OWN_ARCHITECTURE], async (root) => {
    const bin = join(root, 'bin');
    mkdirSync(bin);
    copyFileSync(busybox, join(bin, 'busybox'));
    for (const command of ['sh', 'cat']) symlinkSync('busybox', join(bin, command));
    copyFileSync(syft, join(bin, 'syft'));
    writeFileSync(join(bin, 'scan'), SCAN, { mode: 0o755 });
  });
}

const EMULATOR = 'qemu-aarch64-static';
/** ELF's header for AArch64, and which of its bits count, as QEMU's package has them. */
const MAGIC = '\\x7fELF\\x02\\x01\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x02\\x00\\xb7\\x00';
const MASK =
  '\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\x00\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xfe\\xff\\xff\\xff';
const REGISTERED = 'linger-aarch64';

/** Has the kernel run programs of arm64, unless it does already; binfmt_misc is mounted there. */
async function emulate(mountPoint: string): Promise<void> {
  if (OWN_ARCHITECTURE === 'arm64') return;
  const emulator = findProgram(EMULATOR);
  if (emulator === undefined) throw new MissingRequirement(`no ${EMULATOR}; Debian: qemu-user-static`);
  mkdirSync(mountPoint);
  await must(['mount', '-t', 'binfmt_misc', 'binfmt_misc', mountPoint]);
  const known = readdirSync(mountPoint).filter((name) => !['register', 'status'].includes(name));
  const texts = known.map((name) => readFileSync(join(mountPoint, name), 'utf8'));
  if (
    texts.some(
      (text) => text.startsWith('enabled') && text.includes('7f454c460201010000000000000000000200b7'),
    )
  )
    return;
  // F: what is started is opened now, and need not be in an image.
  writeFileSync(join(mountPoint, 'register'), `:${REGISTERED}:M::${MAGIC}:${MASK}:${emulator}:OF`);
}

async function endEmulation(mountPoint: string): Promise<void> {
  if (!existsSync(join(mountPoint, 'register'))) return;
  const own = join(mountPoint, REGISTERED);
  if (existsSync(own)) writeFileSync(own, '-1');
  await must(['umount', mountPoint]);
}
