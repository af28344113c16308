import { delimiter, join } from 'node:path';
import {
  DURATION_HINT,
  type LabelSelector,
  LingerError,
  parseDuration,
  parseLabelQuery,
} from '../api/index.ts';

/** How the text of a setting is read. */
export interface Reader<T> {
  /** What stands after the flag in the help, `<port>`; undefined for a switch. */
  readonly argument: string | undefined;
  /** The words that it chooses from, where it does. */
  readonly choices?: readonly string[];
  /** @throws Unreadable */
  readonly parse: (text: string) => T;
  /** Written again, the flag adds to what it said before; otherwise the last one counts. */
  readonly adds?: true;
}

/** A text that is no value of its setting. */
export class Unreadable extends Error {
  /** What would have been right: `a port number from 0 to 65535`. */
  readonly expected: string;

  constructor(expected: string) {
    super(`expected ${expected}`);
    this.expected = expected;
  }
}

export function text(argument: string): Reader<string> {
  const parse = (written: string) => {
    if (written.trim() === '') throw new Unreadable('some text');
    return written;
  };
  return { argument, parse };
}

/** One of a few words, in whatever case it is written. */
export function oneOf<T extends string>(known: readonly T[]): Reader<T> {
  const parse = (written: string) => {
    const value = known.find((each) => each.toLowerCase() === written.toLowerCase());
    if (value === undefined) throw new Unreadable(`one of ${known.join(', ')}`);
    return value;
  };
  return { argument: `<${known.join('|')}>`, choices: known, parse };
}

/** Some of a few words, separated by commas. */
export function someOf<T extends string>(known: readonly T[]): Reader<readonly T[]> {
  const { parse: parseOne } = oneOf(known);
  const parse = (written: string) => list('').parse(written).map(parseOne);
  return { argument: `<${known.join(',')}>`, choices: known, parse, adds: true };
}

/** A switch: `--audit-warnings` on the command line, true or false in the environment. */
export const toggle: Reader<boolean> = {
  argument: undefined,
  parse: (written) => {
    if (/^(true|1|yes|on)$/i.test(written)) return true;
    if (/^(false|0|no|off)$/i.test(written)) return false;
    throw new Unreadable('true or false');
  },
};

/** Labels of objects, as `kubectl get -l` takes them. */
export const labelQuery: Reader<LabelSelector> = {
  argument: '<labels>',
  parse: (written) => {
    const selector = parseLabelQuery(written);
    if (selector === undefined)
      throw new Unreadable('labels such as app=web,tier!=cache or "app in (web,api)"');
    return selector;
  },
};

/** A TCP port; 0 lets the system choose one. */
export const port: Reader<number> = {
  argument: '<port>',
  parse: (written) => {
    const number = Number(written);
    if (!/^\d+$/.test(written) || number > 65_535) throw new Unreadable('a port number from 0 to 65535');
    return number;
  },
};

/** A duration, as seconds. */
export const seconds: Reader<number> = {
  argument: '<duration>',
  parse: (written) => {
    const value = parseDuration(written);
    if (value === undefined) throw new Unreadable(DURATION_HINT);
    return value;
  },
};

/** An instant as RFC 3339 writes it, as seconds since the epoch. */
export const instant: Reader<number> = {
  argument: '<time>',
  parse: (written) => {
    const at = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$/.test(written)
      ? Date.parse(written) / 1000
      : Number.NaN;
    if (Number.isNaN(at)) throw new Unreadable('a time with its zone, such as 2026-11-21T17:35:00Z');
    return at;
  },
};

export const probability: Reader<number> = {
  argument: '<probability>',
  parse: (written) => {
    const value = Number(written);
    if (written.trim() === '' || !(value >= 0 && value <= 1))
      throw new Unreadable('a probability from 0 to 1');
    return value;
  },
};

/** At least one value, separated by commas; a flag whose argument is `<name...>` also takes several. */
export function list(argument: string): Reader<readonly string[]> {
  const parse = (written: string) => {
    const items = written
      .split(',')
      .map((item) => item.trim())
      .filter((item) => item !== '');
    if (items.length === 0) throw new Unreadable('values separated by commas');
    return items;
  };
  return { argument, parse, adds: true };
}

