import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { ModelCluster } from '../cluster/model-cluster.ts';
import { atEndOfFile } from '../webhook/connection.ts';
import { emptyDirectory, linger } from './linger.ts';

const atEnd = atEndOfFile();

const route = (name: string) =>
  JSON.stringify({
    apiVersion: 'route.openshift.io/v1',
    kind: 'Route',
    metadata: { name, namespace: 'shop' },
    spec: { to: { kind: 'Service', name: 'web' } },
  });
const discover = (stdin: string, ...args: readonly string[]) =>
  linger(['consumers', 'discover', '-f', '-', ...args], { stdin });

describe('linger consumers discover', () => {
  it('prints what was seen, why, and a document to apply', async () => {
    const { code, stdout } = await discover(route('web'));
    expect(code).toBe(0);
    expect(stdout).toMatch(/^# openshift-router: seen by Route shop\/web; it sends to shop\/web$/m);
    expect(stdout).toMatch(
      /^# nothing can be asked; the number is declared: https:\/\/github\.com\/openshift/m,
    );
    expect(parseAllDocuments(stdout).map((each) => each.toJS())).toMatchObject([
      { metadata: { name: 'openshift-router' }, spec: { mode: 'Observe' } },
    ]);
  });

  it('a name with a line break cannot leave its comment', async () => {
    const { stdout } = await discover(route('x\nkind: Secret\n---\n'));
    expect(parseAllDocuments(stdout).map((each) => each.toJS()?.kind)).toEqual(['DiscoveryConsumer']);
  });

  it('as JSON: what was found, and the document', async () => {
    const { stdout } = await discover(route('web'), '-o', 'json');
    expect(JSON.parse(stdout)).toMatchObject({
      consumers: [{ name: 'openshift-router', services: ['shop/web'], declaredBy: null }],
      unrecognised: [],
    });
  });

  it('says that nothing was found', async () => {
    const { code, stdout } = await discover('apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n');
    expect([code, stdout]).toEqual([0, '# nothing that the catalogue knows sends traffic to a Service\n']);
  });

  it('--apply says where the kind is not installed', async () => {
    const model = await ModelCluster.start(atEnd);
    const labels = { 'istio-injection': 'enabled' };
    model.put('namespaces', { kind: 'Namespace', apiVersion: 'v1', metadata: { name: 'shop', labels } });
    const file = join(await emptyDirectory(atEnd), 'config');
    await writeFile(file, model.kubeconfig);
    const args = ['consumers', 'discover', '--apply', '--kubeconfig', file];
    const { code, stdout, stderr } = await linger(args, { atEnd });
    expect([code, stdout, stderr]).toEqual([
      1,
      '',
      expect.stringMatching(/deploy\/crds\/ first \[not-found\]/),
    ]);
  });

  it('names a document that cannot be read, and fails', async () => {
    const { code, stdout, stderr } = await discover(`${route('web')}\n---\nkind: [\n`);
    expect([code, stderr]).toEqual([1, expect.stringMatching(/^linger: stdin:\d+/)]);
    expect(stdout).toContain('# openshift-router: seen by Route shop/web');
  });

  it.each<[string, string[]]>([
    ['--apply with manifests', ['consumers', 'discover', '-f', '-', '--apply']],
    ['--apply without discover', ['consumers', '--apply']],
    ['--apply with a form of output', ['consumers', 'discover', '--apply', '-o', 'json']],
    ['--fail-on, which would never find anything', ['consumers', 'discover', '-f', '-', '--fail-on', 'any']],
    ['--filename without discover', ['consumers', '-f', '-']],
  ])('refuses %s', async (_, args) => {
    expect((await linger(args, { stdin: '' })).code).toBe(2);
  });
});
