import { crc32, deflateRawSync } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { readDropped } from '../../src/page/dropped.ts';
import { readZip, ZipError } from '../../src/page/zip.ts';

const BUDGET = { entries: 10, bytes: 1_000_000 };

/** An archive of these files, the first of which may be stored instead of deflated. */
function zipOf(files: Readonly<Record<string, Uint8Array>>, stored = false): Uint8Array<ArrayBuffer> {
  const locals: Buffer[] = [];
  const entries: Buffer[] = [];
  let at = 0;
  for (const [path, bytes] of Object.entries(files)) {
    const name = Buffer.from(path);
    const packed = stored ? bytes : deflateRawSync(bytes);
    const head = Buffer.alloc(26);
    head.writeUInt16LE(20, 0);
    head.writeUInt16LE(stored ? 0 : 8, 4);
    head.writeUInt32LE(crc32(bytes), 10);
    head.writeUInt32LE(packed.length, 14);
    head.writeUInt32LE(bytes.length, 18);
    head.writeUInt16LE(name.length, 22);
    const local = Buffer.concat([Buffer.from('PK\u0003\u0004'), head, name, packed]);
    const tail = Buffer.alloc(14);
    tail.writeUInt32LE(at, 10);
    entries.push(Buffer.concat([Buffer.from('PK\u0001\u0002'), Buffer.from([20, 0]), head, tail, name]));
    locals.push(local);
    at += local.length;
  }
  const directory = Buffer.concat(entries);
  const end = Buffer.alloc(18);
  end.writeUInt16LE(entries.length, 4);
  end.writeUInt16LE(entries.length, 6);
  end.writeUInt32LE(directory.length, 8);
  end.writeUInt32LE(at, 12);
  return new Uint8Array(Buffer.concat([...locals, directory, Buffer.from('PK\u0005\u0006'), end]));
}

const read = async (archive: Uint8Array<ArrayBuffer>, budget = BUDGET) => {
  const entries: [string, string][] = [];
  for (const { path, bytes } of readZip(archive, budget))
    entries.push([path, Buffer.from(await bytes()).toString()]);
  return Object.fromEntries(entries);
};
const text = (content: string) => Buffer.from(content);

describe('a zip archive', () => {
  it.each([true, false])('gives its files; stored: %s', async (stored) => {
    const archive = zipOf({ 'a/': text(''), 'a/b.yaml': text('kind: Pod\n'), 'c.yaml': text('') }, stored);
    expect(await read(archive)).toEqual({ 'a/b.yaml': 'kind: Pod\n', 'c.yaml': '' });
  });

  it('of more than the budget is refused, whatever it says of its sizes', async () => {
    const bomb = zipOf({ 'a.yaml': Buffer.alloc(5_000_000) });
    // Its own word on the inflated size, in the directory and before the data.
    for (let at = 0; at < bomb.length - 4; at += 1)
      if (new DataView(bomb.buffer).getUint32(at, true) === 5_000_000)
        new DataView(bomb.buffer).setUint32(at, 10, true);
    await expect(read(bomb)).rejects.toThrow(ZipError);
  });

  it('the budget is that of all files together', async () => {
    const files = { 'a.yaml': Buffer.alloc(600_000), 'b.yaml': Buffer.alloc(600_000) };
    await expect(read(zipOf(files))).rejects.toThrow('b.yaml');
  });

  it('of too many files is refused', async () => {
    const files = Object.fromEntries(Array.from({ length: 11 }, (_, each) => [`${each}.yaml`, text('a')]));
    await expect(read(zipOf(files))).rejects.toThrow('11 entries');
  });

  it('whatever is broken in it: an error of its own, or other content', async () => {
    const archive = zipOf({ 'a.yaml': text('kind: Pod\n'), 'b.yaml': text('b'.repeat(1_000)) });
    await fc.assert(
      fc.asyncProperty(
        fc.nat(archive.length - 1),
        fc.nat(255),
        fc.nat(archive.length),
        async (at, byte, cut) => {
          const broken = archive.slice(0, cut);
          broken[at] = byte;
          await read(broken).catch((thrown: unknown) => expect(thrown).toBeInstanceOf(ZipError));
        },
      ),
    );
  });
});

