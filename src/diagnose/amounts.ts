/** A span for people, to two digits: `4 ms`, `1.3 s`, `43 s`, `11 min`, `6.5 h`. */
export function span(seconds: number): string {
  if (!Number.isFinite(seconds)) return 'for ever';
  if (seconds < 0.0005) return '0 ms';
  if (seconds < 0.9995) return `${twoDigits(seconds * 1000)} ms`;
  if (seconds < 99.5) return `${twoDigits(seconds)} s`;
  if (seconds < 99.5 * 60) return `${twoDigits(seconds / 60)} min`;
  return `${twoDigits(seconds / 3600)} h`;
}

/** `20/s`, `0.3/s` */
export function rate(perSecond: number): string {
  return `${twoDigits(perSecond)}/s`;
}

/** A share from 0 to 1: `42 %`, `1.3 %`. */
export function percent(share: number): string {
  return `${twoDigits(share * 100)} %`;
}

/** `1 Service`, `12,954 Services` */
export function count(number: number, one: string, many = `${one}s`): string {
  return `${thousands(number)} ${number === 1 ? one : many}`;
}

/** Without the machine's locale: 12954 → `12,954`. */
export function thousands(number: number): string {
  return String(Math.round(number)).replace(/\B(?=(\d{3})+$)/g, ',');
}

function twoDigits(number: number): string {
  if (number >= 9.95) return thousands(number);
  return String(Number(number.toFixed(number >= 0.995 ? 1 : 2)));
}
