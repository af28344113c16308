const UNIT_SECONDS: Readonly<Record<string, number>> = {
  ns: 1e-9,
  us: 1e-6,
  µs: 1e-6,
  μs: 1e-6,
  ms: 1e-3,
  s: 1,
  m: 60,
  h: 3600,
};
const TERM = /(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)/gu;
/** The syntax of a duration. The API server checks the same expression: see durationFrom. */
export const DURATION = /^(?:0|(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+)$/u;

/** No pod needs a longer one, and with this limit no sum of durations comes near the loss of whole seconds. */
const MAX_DURATION_SECONDS = 7 * 24 * 3600;
export const LONGEST_DURATION = '168h';
/** Characters: enough for every unit with all the digits that count. */
export const LONGEST_DURATION_TEXT = 64;

/**
 * Reads a duration as Go's `time.ParseDuration` does, without a sign: `30s`, `1m30s`, `1.5h`, `0`.
 * @returns seconds, possibly a fraction; undefined for a text that is not a duration, or one of more than a week
 */
export function parseDuration(text: string): number | undefined {
  if (text.length > LONGEST_DURATION_TEXT || !DURATION.test(text)) return undefined;
  let seconds = 0;
  for (const [, amount, unit] of text.matchAll(TERM)) {
    seconds += Number(amount) * (UNIT_SECONDS[unit ?? ''] ?? Number.NaN);
  }
  return seconds <= MAX_DURATION_SECONDS ? seconds : undefined;
}

/** Seconds as the duration that a policy would say: 90 → `1m30s`. */
export function formatDuration(seconds: number): string {
  const hours = Math.floor(seconds / 3600);
  const minutes = Math.floor((seconds % 3600) / 60);
  // More digits than milliseconds would only show artefacts of binary fractions.
  const rest = Math.round((seconds - hours * 3600 - minutes * 60) * 1000) / 1000;
  const text = `${hours > 0 ? `${hours}h` : ''}${minutes > 0 ? `${minutes}m` : ''}${rest > 0 ? `${rest}s` : ''}`;
  return text === '' ? '0s' : text;
}

export const DURATION_HINT = 'a duration such as 30s or 1m30s';
