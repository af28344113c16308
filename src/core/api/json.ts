// Shapes of JSON that others wrote, checked before it is read.

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** @returns undefined for text that is not JSON; no JSON text has this value */
export function jsonIn(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** undefined if a member on the path is missing. */
export function memberAt(object: unknown, path: readonly string[]): unknown {
  let value = object;
  for (const member of path) value = isRecord(value) ? value[member] : undefined;
  return value;
}

/** The value at a JSON pointer of plain names, which may lead through lists. */
export function atPointer(object: unknown, pointer: string): unknown {
  return pointer
    .split('/')
    .slice(1)
    .reduce<unknown>(
      (value, step) => (Array.isArray(value) ? value[Number(step)] : memberAt(value, [step])),
      object,
    );
}

/** A list. Anything else counts as empty, including null, as which Go writes an empty list. */
export function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

/**
 * Reads the entries of a stored list, or the members of a record. Entries that cannot be read are left out, as writers of
 * lists leave out what could not be read back.
 * @param read returns undefined for what it cannot read
 */
export function readEntries<T>(list: unknown, read: (entry: unknown) => T | undefined): readonly T[] {
  return listOf(list)
    .map(read)
    .filter((entry) => entry !== undefined);
}

export function recordsAt(value: unknown, ...path: readonly string[]): readonly Record<string, unknown>[] {
  return listOf(memberAt(value, path)).filter(isRecord);
}

export function isString(value: unknown): value is string {
  return typeof value === 'string';
}

/** A member of an unvalidated object as text; empty for a list or a record, since `String` throws for `{"toString": 1}`. */
export function textOf(value: unknown): string {
  return typeof value === 'object' || value === undefined ? '' : String(value);
}

/** The members of a map that are not text: `replica (1)`. */
export function nonTexts(map: unknown): readonly string[] {
  if (!isRecord(map)) return [];
  return Object.entries(map).flatMap(([key, value]) =>
    isString(value) ? [] : [`${key} (${typeof value === 'object' ? 'not a scalar' : String(value)})`],
  );
}

export function isStringMap(value: unknown): value is Readonly<Record<string, string>> {
  if (!isRecord(value)) return false;
  for (const key in value) {
    if (typeof value[key] !== 'string') return false;
  }
  return true;
}

export function isAbsentOr<T>(
  is: (value: unknown) => value is T,
  value: unknown,
): value is T | null | undefined;
export function isAbsentOr(is: (value: unknown) => boolean, value: unknown): boolean;
export function isAbsentOr(is: (value: unknown) => boolean, value: unknown): boolean {
  return value === undefined || value === null || is(value);
}

/** A JSON pointer (RFC 6901) to a member of what `parent` points to. */
export function pointer(parent: string, ...members: readonly (string | number)[]): string {
  // `~` first, or the `~1` of a slash would be escaped again.
  const escaped = members.map((member) => String(member).replaceAll('~', '~0').replaceAll('/', '~1'));
  return [parent, ...escaped].join('/');
}

/** Whether two JSON values are equal; the order of members does not matter. */
export function isSameJson(a: unknown, b: unknown): boolean {
  if (Object.is(a, b)) return true;
  if (Array.isArray(a))
    return Array.isArray(b) && a.length === b.length && a.every((each, at) => isSameJson(each, b[at]));
  if (!isRecord(a) || !isRecord(b)) return false;
  const members = Object.keys(a);
  return (
    members.length === Object.keys(b).length &&
    members.every((each) => Object.hasOwn(b, each) && isSameJson(a[each], b[each]))
  );
}

/** 32 bits, signed: FNV-1a, then the finaliser of MurmurHash3, so that all bits are well mixed. Not for secrets. */
export function mixedHash(text: string, seed = 0x811c9dc5): number {
  let hash = seed;
  for (let at = 0; at < text.length; at += 1) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return hash ^ (hash >>> 16);
}

/** 64 bits that are different for different texts, except by chance. Not for secrets. */
export function fingerprint(text: string): string {
  const hashes = [mixedHash(text), mixedHash(text, 0x9e3779b9)];
  return hashes.map((hash) => (hash >>> 0).toString(16).padStart(8, '0')).join('');
}
