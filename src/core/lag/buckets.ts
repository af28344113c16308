/**
 * The buckets that all histograms of lags share, so that they can be merged and combined bucket by bucket. Bucket 0 holds
 * exactly 0, bucket 1 lags above 0 up to 1 ms; every further bucket ends 2 % above where it begins. Each bucket is
 * represented by one value; for lags from 1 ms to 2 h, that value is off by at most {@link BUCKET_ERROR}.
 */

/**
 * Neighbouring edges differ by 2 %, so a bucket's value (the harmonic middle of its edges) is at most
 * (1.02 − 1) ÷ (1.02 + 1) = 0.99 % off. A sum puts two buckets into a third: (1 + 0.0099)² − 1 = 1.99 %, within 2 %.
 */
const RATIO = 1.02;
export const BUCKET_ERROR = (RATIO - 1) / (RATIO + 1);

/** Events of two watches cannot be ordered to better than a millisecond; below this the error is absolute. */
const FLOOR_SECONDS = 0.001;

/** Two buckets below the floor, and ⌈ln(7200 s ÷ 1 ms) ÷ ln 1.02⌉ = 798 up to 2 h (in fact to 7,293 s). */
export const BUCKETS = 800;

/** Longer lags go into the last bucket: they are beyond any wait, so only "very long" matters. */
export const LONGEST_SECONDS = 7200;

const LOG_RATIO = Math.log(RATIO);

const VALUES: Float64Array = Float64Array.from({ length: BUCKETS }, (_, bucket) => {
  if (bucket === 0) return 0;
  if (bucket === 1) return FLOOR_SECONDS;
  return (FLOOR_SECONDS * RATIO ** (bucket - 1) * 2) / (RATIO + 1);
});

/**
 * The bucket of a lag in seconds.
 * @throws RangeError for a negative lag or NaN
 */
export function bucketOf(seconds: number): number {
  if (!(seconds >= 0)) throw new RangeError(`expected a lag of 0 s or more, got ${seconds}`);
  if (seconds === 0) return 0;
  if (seconds <= FLOOR_SECONDS) return 1;
  return Math.min(BUCKETS - 1, 1 + Math.ceil(Math.log(seconds / FLOOR_SECONDS) / LOG_RATIO));
}

export function secondsOf(bucket: number): number {
  return VALUES[bucket] ?? LONGEST_SECONDS;
}

/** The last bucket whose value is at most this many seconds; −1 when they are negative. */
export function lastBucketWithin(seconds: number): number {
  if (!(seconds >= 0)) return -1;
  const bucket = bucketOf(seconds);
  return secondsOf(bucket) <= seconds ? bucket : bucket - 1;
}

/**
 * The bucket of a sum of two lags, as a distance above the larger addend's bucket, indexed by the distance d between the
 * two. It does not depend on the buckets themselves, because their values form a geometric series: the sum is the larger
 * value × (1 + ratio^−d).
 */
const SUM_OFFSETS: Uint8Array = Uint8Array.from({ length: BUCKETS }, (_, distance) =>
  Math.ceil(Math.log((2 * (1 + RATIO ** -distance)) / (RATIO + 1)) / LOG_RATIO),
);

export function sumCell(a: number, b: number): number {
  const large = Math.max(a, b);
  const small = Math.min(a, b);
  if (small === 0) return large;
  // Bucket 1 is not part of the geometric series.
  if (small === 1) return bucketOf(secondsOf(large) + FLOOR_SECONDS);
  return Math.min(BUCKETS - 1, large + (SUM_OFFSETS[large - small] ?? 0));
}
