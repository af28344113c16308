/**
 * Rows of whole numbers ≥ 0 as short text: base 36, separated by commas, repeats as `value*times`, trailing zeros
 * left out. Histograms are mostly zeros and small numbers, which JSON arrays spell out at length.
 */
export function integersToText(numbers: ArrayLike<number>): string {
  const tokens: string[] = [];
  let length = numbers.length;
  while (length > 0 && numbers[length - 1] === 0) length -= 1;
  for (let index = 0; index < length; ) {
    const value = numbers[index] ?? 0;
    let end = index + 1;
    while (end < length && numbers[end] === value) end += 1;
    const text = value.toString(36);
    const times = end - index;
    // `1,1` is shorter than `1*2`.
    if (times < 3) for (let n = 0; n < times; n += 1) tokens.push(text);
    else tokens.push(`${text}*${times.toString(36)}`);
    index = end;
  }
  return tokens.join(',');
}

const TOKEN = /^([0-9a-z]{1,11})(?:\*([0-9a-z]{1,6}))?$/;

/** Reads such a text into exactly `length` numbers. @returns undefined when it is none, or too long */
export function integersFromText(text: unknown, length: number): Float64Array | undefined {
  if (typeof text !== 'string') return undefined;
  const numbers = new Float64Array(length);
  if (text === '') return numbers;
  let index = 0;
  for (const token of text.split(',')) {
    const [, value, times = '1'] = TOKEN.exec(token) ?? [];
    const end = index + Number.parseInt(times, 36);
    if (value === undefined || end > length) return undefined;
    const number = Number.parseInt(value, 36);
    if (!Number.isSafeInteger(number)) return undefined;
    numbers.fill(number, index, end);
    index = end;
  }
  return numbers;
}

export function isCount(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;
}

export function isInstant(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value);
}