describe('dropped files', () => {
  const taken = async (files: Readonly<Record<string, string | Uint8Array<ArrayBuffer>>>) => {
    const dropped = Object.entries(files).map(([path, content]) => ({ path, file: new Blob([content]) }));
    const { texts, taken } = await readDropped(dropped);
    return { read: texts.map(({ name }) => name), taken };
  };

  it('each is read, or said to be something else', async () => {
    const files = {
      'shop/web.yaml': 'kind: Pod\n',
      'shop/logo.yaml': new Uint8Array([1, 0, 2, 0]),
      'shop/README.md': 'a',
      'shop/chart/Chart.yaml': 'name: a\n',
      'shop/chart/templates/web.yaml': '{{ .Values }}',
      'shop/chart/charts/inner/Chart.yaml': 'name: b\n',
      'shop/over/kustomization.yaml': 'resources: [../base, here.yaml]\npatches: [{path: patch.yaml}]\n',
      'shop/over/here.yaml': 'kind: Pod\n',
      'shop/over/patch.yaml': 'kind: Pod\n',
      'shop/base/kustomization.yaml': 'resources: [web.yaml]\n',
      'shop/base/web.yaml': 'kind: Pod\n',
    };
    const { read, taken: said } = await taken(files);
    expect(read).toEqual(['shop/base/web.yaml', 'shop/over/here.yaml', 'shop/web.yaml']);
    expect(said.map(({ path, as }) => `${path}: ${as}`).toSorted()).toEqual([
      expect.stringMatching(/^another file: not \*\.yaml/),
      expect.stringMatching(/^shop\/base\/kustomization\.yaml: .*kubectl kustomize shop\/base/),
      expect.stringMatching(/^shop\/chart: Helm chart.*helm template shop\/chart/),
      expect.stringMatching(/^shop\/logo\.yaml: not read: binary/),
      expect.stringMatching(/^shop\/over\/kustomization\.yaml: kustomization/),
      expect.stringMatching(/^shop\/over\/patch\.yaml: part of a kustomization/),
    ]);
  });

  it('Helm templates without their chart are one line for each chart, with the command that renders it', async () => {
    const files = {
      'web/templates/deployment.yaml': 'kind: Deployment\nmetadata:\n  name: {{ include "web.name" . }}\n',
      'web/templates/service.yaml': '{{- if .Values.service }}\nkind: Service\n{{- end }}\n',
      'web/templates/plain.yaml': 'kind: Pod\n',
      'loose.yaml': 'kind: Pod\nmetadata:\n  name: {{ .Release.Name }}\n',
      // What is rendered in a cluster is YAML.
      'injector.yaml': 'kind: ConfigMap\ndata:\n  template: |\n    {{ .Values.global }}\n',
      // No template: broken.
      'broken.yaml': 'a: [\n',
    };
    const { read, taken: said } = await taken(files);
    expect(read).toEqual(['broken.yaml', 'injector.yaml', 'web/templates/plain.yaml']);
    expect(said).toEqual([
      { path: 'loose.yaml', as: expect.stringContaining('(helm template CHART)') as string },
      { path: 'web: 2 files', as: expect.stringContaining('(helm template web)') as string },
    ]);
  });

  it('a zip is read as a folder is, and a broken one is said to be', async () => {
    const archive = zipOf({ 'a.yaml': text('kind: Pod\n') });
    expect(await taken({ 'x.zip': archive })).toEqual({ read: ['x.zip/a.yaml'], taken: [] });
    const { read, taken: said } = await taken({ 'x.zip': archive.slice(0, 20), 'b.yaml': 'a: b\n' });
    expect(read).toEqual(['b.yaml']);
    expect(said).toMatchObject([{ path: 'x.zip', as: expect.stringContaining('cut off') as string }]);
  });
});
