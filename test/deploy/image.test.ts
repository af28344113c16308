import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { gunzipSync } from 'node:zlib';
import { describe, expect, it, onTestFinished } from 'vitest';
import { archiveOf, imageOf, push, referenceIn } from '../../deploy/image.ts';
import { sha256 } from '../../deploy/layer.ts';

const CONFIG = { Env: ['PATH=/bin'], Entrypoint: ['/bin/x'], User: '65532:65532', WorkingDir: '/app' };
const FILES = [{ path: '/bin/x', mode: 0o755, content: Buffer.from('a program') }];
const IMAGE = imageOf(FILES, CONFIG);

/** A registry as the distribution specification has it, which asks for a token if it is to. */
async function registry(secret?: string) {
  const blobs = new Map<string, Buffer>();
  const manifests = new Map<string, Buffer>();
  const asked: string[] = [];
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const body = Buffer.concat(chunks);
    const url = new URL(request.url ?? '', `http://${request.headers.host}`);
    const { authorization } = request.headers;
    asked.push(`${request.method} ${url.pathname}`);
    if (url.pathname === '/token') {
      const basic = `Basic ${Buffer.from(`me:${secret}`).toString('base64')}`;
      if (authorization !== basic) return response.writeHead(401).end();
      return response.end(JSON.stringify({ token: `for ${url.searchParams.get('scope')}` }));
    }
    if (secret !== undefined && authorization !== 'Bearer for repository:team/linger:push,pull') {
      const challenge = `Bearer realm="${url.origin}/token",service="here",scope="repository:team/linger:push,pull"`;
      return response.writeHead(401, { 'www-authenticate': challenge }).end();
    }
    const [, digest = ''] = /^\/v2\/team\/linger\/blobs\/(sha256:\w+)$/.exec(url.pathname) ?? [];
    if (request.method === 'HEAD') return response.writeHead(blobs.has(digest) ? 200 : 404).end();
    if (request.method === 'POST')
      return response.writeHead(202, { location: '/v2/team/linger/blobs/uploads/7?state=a' }).end();
    const given = url.searchParams.get('digest');
    if (given !== null) {
      if (given !== `sha256:${sha256(body)}` || url.searchParams.get('state') !== 'a')
        return response.writeHead(400).end('digest invalid');
      blobs.set(given, body);
      return response.writeHead(201).end();
    }
    manifests.set(url.pathname, body);
    return response.writeHead(201).end();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  return { name: `127.0.0.1:${port}/team/linger:1`, blobs, manifests, asked };
}

describe('an image that is pushed', () => {
  it('is its manifest, its configuration and one layer, each under its digest; what is there stays', async () => {
    const { name, blobs, manifests, asked } = await registry();
    await push(IMAGE, name);
    expect([...manifests.keys()]).toEqual(['/v2/team/linger/manifests/1']);
    const manifest = JSON.parse(String(manifests.get('/v2/team/linger/manifests/1'))) as {
      config: { digest: string };
      layers: { digest: string; size: number }[];
    };
    expect([...blobs.keys()].toSorted()).toEqual(
      [manifest.config.digest, ...manifest.layers.map(({ digest }) => digest)].toSorted(),
    );
    const layer = blobs.get(manifest.layers[0]?.digest ?? '') ?? Buffer.alloc(0);
    expect(layer.length).toBe(manifest.layers[0]?.size);
    expect(gunzipSync(layer).includes('a program')).toBe(true);
    const { config, rootfs } = JSON.parse(String(blobs.get(manifest.config.digest))) as {
      config: object;
      rootfs: { diff_ids: string[] };
    };
    expect(config).toEqual(CONFIG);
    expect(rootfs.diff_ids).toEqual([`sha256:${sha256(gunzipSync(layer))}`]);
    asked.length = 0;
    await push(IMAGE, name);
    expect(asked.map((each) => each.split(' ')[0])).toEqual(['HEAD', 'HEAD', 'PUT']);
  });

  it('logs in where the registry asks for a token, and says how where it may not', async () => {
    const { name, manifests } = await registry('secret');
    await expect(push(IMAGE, name)).rejects.toThrow(/refused .*: 401 .*REGISTRY_USER and REGISTRY_PASSWORD/);
    await push(IMAGE, name, { user: 'me', password: 'secret' });
    expect(manifests.size).toBe(1);
  });
});

it('an archive is an OCI layout whose every blob has its digest, under the name that engines load it by', () => {
  const archive = archiveOf(IMAGE, 'registry.example/linger:0.1.0');
  expect(archive.equals(archiveOf(imageOf(FILES, CONFIG), 'registry.example/linger:0.1.0'))).toBe(true);
  const files = new Map<string, Buffer>();
  for (let at = 0; archive[at] !== 0 && at < archive.length; ) {
    const text = (from: number, length: number) =>
      archive.toString('latin1', at + from, at + from + length).replace(/\0.*$/s, '');
    const size = Number.parseInt(text(124, 12), 8);
    files.set(text(0, 100), archive.subarray(at + 512, at + 512 + size));
    at += 512 + Math.ceil(size / 512) * 512;
  }
  expect(JSON.parse(String(files.get('oci-layout')))).toEqual({ imageLayoutVersion: '1.0.0' });
  const { manifests } = JSON.parse(String(files.get('index.json'))) as {
    manifests: { digest: string; annotations: Record<string, string> }[];
  };
  expect(manifests[0]?.annotations['io.containerd.image.name']).toBe('registry.example/linger:0.1.0');
  const blobs = [...files].filter(([path]) => path.startsWith('blobs/sha256/') && !path.endsWith('/'));
  expect(blobs).toHaveLength(3);
  for (const [path, content] of blobs) expect(path).toBe(`blobs/sha256/${sha256(content)}`);
  expect(blobs.map(([path]) => path)).toContain(`blobs/${manifests[0]?.digest.replace(':', '/')}`);
});

it.each([
  ['localhost:5000/linger:0.1.0', { registry: 'localhost:5000', name: 'linger', tag: '0.1.0' }],
  ['registry.example/team/linger', { registry: 'registry.example', name: 'team/linger', tag: 'latest' }],
])('reads %s', (text, expected) => {
  expect(referenceIn(text)).toEqual(expected);
});

it.each(['linger', 'linger:1', 'team/linger:1', ''])('refuses %j, which names no registry', (text) => {
  expect(() => referenceIn(text)).toThrow('expected REGISTRY/NAME[:TAG]');
});
