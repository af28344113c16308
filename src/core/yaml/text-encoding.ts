/** The encoding of a file. Shells of Windows write UTF-16, and kubectl reads it. */
export type Encoding = 'utf-8' | 'utf-16le' | 'utf-16be';

/** By its byte order mark, or by the zeros that UTF-16 has beside a first ASCII character. */
export function encodingOf([first, second]: Uint8Array): Encoding {
  if (first === undefined || second === undefined) return 'utf-8';
  if ((first === 0xff && second === 0xfe) || (first !== 0 && second === 0)) return 'utf-16le';
  return (first === 0xfe && second === 0xff) || (first === 0 && second !== 0) ? 'utf-16be' : 'utf-8';
}

/** The text of a file that a user names, without its byte order mark. What is invalid becomes U+FFFD. */
export function fileText(bytes: Uint8Array): string {
  return new TextDecoder(encodingOf(bytes)).decode(bytes);
}
