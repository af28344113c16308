import { existsSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';

/*
 * node registry.ts LAYOUT: a registry on the loopback address that has one image, an OCI layout's, whatever it is asked for by.
 * Says its address. BuildKit takes everything else from a folder, but not the scanner that tells it what is in an image.
 */

const [layout = ''] = process.argv.slice(2);
const blobs = join(layout, 'blobs', 'sha256');
const { manifests } = JSON.parse(readFileSync(join(layout, 'index.json'), 'utf8')) as {
  manifests: readonly { readonly digest: string; readonly mediaType: string }[];
};

const server = createServer((request, response) => {
  const [, kind, reference = ''] = /\/(manifests|blobs)\/([\w.:-]+)$/.exec(request.url ?? '') ?? [];
  const digest = reference.startsWith('sha256:') ? reference : (manifests[0]?.digest ?? '');
  const file = join(blobs, digest.slice('sha256:'.length));
  if (kind === undefined || !existsSync(file))
    return response.writeHead(request.url === '/v2/' ? 200 : 404).end();
  const content = readFileSync(file);
  const { mediaType = 'application/octet-stream' } =
    kind === 'manifests' ? (JSON.parse(content.toString()) as { mediaType?: string }) : {};
  response.writeHead(200, {
    'content-type': mediaType,
    'content-length': content.length,
    'docker-content-digest': digest,
  });
  return response.end(request.method === 'HEAD' ? undefined : content);
});
server.listen(0, '127.0.0.1', () => console.log(`127.0.0.1:${(server.address() as AddressInfo).port}`));
