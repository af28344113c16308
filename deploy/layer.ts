import { createHash } from 'node:crypto';

/** One file of an image's single layer. Directories above it are made on the way. */
export type ImageFile =
  | { readonly path: string; readonly mode: number; readonly content: Buffer }
  /** A symbolic link, relative to its own directory or absolute. */
  | { readonly path: string; readonly linkTo: string };

/** Tar's unit: headers and contents are padded to it. */
const BLOCK = 512;

/** Go's names for Node's names of processors. */
export const ARCHITECTURES: Partial<Record<NodeJS.Architecture, string>> = { x64: 'amd64', arm64: 'arm64' };

/** A digest that changes when any byte of an archive does. */
export function sha256(content: Buffer): string {
  return createHash('sha256').update(content).digest('hex');
}

export type TarEntry = ImageFile | { readonly path: string; readonly directory: true };

/** The files, each directory above them once and before what it holds. */
export function layerEntries(files: readonly ImageFile[]): TarEntry[] {
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

export function tar(entries: readonly TarEntry[]): Buffer {
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
