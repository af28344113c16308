import { type Chart, spanOf } from '../timeline/index.ts';

/** A termination as derived from a pod’s template; nothing of it has been observed. Seconds after the deletion. */
export interface PlannedTermination {
  readonly title: string;
  /** How long senders keep sending to the pod. */
  readonly lag: number;
  /** What the lag is based on: `measured`, `declared`, `assumed`. */
  readonly basis: string;
  readonly wait: number;
  readonly grace: number;
}

/** The chart of a termination: who still sends, when SIGTERM comes, what is lost. */
export function plannedChart({ title, lag, basis, wait, grace }: PlannedTermination): Chart {
  const stopped = Math.min(wait, grace);
  const lost = Math.max(0, lag - stopped);
  const end = Math.max(grace, stopped);
  const sent = `${spanOf(lag)} (${basis})`;
  return {
    title,
    summary:
      lost > 0
        ? `SIGTERM after ${spanOf(stopped)}: requests are lost for up to ${spanOf(lost)}.`
        : `SIGTERM after ${spanOf(stopped)}: everything has dropped the pod by then.`,
    from: 0,
    to: Math.max(lag, end, 1) * 1.04,
    marks: [
      { at: 0, label: 'deleted' },
      { at: stopped, label: 'SIGTERM' },
      { at: end, label: 'killed at the latest' },
    ],
    lanes: [
      {
        label: 'who still sends',
        note: sent,
        spans: [
          ...(stopped > 0 ? [{ from: 0, to: Math.min(lag, stopped), tone: 'sends' } as const] : []),
          ...(lost > 0 ? [{ from: stopped, to: lag, tone: 'lost' } as const] : []),
        ],
      },
      {
        label: 'the process',
        note: `${spanOf(end - stopped)} to stop`,
        spans: [
          ...(stopped > 0 ? [{ from: 0, to: stopped, tone: 'waits' } as const] : []),
          { from: stopped, to: end, tone: 'stops' },
        ],
      },
    ],
  };
}
