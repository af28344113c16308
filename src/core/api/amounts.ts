/** A span for people, to two digits: `4 ms`, `1.3 s`, `43 s`, `11 min`, `6.5 h`. */
export function span(seconds: number): string {
  if (!Number.isFinite(seconds)) return 'for ever';
  if (seconds < 0.0005) return '0 ms';
  if (seconds < 0.9995) return `${amount(seconds * 1000)} ms`;
  if (seconds < 99.5) return `${amount(seconds)} s`;
  if (seconds < 99.5 * 60) return `${amount(seconds / 60)} min`;
  return `${amount(seconds / 3600)} h`;
}

/** `20/s`, `0.3/s` */
export function rate(perSecond: number): string {
  return `${amount(perSecond)}/s`;
}

/** A share from 0 to 1: `42 %`, `1.3 %`. */
export function percent(share: number): string {
  return `${amount(share * 100)} %`;
}

/** `1 Service`, `12,954 Services` */
export function count(number: number, one: string): string {
  return `${amount(number)} ${one}${number === 1 ? '' : 's'}`;
}

/** Two digits below 10, whole numbers above, and never in the machine's locale: `0.3`, `9.5`, `12,954`. */
export function amount(number: number): string {
  if (number >= 9.95) return grouped(Math.round(number));
  return String(Number(number.toFixed(number >= 0.995 ? 1 : 2)));
}

/** A whole number for people, never in the machine's locale: `6,040` */
export function grouped(count: number): string {
  return count.toLocaleString('en');
}
