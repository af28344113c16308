import { quote } from './source-text.ts';
import type { JsonScalar } from './source-tree.ts';

/**
 * How sigs.k8s.io/yaml reads a scalar: it passes the text to go-yaml v2, which follows YAML 1.1 with a few
 * additions of its own (`resolve.go`: `y` and `on` are booleans, `030` and `0o30` are 24, `1_000` is 1000,
 * `12:30:45` stays text). By the YAML 1.2 rules of most JavaScript parsers the values would differ.
 */
const WORDS = new Map<string, boolean | null | 'not a number'>([
  ...'y Y yes Yes YES true True TRUE on On ON'.split(' ').map((word) => [word, true] as const),
  ...'n N no No NO false False FALSE off Off OFF'.split(' ').map((word) => [word, false] as const),
  ...['', '~', 'null', 'Null', 'NULL'].map((word) => [word, null] as const),
  ...['', '+', '-']
    .flatMap((sign) => ['.inf', '.Inf', '.INF'].map((word) => sign + word))
    .concat('.nan', '.NaN', '.NAN')
    .map((word) => [word, 'not a number'] as const),
]);

const FLOAT = /^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$/;
const INT64_MIN = -(2n ** 63n);
const UINT64_MAX = 2n ** 64n - 1n;

/** Thrown for a scalar that go-yaml refuses; the reader adds the position. */
export class ScalarError extends Error {}

export function resolvePlain(text: string): JsonScalar {
  const word = WORDS.get(text);
  if (word === 'not a number')
    throw new ScalarError(`${quote(text)} has no JSON value: quote it, or write a number`);
  if (word !== undefined) return word;
  if (!/^[-+0-9.]/.test(text)) return text;
  const digits = text.startsWith('.') ? text : text.replaceAll('_', '');
  return resolveInteger(digits) ?? resolveFloat(digits) ?? text;
}

function resolveInteger(text: string): number | undefined {
  const [, sign, digits = ''] = /^([-+]?)(.*)$/s.exec(text) ?? [];
  const literal = goInteger(digits);
  if (literal === undefined) return undefined;
  // With a sign it is an int64; without one, uint64 is tried as well.
  const value = sign === '-' ? -literal : literal;
  const max = sign === '' ? UINT64_MAX : -INT64_MIN - 1n;
  return value >= INT64_MIN && value <= max ? Number(value) : undefined;
}

/** Go's strconv.ParseInt with base 0: a leading zero means octal. */
function goInteger(digits: string): bigint | undefined {
  if (/^(0|[1-9][0-9]*)$/.test(digits)) return BigInt(digits);
  if (/^0[xX][0-9a-fA-F]+$|^0[oO][0-7]+$|^0[bB][01]+$/.test(digits)) return BigInt(digits);
  return /^0[0-7]+$/.test(digits) ? BigInt(`0o${digits.slice(1)}`) : undefined;
}

function resolveFloat(text: string): number | undefined {
  if (!FLOAT.test(text)) return undefined;
  const value = Number(text);
  return Number.isFinite(value) ? value : undefined;
}

/** The value of a scalar, quoted or not, with an explicit tag (long form, or a local `!tag`). */
export function resolveTagged(tag: string, text: string): JsonScalar {
  const name = tag.replace('tag:yaml.org,2002:', '!!');
  if (name === '!!binary') return binaryText(text);
  const expected = TAGGED[name];
  if (expected === undefined) return text;
  const value = resolvePlain(text);
  if (!expected(value)) throw new ScalarError(`${quote(text)} is not a value of type ${name}`);
  return value;
}

function binaryText(text: string): string {
  let bytes: string;
  try {
    bytes = atob(text);
  } catch {
    throw new ScalarError(`${quote(text)} is not base64, as !!binary is`);
  }
  return new TextDecoder().decode(Uint8Array.from(bytes, (byte) => byte.charCodeAt(0)));
}

const TAGGED: Readonly<Record<string, (value: JsonScalar) => boolean>> = {
  '!!int': (value) => Number.isInteger(value),
  '!!float': (value) => typeof value === 'number',
  '!!bool': (value) => typeof value === 'boolean',
  '!!null': (value) => value === null,
};

/**
 * The JSON member name that sigs.k8s.io/yaml makes of a mapping's key: `on` becomes "true", `0x10` becomes "16".
 * `text` is the key as written, which distinguishes `1e3` (a float in Go) from `1000`.
 */
export function memberName(key: JsonScalar, text: string): string {
  if (typeof key === 'string') return key;
  if (key === null) throw new ScalarError('a key must not be null: quote it');
  if (typeof key === 'number' && Number.isInteger(key) && !Number.isSafeInteger(key)) {
    throw new ScalarError(`the key ${quote(text)} is a number beyond 2^53: quote it`);
  }
  return typeof key === 'number' && FLOAT.test(text) && /[.eE]/.test(text) ? floatName(key) : `${key}`;
}

/** The shortest decimal that parses to the same 32-bit float: sigs.k8s.io/yaml formats float keys like this. */
function floatName(key: number): string {
  const magnitude = Math.abs(key);
  if (key === 0 || magnitude < 1e-4 || magnitude >= 1e6) {
    throw new ScalarError(`the key ${key} is a number in scientific notation: quote it`);
  }
  const single = Math.fround(key);
  // Nine significant digits identify every 32-bit float.
  let digits = 1;
  while (digits < 9 && Math.fround(Number(single.toPrecision(digits))) !== single) digits++;
  return String(Number(single.toPrecision(digits)));
}
