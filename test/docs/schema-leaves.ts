import { z } from 'zod';
import { labelSelector } from '../../src/core/api/index.ts';

/**
 * The paths of the fields of a document's spec: `wait.fixed`. An object without fields of its own and a
 * LabelSelector are fields themselves, as a reader of the documentation sees them.
 */
export function leafPaths(schema: z.ZodType, path: readonly string[] = []): readonly string[] {
  const inner = schema instanceof z.ZodOptional ? (schema.unwrap() as z.ZodType) : schema;
  const isLeaf = !(inner instanceof z.ZodObject) || isLabelSelector(inner);
  if (isLeaf) return [path.join('.')];
  const members = Object.entries(inner.shape as Record<string, z.ZodType>);
  if (members.length === 0) return [path.join('.')];
  return members.flatMap(([name, member]) => leafPaths(member, [...path, name]));
}

/** A schema that has been given another description is a new object with the same shape. */
function isLabelSelector(schema: z.ZodObject): boolean {
  return schema.shape === labelSelector.shape;
}
