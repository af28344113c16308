import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { must } from './command.ts';
import { sha256 } from './image.ts';

/** Go's names, as images have them. */
export type Architecture = 'amd64' | 'arm64';

export const OWN_ARCHITECTURE: Architecture = process.arch === 'arm64' ? 'arm64' : 'amd64';

/** One image, for one or several architectures, in a folder as OCI's image specification has it. */
export interface Layout {
  readonly folder: string;
  /** Digest of the image's index; of its manifest where it has one architecture and no attestation. */
  readonly digest: string;
}

/** How a container is made of it, by OCI's image specification; not all of it. */
export interface ContainerConfig {
  readonly Env?: readonly string[];
  readonly Entrypoint?: readonly string[];
  readonly Cmd?: readonly string[];
  readonly User?: string;
  readonly WorkingDir?: string;
  readonly Labels?: Readonly<Record<string, string>>;
}

interface Descriptor {
  readonly mediaType: string;
  readonly digest: string;
  readonly size: number;
  readonly platform?: { readonly architecture: string; readonly os: string };
  readonly annotations?: Readonly<Record<string, string>>;
}

interface Index {
  readonly manifests: readonly Descriptor[];
}

interface Manifest {
  readonly config: Descriptor;
  readonly layers: readonly Descriptor[];
}

const OCI = 'application/vnd.oci.image';
const INDEX = `${OCI}.index.v1+json`;
const MANIFEST = `${OCI}.manifest.v1+json`;

/** @param fill what is in it, for each architecture, in one layer */
export async function writeLayout(
  folder: string,
  config: ContainerConfig,
  architectures: readonly Architecture[],
  fill: (root: string, architecture: Architecture) => Promise<void>,
): Promise<Layout> {
  const blobs = join(folder, 'blobs', 'sha256');
  mkdirSync(blobs, { recursive: true });
  const write = (mediaType: string, content: object): Descriptor => {
    const bytes = Buffer.isBuffer(content) ? content : Buffer.from(JSON.stringify(content));
    writeFileSync(join(blobs, sha256(bytes)), bytes);
    return { mediaType, digest: `sha256:${sha256(bytes)}`, size: bytes.length };
  };
  const manifests: Descriptor[] = [];
  for (const architecture of architectures) {
    const [root, packed] = [join(folder, 'root'), join(folder, 'layer')];
    mkdirSync(root);
    await fill(root, architecture);
    const always = ['--numeric-owner', '--sort=name', '--mtime=@0', '--use-compress-program=gzip -n'];
    await must(['tar', ...always, '-cf', packed, '-C', root, '.']);
    const layer = readFileSync(packed);
    rmSync(packed);
    rmSync(root, { recursive: true });
    const rootfs = { type: 'layers', diff_ids: [`sha256:${sha256(gunzipSync(layer))}`] };
    const platform = { architecture, os: 'linux' };
    const written = write(MANIFEST, {
      schemaVersion: 2,
      mediaType: MANIFEST,
      config: write(`${OCI}.config.v1+json`, { ...platform, config, rootfs }),
      layers: [write(`${OCI}.layer.v1.tar+gzip`, layer)],
    });
    manifests.push({ ...written, platform });
  }
  const top = write(INDEX, { schemaVersion: 2, mediaType: INDEX, manifests });
  writeFileSync(join(folder, 'index.json'), JSON.stringify({ schemaVersion: 2, manifests: [top] }));
  writeFileSync(join(folder, 'oci-layout'), JSON.stringify({ imageLayoutVersion: '1.0.0' }));
  return layoutIn(folder);
}

/** The layout in a folder, also one that a builder has written. */
export function layoutIn(folder: string): Layout {
  const { manifests } = indexIn(folder);
  return { folder, digest: manifests[0]?.digest ?? '' };
}

const indexIn = (folder: string) => JSON.parse(readFileSync(join(folder, 'index.json'), 'utf8')) as Index;

/** An image of one architecture. */
export interface Image {
  readonly config: ContainerConfig;
  readonly layers: readonly Descriptor[];
  /** What a registry keeps of it and a node fetches, in bytes. */
  readonly compressed: number;
  /** In-toto statements about it, by the type of what they state. */
  readonly attestations: ReadonlyMap<string, object>;
}

const blob = <T>({ folder }: Layout, digest: string) =>
  JSON.parse(readFileSync(blobFile(folder, digest), 'utf8')) as T;

const blobFile = (folder: string, digest: string) => join(folder, 'blobs', digest.replace(':', '/'));

/** @throws Error where it has none of that architecture */
export function imageOf(layout: Layout, architecture: Architecture): Image {
  const { manifests = indexIn(layout.folder).manifests } = blob<Partial<Index>>(layout, layout.digest);
  const own = manifests.find(({ platform }) => platform?.architecture === architecture);
  if (own === undefined) throw new Error(`${layout.folder}: nothing for ${architecture}`);
  const { config, layers } = blob<Manifest>(layout, own.digest);
  const about = manifests.filter(
    ({ annotations = {} }) => annotations['vnd.docker.reference.digest'] === own.digest,
  );
  const statements = about.flatMap(({ digest }) => blob<Manifest>(layout, digest).layers);
  return {
    config: blob<{ config: ContainerConfig }>(layout, config.digest).config,
    layers,
    compressed: [own, config, ...layers].reduce((sum, { size }) => sum + size, 0),
    attestations: new Map(
      statements.map(({ digest, annotations = {} }) => [
        annotations['in-toto.io/predicate-type'] ?? '',
        blob<object>(layout, digest),
      ]),
    ),
  };
}

/** Unpacks the files as a container would see them. Deletions are not handled: a build without commands makes none. */
export async function unpackLayers({ folder }: Layout, { layers }: Image, into: string): Promise<void> {
  for (const { digest } of layers)
    await must(['tar', '--numeric-owner', '-xpzf', blobFile(folder, digest), '-C', into]);
}
