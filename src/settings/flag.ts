import { LingerError } from '../core/catalog/errors.ts';
import { type Reader, Unreadable } from './readers.ts';

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
