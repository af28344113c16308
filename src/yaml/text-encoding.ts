/** The encoding of a file. Shells of Windows write UTF-16, and kubectl reads it. */
export type Encoding = 'utf-8' | 'utf-16le' | 'utf-16be';

/** By its byte order mark; without one, a file is UTF-8. */
export function encodingOf(bytes: Uint8Array): Encoding {
  if (bytes[0] === 0xff && bytes[1] === 0xfe) return 'utf-16le';
  return bytes[0] === 0xfe && bytes[1] === 0xff ? 'utf-16be' : 'utf-8';
}

/** The text of a file that a user names, without its byte order mark. What is invalid becomes U+FFFD. */
export function fileText(bytes: Uint8Array): string {
  return new TextDecoder(encodingOf(bytes)).decode(bytes);
}
