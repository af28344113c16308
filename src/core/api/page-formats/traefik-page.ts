import { endpointIn, JsonPageReader, type PageFormatKind } from './page-reader.ts';

/**
 * Traefik's `/api/http/services` (or tcp, or udp): objects with a member `url` or `address`. A server is out of use when it
 * is `"fenced": true`, as is one whose pod is terminating.
 */
class TraefikReader extends JsonPageReader {
  protected readonly members = ['url', 'address', 'fenced'];
  protected readonly what = 'Traefik answers at /api/http/services';

  protected object({ url, address = url, fenced }: Readonly<Record<string, string>>): void {
    if (address !== undefined) this.list(endpointIn(address), fenced !== 'true');
  }
}

export const TRAEFIK = {
  path: '/api/http/services?per_page=10000',
  page: '`/api/http/services`',
  unless: 'it is `"fenced": true`',
  Reader: TraefikReader,
} as const satisfies PageFormatKind;
