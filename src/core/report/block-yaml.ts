/** Text that YAML 1.1 and 1.2 both read as a string without quotes. */
const PLAIN = /^[A-Za-z][A-Za-z0-9_./-]*$/;
const WORDS = /^(?:y|n|yes|no|on|off|true|false|null)$/i;

/**
 * JSON as block YAML, for people to read and kubectl to apply.
 * @param value made of objects, lists, strings, numbers, booleans, null
 */
export function blockYaml(value: unknown, indent = ''): string {
  if (Array.isArray(value)) {
    if (value.length === 0) return `${indent}[]\n`;
    return value
      .map((item) => {
        const text = isNested(item) ? blockYaml(item, `${indent}  `) : `${indent}  ${scalar(item)}\n`;
        return `${indent}- ${text.slice(indent.length + 2)}`;
      })
      .join('');
  }
  if (typeof value !== 'object' || value === null) return `${indent}${scalar(value)}\n`;
  const members = Object.entries(value).filter(([, member]) => member !== undefined);
  if (members.length === 0) return `${indent}{}\n`;
  return members
    .map(([key, member]) =>
      isNested(member)
        ? `${indent}${scalar(key)}:\n${blockYaml(member, `${indent}  `)}`
        : `${indent}${scalar(key)}: ${scalar(member)}\n`,
    )
    .join('');
}

/** Whether a value takes lines of its own. */
function isNested(value: unknown): boolean {
  return typeof value === 'object' && value !== null && Object.keys(value).length > 0;
}

function scalar(value: unknown): string {
  if (typeof value === 'string' && PLAIN.test(value) && !WORDS.test(value)) return value;
  return JSON.stringify(value ?? null);
}
