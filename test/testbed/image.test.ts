import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { must } from './command.ts';
import { type ImageDefinition, imageArchive, sha256 } from './image.ts';

const image: ImageDefinition = {
  reference: 'linger.test/x:1',
  files: [
    { path: '/bin/busybox', mode: 0o755, content: Buffer.from('not a program') },
    { path: '/bin/sh', linkTo: 'busybox' },
    { path: '/etc/deep/er/file', mode: 0o600, content: Buffer.alloc(1_025, 'x') },
  ],
  entrypoint: ['/bin/busybox'],
  user: '65532:65532',
};

describe('an image archive, as the tar program reads it', () => {
  const directory = mkdtempSync(join(tmpdir(), 'linger-image-'));
  const archive = imageArchive([image, { ...image, reference: 'linger.test/y:1' }]);
  const extract = async (file: string) =>
    must(['tar', '--extract', '--to-stdout', '--file', archiveFile, file]);
  const archiveFile = join(directory, 'archive.tar');
  let manifest: { Config: string; RepoTags: string[]; Layers: string[] }[];

  beforeAll(async () => {
    writeFileSync(archiveFile, archive);
    manifest = JSON.parse(await extract('manifest.json')) as typeof manifest;
  });

  afterAll(() => rmSync(directory, { recursive: true }));

  it('names every image, and shares an equal layer', () => {
    expect(manifest.map(({ RepoTags }) => RepoTags)).toEqual([['linger.test/x:1'], ['linger.test/y:1']]);
    expect(manifest[0]?.Layers).toEqual(manifest[1]?.Layers);
  });

  it('configures the command and the user, and names the layer by its digest', async () => {
    const configuration = await extract(manifest[0]?.Config ?? '');
    expect(`${sha256(Buffer.from(configuration))}.json`).toBe(manifest[0]?.Config);
    const { config, rootfs } = JSON.parse(configuration) as {
      config: object;
      rootfs: { diff_ids: string[] };
    };
    expect(config).toEqual({ Env: ['PATH=/bin'], Entrypoint: ['/bin/busybox'], User: '65532:65532' });
    expect(rootfs.diff_ids).toEqual([`sha256:${manifest[0]?.Layers[0]?.replace('.tar', '')}`]);
  });

  it('holds the files with their modes, each directory before its files', async () => {
    const layer = join(directory, 'layer.tar');
    await must(['sh', '-c', `tar -xOf ${archiveFile} ${manifest[0]?.Layers[0]} > ${layer}`]);
    const listing = await must(['tar', '--list', '--verbose', '--numeric-owner', '--utc', '--file', layer]);
    const lines = listing.trim().split('\n');
    expect(lines.map((line) => line.replace(/ +/g, ' '))).toEqual([
      'drwxr-xr-x 0/0 0 1970-01-01 00:00 bin',
      '-rwxr-xr-x 0/0 13 1970-01-01 00:00 bin/busybox',
      'lrwxrwxrwx 0/0 0 1970-01-01 00:00 bin/sh -> busybox',
      'drwxr-xr-x 0/0 0 1970-01-01 00:00 etc',
      'drwxr-xr-x 0/0 0 1970-01-01 00:00 etc/deep',
      'drwxr-xr-x 0/0 0 1970-01-01 00:00 etc/deep/er',
      '-rw------- 0/0 1025 1970-01-01 00:00 etc/deep/er/file',
    ]);
  });

  it('is the same bytes every time', () => {
    expect(sha256(imageArchive([image]))).toBe(sha256(imageArchive([image])));
  });
});
