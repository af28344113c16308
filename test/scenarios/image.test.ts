import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { containerRuntime } from '../../bench/containerfile.ts';
import { buildProgram } from '../../deploy/build.ts';
import { BUILT, ROOT } from '../cli/built.ts';
import { assembledImageArchive, LINGER_IMAGE } from '../cluster-suite/support/linger-image.ts';
import { ensureBinaries } from '../testbed/binaries.ts';
import { type Builder, startBuilder } from '../testbed/builder.ts';
import { openCluster } from '../testbed/cluster.ts';
import { eachLine, must, run } from '../testbed/command.ts';
import {
  type Architecture,
  type ContainerConfig,
  type Image,
  imageOf,
  type Layout,
  OWN_ARCHITECTURE,
  unpackLayers,
} from '../testbed/oci-layout.ts';
import { clusterSettings, statePaths } from '../testbed/settings.ts';
import { ARCHITECTURES, isBookworm } from '../testbed/stand-ins.ts';
import { LONG } from './form.ts';

/** The network of the machine, as `npm run scenarios` names it to what it runs in the network of a cluster of ours. */
const OUTSIDE = process.env.LINGER_OUTSIDE;
const RUNTIME = containerRuntime(ROOT);
const USER = Number(RUNTIME.user.split(':')[0]);
/** The goal, for what a node fetches. */
const MOST_BYTES = 90e6;
/** The context is what the Containerfile copies: sources, and no more. */
const MOST_CONTEXT_BYTES = 4e6;
/** Any: what is built twice is built of the same time. */
const EPOCH = 1_790_000_000;
const LABELS = {
  'org.opencontainers.image.version': '0.1.0',
  'org.opencontainers.image.revision': '0'.repeat(40),
  'org.opencontainers.image.source': 'https://example.com/linger',
};
const STARTS = 9;
const HELPER_IMAGE = 'registry.example/linger-hold:0.1.0';

/** An image as a container would have it. */
interface Container {
  readonly config: ContainerConfig;
  /** The folder of its files. */
  readonly root: string;
  /** The program that it should have. Names in it come from digests, in which the way to the sources is, too. */
  readonly bundle: string;
}

interface Start {
  /** CPU time of the process until it listens. */
  readonly cpuMs: number;
  /** What Node says of its compile cache, for each file of the program. */
  readonly compiled: readonly string[];
}

