import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import {
  Budget,
  FOREIGN_LIMITS,
  type HookReading,
  leastSecondsOf,
  plainSleep,
  type ReaderLimits,
  readHook,
  readingInWords,
} from '../../../src/core/api/index.ts';
import { runs } from '../../property/runs.ts';

/** `5` exactly, `5+` at least, `?` unknown. */
function briefly(reading: HookReading): string {
  if (reading.kind === 'exact') return String(reading.seconds);
  return reading.kind === 'atLeast' ? `${reading.seconds}+` : reading.kind === 'unknown' ? '?' : reading.why;
}

const exec = (...command: unknown[]) => ({ exec: { command } });
const readExec = (...command: unknown[]) => briefly(readHook(exec(...command)));
const script = (text: string) => readExec('sh', '-c', text);

/** `${…}` of shells. */
const braced = (text: string) => ['$', '{', text, '}'].join('');

describe('handlers', () => {
  test.each<[string, Record<string, unknown>]>([
    ['5', { sleep: { seconds: 5 } }],
    ['0', { sleep: { seconds: 0 } }],
    ['0', { sleep: {} }],
    ['5', { sleep: { seconds: 5 }, httpGet: null }],
    ['?', { httpGet: { path: '/drain', port: 80 } }],
    ['0', { tcpSocket: { port: 80 } }],
    ['must specify a handler type', {}],
    ['must specify a handler type', { exec: null }],
    ['?', { unheardOf: {} }],
    ['may not specify more than 1 handler type', { httpGet: { port: 80 }, sleep: { seconds: 5 } }],
    ['may not specify more than 1 handler type', { ...exec('sleep', '5'), tcpSocket: { port: 80 } }],
    ['sleep.seconds: must be non-negative', { sleep: { seconds: -5 } }],
    ['sleep.seconds: expected whole seconds', { sleep: { seconds: 1.5 } }],
    ['sleep.seconds: expected whole seconds', { sleep: { seconds: '5' } }],
    ['exec: expected an object', { exec: ['sleep', '5'] }],
    ['exec.command: Required value', { exec: {} }],
    ['exec.command: Required value', exec()],
    ['exec.command: expected a list of strings', exec('sleep', 5)],
    ['exec.command: expected a list of strings', { exec: { command: 'sleep 5' } }],
  ])('%s: %j', (expected, handler) => {
    expect(briefly(readHook(handler))).toBe(expected);
  });
});

describe('a program', () => {
  test.each<[string, string[]]>([
    ['5', ['sleep', '5']],
    ['5', ['/bin/sleep', '5']],
    ['5', ['/usr/bin/sleep', '5s']],
    ['5', ['busybox', 'sleep', '5']],
    ['5', ['/usr/bin/env', 'sleep', '5']],
    ['?', ['env', 'TZ=UTC', 'sleep', '5']],
    ['?', ['env', '-i', 'sleep', '5']],
    ['20', ['timeout', '20', 'sleep', '30']],
    ['10', ['timeout', '1m', 'sleep', '10']],
    ['15', ['sh', '-c', 'timeout 20 sleep 15']],
    ['?', ['timeout', '20', 'sh', '-c', 'sleep 30; nginx -s quit']],
    ['?', ['timeout', '0', 'sleep', '10']],
    ['?', ['timeout', '20', 'drain-it']],
    ['0', ['pilot-agent', 'request', '--debug-port=15020', 'POST', 'drain']],
    ['0', ['/usr/local/bin/pilot-agent', 'request', 'POST', 'drain']],
    ['?', ['pilot-agent', 'request', 'POST', 'quitquitquit']],
    ['15', ['sh', '-c', 'pilot-agent request POST drain; sleep 15']],
    ['?', ['timeout', '-k', '5', '20', 'sleep', '30']],
    ['300', ['sleep', '5m']],
    ['7200', ['sleep', '2h']],
    ['86400', ['sleep', '1d']],
    ['1.5', ['sleep', '1.5']],
    ['0.5', ['sleep', '.5']],
    ['90', ['sleep', '1.5m']],
    ['65', ['sleep', '1m', '5']],
    ['0', ['sleep', '0']],
    ['0', ['sleep']],
    ['0', ['sleep', '-5']],
    ['0', ['sleep', 'five']],
    ['0', ['sleep', '5 ']],
    ['?', ['sleep', '--', '5']],
    ['?', ['sleep', '+5']],
    ['?', ['sleep', '+5s']],
    ['0', ['sleep', '5sec']],
    ['0', ['sleep', '$(SECONDS)']],
    ['0', ['sleep', '5', '&&', 'nginx', '-s', 'quit']],
    ['0', ['sleep 5']],
    ['?', ['sleep', '1e2']],
    ['1000000000+', ['sleep', 'infinity']],
    ['?', ['usleep', '5000000']],
    ['?', ['/drain']],
    ['?', ['/app/sleep', '5']],
    ['0', ['echo', 'Stopping']],
    ['?', ['printf', 'Stopping']],
    ['5', ['timeout', '5', 'sleep', '10']],
    ['?', ['python', '-c', 'import time; time.sleep(5)']],
  ])('%s: %j', (expected, command) => {
    expect(readExec(...command)).toBe(expected);
  });
});

