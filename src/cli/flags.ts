import { isIPv4, isIPv6 } from 'node:net';
import { delimiter, join } from 'node:path';
import type { KubeConnection } from '../cluster/index.ts';
import {
  DURATION_HINT,
  type LabelSelector,
  LingerError,
  LONGEST_DURATION,
  parseDuration,
  parseLabelQuery,
} from '../core/api/index.ts';

export interface Reader<T> {
  /** Its name in the help, such as `<port>`; undefined for a switch. */
  readonly argument: string | undefined;
  /** What messages say was expected: `a port number from 0 to 65535`. */
  readonly expected: string;
  /** @returns undefined for invalid text */
  readonly parse: (text: string) => T | undefined;
  /** The words to choose from, if limited. */
  readonly choices?: readonly string[];
  /** Repeated flags are combined; otherwise the last one counts. */
  readonly adds?: true;
}

export function text(argument: string): Reader<string> {
  return { argument, expected: 'some text', parse: (text) => (text.trim() === '' ? undefined : text) };
}

/** One of a few words, ignoring case. */
export function oneOf<T extends string>(choices: readonly T[]): Reader<T> {
  const parse = (text: string) => choices.find((each) => each.toLowerCase() === text.toLowerCase());
  return { argument: `<${choices.join('|')}>`, expected: `one of ${choices.join(', ')}`, choices, parse };
}

/** At least one value, separated by commas; a flag whose argument is `<name...>` also takes several. */
export function list(argument: string): Reader<readonly string[]> {
  const parse = (text: string) => {
    const items = text.split(',').map((item) => item.trim());
    const given = items.filter((item) => item !== '');
    return given.length === 0 ? undefined : given;
  };
  return { argument, expected: 'values separated by commas', parse, adds: true };
}

export function someOf<T extends string>(choices: readonly T[]): Reader<readonly T[]> {
  const { parse: parseOne, expected } = oneOf(choices);
  const parse = (text: string) => {
    const values = list('').parse(text)?.map(parseOne);
    return values?.every((value) => value !== undefined) ? values : undefined;
  };
  return { argument: `<${choices.join(',')}>`, expected, choices, parse, adds: true };
}

