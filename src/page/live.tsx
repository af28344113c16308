import type { ComponentChildren, VNode } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { askServer, followChanges, RequestError } from './ask.ts';
import { Failure } from './parts.tsx';

/** @param on must not depend on rendered values, because the first one is kept */
export function useEvent(target: EventTarget, type: string, on: (event: Event) => void): void {
  useEffect(() => {
    target.addEventListener(type, on);
    return () => target.removeEventListener(type, on);
  }, []);
}

/** The answer of the API at a path, kept up to date, and what went wrong when it was last requested. */
function useLive<T>(topic: string, query: string) {
  const [data, setData] = useState<T>();
  const [failure, setFailure] = useState<RequestError>();
  const [isHidden, setHidden] = useState(document.hidden);
  useEvent(document, 'visibilitychange', () => setHidden(document.hidden));
  useEffect(() => {
    const ending = new AbortController();
    let [isReading, isStale] = [false, false];
    // However many changes come while data are being read, reading once more shows all of them.
    const read = async () => {
      isStale = true;
      if (isReading) return;
      isReading = true;
      while (isStale && !ending.signal.aborted) {
        isStale = false;
        try {
          setData(await askServer<T>(`/${topic}${query}`, ending.signal));
          setFailure(undefined);
        } catch (error) {
          if (error instanceof RequestError) setFailure(error);
        }
      }
      isReading = false;
    };
    void read();
    const follow = (changed: string) => void ([topic, 'all'].includes(changed) && read());
    // Browsers open six connections to a server: if each tab kept one, a seventh tab would wait forever.
    if (!isHidden) void followChanges(follow, ending.signal);
    return () => ending.abort();
  }, [topic, query, isHidden]);
  return { data, failure };
}

/** Shows an answer of the API. The last answer stays while a newer one cannot be read. */
export function LiveView<T>(props: {
  readonly topic: string;
  /** Including its question mark. */
  readonly query?: string;
  readonly children: (data: T) => VNode;
}) {
  const { data, failure } = useLive<T>(props.topic, props.query ?? '');
  return (
    <>
      {failure !== undefined && <Failure failure={failure} />}
      {data === undefined && failure === undefined && <p class="quiet">Reading …</p>}
      {data !== undefined && props.children(data)}
    </>
  );
}

const COUNTED_MS = 5_000;

/**
 * The current time in seconds since the epoch, by the server's clock, so that spans grow even without new answers. @param
 * asOf the time of the answer
 */
export function useNow(asOf: number): number {
  const [last, setLast] = useState({ asOf, elapsed: 0 });
  useEffect(() => {
    const begun = performance.now();
    const count = () => setLast({ asOf, elapsed: (performance.now() - begun) / 1000 });
    const timer = setInterval(count, COUNTED_MS);
    return () => clearInterval(timer);
  }, [asOf]);
  return asOf + (last.asOf === asOf ? last.elapsed : 0);
}

/** What could not be read, because an empty list would look like good news. */
export function Unseen({ lines }: { readonly lines: readonly string[] }) {
  if (lines.length === 0) return null;
  return (
    <section class="unseen" aria-label="What could not be read">
      <h2>What could not be read</h2>
      <ul>
        {lines.map((line) => (
          <li key={line}>{line}</li>
        ))}
      </ul>
    </section>
  );
}

/** What is shown is determined by the address. */
export function useAddress() {
  const [query, setQuery] = useState(() => new URLSearchParams(location.search));
  useEvent(window, 'popstate', () => setQuery(new URLSearchParams(location.search)));
  const change = (values: Readonly<Record<string, string>>) => {
    const next = new URLSearchParams(query);
    for (const [name, value] of Object.entries(values))
      if (value === '') next.delete(name);
      else next.set(name, value);
    history.replaceState(null, '', `${location.pathname}${next.size > 0 ? `?${next}` : ''}${location.hash}`);
    setQuery(next);
  };
  const set = (name: string, value: string) => change({ [name]: value });
  return { get: (name: string) => query.get(name) ?? '', set, change };
}

/** A list with its heading; if it is empty, a sentence instead. */
export function Listed(props: {
  readonly title: string;
  readonly none: string;
  readonly isEmpty: boolean;
  readonly children: ComponentChildren;
}) {
  return (
    <section class="listed">
      <h2>{props.title}</h2>
      {props.isEmpty ? <p class="quiet">{props.none}</p> : props.children}
    </section>
  );
}

/** The local time of an instant. @param at seconds since the epoch; `day`: whether to include the date */
export function Time({ at, day = false }: { readonly at: number; readonly day?: boolean }) {
  const date = new Date(at * 1000);
  return <time dateTime={date.toISOString()}>{day ? date.toLocaleString() : date.toLocaleTimeString()}</time>;
}

/** Rounded down, so that it never says all. */
export function coveredInWords(share: number): string {
  return share >= 1 ? 'all' : `${(Math.floor(share * 10_000) / 100).toFixed(2)} %`;
}
