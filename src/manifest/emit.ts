import { resolvePlain } from './resolve-scalar.ts';
import type { JsonScalar, JsonValue, ScalarNode } from './source-tree.ts';

/** How new text inside braces looks: taken from the mapping around it. */
export interface FlowStyle {
  /** Quote everything as JSON does. */
  readonly json: boolean;
  /** Between colon and value, and behind a comma on one line. */
  readonly gap: '' | ' ';
  /** The indentation step, where each member has a line of its own. */
  readonly unit: string | undefined;
}

export const YAML_FLOW: FlowStyle = { json: false, gap: ' ', unit: undefined };

/** The lines of block mapping entries (no line ends); scalars and lists stand behind their key. */
export function blockLines(
  members: Iterable<readonly [string, JsonValue]>,
  column: number,
  step: number,
): string[] {
  const indent = ' '.repeat(column);
  return [...members].flatMap(([key, value]) => {
    const name = `${indent}${yamlScalar(key)}:`;
    if (!isFilledMap(value)) return [`${name} ${flowText(value, YAML_FLOW)}`];
    return [name, ...blockLines(Object.entries(value), column + step, step)];
  });
}

/** A value on one line, or in the style's lines, where `indent` and `eol` say how the line it begins on goes. */
export function flowText(value: JsonValue, style: FlowStyle, indent = '', eol = '\n'): string {
  if (typeof value !== 'object' || value === null) return flowScalar(value, style);
  const inner = style.unit === undefined ? indent : indent + style.unit;
  const parts = Array.isArray(value)
    ? value.map((item: JsonValue) => flowText(item, style, inner, eol))
    : Object.entries(value).map((member) => memberText(member, style, inner, eol));
  const [open, close] = Array.isArray(value) ? ['[', ']'] : ['{', '}'];
  if (parts.length === 0) return open + close;
  if (style.unit === undefined) return open + parts.join(`,${style.gap}`) + close;
  return `${open}${eol}${inner}${parts.join(`,${eol}${inner}`)}${eol}${indent}${close}`;
}

/** One `key: value` of a flow mapping. */
export function memberText(
  [key, value]: readonly [string, JsonValue],
  style: FlowStyle,
  indent: string,
  eol: string,
): string {
  return `${flowScalar(key, style)}:${style.gap}${flowText(value, style, indent, eol)}`;
}

function flowScalar(value: JsonScalar, style: FlowStyle): string {
  if (!style.json) return yamlScalar(value);
  return typeof value === 'string' ? doubleQuoted(value) : JSON.stringify(value);
}

/** A scalar that takes the place of `old`: a text keeps the quotes, a number stays without. */
export function scalarLike(value: JsonScalar, old: ScalarNode, style: FlowStyle): string {
  if (style.json || typeof value !== 'string') return flowScalar(value, style);
  if (old.style === 'double') return doubleQuoted(value);
  if (old.style === 'single' && !NEEDS_ESCAPES.test(value)) return singleQuoted(value);
  return yamlScalar(value);
}

/** A scalar in the plainest form that YAML 1.1 and 1.2 both read as this value. */
export function yamlScalar(value: JsonScalar): string {
  if (typeof value !== 'string') return String(value);
  if (/^[A-Za-z][A-Za-z0-9._/-]*$/.test(value) && resolvePlain(value) === value) return value;
  return NEEDS_ESCAPES.test(value) ? doubleQuoted(value) : singleQuoted(value);
}

/** What single quotes cannot carry: control characters, line breaks of any YAML version, a BOM, lone surrogates. */
const NEEDS_ESCAPES = /[\p{Cc}\p{Cs}\u2028\u2029\uFEFF]/u;

function singleQuoted(value: string): string {
  return `'${value.replaceAll("'", "''")}'`;
}

/** JSON's form, with the characters escaped that JSON lets stand and YAML does not. */
function doubleQuoted(value: string): string {
  return JSON.stringify(value).replace(
    /[\u007F-\u009F\u2028\u2029\uFEFF]/g,
    (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

export function isFilledMap(value: JsonValue): value is { readonly [key: string]: JsonValue } {
  return (
    typeof value === 'object' && value !== null && !Array.isArray(value) && Object.keys(value).length > 0
  );
}