describe('a shell', () => {
  test.each<[string, string[]]>([
    ['60', ['bash', '-c', 'sleep 60']],
    ['60', ['/usr/bin/bash', '-c', 'sleep 60']],
    ['60', ['/bin/ash', '-c', 'sleep 60']],
    ['60', ['/bin/dash', '-c', 'sleep 60']],
    ['?', ['zsh', '-c', 'sleep 60']],
    ['60', ['busybox', 'sh', '-c', 'sleep 60']],
    ['?', ['/usr/bin/fish', '-c', 'sleep 60']],
    ['?', ['tcsh', '-c', 'sleep 60']],
    ['?', ['mksh', '-c', 'sleep 60']],
    ['?', ['yash', '-c', 'sleep 60']],
    ['?', ['pwsh', '-c', 'sleep 60']],
    ['?', ['powershell', '-Command', 'Start-Sleep -s 60']],
    ['60', ['/usr/bin/env', 'sh', '-c', 'sleep 60']],
    ['60', ['/usr/bin/env', 'bash', '-ec', 'sleep 60']],
    ['60', ['sh', '-ec', 'sleep 60']],
    ['?', ['sh', '-lc', 'sleep 60']],
    ['?', ['sh', '-euc', 'sleep 60']],
    ['60', ['sh', '-c', '-e', 'sleep 60']],
    ['?', ['sh', '-e', '-u', '-c', 'sleep 60']],
    ['?', ['bash', '-euo', 'pipefail', '-c', 'sleep 60']],
    ['?', ['bash', '--login', '-c', 'sleep 60']],
    ['?', ['bash', '--norc', '--noprofile', '-c', 'sleep 60']],
    ['?', ['bash', '--rcfile', '/x', '-c', 'sleep 60']],
    ['?', ['bash', '-c', '--', 'sleep 60']],
    ['60', ['sh', '-c', 'sleep 60', 'and', 'more']],
    ['?', ['sh', '-c', 'sleep $1', 'sh', '60']],
    ['?', ['sh', '-c', `sleep "${braced('1')}"`, 'sh', '60']],
    ['0', ['sh', '-c', 'sleep', '15']],
    ['?', ['sh', '-c', 'sleep $1']],
    ['?', ['sh', '-c']],
    ['?', ['sh', '-c sleep 15']],
    ['?', ['sh', '-nc', 'sleep 15']],
    ['?', ['sh']],
    ['0', ['sh', '-c', '']],
    ['?', ['sh', '/scripts/stop.sh']],
    ['?', ['sh', 'sleep 5']],
    ['?', ['notashell', '-c', 'sleep 60']],
  ])('%s: %j', (expected, command) => {
    expect(readExec(...command)).toBe(expected);
  });
});

