import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { simulate } from '../../src/cli/simulate.ts';
import { atEndOfFile } from '../webhook/connection.ts';
import { emptyDirectory, linger } from './linger.ts';

const atEnd = atEndOfFile();
const BEGIN = Date.UTC(2026, 10, 2) / 1000;
const steady = (lag: number) =>
  Array.from({ length: 1_500 }, (_, each) => JSON.stringify({ at: BEGIN + each * 60, lag })).join('\n');

describe.concurrent('linger simulate', () => {
  it('prints each change of the wait and each midnight, as JSON', async () => {
    const { code, stdout, stderr } = await linger(['simulate', '-', '-o', 'json'], {
      stdin: `${steady(0.2)}\n`,
    });
    expect([code, stderr]).toEqual([0, '']);
    const { changes } = JSON.parse(stdout) as { changes: object[] };
    expect(changes).toEqual([
      { at: BEGIN, waitSeconds: 30, why: 'initial', p99Seconds: null, coverage: null },
      {
        at: BEGIN + 86_400,
        waitSeconds: 5,
        why: 'measured',
        p99Seconds: expect.closeTo(0.2, 2),
        coverage: 1,
      },
    ]);
  });

  it('reads a file and policies, and prints a table', async () => {
    const directory = await emptyDirectory(atEnd);
    const events = join(directory, 'events.jsonl');
    const policies = join(directory, 'policies.yaml');
    await writeFile(events, steady(4));
    await writeFile(
      policies,
      'apiVersion: linger.dev/v1alpha1\nkind: ClusterTerminationPolicy\nmetadata: {name: base}\nspec: {wait: {min: 12s}}\n',
    );
    const { code, stdout } = await linger(['simulate', events, '--policies', policies]);
    expect(code).toBe(0);
    expect(stdout).toBe(
      [
        'FROM (UTC)           WAIT  WHY       P99    COVERS',
        '2026-11-02 00:00:00  30s   initial   -      -',
        '2026-11-03 00:00:00  12s   measured  3.97s  100.0 %',
        '',
      ].join('\n'),
    );
  });

  it.each([
    ['{"at": 1', 'expected one JSON object'],
    ['[1, 2]', 'expected a JSON object'],
    ['{"lag": 1}', 'at: expected seconds since the epoch, got undefined'],
    ['{"at": 1790000000000, "lag": 1}', 'at: expected seconds since the epoch, got 1790000000000'],
    ['{"at": 1790000000, "lag": -1}', 'lag: expected seconds, 0 or more, got -1'],
    ['{"at": 1790000000, "lag": 1, "pod": "x"}', '"pod" is not known; expected at, lag, namespace, consumer'],
    ['{"at": 1790000000, "lag": 1, "namespace": 3}', 'namespace: expected a name, got 3'],
  ])('names the line that it cannot use: %s', async (line, problem) => {
    const { code, stdout, stderr } = await linger(['simulate', '-'], {
      stdin: `{"at": 1790000000, "lag": 1}\n\n${line}\n`,
    });
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toContain(`linger: stdin:3: ${problem}`);
    expect(stderr).toContain('[events-invalid]');
  });

  it.each([
    ['no events', ['simulate', '-'], '', 'stdin: expected a line', 1],
    ['a file that is not there', ['simulate', '/nowhere/x.jsonl'], '', '/nowhere/x.jsonl: cannot be read', 1],
    ['two files', ['simulate', 'a', 'b'], '', 'too many arguments', 2],
  ])('refuses %s', async (_, args, stdin, problem, exit) => {
    const { code, stdout, stderr } = await linger(args, { stdin });
    expect([code, stdout]).toEqual([exit, '']);
    expect(stderr).toContain(problem);
  });
});

it('reads an input that ends while its lines are being read', async () => {
  const printed: string[] = [];
  const print = (text: string) => printed.push(text);
  const stdin = Readable.from([Buffer.from(steady(0.2))]);
  const settings = { operands: [], output: 'json', namespace: 'default' };
  expect(await simulate(settings as never, { print, stdin, progress: () => undefined } as never)).toBe(0);
  expect(printed.join('')).toContain('"measured"');
});