/** Either an address, in which commas are part of it, or files separated by commas. */
export function addressOrFiles(argument: string): Reader<readonly string[]> {
  const { expected, parse } = list(argument);
  return { argument, expected, parse: (text) => (/^https?:\/\//i.test(text) ? [text] : parse(text)) };
}

/** Labels of objects, in the syntax of `kubectl get -l`. */
export const labelQuery: Reader<LabelSelector> = {
  argument: '<labels>',
  expected: 'labels such as app=web,tier!=cache or "app in (web,api)"',
  parse: parseLabelQuery,
};

/** A TCP port; 0 lets the system choose one. */
export const port: Reader<number> = {
  argument: '<port>',
  expected: 'a port number from 0 to 65535',
  parse: (text) => (/^\d+$/.test(text) && Number(text) <= 65_535 ? Number(text) : undefined),
};

/** An address and a port. A name is not accepted, because it would have to be looked up. */
export const literalAddress: Reader<string> = {
  argument: '<address>',
  expected: 'an address with its port, such as 10.0.0.7:8445 or [fd00::7]:8445',
  parse: (text) => {
    const [, six, four = '', digits = ''] = /^(?:\[([^\]%]+)\]|([\d.]+)):(\d{1,5})$/.exec(text) ?? [];
    const isLiteral = six === undefined ? isIPv4(four) : isIPv6(six) && !six.includes('.');
    return isLiteral && Number(digits) >= 1 && Number(digits) <= 65_535 ? text : undefined;
  },
};

export const seconds: Reader<number> = {
  argument: '<duration>',
  expected: `${DURATION_HINT}, of at most ${LONGEST_DURATION}`,
  parse: parseDuration,
};

/** An instant in the format of RFC 3339, as seconds since the epoch. */
export const instant: Reader<number> = {
  argument: '<time>',
  expected: 'a time with its zone, such as 2026-11-21T17:35:00Z',
  parse: (text) => {
    if (!/^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$/.test(text)) return undefined;
    const at = Date.parse(text) / 1000;
    return Number.isNaN(at) ? undefined : at;
  },
};

/** A whole number. */
export const count: Reader<number> = {
  argument: '<number>',
  expected: 'a whole number from 0 to 1,000,000',
  parse: (text) => (/^\d{1,7}$/.test(text) && Number(text) <= 1_000_000 ? Number(text) : undefined),
};

/** Two whole numbers. */
export const countPair: Reader<readonly [from: number, to: number]> = {
  argument: '<from,to>',
  expected: 'two numbers of replicas, the second one smaller, such as 4,2',
  parse: (text) => {
    const [, from, to] = /^(\d{1,4}),(\d{1,4})$/.exec(text) ?? [];
    return to !== undefined && Number(to) < Number(from) ? [Number(from), Number(to)] : undefined;
  },
};

export const probability: Reader<number> = {
  argument: '<probability>',
  expected: 'a probability from 0 to 1',
  parse: (text) => (text.trim() !== '' && Number(text) >= 0 && Number(text) <= 1 ? Number(text) : undefined),
};

export interface Flag<T> extends Reader<T> {
  /** The default as the user would write it; undefined: the setting may have no value. */
  readonly fallback: string | undefined;
  readonly description: string;
  /** The letter of its short form, if kubectl has one: `n`. */
  readonly short?: string | undefined;
  /**
   * Replaces the description in the reference, if more is to be said there: Markdown, with links relative to docs/reference.
   */
  readonly reference?: string;
}

export function flag<T>(reader: Reader<T>, fallback: string, description: string, short?: string) {
  return { ...reader, fallback, description, short };
}

export function optional<T>(reader: Reader<T>, description: string, short?: string) {
  return { ...reader, fallback: undefined, description, short };
}

/** A switch, off by default: `--audit-warnings` on the command line, true or false in the environment. */
export function toggle(description: string, short?: string) {
  const parse = (text: string) =>
    /^(true|1|yes|on)$/i.test(text) ? true : /^(false|0|no|off)$/i.test(text) ? false : undefined;
  return flag({ argument: undefined, expected: 'true or false', parse }, 'false', description, short);
}

export function documented<F extends Flag<unknown>>(flag: F, reference: string): F {
  return { ...flag, reference };
}

export type Flags = Readonly<Record<string, Flag<unknown>>>;
export type Values<F extends Flags> = {
  readonly [K in keyof F]: F[K] extends Flag<infer T>
    ? F[K]['fallback'] extends string
      ? T
      : T | undefined
    : never;
};

/** `adminPort` → `admin-port` */
export function flagName(key: string): string {
  return key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}

/** `adminPort` → `LINGER_ADMIN_PORT` */
export function variableName(key: string): string {
  return `LINGER_${flagName(key).replaceAll('-', '_').toUpperCase()}`;
}

/**
 * The value of every flag: from the command line, else from the environment, else its default.
 * @param written the values on the command line, by key; undefined where a flag is absent
 * @throws LingerError `settings-invalid`, naming the flag or the variable
 */
export function resolveSettings<F extends Flags>(
  flags: F,
  written: Readonly<Record<string, string | undefined>>,
  environment: Readonly<Record<string, string | undefined>>,
): Values<F> {
  const values = Object.entries(flags).map(([key, { fallback, parse, expected }]) => {
    const fromLine = written[key];
    const text = fromLine ?? settingIn(environment[variableName(key)]) ?? fallback;
    const value = text === undefined ? undefined : parse(text);
    if (value !== undefined || text === undefined) return [key, value];
    const source = fromLine === undefined ? variableName(key) : `--${flagName(key)}`;
    throw usageError(`${source}: expected ${expected}, got "${text}"`);
  });
  return Object.fromEntries(values) as Values<F>;
}

/** An error in the command line: the program exits with code 2. */
export function usageError(problem: string): LingerError {
  return new LingerError('settings-invalid', problem);
}

/** The value that the kubelet sets for a Service named `linger`: LINGER_PORT=tcp://10.96.31.7:443. */
const SERVICE_LINK = /^(tcp|udp|sctp):\/\//;

/** The text of a variable, if it is meant for Linger. Manifests set a variable to the empty string if it is not wanted. */
function settingIn(variable: string | undefined): string | undefined {
  return variable === undefined || variable === '' || SERVICE_LINK.test(variable) ? undefined : variable;
}

/** What the environment says about how to find a cluster, as kubectl reads it. */
export interface KubeEnvironment {
  /** The files of KUBECONFIG, which are combined; none: it is not set. */
  readonly kubeconfigs: readonly string[];
  /** The file that kubectl uses otherwise. Undefined: there is no home folder. */
  readonly homeKubeconfig: string | undefined;
  /** KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT: set in every pod. */
  readonly service: { readonly host: string | undefined; readonly port: string | undefined };
  /** The whole environment, for the programs that a kubeconfig runs to get credentials. */
  readonly variables: Readonly<Record<string, string | undefined>>;
  /** Replaces all of these: a recording. */
  readonly connection?: KubeConnection;
}

/** Source: k8s.io/client-go tools/clientcmd (NewDefaultClientConfigLoadingRules). */
export function kubeEnvironment(variables: KubeEnvironment['variables']): KubeEnvironment {
  // Windows sets USERPROFILE instead.
  const home = variables.HOME || variables.USERPROFILE;
  return {
    kubeconfigs: (variables.KUBECONFIG ?? '').split(delimiter).filter((file) => file !== ''),
    homeKubeconfig: home ? join(home, '.kube', 'config') : undefined,
    service: { host: variables.KUBERNETES_SERVICE_HOST, port: variables.KUBERNETES_SERVICE_PORT },
    variables,
  };
}
