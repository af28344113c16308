// Tells Linger when this gateway has synced. Copy it: it needs Node 22.18 or later and NODE_EXTRA_CA_CERTS=CA.crt.
// `url` is https://linger-reports.linger.svc/v1/consumers/NAME/reports; `tokenFile` is read for each report.
import { readFile } from 'node:fs/promises';

/** Returns what to wrap around each sync. Whatever becomes of a report, no sync waits or fails for it. */
export function reporter(url: string, instance: string, tokenFile: string) {
  let [cursor, busy] = ['', false];
  const report = async (held: string, began: number) => {
    if (busy) return;
    busy = true;
    try {
      const headers = { authorization: `Bearer ${(await readFile(tokenFile, 'utf8')).trim()}` };
      const body = JSON.stringify({
        instance,
        cursor: held,
        syncSeconds: (performance.now() - began) / 1000,
      });
      const signal = AbortSignal.timeout(2_000);
      const answer = await fetch(url, { method: 'POST', headers, body, signal });
      cursor = answer.headers.get('linger-cursor') ?? '';
      await answer.arrayBuffer();
    } catch {} // The next sync is reported all the same.
    busy = false;
  };
  void report('', performance.now());
  return async <T>(sync: () => Promise<T>): Promise<T> => {
    const [held, began] = [cursor, performance.now()];
    const synced = await sync();
    void report(held, began);
    return synced;
  };
}
