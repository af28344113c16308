import { execFileSync } from 'node:child_process';
import { createWriteStream } from 'node:fs';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { finished } from 'node:stream/promises';
import { parseArgs } from 'node:util';
import { gzipSync } from 'node:zlib';
import { containerRuntime } from '../bench/containerfile.ts';
import { buildProgram } from './build.ts';
import { ARCHITECTURES, type ImageFile, layerEntries, sha256, tar } from './layer.ts';

/*
 * npm run image: an image of Linger without a container engine, of this machine's architecture: this Node with its shared
 * libraries, and the program, in one layer. deploy/Containerfile is what releases are built from: for both architectures, on a
 * base that is kept current, with its code compiled.
 */

const USAGE = `usage: npm run image -- [--output FILE] [--push REGISTRY/NAME[:TAG]] [--plain-http]
  --output      writes an OCI archive: kind load image-archive FILE, k3d image import FILE, minikube image load FILE
  --push        pushes it to a registry; REGISTRY_USER and REGISTRY_PASSWORD in the environment log in
  --plain-http  speaks HTTP to that registry, as to one on this machine anyway
  --name        the name in the archive (default registry.example/linger:VERSION, which deploy/ names)`;

const ROOT = join(import.meta.dirname, '..');
const OCI = 'application/vnd.oci.image';
const MANIFEST = `${OCI}.manifest.v1+json`;

interface Blob {
  readonly mediaType: string;
  readonly digest: string;
  readonly bytes: Buffer;
}

/** One image, for one architecture. */
export interface BuiltImage {
  readonly manifest: Blob;
  /** Its configuration and its layer. */
  readonly blobs: readonly Blob[];
}

/** How a container is made of it, by OCI's image specification; not all of it. */
export interface ContainerConfig {
  readonly Env: readonly string[];
  readonly Entrypoint: readonly string[];
  readonly User: string;
  readonly WorkingDir: string;
}

function blobOf(mediaType: string, bytes: Buffer): Blob {
  return { mediaType, bytes, digest: `sha256:${sha256(bytes)}` };
}

const json = (mediaType: string, value: object) => blobOf(mediaType, Buffer.from(JSON.stringify(value)));
const descriptor = ({ mediaType, digest, bytes }: Blob) => ({ mediaType, digest, size: bytes.length });

export function imageOf(files: readonly ImageFile[], config: ContainerConfig): BuiltImage {
  const unpacked = tar(layerEntries(files));
  const layer = blobOf(`${OCI}.layer.v1.tar+gzip`, gzipSync(unpacked));
  const rootfs = { type: 'layers', diff_ids: [`sha256:${sha256(unpacked)}`] };
  const architecture = ARCHITECTURES[process.arch];
  if (architecture === undefined) throw new Error(`no image architecture known for ${process.arch}`);
  const configuration = json(`${OCI}.config.v1+json`, { architecture, os: 'linux', config, rootfs });
  const manifest = json(MANIFEST, {
    schemaVersion: 2,
    mediaType: MANIFEST,
    config: descriptor(configuration),
    layers: [descriptor(layer)],
  });
  return { manifest, blobs: [configuration, layer] };
}

/** An OCI image layout as a tar file, with the name under which container engines load it. */
export function archiveOf({ manifest, blobs }: BuiltImage, name: string): Buffer {
  const annotations = {
    'io.containerd.image.name': name,
    'org.opencontainers.image.ref.name': referenceIn(name).tag,
  };
  const index = {
    schemaVersion: 2,
    mediaType: `${OCI}.index.v1+json`,
    manifests: [{ ...descriptor(manifest), annotations }],
  };
  const file = (path: string, content: Buffer) => ({ path, mode: 0o644, content });
  const text = (path: string, value: object) => file(path, Buffer.from(JSON.stringify(value)));
  return tar(
    layerEntries([
      text('oci-layout', { imageLayoutVersion: '1.0.0' }),
      text('index.json', index),
      ...[manifest, ...blobs].map(({ digest, bytes }) => file(`blobs/${digest.replace(':', '/')}`, bytes)),
    ]),
  );
}

/** @throws Error for what names no registry */
export function referenceIn(text: string): {
  readonly registry: string;
  readonly name: string;
  readonly tag: string;
} {
  const [, registry, name, tag = 'latest'] =
    /^([\w.-]+\.[\w.-]+|[\w.-]+:\d+|localhost)\/([a-z\d][\w./-]*)(?::([\w.-]+))?$/.exec(text) ?? [];
  if (registry === undefined || name === undefined)
    throw new Error(`expected REGISTRY/NAME[:TAG], such as localhost:5000/linger:0.1.0, got "${text}"`);
  return { registry, name, tag };
}

interface PushOptions {
  readonly plainHttp?: boolean;
  readonly user?: string | undefined;
  readonly password?: string | undefined;
}

