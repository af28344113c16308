import { z } from 'zod';

/** A field of a document as the reference shows it. */
export interface DocumentedField {
  /** `wait.fixed` */
  readonly path: string;
  /** In Markdown, as is the meaning. @throws Error where the schema says none, as for what Linger writes */
  readonly values: string;
  readonly absent: string | undefined;
  readonly isRequired: boolean;
  readonly meaning: string;
}

interface JsonSchema extends z.GlobalMeta {
  readonly type?: string;
  readonly enum?: readonly string[];
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly required?: readonly string[];
  readonly items?: JsonSchema;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly exclusiveMaximum?: number;
}

/** The fields of a spec. An object whose `values` are said, such as a LabelSelector, is one field. */
export function fieldsOf(spec: z.ZodType): readonly DocumentedField[] {
  return membersOf(z.toJSONSchema(spec, { io: 'input' }) as JsonSchema, '');
}

function membersOf(
  { properties = {}, required = [] }: JsonSchema,
  prefix: string,
): readonly DocumentedField[] {
  return Object.entries(properties).flatMap(([name, member]) => {
    const path = `${prefix}${name}`;
    if (member.properties !== undefined && member.values === undefined) return membersOf(member, `${path}.`);
    const meaning = member.reference ?? member.description;
    if (meaning === undefined) throw new Error(`${path}: expected a description`);
    const { absent } = member;
    const field = {
      path,
      absent,
      isRequired: required.includes(name),
      meaning,
      get values() {
        return valuesOf(member, path);
      },
    };
    return [field];
  });
}

/** @throws Error where neither the schema nor its `values` say any */
function valuesOf(schema: JsonSchema, path: string): string {
  const { type, values, items, minimum, maximum, exclusiveMaximum } = schema;
  const number = (bound?: number) => bound?.toLocaleString('en');
  if (values !== undefined) return values;
  if (schema.enum !== undefined) return schema.enum.map((value) => `\`${value}\``).join(', ');
  if (type === 'boolean') return '`true`, `false`';
  if (type === 'integer') return `whole number, ${number(minimum)} to ${number(maximum)}`;
  if (exclusiveMaximum !== undefined)
    return `${number(minimum)} up to, not including, ${number(exclusiveMaximum)}`;
  if (type === 'number') return `${number(minimum)} to ${number(maximum)}`;
  if (items !== undefined) return `list of ${valuesOf(items, `${path}[]`)}`;
  throw new Error(`${path}: expected values`);
}
