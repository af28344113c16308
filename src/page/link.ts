/** What a link carries in its fragment, which browsers never send. */
export interface Linked {
  readonly manifest: string;
  readonly policies: string;
}

const MARK = '#m=';
/** Characters; chats and mail programs truncate longer addresses. */
export const LONGEST_LINK = 30_000;
/** Bounded, because anyone may have made the link. */
const MOST_INFLATED = 8 * 1024 * 1024;

/** The fragment with this content, compressed. */
export async function fragmentOf(linked: Linked): Promise<string> {
  const stream = new Blob([JSON.stringify(linked)])
    .stream()
    .pipeThrough(new CompressionStream('deflate-raw'));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const text = Array.from(bytes, (byte) => String.fromCharCode(byte)).join('');
  return MARK + btoa(text).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
}

/** @returns undefined: there is no content, or it is broken */
export async function linkedIn(fragment: string): Promise<Linked | undefined> {
  if (!fragment.startsWith(MARK)) return undefined;
  try {
    const [packedText = ''] = fragment.slice(MARK.length).split('&');
    const text = atob(packedText.replaceAll('-', '+').replaceAll('_', '/'));
    const packed = Uint8Array.from(text, (char) => char.charCodeAt(0));
    const reader = new Blob([packed])
      .stream()
      .pipeThrough(new DecompressionStream('deflate-raw'))
      .getReader();
    const pieces: Uint8Array<ArrayBuffer>[] = [];
    let length = 0;
    for (let read = await reader.read(); !read.done; read = await reader.read()) {
      pieces.push(read.value);
      length += read.value.length;
      if (length > MOST_INFLATED) return undefined;
    }
    const value = JSON.parse(await new Blob(pieces).text()) as Partial<Record<keyof Linked, unknown>>;
    const { manifest, policies } = value;
    return typeof manifest === 'string' && typeof policies === 'string' ? { manifest, policies } : undefined;
  } catch {
    return undefined;
  }
}
