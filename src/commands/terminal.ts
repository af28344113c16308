/** Where a command's words go: results to standard output, everything about them to standard error. */
export interface Terminal {
  readonly print: (text: string) => void;
  readonly warn: (text: string) => void;
}