/** Pushes by the OCI distribution API. @throws Error with the registry's answer */
export async function push(image: BuiltImage, to: string, options: PushOptions = {}): Promise<void> {
  const { registry, name, tag } = referenceIn(to);
  const isHere = /^(localhost|127\.0\.0\.1)(:|$)/.test(registry);
  const base = `${options.plainHttp || isHere ? 'http' : 'https'}://${registry}`;
  const basic =
    options.user === undefined
      ? undefined
      : `Basic ${Buffer.from(`${options.user}:${options.password ?? ''}`).toString('base64')}`;
  let authorization = basic;
  const ask = async (method: string, url: URL, body?: Blob): Promise<Response> => {
    const attempt = () =>
      fetch(url, {
        method,
        headers: {
          ...(authorization !== undefined && { authorization }),
          ...(body && { 'content-type': body.mediaType }),
        },
        ...(body && { body: new Uint8Array(body.bytes) }),
      });
    const first = await attempt();
    if (first.status !== 401) return first;
    const token = await tokenFor(first, basic);
    if (token === undefined) return first;
    authorization = `Bearer ${token}`;
    return attempt();
  };
  const expect = async (answer: Response, what: string): Promise<Response> => {
    if (answer.ok) return answer;
    const said = (await answer.text()).slice(0, 300);
    const way = answer.status === 401 ? '; set REGISTRY_USER and REGISTRY_PASSWORD' : '';
    throw new Error(`${registry} refused ${what} of ${to}: ${answer.status} ${said}${way}`);
  };
  for (const blob of image.blobs) {
    const there = await ask('HEAD', new URL(`/v2/${name}/blobs/${blob.digest}`, base));
    if (there.ok) continue;
    const begun = await expect(await ask('POST', new URL(`/v2/${name}/blobs/uploads/`, base)), 'an upload');
    const place = new URL(begun.headers.get('location') ?? '', base);
    // Elsewhere the credentials would be sent to whatever the registry names.
    if (place.host !== new URL(base).host) throw new Error(`${registry} sends uploads to ${place.host}`);
    place.searchParams.set('digest', blob.digest);
    await expect(await ask('PUT', place, { ...blob, mediaType: 'application/octet-stream' }), 'a blob');
  }
  const manifest = new URL(`/v2/${name}/manifests/${tag}`, base);
  await expect(await ask('PUT', manifest, image.manifest), 'the manifest');
}

/** By the registry's own words: `Bearer realm="https://auth…",service="…",scope="…"`. */
async function tokenFor(refused: Response, basic: string | undefined): Promise<string | undefined> {
  const challenge = refused.headers.get('www-authenticate') ?? '';
  const member = (key: string) => new RegExp(`${key}="([^"]*)"`).exec(challenge)?.[1];
  const realm = member('realm');
  if (!/^Bearer /i.test(challenge) || realm === undefined) return undefined;
  const url = new URL(realm);
  for (const key of ['service', 'scope']) {
    const value = member(key);
    if (value !== undefined) url.searchParams.set(key, value);
  }
  const answer = await fetch(url, { headers: basic === undefined ? {} : { authorization: basic } });
  if (!answer.ok) return undefined;
  const { token, access_token: other } = (await answer.json()) as { token?: string; access_token?: string };
  return token ?? other;
}

/** Without the cache of compiled code: only a process that runs as the image's user can fill it. */
function configOf(): ContainerConfig {
  const { nodeFlags, program, environment, user } = containerRuntime(ROOT);
  const { NODE_COMPILE_CACHE: _, ...variables } = environment;
  return {
    Env: ['PATH=/bin', ...Object.entries(variables).map((pair) => pair.join('='))],
    Entrypoint: ['/bin/node', ...nodeFlags, `/app/${program}`, 'serve'],
    User: user,
    WorkingDir: '/app',
  };
}

async function programFiles(): Promise<readonly ImageFile[]> {
  const folder = await mkdtemp(join(tmpdir(), 'linger-image-'));
  try {
    await buildProgram(folder);
    const entries = await readdir(folder, { recursive: true, withFileTypes: true });
    const paths = entries
      .filter((entry) => entry.isFile() && !entry.name.endsWith('.map'))
      .map((entry) => join(entry.parentPath, entry.name))
      .filter((path) => !relative(folder, path).startsWith('page'));
    const program = paths.map((path) => fileFrom(path, join('/app/dist', relative(folder, path))));
    return await Promise.all([...program, fileFrom(join(ROOT, 'package.json'), '/app/package.json')]);
  } finally {
    await rm(folder, { recursive: true });
  }
}

/** This Node, and what it is linked with. */
async function nodeFiles(): Promise<readonly ImageFile[]> {
  const node = process.execPath;
  // `libm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x…)`, and the loader by its path alone.
  const libraries = execFileSync('ldd', [node], { encoding: 'utf8' }).matchAll(/(\/\S+) \(0x/g);
  const paths = [...libraries].map(([, path = '']) => path);
  return Promise.all([fileFrom(node, '/bin/node'), ...paths.map((path) => fileFrom(path, path))]);
}

async function fileFrom(path: string, target: string): Promise<ImageFile> {
  return { path: target, mode: 0o755, content: await readFile(path) };
}

async function main(): Promise<void> {
  const text = { type: 'string' } as const;
  const { values } = parseArgs({
    options: { output: text, push: text, name: text, 'plain-http': { type: 'boolean', default: false } },
  });
  if (values.output === undefined && values.push === undefined) throw new Error(USAGE);
  if (process.platform !== 'linux') throw new Error('an image has Linux programs: run this on Linux');
  const { version } = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8')) as { version: string };
  const image = imageOf([...(await nodeFiles()), ...(await programFiles())], configOf());
  const name = values.name ?? values.push ?? `registry.example/linger:${version}`;
  if (values.output !== undefined) {
    const out = createWriteStream(values.output);
    out.end(archiveOf(image, name));
    await finished(out);
    console.log(`${values.output}: ${name}, ${ARCHITECTURES[process.arch]}, ${image.manifest.digest}`);
  }
  if (values.push === undefined) return;
  const { REGISTRY_USER: user, REGISTRY_PASSWORD: password } = process.env;
  await push(image, values.push, { plainHttp: values['plain-http'], user, password });
  console.log(`pushed ${values.push}, ${ARCHITECTURES[process.arch]}, ${image.manifest.digest}`);
}

if (import.meta.main)
  await main().catch((error: Error) => {
    console.error(error.message);
    process.exitCode = 1;
  });
