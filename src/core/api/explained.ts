/** An entry of a catalogue. `npm run generate` writes the tables of the reference from its sentences. */
export interface Explained {
  /** What the entry means. Markdown, whose links are relative to docs/reference; plain where the program prints it. */
  readonly means: string;
  /** What the reference adds to a sentence that the program prints: Markdown. */
  readonly more?: string;
}

/** An entry that calls for action. */
export interface Curable extends Explained {
  readonly cure: string;
}
