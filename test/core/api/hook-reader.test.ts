import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import { type HookReading, plainSleep, readHook, readingInWords } from '../../../src/core/api/index.ts';
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
    ['5', ['env', 'TZ=UTC', 'sleep', '5']],
    ['?', ['env', '-i', 'sleep', '5']],
    ['20', ['timeout', '20', 'sleep', '30']],
    ['10', ['timeout', '1m', 'sleep', '10']],
    ['15', ['sh', '-c', 'timeout 20 sleep 15']],
    ['20', ['timeout', '20', 'sh', '-c', 'sleep 30; nginx -s quit']],
    ['10', ['timeout', '0', 'sleep', '10']],
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
    ['60', ['zsh', '-c', 'sleep 60']],
    ['60', ['busybox', 'sh', '-c', 'sleep 60']],
    ['60', ['/usr/bin/fish', '-c', 'sleep 60']],
    ['60', ['tcsh', '-c', 'sleep 60']],
    ['60', ['mksh', '-c', 'sleep 60']],
    ['60', ['yash', '-c', 'sleep 60']],
    ['?', ['pwsh', '-c', 'sleep 60']],
    ['?', ['powershell', '-Command', 'Start-Sleep -s 60']],
    ['60', ['/usr/bin/env', 'sh', '-c', 'sleep 60']],
    ['60', ['/usr/bin/env', 'bash', '-ec', 'sleep 60']],
    ['60', ['sh', '-ec', 'sleep 60']],
    ['60', ['sh', '-lc', 'sleep 60']],
    ['60', ['sh', '-euc', 'sleep 60']],
    ['60', ['sh', '-c', '-e', 'sleep 60']],
    ['60', ['sh', '-e', '-u', '-c', 'sleep 60']],
    ['60', ['bash', '-euo', 'pipefail', '-c', 'sleep 60']],
    ['60', ['bash', '--login', '-c', 'sleep 60']],
    ['60', ['bash', '--norc', '--noprofile', '-c', 'sleep 60']],
    ['60', ['bash', '--rcfile', '/x', '-c', 'sleep 60']],
    ['60', ['bash', '-c', '--', 'sleep 60']],
    ['60', ['sh', '-c', 'sleep 60', 'and', 'more']],
    ['60', ['sh', '-c', 'sleep $1', 'sh', '60']],
    ['60', ['sh', '-c', `sleep "${braced('1')}"`, 'sh', '60']],
    ['0', ['sh', '-c', 'sleep', '15']],
    ['0', ['sh', '-c', 'sleep $1']],
    ['0', ['sh', '-c']],
    ['0', ['sh', '-c sleep 15']],
    ['0', ['sh', '-nc', 'sleep 15']],
    ['0', ['sh']],
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
    ['5', 'sleep 5 &> /dev/null'],
    ['5', 'sleep 5 && true'],
    ['5', 'true && sleep 5'],
    ['5', 'sleep 5 || sleep 10'],
    ['5', 'sleep 5; exit 0; sleep 10'],
    ['15', 'sleep 5; sleep 10'],
    ['15', 'sleep 5 && sleep 10'],
    ['15', 'sleep 5\nsleep 10'],
    ['15', 'sh -c "sleep 5"; sleep 10'],
    ['10', 'false && sleep 5; sleep 10'],
    ['15', 'false || sleep 5; sleep 10'],
    ['10', 'sleep 5 & sleep 10'],
    ['10', 'sleep 3 && sleep 5 & sleep 10'],
    ['5', 'TZ=UTC sleep 5'],
    ['5', 'set -e; sleep 5'],
    ['5', 'set -euo pipefail\nsleep 5\n'],
    ['0', 'sleep 5 &'],
    ['0', 'sleep 5seconds'],
    ['0', 'set -e; false; sleep 5'],
    ['0', 'exit 0'],
    ['5+', 'sleep 5 && nginx -s quit'],
    ['5+', 'sleep 5; nginx -s quit; sleep 10'],
    ['15+', 'date; sleep 5; sleep 10'],
    ['15+', 'a; sleep 5; b; sleep 10'],
    ['5+', 'a || true; sleep 5'],
    ['5+', 'set -e; a || true; sleep 5'],
    ['5+', 'a || b; sleep 5'],
    ['5+', 'a & sleep 5; wait'],
    ['5+', 'a | b; sleep 5'],
    ['5+', 'echo x | sleep 5; a'],
    ['5+', 'echo bye > /proc/1/fd/1; sleep 5'],
    ['5+', 'sleep $N; sleep 5'],
    ['5+', `sleep 5; sleep ${braced('N:-10')}`],
    ['5+', 'trap "" TERM; sleep 5'],
    ['5+', 'if [ -f /x ]; then a; fi; sleep 5'],
    ['5+', 'until a; do sleep 1; done; sleep 5'],
    ['5+', 'for i in 1 2 3; do sleep 1; done; sleep 5'],
    ['5+', 'sleep 5; (a; b)'],
    ['5+', 'sleep 5; case $X in a) b;; esac'],
    ['5+', 'echo "it\'s over"; sleep 5'],
    ['5+', 'echo a#b; sleep 5'],
    ['5', 'exec a > /log & sleep 5'],
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
    expect(readExec('sh', '-ec', 'sleep 5; a; sleep 10')).toBe('5+');
    expect(readExec('sh', '-c', 'sleep 5; a; sleep 10')).toBe('15+');
  });

  it('is not read where it is too long', () => {
    expect(script(`sleep 5;${' '.repeat(5_000)}`)).toBe('?');
    expect(readExec('sh', '-c', 'sleep 5', ...Array<string>(100).fill('x'))).toBe('?');
  });
});

test.each([
  [exec('sh', '-c', 'sleep', '15'), /^waits 0s \(sleep has no argument; .*\$0/],
  [exec('sh', '-c', 'sleep 20 &'), /^waits 0s \(what runs in the background/],
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
