/** An archive that cannot be read, and why. */
export class ZipError extends Error {}

export interface ZipEntry {
  readonly path: string;
  readonly bytes: () => Promise<Uint8Array>;
}

/** Limits for an archive, whatever it claims about its sizes. */
export interface ZipBudget {
  readonly entries: number;
  /** The inflated size of all entries that are read together. */
  readonly bytes: number;
}

const [END, ENTRY, LOCAL] = [0x06054b50, 0x02014b50, 0x04034b50];
const END_BYTES = 22;
/** The comment at the end is shorter. */
const LONGEST_COMMENT = 0xffff;
const [STORED, DEFLATED] = [0, 8];
const ENCRYPTED = 1;

/**
 * The files of a zip archive according to its directory; each is inflated when it is requested. Archives may have up to 4
 * GiB (no Zip64), and no password.
 * @throws ZipError
 */
export function readZip(archive: Uint8Array<ArrayBuffer>, budget: ZipBudget): readonly ZipEntry[] {
  const view = new DataView(archive.buffer, archive.byteOffset, archive.byteLength);
  const within = (at: number, length: number) => {
    if (at < 0 || at + length > archive.length) throw new ZipError('the archive is cut off');
    return at;
  };
  const end = endOf(view);
  const count = view.getUint16(end + 10, true);
  if (count > budget.entries)
    throw new ZipError(`${count} entries, more than ${budget.entries}: drop a folder of them`);
  let left = budget.bytes;
  let at = view.getUint32(end + 16, true);
  const entries: ZipEntry[] = [];
  for (let index = 0; index < count; index += 1) {
    if (view.getUint32(within(at, 46), true) !== ENTRY) throw new ZipError('its directory cannot be read');
    const [flags, method] = [view.getUint16(at + 8, true), view.getUint16(at + 10, true)];
    const size = view.getUint32(at + 20, true);
    const [name, extra, comment] = [28, 30, 32].map((offset) => view.getUint16(at + offset, true));
    const header = view.getUint32(at + 42, true);
    const path = new TextDecoder().decode(archive.subarray(at + 46, at + 46 + (name ?? 0)));
    at += 46 + (name ?? 0) + (extra ?? 0) + (comment ?? 0);
    if (path.endsWith('/')) continue;
    const bytes = async () => {
      if ((flags & ENCRYPTED) !== 0) throw new ZipError(`${path} has a password: unpack it first`);
      if (view.getUint32(within(header, 30), true) !== LOCAL) throw new ZipError(`${path} cannot be read`);
      const from = header + 30 + view.getUint16(header + 26, true) + view.getUint16(header + 28, true);
      const packed = archive.subarray(within(from, size), from + size);
      if (method !== STORED && method !== DEFLATED)
        throw new ZipError(`${path}: method ${method} of compression is not known`);
      const inflated = method === STORED ? packed : await inflate(packed, left, path);
      left -= inflated.length;
      if (left < 0) throw tooLarge(path);
      return inflated;
    };
    entries.push({ path, bytes });
  }
  return entries;
}

function endOf(view: DataView): number {
  const first = Math.max(0, view.byteLength - END_BYTES - LONGEST_COMMENT);
  for (let at = view.byteLength - END_BYTES; at >= first; at -= 1)
    if (view.getUint32(at, true) === END) return at;
  throw new ZipError('this is no zip archive, or it is cut off');
}

/** Limits what is actually inflated, because the sizes that the archive states may be wrong. */
async function inflate(packed: Uint8Array<ArrayBuffer>, most: number, path: string): Promise<Uint8Array> {
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate-raw'));
  const pieces: Uint8Array<ArrayBuffer>[] = [];
  let length = 0;
  const reader = stream.getReader();
  try {
    for (let read = await reader.read(); !read.done; read = await reader.read()) {
      pieces.push(read.value);
      length += read.value.length;
      if (length > most) throw tooLarge(path);
    }
  } catch (thrown) {
    void reader.cancel().catch(() => undefined);
    throw thrown instanceof ZipError ? thrown : new ZipError(`${path} cannot be inflated`);
  }
  return new Uint8Array(await new Blob(pieces).arrayBuffer());
}

function tooLarge(path: string): ZipError {
  return new ZipError(`${path}: more than the page reads at a time; drop a part of it`);
}
