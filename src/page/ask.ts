import type { ApiError } from '../dashboard/index.ts';

const KEPT = 'linger-token';
/** May be followed by the address of a workload to open. */
const IN_ADDRESS = /^#token=([\w-]+)(?:&|$)/;
/**
 * Reaches only tabs of this origin. Needed, because a new tab gets nothing of the session storage of the tab from which it
 * was opened.
 */
const tabs = new BroadcastChannel(KEPT);
const ASKING = '?';
const ANSWERED_MS = 200;

/**
 * Removes the token from the address at once, so that it does not enter the history, and keeps it for this tab. A fragment
 * is never sent, so it reaches no log and no referrer. If the address has no token, another tab may have it.
 */
export async function takeToken(): Promise<void> {
  const [, token] = IN_ADDRESS.exec(location.hash) ?? [];
  if (token !== undefined) {
    sessionStorage.setItem(KEPT, token);
    const rest = location.hash.replace(IN_ADDRESS, '');
    history.replaceState(null, '', `${location.pathname}${location.search}${rest === '' ? '' : `#${rest}`}`);
  }
  // Putting the token of the next run into the address of an open page does not reload it.
  addEventListener('hashchange', () => IN_ADDRESS.test(location.hash) && location.reload());
  const answered = new Promise<void>((resolve) => {
    tabs.onmessage = ({ data }: MessageEvent<string>) => {
      const kept = sessionStorage.getItem(KEPT);
      if (data === ASKING) return kept !== null && tabs.postMessage(kept);
      if (kept === null) resolve(sessionStorage.setItem(KEPT, data));
    };
    setTimeout(resolve, ANSWERED_MS);
  });
  if (sessionStorage.getItem(KEPT) !== null) return;
  tabs.postMessage(ASKING);
  await answered;
}

/** The server's error response; its message says what to do. */
export class RequestError extends Error {
  readonly code: string;

  constructor({ error: { code, message } }: ApiError) {
    super(message);
    this.code = code;
  }
}

const AWAY = {
  error: { code: 'away', message: 'Linger does not answer: its command has ended, or is busy.' },
};

function credentials(): { readonly Authorization: string } {
  return { Authorization: `Bearer ${sessionStorage.getItem(KEPT) ?? ''}` };
}

const AGAIN_MS = 2_000;

/**
 * Calls back with the name of each view whose data have changed, until the signal aborts. Not an EventSource, which could
 * send a token only in its address.
 */
export async function followChanges(changed: (topic: string) => void, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    try {
      const { body } = await fetch('/api/v1/events', { headers: credentials(), signal });
      const reader = body?.pipeThrough(new TextDecoderStream()).getReader();
      for (let read = await reader?.read(); read?.done === false; read = await reader?.read())
        for (const [, topic] of read.value.matchAll(/^data: ([\w-]+)$/gm)) changed(topic ?? '');
    } catch {
      // The server has ended, or has not started yet; the views say so when they request their data again.
      if (signal.aborted) return;
    }
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    if (!signal.aborted) changed('all');
  }
}

/** The latest answers by path, because views request the same path repeatedly. */
const answered = new Map<string, { readonly etag: string; readonly answer: unknown }>();
const MOST_ANSWERED = 10;

/** @returns the same object as before if nothing has changed @throws RequestError */
export async function askServer<T>(path: string, signal?: AbortSignal): Promise<T> {
  const known = answered.get(path);
  const headers = { ...credentials(), ...(known && { 'If-None-Match': known.etag }) };
  const request = { headers, signal: signal ?? null };
  const response = await fetch(`/api/v1${path}`, request).catch((error: unknown) => {
    if (signal?.aborted === true) throw error;
    throw new RequestError(AWAY);
  });
  if (response.status === 304 && known !== undefined) return known.answer as T;
  // Remove characters that change the direction of text, because they would affect what follows a name.
  const answer: unknown = JSON.parse((await response.text()).replaceAll(/\p{Bidi_Control}/gu, '\uFFFD'));
  // The cast is safe: tests of the server check its answers against the schemas of these types.
  if (!response.ok) throw new RequestError(answer as ApiError);
  const etag = response.headers.get('ETag');
  if (etag !== null) {
    if (answered.size >= MOST_ANSWERED) answered.clear();
    answered.set(path, { etag, answer });
  }
  return answer as T;
}
