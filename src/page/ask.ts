import type { ApiError } from '../dashboard/index.ts';

const KEPT = 'linger-token';
/** A workload that is to be open may follow. */
const IN_ADDRESS = /^#token=([\w-]+)(?:&|$)/;
/** Reaches the tabs of this origin only: a browser gives a new tab none of the session storage of the tab that opened it. */
const tabs = new BroadcastChannel(KEPT);
const ASKING = '?';
const ANSWERED_MS = 200;

/**
 * Takes the token out of the address at once, so that it stands in no history, and keeps it for this tab. A fragment is
 * never sent: it reaches no log and no referrer. Without one in the address, another tab may have it.
 */
export async function takeToken(): Promise<void> {
  const [, token] = IN_ADDRESS.exec(location.hash) ?? [];
  if (token !== undefined) {
    sessionStorage.setItem(KEPT, token);
    const rest = location.hash.replace(IN_ADDRESS, '');
    history.replaceState(null, '', `${location.pathname}${location.search}${rest === '' ? '' : `#${rest}`}`);
  }
  // That of the next run, put into the address of a page that is open, loads nothing by itself.
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

/** What the server answers instead of what was asked for; its message says the way out. */
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
 * Calls back with the name of each view whose data have changed, until the signal aborts. Not an EventSource, which sends no
 * token but in its address.
 */
export async function followChanges(changed: (topic: string) => void, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    try {
      const { body } = await fetch('/api/v1/events', { headers: credentials(), signal });
      const reader = body?.pipeThrough(new TextDecoderStream()).getReader();
      for (let read = await reader?.read(); read?.done === false; read = await reader?.read())
        for (const [, topic] of read.value.matchAll(/^data: ([\w-]+)$/gm)) changed(topic ?? '');
    } catch {
      // The server has ended, or is not there yet: what is shown says so when it is asked for again.
      if (signal.aborted) return;
    }
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    if (!signal.aborted) changed('all');
  }
}

/** What was answered last to some paths: a view asks for the same again and again. */
const answered = new Map<string, { readonly etag: string; readonly answer: unknown }>();
const MOST_ANSWERED = 10;

/** @returns the same object as before where nothing has changed @throws RequestError */
export async function askServer<T>(path: string, signal?: AbortSignal): Promise<T> {
  const known = answered.get(path);
  const headers = { ...credentials(), ...(known && { 'If-None-Match': known.etag }) };
  const request = { headers, signal: signal ?? null };
  const response = await fetch(`/api/v1${path}`, request).catch((error: unknown) => {
    if (signal?.aborted === true) throw error;
    throw new RequestError(AWAY);
  });
  if (response.status === 304 && known !== undefined) return known.answer as T;
  // A name that turns the direction of reading would turn what stands after it.
  const answer: unknown = JSON.parse((await response.text()).replaceAll(/\p{Bidi_Control}/gu, '\uFFFD'));
  // The server's own tests hold its answers against the schemas of these types.
  if (!response.ok) throw new RequestError(answer as ApiError);
  const etag = response.headers.get('ETag');
  if (etag !== null) {
    if (answered.size >= MOST_ANSWERED) answered.clear();
    answered.set(path, { etag, answer });
  }
  return answer as T;
}
