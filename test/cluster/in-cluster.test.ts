import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { inClusterConnection } from '../../src/cluster/connection.ts';
import { emptyDirectory } from '../cli/linger.ts';
import { bearer } from './bearer.ts';

async function serviceAccount(): Promise<string> {
  const directory = await emptyDirectory();
  const files = { token: 'old\n', 'ca.crt': 'CA', namespace: 'linger-system' };
  for (const [name, text] of Object.entries(files)) await writeFile(join(directory, name), text);
  return directory;
}

describe('in-cluster credentials', () => {
  it.each([
    ['10.96.0.1', 'https://10.96.0.1/'],
    ['fd00::1', 'https://[fd00::1]/'],
    ['kubernetes.default.svc', 'https://kubernetes.default.svc/'],
  ])('at %s', async (host, href) => {
    const connection = await inClusterConnection({ host, port: '443', directory: await serviceAccount() });
    expect(connection.server.href).toBe(href);
    expect(connection.namespace).toBe('linger-system');
  });

  it('are read again after a minute, or once they are refused: the kubelet renews the token', async () => {
    const directory = await serviceAccount();
    const { credentials, refused } = await inClusterConnection({ host: '10.96.0.1', port: '443', directory });
    expect(await credentials()).toMatchObject({ ca: Buffer.from('CA'), ...bearer('old') });
    await writeFile(join(directory, 'token'), 'new');
    vi.useFakeTimers({ now: Date.now() + 61_000, toFake: ['Date'] });
    onTestFinished(() => void vi.useRealTimers());
    expect(await credentials()).toMatchObject(bearer('new'));
    await writeFile(join(directory, 'token'), 'newest');
    refused?.(await credentials());
    expect(await credentials()).toMatchObject(bearer('newest'));
  });

  it.each([
    { name: 'no KUBERNETES_SERVICE_HOST', host: undefined, missing: [], message: /KUBERNETES_SERVICE_HOST/ },
    { name: 'no token', host: '10.96.0.1', missing: ['token'], message: /token cannot be read \(ENOENT\)/ },
    { name: 'no CA', host: '10.96.0.1', missing: ['ca.crt'], message: /ca\.crt cannot be read/ },
  ])('are refused with $name', async ({ host, missing, message }) => {
    const directory = await serviceAccount();
    for (const name of missing) await rm(join(directory, name));
    await expect(inClusterConnection({ host, port: '443', directory })).rejects.toMatchObject({
      code: 'NotInCluster',
      message: expect.stringMatching(message),
    });
  });
});
