import type { PageFormat } from '../api/index.ts';
import { answerOffLoop } from '../timing/index.ts';
import { type FoundOnPage, type PageEndpoint, type PageReader, readerOf } from './page-formats.ts';

/** A chunk of a page, or its end. */
export interface PageTask {
  readonly page: number;
  /** With the first chunk. */
  readonly as?: { readonly format: PageFormat; readonly wanted: readonly PageEndpoint[] };
  /** Absent: the page has ended. */
  readonly chunk?: Uint8Array;
}

/** The page's problem, or a part of its findings. */
export type PagePiece = string | FoundOnPage;

interface OpenPage {
  readonly reader: PageReader;
  spentMs: number;
}

/** Readers are linear: 16 MiB of a real page take about half a second. */
const MOST_MS = 3_000;
/** More than are read at once; aborted pages are displaced. */
const MOST_OPEN = 16;
/** Found endpoints that are copied into the main thread at a time. */
const PIECE = 1_000;

const open = new Map<number, OpenPage>();

answerOffLoop(function* ({ page: key, as, chunk }: PageTask): Generator<PagePiece> {
  const page = as === undefined ? open.get(key) : { reader: readerOf(as.format, as.wanted), spentMs: 0 };
  open.delete(key);
  if (page === undefined) throw new Error('another page took too long');
  const began = performance.now();
  if (chunk === undefined) {
    yield* piecesOf(page.reader);
    return;
  }
  page.reader.write(Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength));
  page.spentMs += performance.now() - began;
  if (page.spentMs > MOST_MS) throw new Error(`it takes more than ${MOST_MS / 1000} s`);
  const [oldest] = open.keys();
  if (open.size >= MOST_OPEN && oldest !== undefined) open.delete(oldest);
  open.set(key, page);
});

function* piecesOf(reader: PageReader): Generator<PagePiece> {
  const found = reader.end();
  if (typeof found === 'string') {
    yield found;
    return;
  }
  yield { endpoints: new Map(), clusters: found.clusters };
  const endpoints = [...found.endpoints];
  for (let at = 0; at < endpoints.length; at += PIECE)
    yield { endpoints: new Map(endpoints.slice(at, at + PIECE)), clusters: new Set() };
}
