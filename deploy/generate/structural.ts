import { z } from 'zod';

/** A schema as a CustomResourceDefinition holds it: OpenAPI v3, structural. */
export interface StructuralSchema {
  readonly [member: string]: unknown;
}

type JsonSchema = Readonly<Record<string, unknown>>;

interface Rule {
  readonly rule: string;
  readonly message: string;
}

/** What is taken over as it is. Anything else that zod makes of a schema is refused until it is handled here. */
const TAKEN_OVER = [
  'type',
  'format',
  'enum',
  'minLength',
  'maxLength',
  'minItems',
  'maxItems',
  'maxProperties',
  'required',
  'x-kubernetes-list-type',
  'x-kubernetes-list-map-keys',
] as const;
const RULES = 'x-kubernetes-validations';
const HANDLED = new Set<string>([
  ...TAKEN_OVER,
  '$schema',
  'description',
  // For docs/reference.
  'reference',
  'values',
  'absent',
  'properties',
  'additionalProperties',
  'propertyNames',
  'items',
  'minimum',
  'maximum',
  'exclusiveMaximum',
  RULES,
]);

/**
 * A zod schema, as the API server is to apply it: to what is written, before anything is transformed.
 * Unknown members are not refused by a structural schema but dropped, with a warning, or (kubectl) an error.
 * @throws Error for what no structural schema can say
 */
export function structuralSchema(schema: z.ZodType): StructuralSchema {
  return structural(z.toJSONSchema(schema, { io: 'input' }) as JsonSchema, 'spec');
}

function structural(json: JsonSchema, path: string): StructuralSchema {
  const strange = Object.keys(json).filter((key) => !HANDLED.has(key));
  if (strange.length > 0) throw new Error(`${path}: no structural schema has ${strange.join(', ')}`);
  if (typeof json.type !== 'string') throw new Error(`${path}: expected one type`);
  const taken = Object.fromEntries(TAKEN_OVER.flatMap((key) => (key in json ? [[key, json[key]]] : [])));
  const rules = [...((json[RULES] ?? []) as readonly Rule[]), ...keyRules(json.propertyNames as JsonSchema)];
  return {
    ...('description' in json ? { description: json.description } : {}),
    ...taken,
    ...boundsOf(json),
    ...membersOf(json, path),
    ...(rules.length === 0 ? {} : { [RULES]: rules }),
  };
}

function membersOf({ properties, additionalProperties, items }: JsonSchema, path: string): StructuralSchema {
  const members = Object.entries((properties ?? {}) as Record<string, JsonSchema>).map(
    ([name, member]) => [name, structural(member, `${path}.${name}`)] as const,
  );
  const isMap = typeof additionalProperties === 'object';
  return {
    ...(members.length === 0 ? {} : { properties: Object.fromEntries(members) }),
    ...(isMap ? { additionalProperties: structural(additionalProperties as JsonSchema, `${path}.*`) } : {}),
    ...(items === undefined ? {} : { items: structural(items as JsonSchema, `${path}[]`) }),
  };
}

/** zod bounds every whole number by what JavaScript can count. */
function boundsOf({ type, minimum, maximum, exclusiveMaximum }: JsonSchema): StructuralSchema {
  const isOwn = (bound: unknown) =>
    bound !== undefined && Math.abs(Number(bound)) !== Number.MAX_SAFE_INTEGER;
  return {
    ...(type === 'integer' ? { format: 'int64' } : {}),
    ...(isOwn(minimum) ? { minimum } : {}),
    ...(isOwn(maximum) ? { maximum } : {}),
    // OpenAPI v3.0 has a flag where JSON Schema has a number.
    ...(exclusiveMaximum === undefined ? {} : { maximum: exclusiveMaximum, exclusiveMaximum: true }),
  };
}

/** A structural schema says nothing of the keys of a map: their rules become rules of the map. */
function keyRules(names: JsonSchema | undefined): readonly Rule[] {
  if (names === undefined) return [];
  const longest = names.maxLength === undefined ? '' : `size(key) <= ${String(names.maxLength)} && `;
  return ((names[RULES] ?? []) as readonly Rule[]).map(({ rule, message }) => ({
    rule: `self.all(key, ${longest}${rule.replaceAll(/\bself\b/g, 'key')})`,
    message,
  }));
}
