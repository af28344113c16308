import { isDeepStrictEqual } from 'node:util';
import type { RawMetadata } from '../cluster/index.ts';
import { FOREIGN_LIMITS, type Labels, NO_LABELS } from '../core/api/index.ts';

/** How many characters of an object's labels are kept; the usual dozen of labels has 500. */
const LABEL_CHARACTERS = 8 * 1024;

/** @returns undefined: there are too many to be kept, so they count as unknown */
export function keptLabels({ labels = NO_LABELS, leftOut }: Pick<RawMetadata, 'labels' | 'leftOut'>) {
  return leftOut || !isSmall(labels) ? undefined : labels;
}

/** Whether labels, or a selector of labels, are few and short enough to be kept. */
export function isSmall(labels: Labels): boolean {
  const entries = Object.entries(labels);
  const characters = entries.reduce((sum, [key, value]) => sum + key.length + value.length, 0);
  return entries.length <= FOREIGN_LIMITS.watch.parts.most && characters <= LABEL_CHARACTERS;
}

/**
 * Stores the current state of an object.
 * @returns whether it has changed, because most changes are to a status or to annotations that are not kept
 */
export function putChanged<T>(table: Map<string, T>, key: string, object: T): boolean {
  if (isDeepStrictEqual(table.get(key), object)) return false;
  table.set(key, object);
  return true;
}
