import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import { readHelperObject } from '../../src/hold/helper-object.ts';
import { linger } from '../cli/linger.ts';
import { helperFile } from './helper.ts';

const FILES = {
  'hold-amd64': readFileSync(helperFile('amd64')),
  'hold-arm64': readFileSync(helperFile('arm64')),
};

describe('the ConfigMap of the helper', () => {
  const { digest, name, manifest } = readHelperObject();

  it('is named by its contents', () => {
    const hash = createHash('sha256');
    for (const [key, bytes] of Object.entries(FILES))
      hash.update(Buffer.concat([Buffer.from(`${key}\0`), bytes]));
    expect(digest).toBe(hash.digest('hex').slice(0, 16));
    expect(name).toBe(`linger-hold-${digest}`);
  });

  it('is immutable, and holds the files to the byte', () => {
    const { immutable, binaryData, metadata } = manifest('shop') as {
      immutable: boolean;
      binaryData: Record<string, string>;
      metadata: object;
    };
    expect(immutable).toBe(true);
    expect(metadata).toMatchObject({ name, namespace: 'shop' });
    const files = Object.entries(binaryData).map(
      ([key, text]) => [key, Buffer.from(text, 'base64')] as const,
    );
    expect(Object.fromEntries(files)).toEqual(FILES);
  });
});

describe.concurrent('linger hold manifest', () => {
  const { manifest } = readHelperObject();
  const printed = async (...args: string[]) => {
    const { code, stdout, stderr } = await linger(['hold', ...args]);
    return { code, stdout, stderr };
  };

  it('prints it without a namespace', async () => {
    const { code, stdout } = await printed('manifest');
    expect(code).toBe(0);
    expect(parse(stdout)).toEqual(manifest());
  });

  it('prints it once for each namespace', async () => {
    const { stdout } = await printed('manifest', '-n', 'shop,pay');
    expect(parseAllDocuments(stdout).map((each) => each.toJS())).toEqual([manifest('shop'), manifest('pay')]);
  });

  it('prints JSON', async () => {
    const one = await printed('manifest', '-n', 'shop', '-o', 'json');
    expect(JSON.parse(one.stdout)).toEqual(manifest('shop'));
    const two = await printed('manifest', '-n', 'shop,pay', '-o', 'json');
    expect(JSON.parse(two.stdout)).toEqual({
      apiVersion: 'v1',
      kind: 'List',
      items: [manifest('shop'), manifest('pay')],
    });
  });

  it.each([[['manifests']], [['manifest', 'shop']], [['constructor']]])('refuses %j', async (args) => {
    const { code, stdout, stderr } = await printed(...args);
    expect([code, stdout]).toEqual([2, '']);
    expect(stderr).toMatch(/argument|hold: expected .*manifest.*, got ".*" \[settings-invalid\]\n$/);
  });
});
