import type { Terminal } from './terminal.ts';

export interface LiveTerminalOptions {
  /** How wide standard error is; undefined: it is no terminal, where a line can be written over. */
  readonly columns: () => number | undefined;
  /** Whether there is nobody for notes. */
  readonly quiet: boolean;
}

const BACK_AND_CLEAR = '\r\u001b[K';

/** Results, notes, and below them one line of status that is written over: on a terminal only. */
export class LiveTerminal {
  readonly #terminal: Terminal;
  readonly #options: LiveTerminalOptions;
  #status = '';

  constructor(terminal: Terminal, options: LiveTerminalOptions) {
    this.#terminal = terminal;
    this.#options = options;
  }

  print(text: string): void {
    if (text === '') return;
    this.#withoutStatus(() => this.#terminal.print(text));
  }

  note(text: string): void {
    if (this.#options.quiet) return;
    this.#withoutStatus(() => this.#terminal.warn(`${text}\n`));
  }

  /** @param text one line; empty: none */
  status(text: string): void {
    const columns = this.#options.columns();
    if (columns === undefined || this.#options.quiet) return;
    // What is wrapped into a second line could not be taken back.
    const line = text.slice(0, Math.max(0, columns - 1));
    if (line === this.#status) return;
    this.#terminal.warn(`${BACK_AND_CLEAR}${line}`);
    this.#status = line;
  }

  /** Both streams may be the same terminal. */
  #withoutStatus(write: () => void): void {
    if (this.#status !== '') this.#terminal.warn(BACK_AND_CLEAR);
    write();
    if (this.#status !== '') this.#terminal.warn(this.#status);
  }
}
