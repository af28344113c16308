/**
 * A chart: lanes over one time axis, drawn as SVG or in a terminal. Instants are seconds from an origin that the caller
 * chooses. All texts may contain foreign names.
 */
export interface Chart {
  readonly title: string;
  /** One sentence below the title. */
  readonly summary: string;
  /** The whole axis. */
  readonly from: number;
  readonly to: number;
  /** Instants that concern all lanes, drawn as lines from top to bottom. */
  readonly marks: readonly Mark[];
  readonly lanes: readonly Lane[];
}

export interface Mark {
  readonly at: number;
  readonly label: string;
}

export interface Lane {
  readonly label: string;
  /** Its value, shown beside it: `9.8 s`, `not known`. */
  readonly note?: string;
  readonly spans?: readonly Span[];
  /** Single requests or connections; thousands are merged where they would overlap. */
  readonly dots?: readonly Dot[];
}

export interface Span {
  readonly from: number;
  readonly to: number;
  readonly tone: Tone;
}

export interface Dot {
  readonly at: number;
  readonly lost: boolean;
}

/**
 * - `sends`: something still sends to the pod.
 * - `lost`: something may still send to it although it has got SIGTERM.
 * - `waits`: its hook delays SIGTERM.
 * - `stops`: it shuts down.
 * - `unknown`: it is unknown what happened then.
 */
export const TONES = ['sends', 'lost', 'waits', 'stops', 'unknown'] as const;
export type Tone = (typeof TONES)[number];
