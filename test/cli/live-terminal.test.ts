import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { columns, fitTablesTo, LiveTerminal, Progress } from '../../src/cli/terminal.ts';

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

describe('progress', () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  /** What a terminal, or a log, has been given. */
  const shownBy = (columnsOfTerminal: number | undefined, use: (progress: Progress) => void) => {
    let written = '';
    const write = (text: string) => {
      written += text;
    };
    const warn = (line: string) => write(`${line}\n`);
    const terminal = { print: write, warn, overwrite: write, errorColumns: () => columnsOfTerminal };
    const progress = new Progress(terminal, () => Date.now());
    use(progress);
    progress.end();
    return written;
  };

  it('of less than a second is not shown', () => {
    for (const width of [80, undefined]) {
      const shown = shownBy(width, ({ report }) => {
        report('reading pods', 7);
        vi.advanceTimersByTime(900);
      });
      expect(shown).toBe('');
    }
  });

  it('is not shown where there is no terminal', () => {
    const shown = shownBy(undefined, ({ report }) => {
      report('reading pods', 7);
      vi.advanceTimersByTime(10_000);
    });
    expect(shown).toBe('');
  });

  it('is a bar on a terminal, below what is printed, and goes at the end', () => {
    const shown = shownBy(80, (progress) => {
      progress.report('auditing workloads', 512, 1_000);
      vi.advanceTimersByTime(1_000);
      progress.note('a warning');
    });
    const [bar = '', rest = ''] = shown.split('a warning\n');
    expect(bar).toContain('[##########          ] auditing workloads: 512 of 1000 (1 s)');
    expect(rest.endsWith('\r\u001b[K')).toBe(true);
  });
});

describe('a table on a terminal', () => {
  afterEach(() => fitTablesTo(Number.POSITIVE_INFINITY));
  const rows = [
    ['failure', 'Certificate', 'the caBundle of the webhook configuration does not fit the certificate'],
    ['ok', 'Replicas', '2 of 2 ready'],
  ];

  it('is as wide as that: the words of the last column go on below', () => {
    fitTablesTo(60);
    expect(columns(rows)).toEqual([
      'failure  Certificate  the caBundle of the webhook',
      '                      configuration does not fit the',
      '                      certificate',
      'ok       Replicas     2 of 2 ready',
    ]);
  });

  it('is as wide as it is where nothing can be put below, and elsewhere', () => {
    const wide = columns(rows);
    expect(wide).toHaveLength(2);
    fitTablesTo(30);
    expect(columns(rows)).toEqual(wide);
    const names = [['a'.repeat(50), 'b'.repeat(50)]];
    fitTablesTo(80);
    expect(columns(names)).toEqual([`${names[0]?.join('  ')}`]);
  });
});
