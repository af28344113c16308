import fc, { type Arbitrary } from 'fast-check';
import type { JsonObject } from './sample-pod.ts';

/** A DNS label, as most names in a pod must be. */
export const name = fc.stringMatching(/^[a-z]([a-z0-9-]{0,10}[a-z0-9])?$/);

/** A label value. */
export const label = fc.stringMatching(/^([A-Za-z0-9]([A-Za-z0-9_.-]{0,10}[A-Za-z0-9])?)?$/);

/** Absent in two cases of three. */
export function oftenAbsent<T>(value: Arbitrary<T>): Arbitrary<T | undefined> {
  return fc.oneof({ weight: 2, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary: value });
}

/** The object without the members that are undefined: JSON has none. */
export function members(object: JsonObject): JsonObject {
  return Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined));
}

/** The paths of everything in a JSON value, as the members to follow; the value itself is the empty path. */
export function pathsOf(value: unknown, path: readonly string[] = []): readonly (readonly string[])[] {
  if (typeof value !== 'object' || value === null) return [path];
  return [path, ...Object.entries(value).flatMap(([key, member]) => pathsOf(member, [...path, key]))];
}

/** A copy of the value with the member at this path replaced. */
export function withReplaced(value: unknown, path: readonly string[], junk: unknown): unknown {
  const [key, ...rest] = path;
  if (key === undefined) return junk;
  if (Array.isArray(value))
    return value.map((each, index) => (String(index) === key ? withReplaced(each, rest, junk) : each));
  const object = value as JsonObject;
  return { ...object, [key]: withReplaced(object[key], rest, junk) };
}
