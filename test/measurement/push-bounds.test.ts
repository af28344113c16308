import { describe, expect, it } from 'vitest';
import { FOREIGN_LIMITS } from '../../src/core/api/index.ts';
import { BrokenPush, pushIn } from '../../src/measurement/xds/xds.ts';
import { field, push, repeated, socket } from './pushes.ts';

const KIB = 1024;
const MIB = 1024 * KIB;
const { bytes: LONGEST, loopBytes } = FOREIGN_LIMITS.push;

/** @returns the most bytes that are read at a stretch, and what is read, or why not */
function taken(message: Buffer) {
  const steps = pushIn(message);
  let longest = 0;
  let before = 0;
  for (;;) {
    try {
      const { done, value } = steps.next();
      longest = Math.max(longest, (done === true ? message.length : value) - before);
      if (done === true) return { longest, read: [...value.clusters.values()].flat().length };
      before = value;
    } catch (error) {
      if (!(error instanceof BrokenPush)) throw error;
      return { longest, why: error.message };
    }
  }
}

/** Its parts are small beside it. */
const AT_ONCE = loopBytes + 2 * KIB;

describe('a push is read a few KiB at a time, whatever it is made of', () => {
  const more = field(4, socket('10.0.0.1'));
  it.each<[string, Buffer, object]>([
    ['endpoints', push(...Array<Buffer>(10_000).fill(field(1, socket('10.0.0.1')))), { read: 10_000 }],
    ['one endpoint with many addresses', push(field(1, repeated(more, 300 * KIB))), { read: 19_200 }],
    [
      'one giant endpoint of 1.5 MiB, of unknown fields',
      push(field(1, repeated(field(9), 1.5 * MIB))),
      { read: 0 },
    ],
    ['one of 1.5 MiB, of numbers', push(repeated(Buffer.from([0x10, 1]), 1.5 * MIB)), { read: 0 }],
    [
      'localities without endpoints',
      field(2, field(2, field(2, repeated(field(2), 1.5 * MIB)))),
      { read: 0 },
    ],
    ['resources without a name', repeated(field(2), 1.5 * MIB), { read: 0 }],
  ])('%s', (_, message, expected) => {
    const { longest, ...outcome } = taken(message);
    expect(outcome).toEqual(expected);
    expect(longest).toBeLessThan(AT_ONCE);
  });
});

describe('a push beyond its bounds is not read to its end', () => {
  const many = 'a message has too many fields';
  it.each<[string, Buffer, string]>([
    [
      'addresses of one cluster',
      push(...Array<Buffer>(20_001).fill(field(1, socket('::1')))),
      'a cluster has too many addresses',
    ],
    ['fields', push(field(1, repeated(field(9), LONGEST - KIB))), many],
    ['resources', repeated(field(2), LONGEST), many],
    ['a name', field(2, field(3, Buffer.alloc(2 * KIB, 'a'))), 'a name is too long'],
    ['groups within groups', Buffer.alloc(MIB, 0x0b), 'a message is broken'],
    ['a part longer than what it is part of', field(2, Buffer.from([0x12, 9, 0, 0])), 'a message is broken'],
  ])('%s', (_, message, why) => {
    expect(taken(message)).toMatchObject({ why });
  });
});

it('what an endpoint that proxies send nothing to has is left out, wherever its health stands', () => {
  const draining = Buffer.from([0x10, 3]);
  const endpoint = field(1, socket('10.0.0.1'), field(4, socket('10.0.0.2')));
  const addresses = (...parts: readonly Buffer[]) => taken(push(Buffer.concat(parts)));
  expect(addresses(endpoint)).toMatchObject({ read: 2 });
  expect(addresses(draining, endpoint)).toMatchObject({ read: 0 });
  expect(addresses(endpoint, draining)).toMatchObject({ read: 0 });
});