describe('a script', () => {
  test.each<[string, string]>([
    ['5', 'sleep 5'],
    ['5', ' sleep  5 '],
    ['5', 'sleep 5;'],
    ['5', 'sleep 5\n'],
    ['5', '\n\nsleep 5 # and wait'],
    ['5', 'exec sleep 5'],
    ['5', 'exec /bin/sleep 5; sleep 10'],
    ['5', '/bin/sleep 5'],
    ['5', 'sleep "5"'],
    ['5', "sleep '5's"],
    ['5', 'sleep 5 >/dev/null 2>&1'],
    ['?', 'sleep 5 &> /dev/null'],
    ['5', 'sleep 5 && true'],
    ['5', 'true && sleep 5'],
    ['5+', 'sleep 5 || sleep 10'],
    ['5', 'sleep 5; exit 0; sleep 10'],
    ['15', 'sleep 5; sleep 10'],
    ['15', 'sleep 5 && sleep 10'],
    ['15', 'sleep 5\nsleep 10'],
    ['15', 'sh -c "sleep 5"; sleep 10'],
    ['?', 'false && sleep 5; sleep 10'],
    ['?', 'false || sleep 5; sleep 10'],
    ['?', 'sleep 5 & sleep 10'],
    ['?', 'sleep 3 && sleep 5 & sleep 10'],
    ['?', 'TZ=UTC sleep 5'],
    ['?', 'set -e; sleep 5'],
    ['?', 'set -euo pipefail\nsleep 5\n'],
    ['?', 'sleep 5 &'],
    ['0', 'sleep 5seconds'],
    ['?', 'set -e; false; sleep 5'],
    ['0', 'exit 0'],
    ['5+', 'sleep 5 && nginx -s quit'],
    ['5+', 'sleep 5; nginx -s quit; sleep 10'],
    ['15+', 'date; sleep 5; sleep 10'],
    ['?', 'a; sleep 5; b; sleep 10'],
    ['?', 'a || true; sleep 5'],
    ['?', 'set -e; a || true; sleep 5'],
    ['?', 'a || b; sleep 5'],
    ['?', 'a & sleep 5; wait'],
    ['?', 'a | b; sleep 5'],
    ['?', 'echo x | sleep 5; a'],
    ['5+', 'echo bye > /proc/1/fd/1; sleep 5'],
    ['5+', 'sleep $N; sleep 5'],
    ['5+', `sleep 5; sleep ${braced('N:-10')}`],
    ['?', 'trap "" TERM; sleep 5'],
    ['?', 'if [ -f /x ]; then a; fi; sleep 5'],
    ['?', 'until a; do sleep 1; done; sleep 5'],
    ['?', 'for i in 1 2 3; do sleep 1; done; sleep 5'],
    ['5+', 'sleep 5; (a; b)'],
    ['5+', 'sleep 5; case $X in a) b;; esac'],
    ['5', 'echo "it\'s over"; sleep 5'],
    ['5', 'echo a#b; sleep 5'],
    ['?', 'exec a > /log & sleep 5'],
    ['?', 'sleep 5\r\n'],
    ['?', 'sleep $N'],
    ['?', 'sleep $(cat /n)'],
    ['?', 'sleep `cat /n`'],
    ['?', `sleep ${braced('N:-10')}`],
    ['?', '$SLEEP 5'],
    ['?', 'a && sleep 5'],
    ['?', 'set -e; a; sleep 5'],
    ['?', '[ -f /x ] && sleep 5'],
    ['?', 'if a; then sleep 5; fi'],
    ['?', 'for i in 1 2 3; do sleep 5; done'],
    ['?', 'sleep 5 > /log'],
    ['?', 'nginx -s quit; sleep 5'],
    ['?', 'kill -TERM 1; sleep 5'],
    ['?', 'curl localhost/actuator/shutdown; sleep 5'],
    ['?', 'a || exit 1; sleep 5'],
    ['?', 'exec a; sleep 5'],
    ['?', '. /env; sleep 5'],
    ['?', 'sleep() { exit; }; sleep 5'],
    ['?', 'case $X in a) sleep 5;; esac'],
    ['?', 'echo "$(echo "a; sleep 5")"'],
    ['?', 'cat <<E\nsleep 5\nE\n'],
    ['?', "echo 'sleep 5"],
    ['?', 'return 0; sleep 5'],
    ['?', '! sleep 5'],
  ])('%s: %s', (expected, text) => {
    expect(script(text)).toBe(expected);
  });

  it('counts under errexit up to what may fail', () => {
    expect(readExec('sh', '-ec', 'sleep 5; date; sleep 10')).toBe('5+');
    expect(readExec('sh', '-ec', 'sleep 5; sleep x && true; sleep 10')).toBe('5+');
    expect(readExec('sh', '-c', 'sleep 5; date; sleep 10')).toBe('15+');
  });

  it.each<[string, string]>([
    // A word in an echo stops nothing.
    ['5', 'echo "Stopping"; sleep 5'],
    ['5', 'echo "stopping $HOSTNAME"; sleep 5'],
    ['5', 'echo kill && sleep 5'],
    ['45+', 'echo "Stopping" > /proc/1/fd/1; sleep 45'],
    ['5+', 'printf "shutdown\\n" >&2; date; touch /tmp/drain; logger -t web quit; sleep 5'],
    // What the application does then is not known.
    ['?', 'consul leave; sleep 30'],
    ['?', 'nginx -s quit; sleep 15'],
    ['?', 'rm /tmp/ready; sleep 15'],
    ['?', '/app/echo stop; sleep 5'],
    ['?', 'echo quit > /run/app.fifo; sleep 5'],
    ['?', 'echo $(kill 1); sleep 5'],
    ['5', 'echo "$(date) stopping"; sleep 5'],
    ['5+', 'echo "$(date -u +%FT%TZ) $(hostname) stopping" > /proc/1/fd/1; sleep 5'],
    ['5', 'echo `date -Iseconds` stopping; sleep 5'],
    ['?', 'echo "$(date -f /run/fifo)"; sleep 5'],
    ['?', 'echo "$(date; kill 1)"; sleep 5'],
    ['?', 'echo "$(date > /run/fifo)"; sleep 5'],
    ['?', '$(date) stopping; sleep 5'],
    ['?', 'echo `kill 1`; sleep 5'],
    ['?', `echo "${braced('X?gone')}"; sleep 5`],
    // dash leaves these before the sleep.
    ['?', ': >/nope/x; sleep 20'],
    ['?', 'set -e; test -f /nope; sleep 20'],
    ['?', 'exec >/nope/x; sleep 20'],
    ['?', 'PATH=/nope; sleep 20'],
    // What runs behind these is not certain.
    ['?', 'date && sleep 5'],
    ['5+', 'date && sleep 5; sleep 5'],
    ['?', 'echo > /proc/1/fd/1 && sleep 5'],
    ['?', 'sleep 5 > /proc/1/fd/1'],
    ['?', 'date && exit 0; sleep 5'],
    ['5+', 'sleep 5 && a || b'],
    ['5+', 'sleep 5 && a | b'],
    ['?', 'sleep 5 && a & b'],
    ['5+', 'sleep 5; sleep 10 & sleep 10'],
    // Values that are decided elsewhere.
    ['?', 'sleep [5]'],
    ['?', 'sleep {1,2}'],
    ['?', 'sleep ~'],
    // Scripts inside a script: one level.
    ['10', 'sh -c "sleep 5; exit 0"; sleep 5'],
    ['5+', 'sleep 5; sh -c "a"; sleep 5'],
    ['?', "sh -c 'exit 1' && sleep 5"],
    ['?', "sh -c 'sleep x;' && sleep 5"],
    ['?', `sh -c "sh -c 'sleep 5'"`],
    // A shell reads a line to its end before it runs it.
    ['?', 'sleep 5; echo "x'],
    ['?', "sleep 5; echo 'x"],
    ['?', 'sleep 5; fi'],
    ['?', 'sleep 5; }'],
    ['?', 'sleep 5; echo $(x'],
    ['?', 'sleep 5 &&'],
    ['?', 'sleep 5;; sleep 5'],
    ['?', '; sleep 5'],
    ['?', 'sleep 5; a )'],
    ['5+', 'sleep 5\necho "x'],
    ['5+', 'sleep 5;\n\n&& a'],
    ['10', 'sleep 5 &&\n\nsleep 5'],
    ['10', 'sleep \\\n5; sl\\\neep 5'],
    ['5+', 'sleep 5; kill -QUIT $(cat /run/app.pid)'],
    ['5+', 'sleep 5; nginx -s quit; while pgrep -x nginx; do sleep 1; done'],
  ])('has bounds that are never wrong: %s: %s', (expected, text) => {
    expect(script(text)).toBe(expected);
  });

  it('is not read where it is too long', () => {
    expect(script(`sleep 5;${' '.repeat(5_000)}`)).toBe('?');
    expect(readExec('sh', '-c', 'sleep 5', ...Array<string>(100).fill('x'))).toBe('?');
  });
});

