import { createReadStream } from 'node:fs';
import { TextDecoder } from 'node:util';
import { asError, isRecord, LingerError } from '../core/api/index.ts';
import {
  NO_SOURCES,
  type SimulatedEvent,
  type SimulatedWait,
  shareInWords,
  snapshotOf,
  simulate as waitsOf,
} from '../core/decision/index.ts';
import { encodingOf } from '../core/yaml/index.ts';
import { readPolicies } from '../policy-files/index.ts';
import type { Settings } from './commands.ts';
import { usageError } from './flags.ts';
import { columns, jsonText, type Surroundings, showInstant } from './terminal.ts';

/** `linger simulate`: prints the waits that Linger would have planned while the removals in a file happened. */
export async function simulate(
  { operands, policies, namespace, output }: Settings<'simulate'>,
  { print, progress, stdin }: Surroundings,
): Promise<number> {
  const [file = '-'] = operands;
  if (operands.length === 0 && stdin.isTTY === true)
    throw usageError('no events: name a file of removals, or - for standard input');
  const snapshot = snapshotOf(
    policies === undefined ? NO_SOURCES : { ...NO_SOURCES, files: await readPolicies(policies) },
  );
  const events = await readEvents(file, file === '-' ? stdin : createReadStream(file), progress);
  progress('simulating events', events.length);
  const changes = waitsOf(events, snapshot, namespace);
  print(output === 'json' ? jsonText({ changes }) : table(changes));
  return 0;
}

async function readEvents(
  file: string,
  input: NodeJS.ReadableStream,
  progress: Surroundings['progress'],
): Promise<readonly SimulatedEvent[]> {
  const name = file === '-' ? 'stdin' : file;
  const invalid = (where: string, problem: string) =>
    new LingerError('events-invalid', `${where}: ${problem}`);
  const events: SimulatedEvent[] = [];
  let line = 0;
  try {
    for await (const text of linesOf(input)) {
      line += 1;
      if (text.trim() === '') continue;
      const event = eventOf(text);
      if (typeof event === 'string') throw invalid(`${name}:${line}`, event);
      events.push(event);
      progress('reading events', events.length);
    }
  } catch (error) {
    if (error instanceof LingerError) throw error;
    throw invalid(name, `cannot be read (${asError(error).message})`);
  }
  if (events.length === 0)
    throw invalid(name, 'expected a line {"at": …, "lag": …} for each removal, got none');
  return events;
}

/** Does not use node:readline, whose iterator throws "readline was closed" if the input ends while the consumer is busy. */
async function* linesOf(input: NodeJS.ReadableStream): AsyncGenerator<string> {
  let decoder: TextDecoder | undefined;
  let rest = '';
  for await (const chunk of input as AsyncIterable<Buffer>) {
    decoder ??= new TextDecoder(encodingOf(chunk));
    const [first = '', ...others] = decoder.decode(chunk, { stream: true }).split('\n');
    rest += first;
    for (const line of others) {
      yield rest;
      rest = line;
    }
  }
  yield rest + (decoder?.decode() ?? '');
}

/** The end of the year 9999; larger numbers are probably milliseconds. */
const LAST_INSTANT = 253_402_300_800;

/** @returns a message if the text is not an event */
function eventOf(text: string): SimulatedEvent | string {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    return 'expected one JSON object, such as {"at": 1790000000, "lag": 0.2}';
  }
  if (!isRecord(json)) return 'expected a JSON object, such as {"at": 1790000000, "lag": 0.2}';
  const { at, lag, namespace, consumer, ...others } = json;
  const [unknown] = Object.keys(others);
  if (unknown !== undefined)
    return `${JSON.stringify(unknown)} is not known; expected at, lag, namespace, consumer`;
  if (typeof at !== 'number' || !(at >= 0 && at < LAST_INSTANT)) {
    return `at: expected seconds since the epoch, got ${JSON.stringify(at)}`;
  }
  if (typeof lag !== 'number' || !(lag >= 0))
    return `lag: expected seconds, 0 or more, got ${JSON.stringify(lag)}`;
  for (const [field, value] of Object.entries({ namespace, consumer })) {
    if (value !== undefined && (typeof value !== 'string' || value === '')) {
      return `${field}: expected a name, got ${JSON.stringify(value)}`;
    }
  }
  return { at, lag, namespace: namespace as string | undefined, consumer: consumer as string | undefined };
}

function table(changes: readonly SimulatedWait[]): string {
  const rows = changes.map(({ at, waitSeconds, why, p99Seconds, coverage }) => [
    showInstant(at),
    `${waitSeconds}s`,
    why,
    p99Seconds === null ? '-' : `${Number(p99Seconds.toPrecision(3))}s`,
    coverage === null ? '-' : shareInWords(coverage),
  ]);
  return `${columns([HEAD, ...rows]).join('\n')}\n`;
}

const HEAD = ['FROM (UTC)', 'WAIT', 'WHY', 'P99', 'COVERS'];
