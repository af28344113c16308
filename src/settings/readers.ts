import { DURATION_HINT, parseDuration } from '../core/schema/duration.ts';
import { parseLabelQuery } from '../core/schema/label-query.ts';
import type { LabelSelector } from '../core/schema/selector.ts';

/** How the text of a setting is read. */
export interface Reader<T> {
  /** What stands after the flag in the help, `<port>`; undefined for a switch. */
  readonly argument: string | undefined;
  /** @throws Unreadable */
  readonly parse: (text: string) => T;
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
  return { argument: `<${known.join('|')}>`, parse };
}

/** Some of a few words, separated by commas. */
export function someOf<T extends string>(known: readonly T[]): Reader<readonly T[]> {
  const { parse: parseOne } = oneOf(known);
  const parse = (written: string) => list('').parse(written).map(parseOne);
  return { argument: `<${known.join(',')}>`, parse };
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
  return { argument, parse };
}

/** An address as it is, commas and all; or files, separated by commas. */
export function addressOrFiles(argument: string): Reader<readonly string[]> {
  const files = list(argument);
  const parse = (written: string) => (/^https?:\/\//i.test(written) ? [written] : files.parse(written));
  return { argument, parse };
}