/** deploy/Containerfile, built by BuildKit as docker/build-push-action has it built, and read by the testbed itself. */
describe.runIf(LONG && OUTSIDE !== undefined && isBookworm())('the image', async () => {
  if (!LONG || OUTSIDE === undefined || !isBookworm()) return;
  const cluster = await openCluster();
  const settings = clusterSettings();
  const scratch = mkdtempSync(join(tmpdir(), 'linger-images-'));
  let builder: Builder | undefined;
  let built: Layout & { readonly log: string };
  const images = new Map<Architecture, Image>();
  const containers = new Map<string, Container>();

  const directory = (name: string) => {
    const path = join(scratch, name);
    mkdirSync(path, { recursive: true });
    return path;
  };

  beforeAll(async () => {
    const bundle = join(ROOT, 'dist');
    await buildProgram(bundle);
    const words = ['nsenter', `--net=${OUTSIDE}`, '--'];
    builder = await startBuilder(settings, words, console.log);
    const options = { into: join(scratch, 'built'), name: LINGER_IMAGE, labels: LABELS, epoch: EPOCH };
    built = await builder.build({ ...options, architectures: ARCHITECTURES, attested: true });
    for (const architecture of ARCHITECTURES) {
      const image = imageOf(built, architecture);
      images.set(architecture, image);
      const root = directory(architecture);
      await unpackLayers(built, image, root);
      containers.set(architecture, { config: image.config, root, bundle });
    }
    containers.set('assembled', await unpackArchive(await assembledImageArchive(), directory('assembled')));
  }, 900_000);

  afterAll(async () => {
    await builder?.stop();
    await cluster.close();
    rmSync(scratch, { recursive: true, force: true });
  }, 120_000);

  const imageFor = (architecture: Architecture) => images.get(architecture)!;

  it('is built without a warning, of what the Containerfile copies', () => {
    expect(built.log).not.toMatch(/\d+ warnings? found/);
    const sent = [...built.log.matchAll(/transferring context: ([\d.]+)(k?|M)B .*done$/gm)];
    const bytes = sent.map(([, amount, unit]) => Number(amount) * { '': 1, k: 1e3, M: 1e6 }[unit as 'k']);
    expect(Math.max(...bytes)).toBeGreaterThan(1e6);
    expect(Math.max(...bytes)).toBeLessThan(MOST_CONTEXT_BYTES);
  });

  it.each(ARCHITECTURES)('is as small as it should be: %s', (architecture) => {
    const { compressed, layers } = imageFor(architecture);
    console.log(
      `${architecture}: ${compressed} bytes, layers of ${layers.map(({ size }) => size).join(', ')}`,
    );
    expect(compressed).toBeLessThan(MOST_BYTES);
  });

  it.each(ARCHITECTURES)('is configured as the testbed reads it, and labelled: %s', (architecture) => {
    const { config } = imageFor(architecture);
    const { nodeFlags, program, environment, user } = RUNTIME;
    expect(config).toMatchObject({
      Entrypoint: ['node', ...nodeFlags, program, 'serve'],
      User: user,
      WorkingDir: '/app',
      Labels: { ...LABELS, 'org.opencontainers.image.title': 'linger' },
    });
    expect(config.Cmd).toBeUndefined();
    expect(config.Env).toEqual(
      expect.arrayContaining(Object.entries(environment).map(([name, value]) => `${name}=${value}`)),
    );
  });

  describe.each([...ARCHITECTURES, 'assembled'])('%s', (name) => {
    const container = () => containers.get(name)!;

    it('has the bundle, and of the checkout nothing else', () => {
      const files = (folder: string) =>
        globSync('**/*', { cwd: folder, withFileTypes: true })
          .filter((entry) => entry.isFile())
          .map((entry) => join(entry.parentPath, entry.name).slice(folder.length + 1))
          .toSorted();
      const app = join(container().root, 'app');
      const program = container().bundle;
      const bundle = files(program).filter((file) => !file.endsWith('.map'));
      const bill = name === 'assembled' ? [] : ['linger.spdx.json'];
      expect(files(join(app, 'dist'))).toEqual([...bundle, ...bill].toSorted());
      const same = (file: string) =>
        readFileSync(join(app, 'dist', file)).equals(readFileSync(join(program, file)));
      expect(bundle.filter((file) => !same(file))).toEqual([]);
      const rest = files(app).filter((file) => !file.startsWith('dist/'));
      expect(rest.filter((file) => !/^cache\/v24\.[\w.-]+\/[0-9a-f]{8}$/.test(file))).toEqual([
        'package.json',
      ]);
    });

    it('gives its user nothing to write to but the compile cache', async () => {
      const { root } = container();
      const own = ['(', '-uid', String(USER), '-o', '-perm', '-o+w', ')'];
      const writable = [...own, '!', '-type', 'l', '-printf', '/%P\n'];
      const found = (await must(['find', root, ...writable])).split('\n').filter(Boolean);
      // Debian's own folders that anyone may write to, the user's home, and the compile cache.
      const usual = /^\/(app\/cache|tmp|var\/tmp|var\/lock|home\/nonroot)(\/|$)/;
      expect(found.filter((path) => !usual.test(path))).toEqual([]);
    });

    it('has no shell, no package manager, and no npm', () => {
      const programs = globSync('{,usr/,usr/local/}{bin,sbin}/*', { cwd: container().root });
      expect(programs.map((path) => basename(path)).filter((program) => program !== 'node')).toEqual([]);
    });

    it('starts with all of its code compiled', async () => {
      const { compiled } = await start(container());
      console.log(`${name}: ${compiled.length} files of compiled code`);
      expect(compiled.length).toBeGreaterThan(50);
      expect(compiled.filter((said) => !said.startsWith('was accepted'))).toEqual([]);
    });
  });

  it('starts with less work than without its compile cache', async () => {
    const container = containers.get(OWN_ARCHITECTURE)!;
    const rounds = { with: [] as number[], without: [] as number[] };
    for (let round = 0; round < STARTS; round += 1) {
      rounds.with.push((await start(container)).cpuMs);
      rounds.without.push((await start(container, { NODE_COMPILE_CACHE: '/nowhere' })).cpuMs);
    }
    const median = (values: readonly number[]) => values.toSorted((a, b) => a - b)[STARTS >> 1] ?? Number.NaN;
    console.log(`until it listens, ms of processor time: ${JSON.stringify(rounds)}`);
    expect(median(rounds.with)).toBeLessThan(median(rounds.without));
  });

  it('has its provenance, whole', () => {
    for (const architecture of ARCHITECTURES) {
      const statement = imageFor(architecture).attestations.get('https://slsa.dev/provenance/v1');
      const text = JSON.stringify(statement);
      for (const base of ['node:24-bookworm-slim', 'distroless/cc-debian12']) expect(text).toContain(base);
      for (const command of ['npm ci --ignore-scripts', 'npm run build']) expect(text).toContain(command);
      // The secret's name is in it, and its content is not.
      expect(text).toContain('npmrc');
      expect(text).not.toMatch(/BEGIN CERTIFICATE|registry=/);
    }
  });

  it('lists its packages: Debian’s, Node, and those that the bundle is made of', () => {
    const { dependencies } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
      dependencies: Readonly<Record<string, string>>;
    };
    for (const architecture of ARCHITECTURES) {
      const { predicate } = imageFor(architecture).attestations.get('https://spdx.dev/Document') as {
        predicate: { packages: readonly { name: string; versionInfo?: string }[] };
      };
      const listed = predicate.packages.map((each) => `${each.name}@${each.versionInfo}`);
      console.log(`${architecture}: ${listed.length} packages`);
      expect(listed).toEqual(
        expect.arrayContaining(Object.entries(dependencies).map(([name, version]) => `${name}@${version}`)),
      );
      expect(listed.join('\n')).toMatch(/^libc6@/m);
      expect(listed.join('\n')).toMatch(/^node@24\./m);
      expect(listed.join('\n')).not.toMatch(/^(vitest|esbuild|npm)@/m);
    }
  });

  it('comes out the same once more, but for the compiled code', { timeout: 600_000 }, async () => {
    const again = await builder!.build({
      into: join(scratch, 'again'),
      name: LINGER_IMAGE,
      labels: LABELS,
      epoch: EPOCH,
      architectures: [OWN_ARCHITECTURE],
      anew: true,
    });
    const digests = (image: Image) => image.layers.map(({ digest }) => digest);
    const [first, second] = [imageFor(OWN_ARCHITECTURE), imageOf(again, OWN_ARCHITECTURE)].map(digests);
    // V8 seeds its hashes anew in each process, and what it has compiled until it ends depends on time.
    expect(second?.slice(0, -1)).toEqual(first?.slice(0, -1));
    console.log(`compiled code ${second?.at(-1) === first?.at(-1) ? 'the same' : 'differs'}`);
  });

  it('the helper’s is the helper', { timeout: 120_000 }, async () => {
    const options = { into: join(scratch, 'helper'), name: HELPER_IMAGE, target: 'helper', epoch: EPOCH };
    const helper = await builder!.build({ ...options, architectures: ARCHITECTURES });
    for (const architecture of ARCHITECTURES) {
      const root = directory(`helper-${architecture}`);
      await unpackLayers(helper, imageOf(helper, architecture), root);
      expect(globSync('**/*', { cwd: root })).toEqual(['hold']);
      const committed = join(ROOT, `src/hold/helper/hold-${architecture}`);
      expect(readFileSync(join(root, 'hold')).equals(readFileSync(committed))).toBe(true);
      expect(statSync(join(root, 'hold')).mode & 0o111).toBe(0o111);
    }
  });

  it('can be installed: the whole test of the installation', { timeout: 900_000 }, async () => {
    const archive = join(scratch, 'image.tar');
    await must(['tar', '-cf', archive, '-C', built.folder, '.']);
    const vitest = [process.execPath, join(ROOT, 'node_modules/vitest/vitest.mjs'), 'run', '--root', ROOT];
    const suite = ['--config', 'test/testbed/vitest.config.ts', 'test/cluster-suite/install.test.ts'];
    const env = { ...process.env, LINGER_IMAGE_ARCHIVE: archive, SCENARIOS: 'short' };
    const { code, stdout, stderr } = await run([...vitest, ...suite], { env });
    console.log(stdout.split('\n').slice(-8).join('\n'));
    if (code !== 0) throw new Error(`${stdout}\n${stderr}`);
    // And that was this one.
    const { containerdDirectory } = await ensureBinaries(settings.cacheDir, console.log);
    const ctr = [
      join(containerdDirectory, 'ctr'),
      '--address',
      statePaths(settings.stateDir).containerdSocket,
    ];
    const images = ['--namespace', 'k8s.io', 'images', 'ls', `name==${LINGER_IMAGE}`];
    expect(await must([...ctr, ...images])).toContain(built.digest);
  });
});

