import { describe, expect, it } from 'vitest';
import { LiveTerminal } from '../../src/cli/watch.ts';

/** What the last line of a terminal shows after these writes, and what stands above it. */
function screen(
  use: (terminal: LiveTerminal) => void,
  options: { columns?: number | undefined; quiet?: boolean } = {},
): string {
  const { columns, quiet } = { columns: 80, quiet: false, ...options };
  let written = '';
  const write = (text: string) => {
    written += text;
  };
  const warn = (line: string) => write(`${line}\n`);
  use(new LiveTerminal({ print: write, warn, overwrite: write, errorColumns: () => columns }, quiet));
  // As a terminal does it: back to the beginning of the line, and the rest of it cleared.
  return written
    .split('\n')
    .map((line) => line.split('\r\u001b[K').at(-1))
    .join('\n');
}

describe('the status', () => {
  it('is the last line, is written over, and goes', () => {
    expect(screen((terminal) => terminal.status('1 waits'))).toBe('1 waits');
    expect(
      screen((terminal) => {
        terminal.status('12 wait');
        terminal.status('9 wait');
      }),
    ).toBe('9 wait');
    expect(
      screen((terminal) => {
        terminal.status('1 waits');
        terminal.status('');
      }),
    ).toBe('');
  });

  it('stays below what is printed and noted meanwhile', () => {
    const shown = screen((terminal) => {
      terminal.status('1 waits');
      terminal.print('a\n');
      terminal.note('b');
    });
    expect(shown).toBe('a\nb\n1 waits');
  });

  it('is written once, as long as it is the same', () => {
    let writes = 0;
    const count = () => {
      writes += 1;
    };
    const streams = { print: count, warn: count, overwrite: count };
    const terminal = new LiveTerminal({ ...streams, errorColumns: () => 80 }, false);
    terminal.status('1 waits');
    terminal.status('1 waits');
    terminal.print('');
    expect(writes).toBe(1);
  });

  it('is cut to the width of the terminal: a second line could not be taken back', () => {
    expect(screen((terminal) => terminal.status('123456'), { columns: 5 })).toBe('1234');
  });

  it('says what it quotes, and does not obey it', () => {
    expect(screen((terminal) => terminal.status('a\u009b2Jb'))).toBe('a\\u009b2Jb');
  });

  it.each([
    ['there is no terminal', { columns: undefined }],
    ['nobody wants it', { quiet: true }],
  ])('is not there where %s', (_why, options) => {
    expect(screen((terminal) => terminal.status('1 waits'), options)).toBe('');
  });
});

it('without a terminal there are results, but no notes', () => {
  const shown = screen(
    (terminal) => {
      terminal.note('a');
      terminal.print('b\n');
    },
    { quiet: true },
  );
  expect(shown).toBe('b\n');
});
