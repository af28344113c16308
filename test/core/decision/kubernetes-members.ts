import * as kubernetes from '@kubernetes/client-node';
import { isRecord } from '../../../src/core/api/index.ts';

type Member = { readonly baseName: string; readonly type: string };
type Models = Readonly<Record<string, { getAttributeTypeMap?(): readonly Member[] } | undefined>>;

const SCALARS: Readonly<Record<string, unknown>> = { string: 'Never', boolean: true, number: 7 };
/** How often an absent member is added, and how often one within it. */
const [RARELY, OFTEN] = [0.05, 0.5];
const DEEPEST = 4;

/**
 * A copy of a value of a Kubernetes type with some of the members added that it lacks and the API has, so that whatever reads
 * one of them behaves in another way.
 * @param type as @kubernetes/client-node names it: `V1Pod`
 */
export function withMembers<T>(value: T, type: string, random: () => number): T {
  return filled(value, type, random) as T;
}

function filled(value: unknown, type: string, random: () => number): unknown {
  const [, entry] = /^Array<(.*)>$/.exec(type) ?? [];
  if (Array.isArray(value) && entry !== undefined)
    return value.length > 10 ? value : value.map((each) => filled(each, entry, random));
  if (!isRecord(value)) return value;
  const added = { ...value };
  for (const { baseName, type: own } of membersOf(type)) {
    if (baseName in value) added[baseName] = filled(value[baseName], own, random);
    else if (random() < RARELY) added[baseName] = made(own, random, DEEPEST);
  }
  return added;
}

function made(type: string, random: () => number, depth: number): unknown {
  const [, entry] = /^Array<(.*)>$/.exec(type) ?? [];
  if (entry !== undefined) return [made(entry, random, depth)];
  if (type in SCALARS) return SCALARS[type];
  if (type.startsWith('{')) return { a: 'x' };
  const members = depth === 0 ? [] : membersOf(type).filter(() => random() < OFTEN);
  return Object.fromEntries(
    members.map(({ baseName, type: own }) => [baseName, made(own, random, depth - 1)]),
  );
}

function membersOf(type: string): readonly Member[] {
  return (kubernetes as unknown as Models)[type]?.getAttributeTypeMap?.() ?? [];
}
