import { createHash } from 'node:crypto';

/** One file of an image's single layer. Directories above it are made on the way. */
export type ImageFile =
  | { readonly path: string; readonly mode: number; readonly content: Buffer }
  /** A symbolic link, relative to its own directory or absolute. */
  | { readonly path: string; readonly linkTo: string };

export interface ImageDefinition {
  /** Full reference with registry and tag, for example `linger.test/app:1`. */
  readonly reference: string;
  readonly files: readonly ImageFile[];
  readonly entrypoint?: readonly string[];
  readonly command?: readonly string[];
  /** Beside PATH. */
  readonly environment?: Readonly<Record<string, string>>;
  /** `UID:GID`; numeric, so that kubelet can verify runAsNonRoot. Default: root. */
  readonly user?: string;
}

/** Tar's unit: headers and contents are padded to it. */
const BLOCK = 512;

/** Go's names for Node's names of processors. */
const architectures: Partial<Record<NodeJS.Architecture, string>> = { x64: 'amd64', arm64: 'arm64' };

/**
 * A docker-archive (what `docker save` writes, and `ctr images import` and
 * `kind load image-archive` read) of one or several images: for each a layer and a
 * configuration, named by digest, and one manifest.json for all. Without time stamps:
 * the same input is the same archive.
 */
export function imageArchive(images: readonly ImageDefinition[]): Buffer {
  const entries = new Map<string, Buffer>();
  const manifest = images.map((image) => {
    const layer = tar(layerEntries(image.files));
    const layerName = `${sha256(layer)}.tar`;
    const configuration = Buffer.from(JSON.stringify(imageConfiguration(image, layer)));
    const configurationName = `${sha256(configuration)}.json`;
    // Images that share a layer share its file.
    entries.set(layerName, layer).set(configurationName, configuration);
    return { Config: configurationName, RepoTags: [image.reference], Layers: [layerName] };
  });
  entries.set('manifest.json', Buffer.from(JSON.stringify(manifest)));
  return tar([...entries].map(([path, content]) => ({ path, mode: 0o644, content })));
}

/** A digest that changes when any byte of an archive does. */
export function sha256(content: Buffer): string {
  return createHash('sha256').update(content).digest('hex');
}

function imageConfiguration(image: ImageDefinition, layer: Buffer): object {
  const architecture = architectures[process.arch];
  if (architecture === undefined) throw new Error(`no image architecture known for ${process.arch}`);
  return {
    architecture,
    os: 'linux',
    config: {
      Env: ['PATH=/bin', ...Object.entries(image.environment ?? {}).map((pair) => pair.join('='))],
      ...(image.entrypoint === undefined ? {} : { Entrypoint: image.entrypoint }),
      ...(image.command === undefined ? {} : { Cmd: image.command }),
      ...(image.user === undefined ? {} : { User: image.user }),
    },
    rootfs: { type: 'layers', diff_ids: [`sha256:${sha256(layer)}`] },
  };
}

type TarEntry = ImageFile | { readonly path: string; readonly directory: true };

/** The files, each directory above them once and before what it holds. */
function layerEntries(files: readonly ImageFile[]): TarEntry[] {
  const directories = new Set<string>();
  return files.flatMap((file): TarEntry[] => {
    const path = file.path.replace(/^\/+/, '');
    const above = path.split('/').slice(0, -1);
    const missing = above
      .map((_, depth) => above.slice(0, depth + 1).join('/'))
      .filter((directory) => !directories.has(directory));
    for (const directory of missing) directories.add(directory);
    return [
      ...missing.map((directory) => ({ path: directory, directory: true as const })),
      { ...file, path },
    ];
  });
}

function tar(entries: readonly TarEntry[]): Buffer {
  const blocks = entries.flatMap((entry) => {
    const content = 'content' in entry ? entry.content : Buffer.alloc(0);
    const padding = Buffer.alloc((BLOCK - (content.length % BLOCK)) % BLOCK);
    return [tarHeader(entry, content.length), content, padding];
  });
  // The end of an archive is two blocks of zeros.
  return Buffer.concat([...blocks, Buffer.alloc(2 * BLOCK)]);
}

/** A POSIX ustar header: fixed fields, numbers in octal, a checksum over itself. */
function tarHeader(entry: TarEntry, size: number): Buffer {
  const header = Buffer.alloc(BLOCK);
  const [type, mode, link] = tarKind(entry);
  const text = (offset: number, length: number, value: string) => {
    if (Buffer.byteLength(value) > length) throw new Error(`too long for a tar header: ${value}`);
    header.write(value, offset, 'utf8');
  };
  const octal = (offset: number, length: number, value: number) =>
    text(offset, length, `${value.toString(8).padStart(length - 1, '0')}\0`);
  text(0, 100, entry.path);
  octal(100, 8, mode);
  octal(108, 8, 0);
  octal(116, 8, 0);
  octal(124, 12, size);
  octal(136, 12, 0);
  text(156, 1, type);
  text(157, 100, link);
  text(257, 8, 'ustar\u000000');
  // The checksum is taken with its own field read as eight spaces.
  header.fill(' ', 148, 156);
  octal(
    148,
    7,
    header.reduce((sum, byte) => sum + byte, 0),
  );
  return header;
}

/** Type flag, mode and link target of an entry. */
function tarKind(entry: TarEntry): [type: string, mode: number, link: string] {
  if ('directory' in entry) return ['5', 0o755, ''];
  if ('linkTo' in entry) return ['2', 0o777, entry.linkTo];
  return ['0', entry.mode, ''];
}
