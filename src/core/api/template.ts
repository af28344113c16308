import { type Labels, labelOf } from './selector.ts';

/** The placeholders of templates: `{address}`, `{port}`, `{pod}`, `{namespace}` and `{label:KEY}`, all of one pod. */
export const PLACEHOLDER = '\\{(address|port|pod|namespace|label:[A-Za-z0-9][-A-Za-z0-9_./]*)\\}';

/** The pod whose values fill a template. */
export interface TemplateValues {
  /** undefined: not known. */
  readonly address: string | undefined;
  readonly port: number | undefined;
  readonly pod: string;
  readonly namespace: string;
  readonly labels: Labels;
}

/**
 * Characters that mean the same in a path, a query, a header, JSON, XML and a form, so that a value needs no encoding and
 * cannot end what it is part of. Because both ends are a letter or a digit, no value is the segment `..` of a path.
 */
const PLAIN = /^[A-Za-z0-9]([-A-Za-z0-9._]{0,251}[A-Za-z0-9])?$/;
const ADDRESS = /^[0-9A-Fa-f:]([0-9A-Fa-f:.]{0,43}[0-9A-Fa-f:])?$/;

/** Room for a template with some names of the longest kind. */
const LONGEST_FILLED = 16_384;

/**
 * @throws RangeError for a value that the pod does not have, or that is not plain; its message is a phrase after `the
 * request`
 */
export function fillTemplate(template: string, values: TemplateValues): string {
  const filled = template.replaceAll(new RegExp(PLACEHOLDER, 'g'), (_, name: string) => {
    const value = valueNamed(name, values);
    if (value === undefined || value === '')
      throw new RangeError(`cannot be made: the pod has no value for {${name}}`);
    if (!(name === 'address' ? ADDRESS : PLAIN).test(value))
      throw new RangeError(`is not made: the value for {${name}} has characters that may not be filled in`);
    return value;
  });
  if (filled.length > LONGEST_FILLED)
    throw new RangeError(`is not made: it would be longer than ${LONGEST_FILLED} characters`);
  return filled;
}

function valueNamed(name: string, { address, port, pod, namespace, labels }: TemplateValues) {
  if (name.startsWith('label:')) return labelOf(labels, name.slice('label:'.length));
  return { address, port: port === undefined ? undefined : String(port), pod, namespace }[name];
}
