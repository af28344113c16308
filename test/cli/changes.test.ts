import { describe, expect, it } from 'vitest';
import { columns, showSeconds } from '../../src/cli/terminal.ts';
import { ChangeTable, changeLine } from '../../src/cli/watch-output.ts';
import type { ObservedChange } from '../../src/core/lag/index.ts';

const TIME = new Date('2026-03-04T05:06:07.089Z');

const change = (more: Partial<ObservedChange> = {}): ObservedChange => ({
  change: 'removed',
  source: 'Endpoints',
  namespace: 'shop',
  service: 'web',
  uid: 'uid-1',
  pod: 'web-7d4b9c6f5d-x2v7q',
  ip: '10.244.1.17',
  withdrawn: true,
  at: 0,
  lag: 1.23449,
  seen: 'live',
  ...more,
});

describe('as JSON', () => {
  it('has exactly these members, in this order', () => {
    expect(JSON.stringify(changeLine(change(), TIME))).toBe(
      '{"time":"2026-03-04T05:06:07.089Z","namespace":"shop","service":"web","pod":"web-7d4b9c6f5d-x2v7q","ip":"10.244.1.17","change":"removed","source":"Endpoints","lagSeconds":1.234}',
    );
  });

  it('is null where there is none', () => {
    expect(changeLine(change({ service: '', pod: undefined, lag: undefined }), TIME)).toMatchObject({
      service: null,
      pod: null,
      lagSeconds: null,
    });
  });

  it('keeps a lag of 0 apart from none', () => {
    expect(changeLine(change({ lag: 0 }), TIME).lagSeconds).toBe(0);
  });
});

describe('as a table', () => {
  const table = (namespaces = true, colour = false) => new ChangeTable({ namespaces, colour });
  const NARROW = 100;

  it('stands in columns, in 100 characters with ordinary names', () => {
    const printed = table();
    const lines = [
      printed.header(),
      printed.row(change(), TIME),
      printed.row(change({ change: 'terminating', source: 'EndpointSlice', lag: 0.038 }), TIME),
      printed.row(change({ change: 'added', lag: undefined, seen: 'late' }), TIME),
    ];
    expect(lines.join('')).toBe(
      `   TIME (UTC)  CHANGE           LAG  SOURCE         SERVICE       POD                   IP
 05:06:07.089  removed       1.234s  Endpoints      shop/web      web-7d4b9c6f5d-x2v7q  10.244.1.17
 05:06:07.089  terminating     38ms  EndpointSlice  shop/web      web-7d4b9c6f5d-x2v7q  10.244.1.17
≤05:06:07.089  added              -  Endpoints      shop/web      web-7d4b9c6f5d-x2v7q  10.244.1.17
`,
    );
    for (const line of lines) expect(line.trimEnd().length).toBeLessThanOrEqual(NARROW);
  });

  it('never cuts a name: the columns after it move, from there on', () => {
    const printed = table();
    const pod = 'a-pod-with-a-name-that-is-longer-than-most';
    const long = printed.row(change({ pod }), TIME);
    expect(long).toContain(`${pod}  10.244.1.17`);
    expect(printed.row(change(), TIME).indexOf('10.244')).toBe(long.indexOf('10.244'));
  });

  it('leaves out the namespace where there is only one', () => {
    expect(table(false).row(change(), TIME)).toContain('  web  ');
  });

  it('has a dash for what there is not', () => {
    const row = table().row(change({ service: '', pod: undefined, lag: undefined }), TIME);
    expect(row.split(/ {2,}/).slice(2, 6)).toEqual(['-', 'Endpoints', 'shop/-', '-']);
  });

  it('colours the change, and nothing else', () => {
    const row = table(true, true).row(change(), TIME);
    expect(row).toContain('\u001b[31mremoved    \u001b[0m');
    // biome-ignore lint/suspicious/noControlCharactersInRegex: colours are made of them
    expect(row.replace(/\u001b\[\d+m/g, '')).toBe(table().row(change(), TIME));
  });
});

describe('seconds for people', () => {
  it.each([
    [0, '0ms'],
    [0.0004, '0ms'],
    [0.0382, '38ms'],
    [0.9996, '1.000s'],
    [1.23449, '1.234s'],
    [9.9994, '9.999s'],
    [9.9996, '10.0s'],
    [72.44, '72.4s'],
    [99.94, '99.9s'],
    [99.96, '1m40s'],
    [724, '12m04s'],
    [7_200, '120m00s'],
  ])('%d is %s', (seconds, expected) => expect(showSeconds(seconds)).toBe(expected));
});

it('columns are as wide as their widest cell', () => {
  expect(
    columns(
      [
        ['a', '10', 'x'],
        ['bbb', '1', ''],
      ],
      ['left', 'right', 'left'],
    ),
  ).toEqual(['a    10  x', 'bbb   1']);
});
