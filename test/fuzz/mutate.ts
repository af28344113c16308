/** What fuzzing splices into inputs: numbers at their edges, brackets, escapes, and what parsers give a meaning. */
const DICTIONARY: readonly string[] = [
  ...['0', '-1', '1e999', 'NaN', 'Infinity', '9007199254740993', '18446744073709551616', '1e-400'],
  ...[
    '{',
    '}',
    '[',
    ']',
    '"',
    "'",
    ':',
    ',',
    '- ',
    '? ',
    '| ',
    '> ',
    '&a ',
    '*a',
    '<<: ',
    '!!binary ',
    '%YAML 1.1',
  ],
  ...['\0', '\t', '\r\n', '\n', '\n\n', '\ufeff', '\u2028', '\\u0000', '\\', '__proto__', 'constructor'],
  ...['::', '[::', '10.0.0.1', '10.0.0.1:8080', '[fd00::1]:80', '255.255.255.255:65536'],
  ...['linger.dev/', 'linger.dev/plan', 'null', 'true', 'metadata', 'labels', '../', '%2f', '?'],
  ...['-----BEGIN CERTIFICATE-----\n', '-----END CERTIFICATE-----\n'],
];

/** What stands in for a text: also a record that no one can make a text of. */
const VALUES: readonly string[] = [
  '{"toString":1,"valueOf":1}',
  '[[]]',
  '{}',
  'null',
  '1e999',
  'false',
  '""',
];

/** The longest run of copies of a piece: long enough for what is quadratic to show, short enough for a million inputs. */
const MOST_COPIES = 4_096;
const MOST_BYTES = 256 * 1024;

/** A whole number from 0 to `bound` - 1; 0 where the bound is 0. */
export type Below = (bound: number) => number;

/** One to four changes of an input: bytes flipped, removed, doubled over and over, or replaced by another's, and texts by other values. */
export function mutated(input: Uint8Array, other: Uint8Array, below: Below): Uint8Array {
  let bytes = Buffer.from(input);
  for (let change = 1 + below(4); change > 0; change -= 1) bytes = changed(bytes, other, below);
  return bytes.subarray(0, MOST_BYTES);
}

function changed(bytes: Buffer, other: Uint8Array, below: Below): Buffer<ArrayBuffer> {
  const at = below(bytes.length + 1);
  const end = Math.min(bytes.length, at + below(64));
  const [before, piece, after] = [bytes.subarray(0, at), bytes.subarray(at, end), bytes.subarray(end)];
  switch (below(7)) {
    case 0: {
      const flipped = Buffer.from(piece);
      for (let each = 0; each < flipped.length; each += 1) flipped[each] = below(256);
      return Buffer.concat([before, flipped, after]);
    }
    case 1:
      return Buffer.concat([before, after]);
    case 2: {
      const copies = 1 + below(MOST_COPIES);
      const most = Math.max(0, MOST_BYTES - bytes.length);
      return Buffer.concat([
        before,
        Buffer.alloc(Math.min(copies * piece.length, most), piece),
        piece,
        after,
      ]);
    }
    case 3: {
      const word = Buffer.from(DICTIONARY[below(DICTIONARY.length)] ?? '');
      const copies = below(8) === 0 ? 1 + below(MOST_COPIES) : 1;
      return Buffer.concat([before, Buffer.alloc(copies * word.length, word), after]);
    }
    case 4: {
      const from = below(other.length + 1);
      return Buffer.concat([before, other.subarray(from, from + below(512)), after]);
    }
    case 5: {
      const text = /:\s*"[^"]*"/.exec(after.toString('latin1'));
      if (text === null) return Buffer.concat([before, after]);
      const value = Buffer.from(`:${VALUES[below(VALUES.length)] ?? ''}`);
      const [from, to] = [text.index, text.index + text[0].length];
      return Buffer.concat([before, piece, after.subarray(0, from), value, after.subarray(to)]);
    }
    default:
      return Buffer.concat([before, piece, after.subarray(below(after.length + 1))]);
  }
}
