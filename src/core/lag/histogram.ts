import { isString } from '../api/index.ts';
import { BUCKETS, bucketOf } from './buckets.ts';

/** Counts of lags by the shared buckets, in constant memory (6.4 kB): `counts[bucket]` lags fell into that bucket. */
export class Histogram {
  readonly counts: Float64Array = new Float64Array(BUCKETS);
  #total = 0;

  get total(): number {
    return this.#total;
  }

  /** @throws RangeError for a negative lag or NaN */
  record(seconds: number): void {
    const bucket = bucketOf(seconds);
    this.counts[bucket] = (this.counts[bucket] ?? 0) + 1;
    this.#total += 1;
  }
}

/** A bucket, and how often it occurs or what it weighs. */
export type BucketValue = readonly [bucket: number, value: number];

/**
 * The occupied buckets of a histogram or curve as short text, in base 36: `distance.value`, where a distance from the
 * previous bucket or a value of 1 is left out. Two lags of bucket 400, one of bucket 401 and one of bucket 410: `b4.2,1,9.`.
 * @param buckets ascending
 */
export function bucketsToText(buckets: Iterable<BucketValue>): string {
  const tokens: string[] = [];
  let previous = 0;
  for (const [bucket, value] of buckets) {
    if (value === 0) continue;
    const distance = bucket - previous;
    const written = value === 1 && distance !== 1 ? '' : value.toString(36);
    tokens.push(distance === 1 ? written : `${distance.toString(36)}.${written}`);
    previous = bucket;
  }
  return tokens.join(',');
}

/** In base 36 a bucket has three digits, and a safe integer ten. */
const TOKEN = /^(?:([0-9a-z]{1,3})\.)?([0-9a-z]{0,10})$/;

/** Reads the output of {@link bucketsToText}. @returns undefined for anything else */
export function readBuckets(text: unknown): readonly BucketValue[] | undefined {
  if (!isString(text)) return undefined;
  const tokens = text === '' ? [] : text.split(',', BUCKETS + 1);
  if (tokens.length > BUCKETS) return undefined;
  const buckets: BucketValue[] = [];
  let bucket = 0;
  for (const token of tokens) {
    const [, distance, value] = TOKEN.exec(token) ?? [];
    if (value === undefined || token === '') return undefined;
    bucket += distance === undefined ? 1 : Number.parseInt(distance, 36);
    if (bucket >= BUCKETS) return undefined;
    buckets.push([bucket, value === '' ? 1 : Number.parseInt(value, 36)]);
  }
  return buckets;
}

export function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && Number(value) >= 0;
}

export function isInstant(value: unknown): value is number {
  return Number.isFinite(value);
}
