import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import { formatDuration, parseDuration } from '../../../src/core/api/duration.ts';

describe('a duration is read as Go reads one, without a sign', () => {
  test.each([
    ['0', 0],
    ['0s', 0],
    ['30s', 30],
    ['1m30s', 90],
    ['1.5h', 5400],
    ['1h15m30.918s', 4530.918],
    ['.5s', 0.5],
    ['1.s', 1],
    ['007s', 7],
    ['100ms', 0.1],
    ['250us', 0.00025],
    ['250µs', 0.00025],
    ['250μs', 0.00025],
    ['10ns', 1e-8],
    ['30s1m', 90],
    ['1h1h', 7200],
    ['168h', 604_800],
  ])('%s is %d s', (text, seconds) => {
    expect(parseDuration(text)).toBeCloseTo(seconds, 9);
  });

  test.each([
    '',
    ' ',
    '30',
    '00',
    '1',
    's',
    '.s',
    '-30s',
    '+30s',
    '30S',
    '30 s',
    ' 30s',
    '30s ',
    '30s\n',
    '1d',
    '1w',
    '30sec',
    '1,5s',
    '1e3s',
    '1.2.3s',
    'Infinity',
    '٣s',
    'PT30S',
    '169h',
    '168h1s',
    `${'9'.repeat(400)}s`,
    '1s'.repeat(33),
  ])('%j is none', (text) => {
    expect(parseDuration(text)).toBeUndefined();
  });
});

describe('a duration is written as a policy would say it', () => {
  test.each([
    [0, '0s'],
    [5, '5s'],
    [60, '1m'],
    [90, '1m30s'],
    [600, '10m'],
    [3600, '1h'],
    [86_400, '24h'],
    [3661, '1h1m1s'],
    [0.25, '0.25s'],
    [1.1 * 3600, '1h6m'],
  ])('%d s is %s', (seconds, text) => {
    expect(formatDuration(seconds)).toBe(text);
  });

  it('reads back what it writes', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 604_800_000 }), (milliseconds) => {
        const seconds = milliseconds / 1000;
        expect(parseDuration(formatDuration(seconds))).toBeCloseTo(seconds, 6);
      }),
    );
  });
});
