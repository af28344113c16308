/** The bytes, cut at these places; characters of several bytes are cut, too. */
export function cut(bytes: Buffer, places: readonly number[]): readonly Buffer[] {
  const ends = [...places.map((place) => place % (bytes.length + 1)), bytes.length].toSorted((a, b) => a - b);
  return ends.map((end, index) => bytes.subarray(ends[index - 1] ?? 0, end));
}
