import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { inClusterConnection } from '../../src/kube/in-cluster.ts';
import { emptyDirectory } from '../commands/linger.ts';

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

  it('are read again each time: the kubelet renews the token', async () => {
    const directory = await serviceAccount();
    const { credentials } = await inClusterConnection({ host: '10.96.0.1', port: '443', directory });
    expect(await credentials()).toEqual({ ca: 'CA', token: 'old' });
    await writeFile(join(directory, 'token'), 'new');
    expect((await credentials()).token).toBe('new');
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
