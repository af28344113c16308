import { ENVOY } from './envoy-page.ts';
import { HAPROXY } from './haproxy-page.ts';
import type { PageEndpoint, PageFormatKind, PageReader } from './page-reader.ts';
import { TEXT } from './text-page.ts';
import { TRAEFIK } from './traefik-page.ts';
import { WITNESS } from './witness-page.ts';

/** The pages that Linger can read, by the value of `format`. Everything that lists formats takes them from here. */
export const PAGE_FORMATS = {
  Envoy: ENVOY,
  HAProxy: HAPROXY,
  Traefik: TRAEFIK,
  Text: TEXT,
  Witness: WITNESS,
} as const satisfies Readonly<Record<string, PageFormatKind>>;

export type PageFormat = keyof typeof PAGE_FORMATS;
export const PAGE_FORMAT_NAMES = Object.keys(PAGE_FORMATS) as readonly PageFormat[];

/** `/` where a format has no usual path. */
export function usualPath(format: PageFormat): string {
  const { path = '/' }: PageFormatKind = PAGE_FORMATS[format];
  return path;
}

export function pageReader(format: PageFormat, wanted: Iterable<PageEndpoint>): PageReader {
  return new PAGE_FORMATS[format].Reader(wanted);
}
