import type { ApiError } from '../dashboard/index.ts';

const KEPT = 'linger-token';

/**
 * Takes the token out of the address at once, so that it stands in no history, and keeps it for this tab. A fragment is
 * never sent: it reaches no log and no referrer.
 */
export function takeToken(): void {
  const [, token] = /^#token=([\w-]+)$/.exec(location.hash) ?? [];
  if (token === undefined) return;
  sessionStorage.setItem(KEPT, token);
  history.replaceState(null, '', location.pathname + location.search);
}

/** What the server answers instead of what was asked for; its message says the way out. */
export class Refusal extends Error {
  readonly code: string;

  constructor({ error: { code, message } }: ApiError) {
    super(message);
    this.code = code;
  }
}

const AWAY = {
  error: { code: 'away', message: 'Linger does not answer: its command has ended, or is busy.' },
};

/** @param body sent as JSON by POST; without one, GET @throws Refusal */
export async function ask<T>(path: string, body?: object, signal?: AbortSignal): Promise<T> {
  const headers = { Authorization: `Bearer ${sessionStorage.getItem(KEPT) ?? ''}` };
  const request: RequestInit =
    body === undefined
      ? { headers }
      : {
          method: 'POST',
          headers: { ...headers, 'Content-Type': 'application/json' },
          body: JSON.stringify(body),
        };
  if (signal !== undefined) request.signal = signal;
  const response = await fetch(`/api/v1${path}`, request).catch((error: unknown) => {
    if (signal?.aborted === true) throw error;
    throw new Refusal(AWAY);
  });
  const answer: unknown = await response.json();
  // The server's own tests hold its answers against the schemas of these types.
  if (!response.ok) throw new Refusal(answer as ApiError);
  return answer as T;
}
