import { describe, expect, it, test } from 'vitest';
import { z } from 'zod';
import {
  CLUSTER_TERMINATION_POLICY,
  DISCOVERY_CONSUMER,
  TERMINATION_POLICY,
} from '../../deploy/generate/crd.ts';
import { GENERATED } from '../../deploy/generate/generated.ts';
import { type StructuralSchema, structuralSchema } from '../../deploy/generate/structural.ts';
import { read } from '../docs/markdown.ts';

test.each(GENERATED)('$path is what `npm run generate` writes', ({ path, text }) => {
  expect(read(path)).toBe(text());
});

/** Every field below a schema with its path. */
function fieldsOf(schema: StructuralSchema, path: string): readonly (readonly [string, StructuralSchema])[] {
  const members = Object.entries((schema.properties ?? {}) as Record<string, StructuralSchema>);
  const items = schema.items === undefined ? [] : fieldsOf(schema.items as StructuralSchema, `${path}[]`);
  const own = members.flatMap(([name, member]): (readonly [string, StructuralSchema])[] => [
    [`${path}.${name}`, member],
    ...fieldsOf(member, `${path}.${name}`),
  ]);
  return [...own, ...items];
}

describe.each([DISCOVERY_CONSUMER, CLUSTER_TERMINATION_POLICY, TERMINATION_POLICY])(
  'the schema of $kind',
  ({ spec, status }) => {
    const fields = [
      ...fieldsOf(structuralSchema(spec), 'spec'),
      ...fieldsOf(structuralSchema(status), 'status'),
    ];

    test.each(fields)('%s says what it is', (_, { description }) => {
      expect(description).toMatch(/^[A-Z\d].*\.$/);
    });

    test.each(fields)('%s has no default: it would count as set', (_, schema) => {
      expect(schema).not.toHaveProperty('default');
    });

    test.each(fields.filter(([path, { type }]) => path.startsWith('spec') && type === 'array'))(
      '%s is bounded: the API server refuses rules whose cost it cannot bound',
      (_, schema) => expect(schema).toHaveProperty('maxItems'),
    );
  },
);

describe('what no structural schema can say is refused and not left out', () => {
  it.each<[string, z.ZodType]>([
    ['a choice of types', z.object({ a: z.union([z.string(), z.number()]) })],
    ['a default', z.object({ a: z.string().default('x') })],
    ['null', z.object({ a: z.string().nullable() })],
    ['anything', z.object({ a: z.unknown() })],
    ['a pattern, whose message would be the pattern', z.object({ a: z.string().regex(/^a$/) })],
  ])('%s', (_, schema) => {
    expect(() => structuralSchema(schema)).toThrow(/^spec\.a: /);
  });
});

it('a rule for the keys of a map becomes one of the map', () => {
  const key = z
    .string()
    .meta({ 'x-kubernetes-validations': [{ rule: "self != 'self_'", message: 'm' }], maxLength: 9 });
  const { 'x-kubernetes-validations': rules } = structuralSchema(z.record(key, z.string()));
  expect(rules).toEqual([{ rule: "self.all(key, size(key) <= 9 && key != 'self_')", message: 'm' }]);
});