/** As in its container, with a cluster that never answers, until it listens. */
async function start(
  { config, root }: Container,
  variables: Readonly<Record<string, string>> = {},
): Promise<Start> {
  mkdirSync(join(root, 'tmp'), { recursive: true });
  chmodSync(join(root, 'tmp'), 0o1777);
  rmSync(join(root, 'tmp/certs'), { recursive: true, force: true });
  for (const [path, text] of Object.entries(RUNTIME.files)) writeFileSync(join(root, path), text);
  const [uid = '', gid = ''] = (config.User ?? '').split(':');
  const inside = [`--root=${root}`, `--wd=${config.WorkingDir ?? '/'}`, `--setgid=${gid}`, `--setuid=${uid}`];
  const given = (config.Env ?? []).map((pair) => [
    pair.slice(0, pair.indexOf('=')),
    pair.slice(pair.indexOf('=') + 1),
  ]);
  const env = { ...Object.fromEntries(given), NODE_DEBUG_NATIVE: 'COMPILE_CACHE', ...variables };
  const [warmUp = []] = RUNTIME.warmUps;
  const command = [...(config.Entrypoint ?? []), ...warmUp.slice(1)];
  const child = spawn('unshare', [...inside, ...command], { env, stdio: 'pipe' });
  const ended = once(child, 'exit');
  const said: string[] = [];
  let cpuMs = Number.NaN;
  const listening = new Promise<void>((resolve) => {
    const take = (line: string) => {
      said.push(line);
      if (!line.includes('"msg":"listening"')) return;
      cpuMs = processorMs(child.pid ?? 0);
      resolve();
    };
    for (const stream of [child.stdout, child.stderr]) eachLine(stream, take);
  });
  await Promise.race([listening, ended]);
  child.kill('SIGTERM');
  await ended;
  if (Number.isNaN(cpuMs)) throw new Error(`it has not listened:\n${said.slice(-20).join('\n')}`);
  const compiled = said.flatMap((line) => /V8 code cache for \S+ file:\S+ (.+)$/.exec(line)?.[1] ?? []);
  return { cpuMs, compiled };
}

/** User and system time; a tick of proc(5) is 10 ms. */
function processorMs(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return 10 * (Number(fields[11]) + Number(fields[12]));
}

/** Unpacks an archive of one image with one layer, in the format of `docker save`. */
async function unpackArchive(archive: Buffer, folder: string): Promise<Container> {
  const file = join(folder, 'archive.tar');
  writeFileSync(file, archive);
  await must(['tar', '-xf', file, '-C', folder]);
  const [{ Config, Layers } = { Config: '', Layers: [''] }] = JSON.parse(
    readFileSync(join(folder, 'manifest.json'), 'utf8'),
  ) as { Config: string; Layers: string[] }[];
  const root = join(folder, 'root');
  mkdirSync(root);
  await must(['tar', '--numeric-owner', '-xpf', join(folder, Layers[0] ?? ''), '-C', root]);
  const { config } = JSON.parse(readFileSync(join(folder, Config), 'utf8')) as { config: ContainerConfig };
  return { config, root, bundle: BUILT };
}