/** An address as it is, commas and all; or files, separated by commas. */
export function addressOrFiles(argument: string): Reader<readonly string[]> {
  const files = list(argument);
  const parse = (written: string) => (/^https?:\/\//i.test(written) ? [written] : files.parse(written));
  return { argument, parse };
}

/** One setting of a command: how it is written, what it is worth when nobody writes it, and how it is read. */
export interface Flag<T> {
  readonly reader: Reader<unknown>;
  /** As the user would write it; undefined: none. */
  readonly fallback: string | undefined;
  readonly description: string;
  /** The letter of its short form, where kubectl has one: `n`. */
  readonly short?: string;
  /** Only for the type: what the flag's value is. */
  readonly value?: T;
}

/** A flag that has a value even when nobody writes it. */
export function flag<T>(reader: Reader<T>, fallback: string, description: string): Flag<T> {
  return { reader, fallback, description };
}

/** A flag that may have no value at all. */
export function optional<T>(reader: Reader<T>, description: string): Flag<T | undefined> {
  return { reader, fallback: undefined, description };
}

/** The same flag, with a short form. */
export function abbreviated<T>(short: string, flag: Flag<T>): Flag<T> {
  return { ...flag, short };
}

export type Flags = Readonly<Record<string, Flag<unknown>>>;
export type Values<F extends Flags> = { readonly [K in keyof F]: F[K] extends Flag<infer T> ? T : never };

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
 * @param written what the command line says, by key; undefined where it says nothing
 * @throws LingerError `settings-invalid`, naming the flag or the variable
 */
export function resolve<F extends Flags>(
  flags: F,
  written: Readonly<Record<string, string | undefined>>,
  environment: Readonly<Record<string, string | undefined>>,
): Values<F> {
  const values: Record<string, unknown> = {};
  for (const [key, flag] of Object.entries(flags)) {
    const fromLine = written[key];
    const fromEnvironment = settingIn(environment[variableName(key)]);
    const text = fromLine ?? fromEnvironment ?? flag.fallback;
    const source = fromLine === undefined ? variableName(key) : `--${flagName(key)}`;
    values[key] = text === undefined ? undefined : read(flag, text, source);
  }
  return values as Values<F>;
}

/** What the kubelet sets for a Service named `linger`: LINGER_PORT=tcp://10.96.31.7:443. */
const SERVICE_LINK = /^(tcp|udp|sctp):\/\//;

/** The text of a variable that is meant for us. One set to nothing is how manifests say that it is not set. */
function settingIn(variable: string | undefined): string | undefined {
  return variable === undefined || variable === '' || SERVICE_LINK.test(variable) ? undefined : variable;
}

function read(flag: Flag<unknown>, text: string, source: string): unknown {
  try {
    return flag.reader.parse(text);
  } catch (error) {
    if (!(error instanceof Unreadable)) throw error;
    throw new LingerError('settings-invalid', `${source}: expected ${error.expected}, got "${text}"`);
  }
}

/** What the environment says about where a cluster is, as kubectl reads it. */
export interface KubeEnvironment {
  /** The files of KUBECONFIG, taken together; none: it is not set. */
  readonly kubeconfigs: readonly string[];
  /** Where kubectl looks otherwise. Undefined: there is no home. */
  readonly homeKubeconfig: string | undefined;
  /** KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT: set in every pod. */
  readonly service: { readonly host: string | undefined; readonly port: string | undefined };
  /** All of it, for the programs that a kubeconfig runs to get credentials. */
  readonly variables: Readonly<Record<string, string | undefined>>;
}

/** Source: k8s.io/client-go tools/clientcmd (NewDefaultClientConfigLoadingRules). */
export function kubeEnvironment(variables: KubeEnvironment['variables']): KubeEnvironment {
  // Windows has USERPROFILE.
  const home = variables.HOME || variables.USERPROFILE;
  return {
    kubeconfigs: (variables.KUBECONFIG ?? '').split(delimiter).filter((file) => file !== ''),
    homeKubeconfig: home ? join(home, '.kube', 'config') : undefined,
    service: { host: variables.KUBERNETES_SERVICE_HOST, port: variables.KUBERNETES_SERVICE_PORT },
    variables,
  };
}