test.each([
  [exec('sh', '-c', 'sleep', '15'), /^waits 0s \(sleep has no argument; .*\$0/],
  [exec('sh', '-c', 'sleep 20 &'), /^waits for an unknown time$/],
  [exec('sleep 15'), /^waits 0s \(it fails at once: there is no program "sleep 15"\)$/],
  [exec('sleep', 'abc'), /^waits 0s \(sleep fails at once: "abc" is not a duration\)$/],
  [{ tcpSocket: { port: 80 } }, /^waits 0s \(the kubelet runs no tcpSocket hook\)$/],
  [exec('sleep', 'infinity'), /^waits for ever$/],
  [exec('sleep', '0'), /^waits 0s$/],
])('a hook that does not wait as it was meant to: %j', (handler, words) => {
  expect(readingInWords(readHook(handler))).toMatch(words);
});

test('whatever Extend may lengthen is read as exact, and anything is read at once', () => {
  const word = fc.oneof(
    fc.constantFrom('sleep', '5', '10s', ';', '&&', '||', '&', '|', 'sh', '-c', '$N', '"', "'", '`', '$('),
    fc.constantFrom(
      '(',
      ')',
      '{',
      '}',
      'if',
      'then',
      'fi',
      'for',
      'done',
      'exit',
      'exec',
      '\\',
      '#',
      '>',
      '\n',
    ),
    fc.string({ maxLength: 5 }),
  );
  const command = fc.oneof(
    fc.array(word, { maxLength: 6 }),
    fc.array(word, { maxLength: 200 }).map((words) => ['sh', '-c', words.join(' ')]),
    fc.integer({ min: 1, max: 999 }).map((seconds) => ['/bin/sh', '-c', `sleep ${seconds}s`]),
  );
  fc.assert(
    fc.property(command, (words) => {
      const handler = exec(...words);
      const reading = readHook(handler);
      const plain = plainSleep(handler);
      if (plain !== undefined) expect(reading).toEqual({ kind: 'exact', seconds: plain.seconds });
      if (reading.kind === 'exact' || reading.kind === 'atLeast')
        expect(reading.seconds >= 0 && reading.seconds <= 1e9).toBe(true);
    }),
    runs(3_000),
  );
});

/** Inputs of any length. */
const WIDE: ReaderLimits = {
  ...FOREIGN_LIMITS.hook,
  bytes: 2 ** 24,
  parts: { most: 2 ** 20 },
  steps: 2 ** 30,
};

function stepsOf(command: readonly string[], limits = WIDE): number {
  const budget = new Budget(limits);
  readHook(exec(...command), budget);
  return budget.spent;
}

describe('what reading costs', () => {
  /** Each call of the script is four more of it, with one argument less. */
  const bomb = (copies: number) => {
    const call = `sh -c ${[0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map((digit) => `$${digit}`).join(' ')};`;
    return ['sh', '-c', ...Array<string>(copies).fill(call.repeat(4))];
  };
  const nested = (depth: number) => {
    let command = 'sleep 5';
    for (let level = 0; level < depth; level += 1) command = `sh -c ${command.replaceAll(/[^\w]/g, '\\$&')}`;
    return ['sh', '-c', command];
  };
  const attacks: readonly (readonly [name: string, command: (size: number) => readonly string[]])[] = [
    ['a script that calls itself by its arguments', bomb],
    [
      'the same script as its own argument',
      (size) => ['sh', '-c', ...Array<string>(size).fill('sh -c "$0" "$0"')],
    ],
    ['shells in shells', (size) => nested(Math.min(size, 10))],
    ['runners', (size) => [...Array<string>(size).fill('busybox'), 'sh', '-c', 'env '.repeat(size)]],
    ...[
      `'`,
      '"',
      '`',
      '$(',
      '(',
      ')',
      '{',
      '\\',
      '>',
      '>&',
      '&',
      '#',
      '0',
      '0.',
      '1>',
      'e',
      ' ',
      '\n',
      ';',
      '"$(',
    ].map(
      (text) =>
        [
          `a script of ${JSON.stringify(text)}`,
          (size: number) => ['sh', '-c', text.repeat(size * 100)],
        ] as const,
    ),
    ['digits', (size) => ['sleep', `${'1'.repeat(size * 100)}x`]],
    ['quoted words', (size) => ['sh', '-c', `echo ${`'a' "b" `.repeat(size * 100)}; sleep 5`]],
  ];

  test.each(attacks)(
    '%s: at most 3 steps a character, and at most twice as much for the double',
    (_, command) => {
      for (const size of [4, 7, 8, 64, 600]) {
        const length = (words: readonly string[]) => words.join(' ').length;
        const [once, twice] = [command(size), command(2 * size)];
        expect(stepsOf(once)).toBeLessThanOrEqual(3 * length(once));
        expect(stepsOf(twice)).toBeLessThanOrEqual(
          2 * stepsOf(once) + 2 * Math.max(0, length(twice) - 2 * length(once)) + 16,
        );
        expect(stepsOf(once, FOREIGN_LIMITS.hook)).toBeLessThanOrEqual(FOREIGN_LIMITS.hook.steps);
      }
    },
  );

  test('any script: at most twice as much for the double', () => {
    const piece = fc.constantFrom(
      'sleep 5',
      'a',
      ';',
      '&&',
      '|',
      '\n',
      '"',
      "'",
      '`',
      '$(',
      ')',
      '#',
      '>',
      '\\',
      '$1',
      'sh -c ',
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 40 }), (pieces) => {
        const text = pieces.join(' ');
        const [once, twice] = [stepsOf(['sh', '-c', text]), stepsOf(['sh', '-c', text + text])];
        // The first half may be where reading stops, but for the second half, which closes a quotation.
        expect(twice).toBeLessThanOrEqual(2 * (2 * text.length + 3) + 16);
        expect(once).toBeLessThanOrEqual(2 * text.length + 16);
      }),
      runs(1_000),
    );
  });

  test.each(attacks)('%s: waits for no known time, whatever its limits', (_, command) => {
    const reading = readHook(exec(...command(7)));
    expect(['unknown', 'exact']).toContain(reading.kind);
    expect(leastSecondsOf(reading)).toBeLessThanOrEqual(5);
  });

  test('a spent budget makes the hook unknown, and so do more words, characters and shells than the limits', () => {
    const command = ['sh', '-c', "sleep 5; sh -c 'sleep 5'; sleep 5"];
    const within = (limits: Partial<ReaderLimits>) =>
      briefly(readHook(exec(...command), new Budget({ ...WIDE, ...limits })));
    expect(within({})).toBe('15');
    expect(within({ steps: 20 })).toBe('?');
    expect(within({ bytes: 20 })).toBe('?');
    expect(within({ parts: { most: 2 } })).toBe('?');
    expect(within({ depth: 1 })).toBe('5+');
    expect(within({ depth: 0 })).toBe('?');
  });
});
