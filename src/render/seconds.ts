/**
 * A lag or an age for people: `38ms`, `4.215s`, `72.4s`, `12m04s`. Milliseconds are as fine as two watches can be told
 * apart.
 */
export function showSeconds(seconds: number): string {
  const milliseconds = Math.round(seconds * 1000);
  if (milliseconds < 1000) return `${milliseconds}ms`;
  if (milliseconds < 10_000) return `${(milliseconds / 1000).toFixed(3)}s`;
  const tenths = Math.round(seconds * 10);
  if (tenths < 1000) return `${(tenths / 10).toFixed(1)}s`;
  const whole = Math.round(seconds);
  return `${Math.floor(whole / 60)}m${String(whole % 60).padStart(2, '0')}s`;
}
