/**
 * Microseconds since the Unix epoch as metav1.MicroTime, which the API server reads only with exactly six fractional
 * digits. Source: k8s.io/apimachinery meta/v1 RFC3339Micro, `2006-01-02T15:04:05.000000Z07:00`.
 */
export function microTimeText(microseconds: number): string {
  const whole = Math.floor(microseconds / 1_000_000);
  const fraction = String(microseconds - whole * 1_000_000).padStart(6, '0');
  return new Date(whole * 1000).toISOString().replace(/\.000Z$/, `.${fraction}Z`);
}

const MICRO_TIME = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{6})Z$/;

/** @returns undefined for what the API server does not write */
export function microTimeOf(text: unknown): number | undefined {
  const [, seconds, fraction] = typeof text === 'string' ? (MICRO_TIME.exec(text) ?? []) : [];
  const milliseconds = Date.parse(`${seconds}Z`);
  return Number.isNaN(milliseconds) ? undefined : milliseconds * 1000 + Number(fraction);
}
